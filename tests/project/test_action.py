"""The GitHub action: its steps run here as the runner runs them, but for the installation.

The workspace belongs to a student, who may put anything into it. Most files fail before they are
run, so that no worker is needed.
"""

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import grade_in_ci

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}
BROKEN = "def (\n"
SHADOWS = ("rich", "jax", "numpy", "typing", "msgspec", "click", "venv", "pip", "grader", "html")


class Job:
    """A job on a runner, with a student's workspace."""

    def __init__(self, folder: Path) -> None:
        self.system = "Linux"
        self.workspace, self.temp = folder / "work space", folder / "temp"
        self.summary, self.output = folder / "summary.md", folder / "output"
        (self.workspace / "exercises").mkdir(parents=True)
        (self.temp / "grader" / "bin").mkdir(parents=True)
        python = self.temp / "grader" / "bin" / "python"
        # In place of the environment that the action makes: this one's, with this checkout.
        python.write_text(
            f'#!/bin/bash\n[ "$1" = -I ] || exit 9\nshift\n'
            f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -P "$@"\n'
        )
        python.chmod(0o755)

    def write(self, name: str, text: str = BROKEN) -> None:
        """Put a file into the workspace."""
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def run(self, step: str = "Check", **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step with these inputs, and the default of each other."""
        defaults = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        values = defaults | {name.replace("_", "-"): text for name, text in inputs.items()}
        context = {f"inputs.{name}": text for name, text in values.items()}
        context |= {"github.action_path": str(ROOT), "runner.temp": str(self.temp)}

        def filled(text: str) -> str:
            return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: context[found[1]], text)

        wanted = STEPS[step]
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", wanted["run"]],
            cwd=filled(wanted["working-directory"]),
            env=self._variables() | {k: filled(v) for k, v in wanted.get("env", {}).items()},
            capture_output=True,
            text=True,
            timeout=200,
        )

    def _variables(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        return kept | {
            "HOME": str(self.temp),
            "RUNNER_TEMP": str(self.temp),
            "RUNNER_OS": self.system,
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.output),
        }

    def outputs(self) -> Mapping[str, str]:
        """What the step has put out."""
        return dict(line.split("=", 1) for line in self.output.read_text("utf-8").splitlines())

    def graded(self) -> list[str]:
        """The ids in the JSON report."""
        document = json.loads(Path(self.outputs()["report"]).read_bytes())
        return [report["exercise"][:4] for report in document["reports"]]

    def files(self) -> set[str]:
        """What is in the workspace."""
        return {str(p.relative_to(self.workspace)) for p in self.workspace.rglob("*")}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job whose student has handed in two files, which are no Python."""
    made = Job(tmp_path)
    made.write("exercises/ex02_mixed_devices.py")
    made.write("exercises/ex07_quiet_loop.py")
    return made


@pytest.mark.parametrize(
    "named", ["ex02 ex07", "ex02\nex07\n", "ex02,ex07", "  2\r\n\tquiet_loop\n\n"], ids=ascii
)
def test_every_named_exercise_is_graded(job: Job, named: str) -> None:
    """Of names on two lines, the first alone was graded once, and the job was green."""
    job.write(
        "exercises/ex02_mixed_devices.py", (ROOT / "solutions/ex02_mixed_devices.py").read_text()
    )
    ran = job.run(exercise=named)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert job.graded() == ["ex02", "ex07"]
    assert "ex02_mixed_devices: all 9 checks pass" in ran.stdout
    assert "ex07_quiet_loop: 1 fail" in job.summary.read_text("utf-8")


def test_all_is_all(job: Job) -> None:
    ran = job.run()
    assert ran.returncode == 1
    assert len(job.graded()) == len(list((ROOT / "exercises").glob("ex*.py")))


def test_a_missing_file_fails_and_the_others_are_graded(job: Job) -> None:
    ran = job.run(exercise="ex07 ex04")
    assert ran.returncode == 1
    assert job.graded() == ["ex07", "ex04"]
    assert "No such file" in job.summary.read_text("utf-8")


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"exercise": " \n"}, "the input `exercise` is empty"),
        ({"exercise": "ex07 ex99"}, "no exercise `ex99`"),
        ({"exercise": "ex04"}, "no ex04_place_model.py in the folder"),
        ({"submission": "none"}, "is not there: was the code checked out?"),
        ({"submission": "../temp"}, "leads out of the workspace"),
        ({"submission": "/etc"}, "leads out of the workspace"),
        ({"submission": "linked"}, "leads out of the workspace, or by a link"),
        ({"submission": "linked/exercises"}, "leads out of the workspace, or by a link"),
        ({"exercise": "ex07", "target": "h900x8"}, "h900x8"),
        ({"could_not_check": "ignore"}, "`could-not-check` is fail or pass"),
    ],
    ids=str,
)
def test_what_cannot_be_graded_is_red_and_says_why(
    job: Job, inputs: dict[str, str], said: str
) -> None:
    (job.workspace / "linked").symlink_to(ROOT)
    ran = job.run(**inputs)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert said in ran.stdout
    assert said in html.unescape(job.summary.read_text("utf-8"))


