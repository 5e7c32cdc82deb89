# outcome: timeout
# says: still running after 6 s


def train(step, params, batches):
    while True: pass  # here
