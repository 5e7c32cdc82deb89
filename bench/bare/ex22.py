"""A hand-written test of ex22, with no grader: place, take one step, assert."""

import runpy
import sys

import jax
import numpy as np

WIDTH, ROWS, DEVICES = 24, 32, 8

jax.config.update("jax_num_cpu_devices", DEVICES)
solution = runpy.run_path(sys.argv[1])
rng = np.random.default_rng()
shapes = {"w1": (16, WIDTH), "b1": (WIDTH,), "w2": (WIDTH, 4)}
params = {n: rng.normal(size=s).astype(np.float32) / 8 for n, s in shapes.items()}
inputs, targets = (rng.normal(size=(ROWS, n)).astype(np.float32) for n in (16, 4))

hidden = np.tanh(inputs @ params["w1"] + params["b1"])
error = hidden @ params["w2"] - targets
back = 2 * error / error.size @ params["w2"].T * (1 - hidden**2)
grads = {"w1": inputs.T @ back, "b1": back.sum(0), "w2": hidden.T @ (2 * error / error.size)}

mesh = jax.make_mesh((DEVICES,), ("data",))
placed, batch = solution["place"](mesh, params, (inputs, targets))
new, loss = solution["make_step"](mesh)(placed, batch)

assert all(leaf.sharding.spec == jax.P("data") for leaf in batch)
assert all(leaf.sharding.is_fully_replicated for leaf in (*placed.values(), *new.values()))
np.testing.assert_allclose(loss, np.mean(error**2), rtol=1e-3)
for name, moved in new.items():
    np.testing.assert_allclose(moved, params[name] - 0.1 * grads[name], rtol=1e-3, atol=1e-4)
