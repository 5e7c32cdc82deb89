"""Two devices: bring one array over once, then compute there."""

import jax
import jax.numpy as jnp

first, last = jax.devices()[0], jax.devices()[-1]
x = jax.device_put(jnp.ones((2, 3)), first)
y = jax.device_put(jnp.full((2, 3), 2.0), last)

z = jax.device_put(x, last)  # the copy, at the boundary
again = jax.device_put(z, last)  # already there: another object, the same buffer, no copy
print("y + z on", *(y + z).devices())
print(
    "same object:",
    again is z,
    " same buffer:",
    again.unsafe_buffer_pointer() == z.unsafe_buffer_pointer(),
)
assert (y + z).devices() == {last}
assert again.unsafe_buffer_pointer() == z.unsafe_buffer_pointer()
