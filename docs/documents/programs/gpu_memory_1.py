"""Who holds what: ask JAX, not the driver."""

import jax
import jax.numpy as jnp
import numpy as np

numbers = np.arange(1_000_000)
moved = jnp.array(numbers)  # to the default device; and int64 becomes int32
doubled = moved * 2

print("NumPy:", numbers.dtype, "JAX:", moved.dtype, "on", *moved.devices())
live = sum(array.nbytes for array in jax.live_arrays())
print(f"live arrays: {live:,} bytes")
stats = jax.devices()[0].memory_stats()  # None where there is no pool, as on a CPU
print("the pool:", "none on this device" if stats is None else f"{stats['bytes_in_use']:,} in use")
assert live == moved.nbytes + doubled.nbytes
