"""Place once, and forbid every transfer that nobody asked for."""

import jax
import numpy as np

numbers = np.arange(100_000, dtype=np.int32)
double = jax.jit(lambda x: x * 2)
there = jax.device_put(numbers, jax.devices()[0])  # committed to this device

with jax.transfer_guard("disallow"):
    doubled = double(there)  # nothing moves
    try:
        double(numbers)  # a NumPy argument is copied at every call
        refused = ""
    except jax.errors.JaxRuntimeError as error:
        refused = str(error).partition(": aval")[0]
print("device data: runs on", *doubled.devices())
print("NumPy data:", refused)
assert "Disallowed host-to-device transfer" in refused
