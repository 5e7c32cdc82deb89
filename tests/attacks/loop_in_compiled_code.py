# outcome: timeout
# says: still running after 6 s


def train(step, params, batches):
    forever = jax.jit(lambda x: jax.lax.while_loop(lambda y: y < 2, jnp.cos, x))
    return params, [float(forever(1.0))]  # here
