# outcome: flooded
# says: more than 16 MiB of output


def train(step, params, batches):
    for _ in range(1000):
        print("x" * 1_000_000)
