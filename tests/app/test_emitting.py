"""Finished reports outlive whatever ends the command: Ctrl-C, kill, a full disk, a closed pipe.

Most files here fail before they are run, so that no worker is needed. Where the command must be
caught in the middle, one file runs, and takes as long as it likes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import ROOT, Cli, python

QUICK = ("ex01_find_devices", "ex02_mixed_devices", "ex03_create_in_place")
SLOW = "ex04_place_model"
AFTER = "ex05_model_state"
NAMED = ("1", "2", "3", "4", "5")
ENDLESS = "    while True:\n        pass\n"
SECONDS = 60.0


@pytest.fixture
def course(folder: Path) -> Path:
    """Three files that fail at once, one that never ends, and one after it."""
    for stem in (*QUICK, AFTER):
        (folder / "exercises" / f"{stem}.py").write_text("def (", "utf-8")
    text = (ROOT / "solutions" / f"{SLOW}.py").read_text("utf-8")
    head, _, rest = text.partition('    """')
    body = rest[rest.index('"""') + 3 :].lstrip("\n")
    endless = head + '    """' + rest[: rest.index('"""') + 3] + "\n" + ENDLESS + body
    (folder / "exercises" / f"{SLOW}.py").write_text(endless, "utf-8")
    return folder


@pytest.fixture
def started(course: Path) -> Iterator[Any]:
    """Starts `grader check` on all five files, and ends it with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "grader", "check", *NAMED, *arguments],
            cwd=course,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def wait_for(path: Path, count: int) -> None:
    """Until so many files are there."""
    deadline = time.monotonic() + SECONDS
    while not path.is_dir() or len(list(path.glob("*.json"))) < count:
        assert time.monotonic() < deadline, "nothing was saved"
        time.sleep(0.05)


def valid(text: str) -> Any:
    """The document, if it follows the published schema."""
    document = json.loads(text)
    schema = json.loads((ROOT / "docs/reference/report.schema.json").read_text("utf-8"))
    jsonschema.validate(document, schema)
    return document


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_an_interrupt_leaves_one_whole_document(
    started: Any, course: Path, number: int, code: int
) -> None:
    process = started("--format", "json", "--save", "records")
    wait_for(course / "records", 3)
    time.sleep(1)  # a record is judged after it is saved
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code
    document = valid(out)
    assert document["exit_code"] == code
    assert [report["exercise"] for report in document["reports"]] == [*QUICK]
    assert document["left"] == [SLOW, AFTER]
    assert document["problem"] == "stopped before everything was graded"
    assert err.strip() == "grader: stopped"


def test_lines_and_records_survive_a_kill(started: Any, course: Path, grader: Cli) -> None:
    process = started("--format", "jsonl", "--save", "records")
    wait_for(course / "records", 3)
    lines = [process.stdout.readline() for _ in QUICK]
    process.kill()
    process.communicate(timeout=SECONDS)
    assert [valid(line)["reports"][0]["exercise"] for line in lines] == [*QUICK]
    assert sorted(path.stem for path in (course / "records").glob("*.json")) == [*QUICK]
    for stem in QUICK:
        assert grader("judge", f"records/{stem}.json").returncode == 1


def test_each_line_is_a_document_and_the_worst_is_the_exit_code(grader: Cli, course: Path) -> None:
    ran = grader("check", "1", "2", "3", "--format", "jsonl")
    assert ran.returncode == 1
    documents = [valid(line) for line in ran.stdout.splitlines()]
    assert [one["reports"][0]["exercise"] for one in documents] == [*QUICK]
    assert [one["exit_code"] for one in documents] == [1, 1, 1]


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with bash in the folder."""
    return subprocess.run(
        ["bash", "-c", command.replace("GRADER", f"{sys.executable} -m grader")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


FORMS = ["text", "json", "jsonl"]


@pytest.mark.parametrize("form", FORMS)
def test_a_closed_pipe_leaves_the_verdict(folder: Path, form: str) -> None:
    """A file that passes once exited with 1, since nobody read its report."""
    solved = ROOT / "solutions" / "ex02_mixed_devices.py"
    (folder / "exercises" / solved.name).write_bytes(solved.read_bytes())
    command = f"GRADER check ex02 --format {form} | true; exit ${{PIPESTATUS[0]}}"
    ran = shell(folder, command)
    assert (ran.returncode, ran.stderr) == (0, "")
    (folder / "exercises" / solved.name).write_text("def (", "utf-8")
    ran = shell(folder, command)
    assert (ran.returncode, ran.stderr) == (1, "")


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_is_said_in_one_line(course: Path, form: str) -> None:
    ran = shell(course, f"GRADER check 1 2 --format {form} --save records > /dev/full")
    assert ran.returncode == 2
    assert ran.stderr == "grader: cannot write the report: No space left on device\n"
    assert (course / "records" / "ex01_find_devices.json").is_file(), "this verdict is kept"


@pytest.mark.parametrize("form", FORMS)
def test_a_record_that_cannot_be_saved_costs_no_verdict(
    grader: Cli, course: Path, form: str
) -> None:
    (course / "records").write_text("a file in the way", "utf-8")
    ran = grader("check", "1", "2", "3", "--format", form, "--save", "records/inside")
    assert ran.returncode == 2
    assert ran.stderr.startswith("grader: cannot save the record in records/inside: ")
    assert ran.stderr.count("\n") == 1
    assert all(stem in ran.stdout for stem in QUICK)
    if form == "json":
        document = valid(ran.stdout)
        assert (document["exit_code"], len(document["reports"])) == (2, 3)
    if form == "jsonl":
        assert "cannot save" in valid(ran.stdout.splitlines()[-1])["problem"]


def test_list_into_a_closed_pipe(folder: Path) -> None:
    ran = shell(folder, "GRADER list | (exec <&-; sleep 2); exit ${PIPESTATUS[0]}")
    assert (ran.returncode, ran.stderr) == (141, ""), "as of a program that SIGPIPE ends"


@pytest.mark.parametrize(
    ("closed", "printed"), [(">&-", False), ("2>&-", True), ("<&-", True), (">&- 2>&- <&-", False)]
)
def test_closed_streams_leave_the_verdict(course: Path, closed: str, printed: bool) -> None:
    """A file that is opened later must not take the number of stdout, and get the report."""
    ran = shell(course, f"GRADER check 1 2 --format json --save records {closed}")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert bool(ran.stdout) == printed
    assert len(list((course / "records").iterdir())) == 2


def test_a_fault_of_the_grader_leaves_one_whole_document(course: Path) -> None:
    code = (
        "import sys\n"
        "from grader.app import cli, grading\n"
        "grade = grading.grade\n"
        "def fails(entry, *rest, **more):\n"
        "    if entry.id == 'ex03':\n"
        "        raise ZeroDivisionError('a fault of ours')\n"
        "    return grade(entry, *rest, **more)\n"
        "grading.grade = fails\n"
        "sys.argv = ['grader', 'check', '1', '2', '3', '5', '--format', 'json']\n"
        "cli.main()\n"
    )
    ran = python("-c", code, folder=course)
    assert ran.returncode == 4
    document = valid(ran.stdout)
    assert document["exit_code"] == 4
    assert [report["exercise"] for report in document["reports"]] == [*QUICK[:2]]
    assert document["left"] == [QUICK[2], AFTER]
    assert document["problem"] == "the grader itself broke: a fault of ours"
    assert ran.stderr.startswith("grader: the grader itself broke (ZeroDivisionError")
