"""`python -m grader` and the command `grader`: one way in, also for an early Ctrl-C."""

import os
import sys


def run() -> None:
    """Import and run the command line."""
    try:
        from grader.cli import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("grader: stopped\n")
        sys.stderr.flush()
        # Not sys.exit: an interrupt that passed through an exec(), as in the import of a
        # dataclass, makes Python end by the signal whatever the code says.
        os._exit(130)


if __name__ == "__main__":
    run()
