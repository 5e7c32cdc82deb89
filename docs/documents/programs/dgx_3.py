"""The mean of a thousand arrays in constant memory: one loop in one program."""

import jax
import jax.numpy as jnp

x = jnp.ones((64, 64))

pieces = [x + i for i in range(1000)]  # what a list holds, lives
held = sum(piece.nbytes for piece in pieces)
mean_of_list = float(jnp.mean(jnp.stack(pieces)))


@jax.jit
def running(x):
    total = jax.lax.fori_loop(0, 1000, lambda i, total: total + (x + i), jnp.zeros_like(x))
    return jnp.mean(total / 1000)  # divided: a mean, not a sum


extra = running.lower(x).compile().memory_analysis().temp_size_in_bytes
print(f"a list: {mean_of_list:.1f}, {held:,} bytes")
print(f"a loop: {float(running(x)):.1f}, {extra:,} bytes besides x")
assert abs(mean_of_list - float(running(x))) < 1e-2
assert extra < held / 100
