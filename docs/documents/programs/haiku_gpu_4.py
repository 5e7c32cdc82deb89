"""Prepare the data: send pixels as the bytes that they are, and widen them in the step."""

import jax
import jax.numpy as jnp
import numpy as np

pixels = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), np.uint8)
weights = jax.device_put(np.full((32 * 32 * 3,), 1e-3, np.float32))


@jax.jit
def score(weights, images):
    wide = images.reshape(len(images), -1).astype(jnp.float32) / 255  # on the device
    return jnp.mean(wide @ weights)


def widened_on_the_host(pixels):
    return pixels.astype(np.float32)


batches = {"float32 from the host": widened_on_the_host(pixels), "uint8": pixels}
sent, scores = {}, {}
for name, batch in batches.items():
    placed = jax.device_put(batch)
    scores[name] = float(score(weights, placed))
    sent[name] = placed.nbytes
    print(f"{name:22} {sent[name]:8,} bytes sent and held, score {scores[name]:.6f}")
large, small = sent.values()
assert large == 4 * small
np.testing.assert_allclose(*scores.values(), rtol=1e-5)
