# outcome: raised
# says: RESOURCE_EXHAUSTED


def train(step, params, batches):
    return params, jnp.ones((1 << 20, 1 << 16))  # here
