# expect: same_predictions
"""ex15: serve batches of any size with few compiles."""

import jax
import jax.numpy as jnp
import numpy as np


def predict_all(model, params, batches):
    """The model's predictions for each batch: a list of NumPy arrays, (n,) for n rows."""
    predictions = []
    for rows in batches:
        size = max(16, 1 << (len(rows) - 1).bit_length())
        padded = np.zeros((size, rows.shape[1]), rows.dtype)
        padded[: len(rows)] = rows
        mask = padded.any(axis=1).astype(np.float32)
        predictions.append(np.asarray(model(params, padded, mask))[: len(rows)])
    return predictions


@jax.jit
def network(params, rows, mask):
    """Predictions (n,) for rows (n, 16).

    Every row is seen relative to the mean of its batch. `mask` (n,) is 1 for a row of
    the batch, and 0 for a row that is to have no part in it.
    """
    mean = jnp.sum(rows * mask[:, None], axis=0) / jnp.sum(mask)
    return jnp.tanh((rows - mean) @ params["w1"]) @ params["w2"]
