"""The same model on a GPU if there is one, and a clear word if there is none."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np


def network(x):
    return hk.Sequential([hk.Linear(64), jax.nn.relu, hk.Linear(10)])(x)


try:
    device = jax.devices("gpu")[0]  # by platform: devices()[0] may be a CPU
except RuntimeError as error:
    if "Unknown backend" not in str(error):
        raise  # not "no GPU": something failed
    print("no GPU:", error)
    device = jax.devices()[0]

model = hk.without_apply_rng(hk.transform(network))
inputs, targets = np.ones((32, 32), np.float32), np.ones((32, 10), np.float32)
params = model.init(jax.random.key(0), inputs)

# One call for whole trees. What it returns is committed: computations follow it.
params, inputs, targets = jax.device_put((params, inputs, targets), device)
loss = jax.jit(lambda p, x, y: jnp.mean((model.apply(p, x) - y) ** 2))(params, inputs, targets)
print("loss", round(float(loss), 4), "on", *loss.devices(), "committed:", loss.committed)
assert loss.devices() == {device}
assert loss.committed
