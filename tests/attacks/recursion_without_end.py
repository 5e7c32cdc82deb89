# outcome: raised
# says: RecursionError: maximum recursion depth exceeded


def train(step, params, batches):
    return train(step, params, batches)  # here
