"""A hand-written test of ex26, with no grader: stage, bring back, predict, assert."""

import runpy
import sys

import jax
import numpy as np

WIDTH, ROWS, DEVICES = 40, 24, 2

jax.config.update("jax_num_cpu_devices", DEVICES)
solution = runpy.run_path(sys.argv[1])
rng = np.random.default_rng()
shapes = {"w1": (16, WIDTH), "b1": (WIDTH,), "w2": (WIDTH, 4)}
values = {n: rng.normal(size=s).astype(np.float32) / 8 for n, s in shapes.items()}
inputs = rng.normal(size=(ROWS, 16)).astype(np.float32)
expected = np.tanh(inputs @ values["w1"] + values["b1"]) @ values["w2"]

mesh = jax.make_mesh((DEVICES,), ("devices",))
sharded = jax.NamedSharding(mesh, jax.P("devices"))
tree = jax.device_put({**values, "inputs": inputs}, {**dict.fromkeys(values), "inputs": sharded})
host = solution["to_host"](tree)
back = solution["to_device"](host)
params = {name: host[name] for name in values}
outputs = solution["predict"](params, jax.device_put(inputs))

for name, leaf in host.items():
    assert leaf.sharding == tree[name].sharding.with_memory_kind("pinned_host")
    assert back[name].sharding.device_set == tree[name].sharding.device_set
    assert back[name].sharding.memory_kind == "device"
    np.testing.assert_array_equal(back[name], tree[name])
assert outputs.sharding.memory_kind == "device"
np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-4)
