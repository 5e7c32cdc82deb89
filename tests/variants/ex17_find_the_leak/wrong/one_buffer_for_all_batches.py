# expect: runs
"""ex17: stop a loop whose live memory grows.

`grader check ex17` judges `train`; `grader hint ex17` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


def train(step, params, batches):
    """Run `step` once for each batch, however many there are.

    `step(params, batch)` returns (new params, report). report["loss"] is the loss of the
    params it was given, report["errors"] (n,) the error of each row, all on the device.
    `batches` is an iterator. Its arrays and `params` belong to the caller, and stay usable.
    Return (best, history): the params with the lowest loss, and for each batch
    {"loss": float, "worst": float}, where worst is the largest error.
    """
    best, lowest, history, errors = params, float("inf"), [], None
    for batch in batches:
        new, report = step(params, batch)
        found = report["errors"]
        if errors is None:
            errors = np.empty(len(found), np.float32)  # once: the host allocates nothing in a step
        errors[: len(found)] = found
        loss, worst = float(report["loss"]), float(errors.max())
        history.append({"loss": loss, "worst": worst})
        if loss < lowest:
            best, lowest = params, loss
        params = new
    return best, history


@jax.jit
def sgd_step(params, batch):
    """One step of gradient descent on a two-layer network."""
    inputs, targets = batch

    def loss_of(params):
        hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
        errors = (hidden @ params["w2"] - targets) ** 2
        return jnp.mean(errors), errors

    (loss, errors), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    new = jax.tree.map(lambda p, g: p - 0.05 * g, params, grads)
    return new, {"loss": loss, "errors": errors}
