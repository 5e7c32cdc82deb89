"""Prints what the report of each wrong variant says first, on one page for reading.

    python scripts/messages.py            # all exercises; ex07 ex19 for some
    python scripts/messages.py --pick 60  # that many, drawn at random, with what they did

Each variant is graded once, with the same inputs. A change of words in a check shows in what this
prints: read it, as a learner would, beside the file that is named.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.app import report
from grader.course.catalog import Entry
from grader.running.session import Options, Session, modules_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "checks"))
from variant_grading import SEED, WRONG, Grading, graded


def variants(names: Sequence[str], pick: int, seed: int) -> list[Path]:
    """The wrong variants of these exercises, by name; all of them if none is named."""
    found = [path for path in WRONG if not names or path.parent.parent.name[:4] in names]
    if pick:
        found = sorted(random.Random(seed).sample(found, min(pick, len(found))))
    return found


def first_failures(paths: Sequence[Path]) -> Iterator[str]:
    """The text of the first failure of each."""
    stems = dict.fromkeys(path.parent.parent.name for path in paths)
    with Session(Options(device="cpu"), modules_of([Entry(stem) for stem in stems])) as session:
        grading = Grading(session, SEED)
        for path in paths:
            stem = path.parent.parent.name
            _, done = graded(stem, path, grading)
            failures = [verdict for verdict in done.verdicts if verdict.status == "fail"]
            out = report.console()
            with out.capture() as captured:
                for verdict in failures[:1]:
                    report.print_failure(verdict, path.name, out, "https://course")
            more = f"\n  and {len(failures) - 1} more" if len(failures) > 1 else ""
            text = captured.get().rstrip() or f"nothing failed: exit code {done.exit_code}"
            yield f"== {stem} {path.stem}\n{text}{more}\n"


def main(arguments: Sequence[str]) -> int:
    """Print the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("exercise", nargs="*", help="ex07; all if none is named")
    parser.add_argument("--pick", type=int, default=0, help="only so many, drawn at random")
    parser.add_argument("--seed", type=int, default=SEED, help="of that draw")
    given = parser.parse_args(arguments)
    for text in first_failures(variants(given.exercise, given.pick, given.seed)):
        print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
