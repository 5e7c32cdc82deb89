# outcome: unusable
# says: a list in it contains itself


def train(step, params, batches):
    losses = []
    losses.append(losses)
    return params, losses
