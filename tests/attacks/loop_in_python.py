# outcome: timeout
# says: still running after 3 s


def train(step, params, batches):
    while True: pass  # here
