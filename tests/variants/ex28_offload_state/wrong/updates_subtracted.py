# expect: same_results
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
    state = {}
    for name, param in params.items():
        host = param.sharding.with_memory_kind("pinned_host")
        whole = jax.NamedSharding(param.sharding.mesh, jax.P(), memory_kind="pinned_host")
        made = adam.init(param)
        state[name] = jax.tree.map(lambda x: jax.device_put(x, host if x.ndim else whole), made)
    return state


@jax.jit(donate_argnums=(0, 1))
def step(params, state, batch):
    """One step of Adam. Return (params, state, loss).

    The state comes from host memory and goes back there; the rest is in device memory.
    """
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    new_params, new_state = {}, {}
    after = loss
    for name, grad in grads.items():
        old, _ = jax.lax.optimization_barrier((state[name], after))
        old = jax.device_put(old, jax.memory.Space.Device)
        update, new = adam.update(grad, old)
        new_params[name] = params[name] - update
        new_state[name] = jax.device_put(new, jax.memory.Space.Host)
        after = new_params[name]
    return new_params, new_state, loss
