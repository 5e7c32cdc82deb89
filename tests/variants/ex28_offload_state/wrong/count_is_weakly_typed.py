# expect: starts_on_the_host
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

    def state_of(param):
        place = param.sharding.with_memory_kind("pinned_host")
        everywhere = jax.NamedSharding(place.mesh, jax.P(), memory_kind="pinned_host")
        fresh, *rest = adam.init(param)
        fresh = fresh._replace(
            count=jax.device_put(0, everywhere),
            mu=jax.device_put(fresh.mu, place),
            nu=jax.device_put(fresh.nu, place),
        )
        return (fresh, *rest)

    return {name: state_of(param) for name, param in params.items()}


@jax.jit(donate_argnums=(0, 1))
def step(params, state, batch):
    """One step of Adam. Return (params, state, loss).

    The state comes from host memory and goes back there; the rest is in device memory.
    """
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    new_params, new_state, before = {}, {}, loss
    for name, grad in grads.items():
        # The compiler starts every copy as early as it can: all state would be on the device
        # while the gradients are computed. The barrier lets the state of one param set out
        # only when its gradient is there, and when the state before it has gone back.
        grad, waiting, before = jax.lax.optimization_barrier((grad, state[name], before))
        moments = jax.device_put(waiting, jax.memory.Space.Device)
        update, moments = adam.update(grad, moments)
        new_params[name] = params[name] + update
        # A result stays in the memory where it was computed, unless the program moves it.
        new_state[name] = before = jax.device_put(moments, jax.memory.Space.Host)
    return new_params, new_state, loss
