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

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ROOT / "tests" / "variants"
SEED = 7


def variants(names: Sequence[str], pick: int, seed: int) -> list[Path]:
    """The wrong variants of these exercises, by name; all of them if none is named."""
    found = sorted(VARIANTS.glob("ex*/wrong/*.py"))
    if names:
        found = [path for path in found if path.parent.parent.name[:4] in names]
    if pick:
        found = sorted(random.Random(seed).sample(found, min(pick, len(found))))
    return found


def first_failures(paths: Sequence[Path]) -> Iterator[str]:
    """The text of the first failure of each."""
    sys.path.insert(0, str(ROOT))
    from grader.app import report
    from grader.course import catalog
    from grader.judging.judge import judge
    from grader.program import targets
    from grader.running.grade import grade
    from grader.running.session import Options, Session, modules_of
    from grader.running.sides import Reference

    entries = {
        stem: catalog.find(stem) for stem in dict.fromkeys(p.parent.parent.name for p in paths)
    }
    with Session(Options(device="cpu"), modules_of(list(entries.values()))) as session:
        ahead: dict[str, Reference] = {}
        for path in paths:
            entry = entries[path.parent.parent.name]
            machine = targets.find("h200x8") if entry.exercise.has_target else None
            if entry.stem not in ahead:
                ahead = {entry.stem: Reference(entry, session, SEED, machine)}
            record = grade(entry, path, session, target=machine, ahead=ahead[entry.stem])
            done = judge(record, entry.exercise)
            failures = [verdict for verdict in done.verdicts if verdict.status == "fail"]
            out = report.console()
            with out.capture() as captured:
                for verdict in failures[:1]:
                    report.print_failure(verdict, path.name, out, "https://course")
            more = f"\n  and {len(failures) - 1} more" if len(failures) > 1 else ""
            text = captured.get().rstrip() or f"nothing failed: exit code {done.exit_code}"
            yield f"== {entry.stem} {path.stem}\n{text}{more}\n"


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
