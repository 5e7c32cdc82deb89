"""A model is a tree of arrays. One call places it; computations follow it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

device = jax.devices()[-1]
net = nn.Sequential([nn.Dense(1)])
params = jax.device_put(net.init(jax.random.key(0), jnp.ones(10)), device)
batch = np.ones((4, 10), np.float32)  # NumPy is fine: it is copied at the call

predictions = jax.jit(net.apply)(params, batch)
print(jax.tree.map(lambda leaf: str(leaf.device), params))
print("predictions", predictions.shape, "on", *predictions.devices())
assert predictions.devices() == {device}
