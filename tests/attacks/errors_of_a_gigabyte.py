# policy: import sys
# outcome: flooded
# says: more than 16 MiB of output
import sys


def train(step, params, batches):
    for _ in range(1000):
        sys.stderr.write("x" * 1_000_000)
