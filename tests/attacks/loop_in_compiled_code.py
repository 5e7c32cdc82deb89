# outcome: timeout
# says: still running after 3 s


def train(step, params, batches):
    value = jax.lax.while_loop(lambda x: x < 2, lambda x: jnp.cos(x), jnp.float32(1))
    return params, [float(value)]  # here
