# outcome: raised
# says: ValueError: no batch is good enough


def train(step, params, batches):
    for batch in batches:
        check(batch)


def check(batch):
    raise ValueError("no batch is good enough")  # here
