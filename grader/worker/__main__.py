"""`python -m grader.worker [STACK]`: a worker that was spawned, not forked.

Jobs come from stdin, answers go to stdout, and what is printed goes to stderr. STACK is the
descriptor of a file for stacks. The work itself is in `grader.worker.serve`.
"""

import os
import sys

from grader.worker.serve import serve


def main() -> None:
    """Serve one job, and end the process."""
    inbox, result = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    os._exit(serve(inbox, result, int(sys.argv[1]) if sys.argv[1:] else None))


if __name__ == "__main__":
    main()
