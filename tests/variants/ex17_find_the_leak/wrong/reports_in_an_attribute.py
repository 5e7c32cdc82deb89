# expect: live_bytes_flat
"""ex17: stop a loop whose live memory grows.

`grader check ex17` judges `train`; `grader hint ex17` helps.
"""

import jax
import jax.numpy as jnp


class Book:
    def __init__(self):
        self.reports = []
        self.best = None

    def note(self, params, report):
        self.reports.append(report)
        loss = float(report["loss"])
        if self.best is None or loss < self.best[0]:
            self.best = (loss, params)

    def history(self):
        return [{"loss": float(r["loss"]), "worst": float(r["errors"].max())} for r in self.reports]



def train(step, params, batches):
    book = Book()
    for batch in batches:
        new, report = step(params, batch)
        book.note(params, report)
        params = new
    return book.best[1], book.history()


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
