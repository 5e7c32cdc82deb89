# expect: same_results
"""ex28: keep the optimizer's state in host memory.

`grader check ex28` judges `init` and `step`; `grader hint ex28` helps.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

adam = optax.adam(1e-3)


def loss_fn(params, batch):
    """The mean squared error of a network of square layers."""
    hidden, targets = batch
    for name in sorted(params):
        hidden = jnp.tanh(hidden @ params[name])
    return jnp.mean((hidden - targets) ** 2)


def init(params):
    """Adam's state for each param: {name: state}, all of it in pinned host memory.

    `params` {name: array} are split over a mesh of devices. Adam's two averages are
    sharded like their param; its count is on every device of the mesh.
    """
    def stage(param, leaf):
        spec = param.sharding.spec if leaf.ndim > 0 else jax.P()
        sharding = jax.NamedSharding(param.sharding.mesh, spec, memory_kind="pinned_host")
        return jax.device_put(leaf, sharding)

    state = {}
    for name, param in params.items():
        state[name] = jax.tree.map(partial(stage, param), adam.init(param))
    return state


@jax.jit(donate_argnums=(0, 1))
def step(params, state, batch):
    """One step of Adam. Return (params, state, loss).

    The state comes from host memory and goes back there; the rest is in device memory.
    """
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    new_params, new_state = {}, {}
    before = loss
    for name, grad in grads.items():
        grad, waiting, before = jax.lax.optimization_barrier((grad, state[name], before))
        moments = jax.device_put(waiting, jax.memory.Space.Device)
        update, moments = adam.update(grad, moments)
        before = moments
        new_params[name] = params[name] + update
    new_state[name] = jax.device_put(moments, jax.memory.Space.Host)
    return new_params, new_state, loss
