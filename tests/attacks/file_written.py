# policy: import pathlib
# outcome: raised
# says: Read-only file system
import pathlib


def train(step, params, batches):
    scratch = pathlib.Path.home() / "mine.txt"
    scratch.write_text("this may be")
    assert scratch.read_text() == "this may be"
    pathlib.Path("VICTIM").write_text("gone")  # here
