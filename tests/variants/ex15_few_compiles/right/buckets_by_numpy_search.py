"""ex15: serve batches of any size with few compiles.

`grader check ex15` judges `predict_all`; `grader hint ex15` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


SIZES = (16, 32, 64, 128, 256)


def serve(model, params, rows, size):
    """Predictions of one batch; `size` is a NumPy integer."""
    padded = np.empty((size, 16), np.float32)
    padded[: len(rows)], padded[len(rows) :] = rows, rows[:1]
    mask = np.concatenate([np.ones(len(rows), bool), np.zeros(size - len(rows), bool)])
    return np.asarray(jax.block_until_ready(model(params, padded, mask)))[mask]


def predict_all(model, params, batches):
    """The model's predictions for each batch: a list of NumPy arrays, (n,) for n rows.

    `batches` is a list of NumPy arrays (n, 16), 1 <= n <= 256; n may be different in each.
    `model(params, rows, mask)` counts its rows, and calls the jitted `network` below: call
    `model`, a plain function, rather than `network`.
    The whole process may compile 5 programs, however many sizes come in however many
    calls. And it may not waste work: of b batches with n rows in all, the model computes
    at most 2 n + 16 b rows.
    """
    sizes = np.asarray(SIZES)
    return [serve(model, params, rows, sizes[np.searchsorted(sizes, len(rows))]) for rows in batches]


@jax.jit
def network(params, rows, mask):
    """Predictions (n,) for rows (n, 16).

    Every row is seen relative to the mean of its batch. `mask` (n,) is 1 for a row of
    the batch, and 0 for a row that is to have no part in it.
    """
    mean = jnp.sum(rows * mask[:, None], axis=0) / jnp.sum(mask)
    return jnp.tanh((rows - mean) @ params["w1"]) @ params["w2"]
