# outcome: unusable
# says: more than 100 lists, tuples or dicts lie one in the other


def train(step, params, batches):
    for _ in range(100_000):
        params = (params,)
    return params, []
