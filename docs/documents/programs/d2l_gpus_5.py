"""A training loop: the state goes in, is given up, and comes out new."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

net, optimizer = nn.Dense(1), optax.adam(0.05)
params = net.init(jax.random.key(0), jnp.ones((1, 10)))
state = jax.device_put((params, optimizer.init(params)), jax.devices()[0])


def step(state, batch):
    params, moments = state
    inputs, targets = batch
    loss, gradients = jax.value_and_grad(
        lambda p: jnp.mean((net.apply(p, inputs)[:, 0] - targets) ** 2)
    )(params)
    updates, moments = optimizer.update(gradients, moments)
    return (optax.apply_updates(params, updates), moments), loss


step = jax.jit(step, donate_argnums=0)  # the old state makes room for the new one
numbers = np.random.default_rng(0)
losses = []
for _ in range(50):
    inputs = numbers.normal(size=(64, 10)).astype(np.float32)
    batch = jax.device_put((inputs, inputs.sum(axis=1)), jax.devices()[0])  # once, at the boundary
    state, loss = step(state, batch)
    losses.append(loss)  # the array: nothing waits in the loop
first, *_, last = jax.device_get(losses)
print("the loss falls:", bool(last < first / 2))
assert last < first / 2
