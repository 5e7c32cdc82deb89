# policy: import os
# outcome: killed
# says: killed by signal 6 (Aborted
import os


def train(step, params, batches):
    os.abort()  # here