def test_nothing_is_left_in_the_workspace(job: Job) -> None:
    """report.txt and .grader/ looked like the student's work, and were committed."""
    before = job.files()
    job.run(exercise="ex07")
    assert job.files() == before
    assert not Path(job.outputs()["report"]).is_relative_to(job.workspace)
    assert len(list(Path(job.outputs()["records"]).iterdir())) == 1


def test_no_module_of_the_student_is_imported(job: Job) -> None:
    shadow = "raise SystemExit('imported from the workspace')\n"
    for name in SHADOWS:
        job.write(f"{name}.py", shadow)
        job.write(f"exercises/{name}.py", shadow)
    ran = job.run(exercise="ex07")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "imported from the workspace" not in ran.stdout
    assert job.graded() == ["ex07"]


def heard(log: str) -> Iterator[str]:
    """The lines that GitHub's runner takes for commands: also after spaces, and of the old kind."""
    stopped = ""
    for line in log.splitlines():
        text = line.strip()
        if stopped:
            stopped = "" if text == f"::{stopped}::" else stopped
        elif text.startswith("::stop-commands::"):
            stopped = text.removeprefix("::stop-commands::")
        elif text.startswith("::") or "##[" in text:
            yield text


def test_what_a_student_prints_is_no_command_of_the_runner(job: Job) -> None:
    text = (ROOT / "solutions/ex02_mixed_devices.py").read_text("utf-8")
    hostile = '"\\n::error::hacked\\n  ::add-mask::x\\n##[error]old\\n</pre><script>\\n::stop::\\n"'
    job.write("exercises/ex02_mixed_devices.py", f"{text}\n\nSAID = print({hostile})\n")
    ran = job.run(exercise="ex02")
    assert "hacked" in ran.stdout, "it was printed, or this test shows nothing"
    assert list(heard(ran.stdout)) == []
    assert list(heard("x\n ::error::seen")) == ["::error::seen"]
    summary = job.summary.read_text("utf-8")
    assert "<script>" not in summary
    assert summary.count("</pre>") == 1


def test_could_not_check_is_what_the_instructor_says(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = grade_in_ci.Reports(3, [])
    monkeypatch.setattr(grade_in_ci, "grade", lambda *_: (3, ""))
    monkeypatch.setattr(grade_in_ci, "decoded", lambda _: found)
    inputs = {"RUNNER_TEMP": str(job.temp), "GITHUB_WORKSPACE": str(job.workspace)}
    inputs |= {"EXERCISE": "ex07", "SUBMISSION": "exercises"}
    assert grade_in_ci.main(inputs | {"COULD_NOT_CHECK": "pass"}) == 0
    assert grade_in_ci.main(inputs | {"COULD_NOT_CHECK": "fail"}) == 3


def test_a_pass_without_a_report_of_each_exercise_is_a_fault(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grade_in_ci, "grade", lambda *_: (0, ""))
    inputs = {"RUNNER_TEMP": str(job.temp), "GITHUB_WORKSPACE": str(job.workspace)}
    inputs |= {"EXERCISE": "ex07", "SUBMISSION": "exercises", "COULD_NOT_CHECK": "pass"}
    monkeypatch.setattr(grade_in_ci, "decoded", lambda _: grade_in_ci.Reports(0, []))
    assert grade_in_ci.main(inputs) == 4
    assert "not graded: ex07_quiet_loop" in capsys.readouterr().out


def test_a_long_report_fits_the_summary(tmp_path: Path) -> None:
    grade_in_ci.show("x" * (grade_in_ci.MAX_SUMMARY + 1), str(tmp_path / "summary"))
    text = (tmp_path / "summary").read_text("utf-8")
    assert len(text) < 1 << 20
    assert text.endswith("(cut here; the report has all)</pre>\n")


def test_every_input_is_used_and_has_a_default() -> None:
    text = (ROOT / "action.yml").read_text("utf-8")
    assert {"exercise", "submission", "target", "site", "cache"} <= set(ACTION["inputs"])
    for name, one in ACTION["inputs"].items():
        assert "default" in one
        assert re.search(rf"inputs\.{name}\b", text), name


def test_no_step_runs_in_the_workspace_and_no_input_is_read_as_shell() -> None:
    runs: list[dict[str, Any]] = [step for step in STEPS.values() if "run" in step]
    assert len(runs) == 3
    for step in runs:
        assert step["working-directory"] == "${{ runner.temp }}"
        assert "${{" not in step["run"]
        assert not re.search(r"python3?\"? (?!-I)", step["run"]), "Python would look around there"


def test_a_windows_runner_is_refused_in_a_line(job: Job) -> None:
    job.system = "Windows"
    ran = job.run("Look at the runner")
    assert ran.returncode == 2
    assert ran.stdout.startswith("::error::The grader runs on Linux")


def test_the_cache_has_a_key_for_each_set_of_pins(job: Job) -> None:
    assert job.run("Look at the runner").returncode == 0
    assert re.fullmatch(r"key=\d+-\d+", job.output.read_text("utf-8").strip())
    assert "steps.runner.outputs.key" in STEPS["actions/cache@v4"]["with"]["key"]
