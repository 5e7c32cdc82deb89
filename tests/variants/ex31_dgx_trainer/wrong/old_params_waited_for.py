# expect: runs
"""ex31: a trainer for eight GPUs.

`grader check ex31` judges each part by itself; `grader hint ex31` helps.
"""

import jax
import jax.numpy as jnp
import optax

adam = optax.adam(1e-3)


def loss_fn(params, batch):
    """The mean squared error of residual blocks: "up" is (d, 4 d), "down" is (4 d, d)."""
    hidden, targets = batch
    for block in params.values():
        hidden = hidden + jax.nn.gelu(hidden @ block["up"]) @ block["down"]
    return jnp.mean((hidden - targets) ** 2)


def place(mesh, params):
    """Place NumPy `params` and make Adam's state; return (params, {block: state})."""
    # "up" makes the 4 d, so its columns are split; "down" sums over them, so its rows are. Each
    # device then has its own part of the 4 d, from the first product to the second, and only
    # the sum that "down" ends with has to be exchanged.
    specs = {"up": jax.P(None, "model"), "down": jax.P("model", None)}
    split = {kind: jax.NamedSharding(mesh, spec) for kind, spec in specs.items()}
    params = jax.device_put(params, dict.fromkeys(params, split))
    whole = jax.NamedSharding(mesh, jax.P())

    def on_host(array, like):
        return jax.device_put(array, like.with_memory_kind("pinned_host"))

    def state_of(block):
        # The averages are sharded like their param, in another memory. The count has no param.
        count, mu, nu = adam.init(block)[0]
        averages = (jax.tree.map(on_host, tree, split) for tree in (mu, nu))
        return optax.ScaleByAdamState(on_host(count, whole), *averages), optax.EmptyState()

    return params, {name: state_of(block) for name, block in params.items()}


def place_batch(mesh, batch):
    """Place a NumPy `batch`, (inputs, targets) of shape (rows, d)."""
    # Axis "model" is not named: the devices along it get the same rows.
    return jax.device_put(batch, jax.NamedSharding(mesh, jax.P("data")))


def make_step(mesh):
    """Return step(params, state, batch) -> (params, state, loss), made by jax.jit."""

    def step(params, state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        new_params, new_state, before = {}, {}, loss
        for name, grad in grads.items():
            # The barrier lets the state of a block set out only when its gradient is there and
            # the state before it has gone back: never more than one is on the device.
            grad, waiting, before = jax.lax.optimization_barrier((grad, state[name], before))
            moments = jax.device_put(waiting, jax.memory.Space.Device)
            updates, moments = adam.update(grad, moments)
            new_params[name] = optax.apply_updates(params[name], updates)
            new_state[name] = before = jax.device_put(moments, jax.memory.Space.Host)
        return new_params, new_state, loss

    # The results are split as the arguments are: nothing is gathered, and each new array can
    # be written over the old one, in either memory.
    return jax.jit(step, donate_argnums=(0, 1))


def train(step, params, state, batches, put, stop):
    """Train on an iterator of NumPy batches, placed by `put`; return (params, state, losses).

    `stop(loss)` judges each loss, a float, before the next step; True ends. Put at most 4 batches
    ahead, and keep none once the next step is called."""
    losses, batches = [], iter(batches)
    following = next(batches, None)
    placed = None if following is None else put(following)
    while placed is not None:
        old = params, state
        params, state, loss = step(params, state, placed)
        # The step runs. The next batch is read and sets out before the wait for the loss.
        following = next(batches, None)
        placed = None if following is None else put(following)
        losses.append(float(loss))
        # What the step was given is free from here on.
        jax.tree.map(lambda array: array.block_until_ready(), old)
        if stop(losses[-1]):
            break
    return params, state, losses
