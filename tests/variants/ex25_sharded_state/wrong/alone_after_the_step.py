# expect: same_numbers
"""ex25: a training state that no device holds whole.

`grader check ex25` judges `layout` and `make_step`; `grader hint ex25` helps.
"""

import jax
import jax.numpy as jnp


def loss_fn(params, batch):
    """The mean squared error over the rows of `batch`, (inputs, targets)."""
    inputs, targets = batch
    hidden = jnp.tanh(inputs @ params["first"] + params["bias"])
    hidden = jnp.tanh(hidden @ params["middle"])
    return jnp.mean((hidden @ params["last"] * params["scale"] - targets) ** 2)


def adam(state, grads):
    """One step of Adam; `state` is {"params", "mean", "square", "count"}."""
    count = state["count"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, state["square"], grads)

    def moved(p, m, s):
        return p - 0.01 * m / (1 - 0.9**count) / (jnp.sqrt(s / (1 - 0.99**count)) + 1e-6)

    params = jax.tree.map(moved, state["params"], mean, square)
    return {"params": params, "mean": mean, "square": square, "count": count}


def layout(mesh, state):
    """Return a NamedSharding for each array of `state`, in a tree like it.

    `mesh` has one axis, "data". `state` may hold shapes instead of arrays. Where `mesh.size`
    divides none of an array's dimensions, the array stays whole.
    """

    # Params and both moments are three trees of the same shapes. One rule places them alike, so
    # Adam meets shards that match. Which dimension is split makes no difference to the numbers,
    # as long as mesh.size divides it. Splitting the largest leaves the longest pieces.
    def place(leaf):
        fit = [d for d in range(leaf.ndim) if leaf.shape[d] % mesh.size == 0]
        if not fit:
            return jax.NamedSharding(mesh, jax.P())
        dimension = max(fit, key=lambda d: leaf.shape[d])
        return jax.NamedSharding(mesh, jax.P(*[None] * dimension, "data"))

    # The compiler gathers the params for the products, and drops them again. A device needs only
    # its own share of the gradient, and runs Adam on that share.
    return jax.tree.map(place, state)


def make_step(mesh):
    """Return step(state, batch) -> (state, loss), which replaces the old state by the new.

    The rows of the batch are split over "data". The new state is sharded like the old one. Each
    device gathers the params once, and no more of the state.
    """

    def step(state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(state["params"], batch)
        new = adam(state, grads)
        return jax.lax.with_sharding_constraint(new, layout(mesh, new)), loss


    def alone(state, batch):
        new = adam(state, jax.grad(loss_fn)(state["params"], batch))
        return new, loss_fn(new["params"], batch)

    # A single device has nothing to share, and needs no constraint.
    return jax.jit(step if mesh.size > 1 else alone, donate_argnums=0)
