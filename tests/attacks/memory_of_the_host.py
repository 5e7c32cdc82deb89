# outcome: raised
# says: MemoryError


def train(step, params, batches):
    kept = []
    while True:
        kept.append(bytearray(1 << 28))  # here
