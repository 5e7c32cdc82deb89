# outcome: exited
# says: the code called exit (SystemExit: Python cannot print what it says)


def train(step, params, batches):
    raise SystemExit(10**5000)  # here
