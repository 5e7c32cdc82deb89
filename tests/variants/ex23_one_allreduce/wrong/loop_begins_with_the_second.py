# expect: same_numbers
"""ex23: send the gradient once.

`grader check ex23` judges `make_step`; `grader hint ex23` helps.
"""

import jax
import jax.numpy as jnp


def loss_fn(params, inputs, targets):
    """The mean squared error over rows: inputs (rows, 24), targets (rows, 8)."""
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - targets) ** 2)


def make_step(mesh):
    """Return step(params, inputs, targets) -> (params, losses)."""

    def step(params, inputs, targets):
        n = inputs.shape[0]
        zeros = jax.tree.map(jnp.zeros_like, params)

        def body(i, state):
            total, loss_sum = state
            loss, grads = jax.value_and_grad(loss_fn)(params, inputs[i], targets[i])
            return jax.tree.map(jnp.add, total, grads), loss_sum + loss

        total, loss_sum = jax.lax.fori_loop(1, n, body, (zeros, 0.0))
        grads = jax.lax.pmean(total, "data")
        return jax.tree.map(lambda p, g: p - 0.1 * g / n, params, grads), (loss_sum / n)[None]

    rows = jax.P(None, "data")
    specs = {"in_specs": (jax.P(), rows, rows), "out_specs": (jax.P(), jax.P("data"))}
    # check_vma=False: shard_map adds no sum of its own.
    return jax.jit(jax.shard_map(step, mesh=mesh, check_vma=False, **specs))
