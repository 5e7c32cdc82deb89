# policy: import os
# outcome: garbled
# says: closed its side of the line
import os


def train(step, params, batches):
    os.closerange(101, 102)
    while True:
        pass
