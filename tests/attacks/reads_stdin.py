# policy: `input`
# outcome: raised
# says: EOFError


def train(step, params, batches):
    input("how many steps? ")  # here
