# policy: import os
# outcome: timeout
# says: still running after 6 s
import os


def train(step, params, batches):
    while True:  # here
        try:  # here
            os.fork()  # here
        except OSError:  # here
            pass  # here
