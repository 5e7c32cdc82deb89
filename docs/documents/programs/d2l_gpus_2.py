"""Make an array on a device, with no copy from another: a guard watches."""

import jax
import jax.numpy as jnp

there = jax.devices()[-1]
key = jax.device_put(jax.random.key(0), there)  # a key is small, and what it makes follows it

with jax.transfer_guard_device_to_device("disallow_explicit"):
    with jax.default_device(there):
        ones = jnp.ones((2, 3))
    uniform = jax.random.uniform(key, (2, 3))
print("ones on", *ones.devices(), " uniform on", *uniform.devices())
assert ones.devices() == uniform.devices() == {there}

if there != jax.devices()[0]:
    try:
        with jax.transfer_guard_device_to_device("disallow_explicit"):
            jnp.ones((2, 3), device=there)
        copied = False
    except jax.errors.JaxRuntimeError:
        copied = True
    print("jnp.ones(device=...) copies:", copied)
    assert copied
