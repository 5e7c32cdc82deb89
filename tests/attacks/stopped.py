# policy: import os
# outcome: timeout
# says: still running after 6 s
import os


def train(step, params, batches):
    os.kill(os.getpid(), 19)
