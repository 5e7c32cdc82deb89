"""Prints what the report of each wrong variant says first, on one page for reading.

    python scripts/messages.py            # all exercises; ex07 ex19 for some
    python scripts/messages.py --pick 60  # that many, drawn at random

Nothing is graded: the test of the variants holds each to `tests/golden/messages`, and writes them
anew with UPDATE_GOLDEN=1. Read each, as a learner would, beside the file that is named.
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"


def messages(names: Sequence[str]) -> list[Path]:
    """The messages of these exercises; all of them if none is named."""
    found = sorted((TESTS / "golden" / "messages").glob("*/*.txt"))
    return [path for path in found if not names or path.parent.name[:4] in names]


def main(arguments: Sequence[str]) -> int:
    """Print the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("exercise", nargs="*", help="ex07; all if none is named")
    parser.add_argument("--pick", type=int, default=0, help="only so many, drawn at random")
    parser.add_argument("--seed", type=int, help="of that draw")
    given = parser.parse_args(arguments)
    found = messages(given.exercise)
    if given.pick:
        found = sorted(random.Random(given.seed).sample(found, min(given.pick, len(found))))
    for path in found:
        name = f"tests/variants/{path.parent.name}/wrong/{path.stem}.py"
        print(f"== {name}\n{path.read_text('utf-8')}")
    return 0 if found else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:  # `make messages | head`: what is left is for nobody
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
