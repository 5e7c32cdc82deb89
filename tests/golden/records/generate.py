"""Writes the saved records that test_judge judges again; run it when their version changes.

    python tests/golden/records/generate.py

Grades the starter of ex07, its solution, and a solution with a mistake that raises.
"""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path.insert(0, str(ROOT))

from grader import catalog, runner  # noqa: E402 (the path comes first)
from grader.judge import judge  # noqa: E402
from grader.record import encode  # noqa: E402
from grader.session import Options, Session, modules_of  # noqa: E402

ENTRY = catalog.find("ex07")
SEED = 7


def sources() -> dict[str, tuple[str, int]]:
    """Name of the record -> source of the submission, and the exit code it must have."""
    starter = (ROOT / "exercises" / ENTRY.file_name).read_text("utf-8")
    solution = ENTRY.solution.read_text("utf-8")
    return {
        "ex07_starter": (starter, 1),
        "ex07_solution": (solution, 0),
        "ex07_raises": (solution.replace("append(loss)", 'append(loss / "1")'), 1),
    }


def main() -> None:
    """Grade each until it comes out as it must: a busy machine may not time the solution."""
    with (
        Session(Options(device="cpu"), modules_of([ENTRY])) as session,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name, (source, code) in sources().items():
            path = Path(folder) / ENTRY.file_name
            path.write_text(source, "utf-8")
            label = f"exercises/{ENTRY.file_name}"
            while True:
                record = runner.grade(ENTRY, path, session, seed=SEED, label=label)
                if judge(record, ENTRY.exercise).exit_code == code:
                    break
            (HERE / f"{name}.json").write_bytes(encode(record) + b"\n")


if __name__ == "__main__":
    main()
