# policy: import os
# outcome: exited
# says: ended with code 70 before the run was over
import os


def train(step, params, batches):
    os._exit(70)
