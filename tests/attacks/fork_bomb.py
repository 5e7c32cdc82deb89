# policy: import os
# outcome: timeout
# says: still running after 3 s
import os


def train(step, params, batches):
    while True:
        try:
            os.fork()  # here
        except OSError:
            pass
