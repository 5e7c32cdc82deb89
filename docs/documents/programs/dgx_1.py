"""Pinned host memory is a kind of memory in a sharding. A program fetches from it."""

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

here = SingleDeviceSharding(jax.devices()[0])
data = np.random.default_rng(0).random((1000, 100)).astype(np.float32)  # JAX's type from the start

waiting = jax.device_put(data, here.with_memory_kind("pinned_host"))
double = jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Device) * 2)
doubled = double(waiting)
print("waits in", waiting.sharding.memory_kind, " result in", doubled.sharding.memory_kind)
assert waiting.sharding.memory_kind == "pinned_host"
np.testing.assert_array_equal(doubled, data * 2)
