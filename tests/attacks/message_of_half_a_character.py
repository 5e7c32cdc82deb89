# outcome: raised
# says: ValueError: bad name: \ud83d


def train(step, params, batches):
    raise ValueError("bad name: " + chr(0xD83D))  # here
