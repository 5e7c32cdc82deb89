"""A hundred small operations: with a round trip to the host for each, or where the data is."""

import jax
import jax.numpy as jnp
import numpy as np

ROUNDS = 100
there = jax.devices()[-1]
start = jax.device_put(np.linspace(0, 1, 10_000, dtype=np.float32), there)
double = jax.jit(lambda x: jnp.sin(x) * 2)
copied = {"to the host": 0, "to the device": 0}


def read(x):
    copied["to the host"] += x.nbytes
    return np.array(x)  # and so waited for


def put(x):
    copied["to the device"] += x.nbytes
    return jax.device_put(x, there)


def back_and_forth(x):
    for _ in range(ROUNDS):
        x = put(read(double(x)))
    return x


def stays(x):
    for _ in range(ROUNDS):
        x = double(x)
    return x


far = back_and_forth(start)
for way, nbytes in copied.items():
    print(f"back and forth: {nbytes:,} bytes {way}")
with jax.transfer_guard("disallow_explicit"):  # refuses every copy, asked for or not
    near = stays(start)
print("stays: no copy, says the strictest guard; the same numbers:", bool((near == far).all()))
np.testing.assert_array_equal(near, far)
assert set(copied.values()) == {ROUNDS * start.nbytes}
