"""Writes the saved records that `test_judge` judges; run it when their version changes.

    python tests/golden/records/generate.py

It grades the starter of ex07, a submission that raises, and a solution without a timing check.
"""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path.insert(0, str(ROOT))

from grader.course import catalog  # noqa: E402 (sys.path must be set first)
from grader.judging.judge import judge  # noqa: E402
from grader.records.verdict import encode  # noqa: E402
from grader.running.grade import grade  # noqa: E402
from grader.running.session import Options, Session, modules_of  # noqa: E402

LOOP, DEVICES = catalog.find("ex07"), catalog.find("ex01")
SEED = 7


def cases() -> dict[str, tuple[catalog.Entry, str, int]]:
    """Name of the record -> exercise, source of the submission, exit code it must have."""
    raises = LOOP.solution.read_text("utf-8").replace("append(loss)", 'append(loss / "1")')
    starter = (ROOT / "exercises" / LOOP.file_name).read_text("utf-8")
    return {
        "ex07_starter": (LOOP, starter, 1),
        "ex07_raises": (LOOP, raises, 1),
        "ex01_solution": (DEVICES, DEVICES.solution.read_text("utf-8"), 0),
    }


def main() -> None:
    """Grade each as a learner's file, and save its record."""
    with (
        Session(Options(device="cpu"), modules_of([LOOP, DEVICES])) as session,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name, (entry, source, code) in cases().items():
            path = Path(folder) / entry.file_name
            path.write_text(source, "utf-8")
            label = f"exercises/{entry.file_name}"
            record = grade(entry, path, session, seed=SEED, label=label)
            if judge(record, entry.exercise).exit_code != code:
                raise SystemExit(f"{name}: the exit code is not {code}")
            (HERE / f"{name}.json").write_bytes(encode(record) + b"\n")


if __name__ == "__main__":
    main()
