# policy: import sys
# outcome: exited
# says: the code called exit (SystemExit: 0)
import sys


def train(step, params, batches):
    sys.exit(0)  # here
