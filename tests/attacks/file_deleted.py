# policy: import pathlib
# outcome: raised
# says: Read-only file system
import pathlib


def train(step, params, batches):
    pathlib.Path("VICTIM").unlink()  # here
