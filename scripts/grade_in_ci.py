"""Grades a student's files in a job of GitHub Actions: the step `Check` of `action.yml`.

The inputs come as environment variables, as `action.yml` names them. Everything is written below
`$RUNNER_TEMP`, nothing into the student's workspace. The job passes only if each exercise that was
asked for has a report, and the grader's exit code allows it. What a student prints may look like a
command to the runner (`::set-env ...`), so the runner is told to read none while reports are
printed, and the summary of the job shows them escaped.
"""

import html
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from grader.app import report
from grader.course import catalog
from grader.fences import imports
from grader.records.verdict import Reports

ALL = "--all"
MAX_SUMMARY = 900_000
"""Characters. GitHub refuses the summary of a step that has more than a MiB."""
NOT_CHECKED, WRONG, BROKE = 3, 2, 4


class Wrong(Exception):
    """An input of the action is wrong; the message says which."""


def exercises(text: str) -> list[str]:
    """The names in the input `exercise`, however they are separated; each exercise once.

    Raises:
      Wrong: there is none, or one that nobody knows.
    """
    names = [name for name in re.split(r"[\s,]+", text) if name]
    if not names:
        raise Wrong("the input `exercise` is empty: name exercises, or --all")
    if ALL in names:
        return [entry.stem for entry in catalog.entries()]
    try:
        return list(dict.fromkeys(catalog.find(name).stem for name in names))
    except catalog.UnknownExercise as error:
        raise Wrong(f"the input `exercise` is wrong: {error}") from None


def submission(workspace: str, name: str) -> Path:
    """The file or folder to grade.

    Raises:
      Wrong: it is not there, not inside the workspace, or a link leads to it.
    """
    root = Path(workspace).resolve()
    path = Path(os.path.normpath(root / name))
    if not path.is_relative_to(root) or path.resolve() != path:
        raise Wrong(f"the input `submission` ({name!r}) leads out of the workspace, or by a link")
    if not path.exists():
        raise Wrong(f"the input `submission` ({name!r}) is not there: was the code checked out?")
    return path


def grade(
    names: Sequence[str], path: Path, out: Path, inputs: Mapping[str, str]
) -> tuple[int, str]:
    """Run the grader; returns its exit code and what it said on stderr."""
    target = ["--target", inputs["TARGET"]] if inputs.get("TARGET") else []
    arguments = [
        "check",
        *names,
        "--submission",
        str(path),
        "--save",
        str(out / "records"),
        *target,
    ]
    site = {"GRADER_SITE": inputs["SITE"]} if inputs.get("SITE") else {}
    with (out / "report.json").open("wb") as file:
        done = subprocess.run(
            imports.command("grader", *arguments, "--format", "json"),
            cwd=out,
            env={**inputs, **site, "CI": "true"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
        )
    return done.returncode, done.stderr.decode("utf-8", "replace")


def text_of(found: Reports, site: str) -> str:
    """All reports as a person reads them."""
    out = report.console()
    with out.capture() as captured:
        for one in found.reports:
            report.print_report(one, out, site)
            out.print()
    return captured.get()


def decoded(path: Path) -> Reports:
    """The grader's document; one without reports if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Reports)
    except msgspec.DecodeError:
        return Reports(BROKE, [], "the grader wrote no report")


def lines(found: Reports, names: Sequence[str], said: str, site: str) -> Iterator[str]:
    """What the job's log and its summary show."""
    yield text_of(found, site)
    if said.strip():
        yield said
    if missing := not_graded(found, names):
        yield f"not graded: {', '.join(missing)}\n"


def not_graded(found: Reports, names: Sequence[str]) -> list[str]:
    """The exercises that were asked for and have no report."""
    graded = {one.exercise for one in found.reports}
    return [name for name in names if name not in graded]


def show(text: str, summary: str) -> None:
    """Print, with the runner's ears closed, and append to the summary of the job."""
    token = secrets.token_hex(20)
    print(f"::stop-commands::{token}\n{text}\n::{token}::", flush=True)
    if summary:
        more = "\n(cut here; the report has all)" if len(text) > MAX_SUMMARY else ""
        with Path(summary).open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"<pre>{html.escape(text[:MAX_SUMMARY])}{more}</pre>\n")


def main(inputs: Mapping[str, str]) -> int:
    """Grade; returns the exit code of the step."""
    summary = inputs.get("GITHUB_STEP_SUMMARY", "")
    out = Path(tempfile.mkdtemp(prefix="grader-report-", dir=inputs["RUNNER_TEMP"]))
    try:
        if inputs.get("COULD_NOT_CHECK") not in ("fail", "pass"):
            raise Wrong("the input `could-not-check` is fail or pass")
        names = exercises(inputs.get("EXERCISE", ""))
        path = submission(inputs["GITHUB_WORKSPACE"], inputs.get("SUBMISSION", ""))
    except Wrong as wrong:
        show(f"grader: {wrong}", summary)
        return WRONG
    code, said = grade(names, path, out, inputs)
    found = decoded(out / "report.json")
    show("".join(lines(found, names, said, inputs.get("SITE") or "")), summary)
    if not code and not_graded(found, names):
        code = BROKE
    if output := inputs.get("GITHUB_OUTPUT"):
        with Path(output).open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"code={code}\nreport={out / 'report.json'}\nrecords={out / 'records'}\n")
    return 0 if code == NOT_CHECKED and inputs["COULD_NOT_CHECK"] == "pass" else code


if __name__ == "__main__":
    sys.exit(main(os.environ))
