# policy: `exit`
# outcome: exited
# says: the code called exit (SystemExit: None)


def train(step, params, batches):
    exit()  # here
