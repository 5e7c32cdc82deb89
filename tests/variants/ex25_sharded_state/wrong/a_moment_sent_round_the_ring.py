# expect: moments_stay
"""ex25: a training state that no device holds whole.

`grader check ex25` judges `layout` and `make_step`; `grader hint ex25` helps.
"""

import functools

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

    `mesh` has one axis, "data". `state` may be mere shapes. An array none of whose dimensions
    can be divided by `mesh.size` stays whole.
    """

    def place(leaf):
        fit = [d for d in range(leaf.ndim) if leaf.shape[d] % mesh.size == 0]
        if not fit:
            return jax.NamedSharding(mesh, jax.P())
        dimension = max(fit, key=lambda d: leaf.shape[d])
        return jax.NamedSharding(mesh, jax.P(*[None] * dimension, "data"))

    return jax.tree.map(place, state)


def make_step(mesh):
    """Return step(state, batch) -> (state, loss), which replaces the old state by the new.

    The rows of the batch are split over "data". The new state lies as the old one did.
    """

    def gather(piece, place):
        spec = tuple(place.spec)
        if "data" not in spec:
            return piece
        return jax.lax.all_gather(piece, "data", axis=spec.index("data"), tiled=True)

    def part(places, state, batch):
        def loss_of(params):
            whole = jax.tree.map(gather, params, places["params"])
            return jax.lax.pmean(loss_fn(whole, batch), "data")

        # Backward, an all_gather is a reduce-scatter: each device gets its share of the sum.
        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        new = adam(state, grads)
        piece = largest = new["mean"]["bias"]
        around = [(n, (n + 1) % mesh.size) for n in range(mesh.size)]
        for _ in range(mesh.size - 1):
            piece = jax.lax.ppermute(piece, "data", around)
            largest = jnp.maximum(largest, piece)
        loss = jnp.where(jax.lax.pmax(jnp.max(largest), "data") < 1e9, loss, jnp.inf)
        return new, loss

    def step(state, batch):
        places = layout(mesh, state)
        specs = jax.tree.map(lambda place: place.spec, places)
        local = functools.partial(part, places)
        rows = jax.P("data")
        shard_map = functools.partial(jax.shard_map, mesh=mesh, in_specs=(specs, rows))
        return shard_map(local, out_specs=(specs, jax.P()))(state, batch)

    return jax.jit(step, donate_argnums=0)
