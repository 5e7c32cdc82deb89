# expect: runs
"""ex17: stop a loop whose live memory grows.

`grader check ex17` judges `train`; `grader hint ex17` helps.
"""

import jax
import jax.numpy as jnp


def train(step, params, batches):
    """Run `step` once for each batch, however many there are.

    `step(params, batch)` returns (new params, report). report["loss"] is the loss of the
    params it was given, report["errors"] (n,) the error of each row, all on the device.
    `batches` is an iterator. Its arrays and `params` belong to the caller, and stay usable.
    Return (best, history): the params with the lowest loss, and for each batch
    {"loss": float, "worst": float}, where worst is the largest error.
    """
    best, lowest, history = params, float("inf"), []
    for batch in batches:
        new, report = step(params, batch)
        loss, worst = float(report["loss"]), float(report["errors"].max())
        history.append({"loss": loss, "worst": worst})
        if loss < lowest:
            best, lowest = params, loss
        params = new
    batches.close()  # frees what the iterator holds
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
