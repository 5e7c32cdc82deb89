"""A Haiku model with no placement call: it is where JAX's default backend is."""

import haiku as hk
import jax
import jax.numpy as jnp


def network(x):
    return hk.Sequential([hk.Linear(64), jax.nn.relu, hk.Linear(10)])(x)


model = hk.without_apply_rng(hk.transform(network))  # a pair: init and apply
inputs, targets = jnp.ones((32, 32)), jnp.ones((32, 10))
params = model.init(jax.random.key(0), inputs)


@jax.jit
def loss_and_gradients(params, inputs, targets):
    return jax.value_and_grad(lambda p: jnp.mean((model.apply(p, inputs) - targets) ** 2))(params)


loss, gradients = loss_and_gradients(params, inputs, targets)
everything = jax.tree.leaves((params, inputs, targets, loss, gradients))
platforms = {device.platform for array in everything for device in array.devices()}
print("default backend:", jax.default_backend())
print("all arrays are on:", *platforms)
assert platforms == {jax.default_backend()}
