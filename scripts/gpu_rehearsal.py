"""Rehearses `make gpu` where there is no GPU: every step of it, against a CPU that poses as one.

Runs `scripts/gpu.py` as it is, once for each number of devices, with `rehearsal/jax_plugins`
where NVIDIA's plugin would be. Then reads what it left behind. What the CPU cannot show is
listed in `rehearsal/not_rehearsed.toml`; it is printed by name, and never counts as passed. A
step in which nothing was rehearsed fails. Recordings say that they are a rehearsal's, and the
site refuses them. Imports nothing outside the standard library but `gpu`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gpu

ROOT = Path(__file__).resolve().parent.parent
STAGE = ROOT / "scripts" / "rehearsal"
KIND = "rehearsal"
COUNT = "CUDA_REHEARSAL_DEVICES"
NO_WHEELS = "not rehearsed: wheels of wheelhouse/ (there are none: make wheelhouse)"
JUDGED = (0, 1, 3)
"""Codes with which `grader check` ends when it has judged: all passed, one failed, one could not
be checked."""


@dataclass(frozen=True)
class Cannot:
    """What cannot be rehearsed: the reason of each, by its name."""

    tests: dict[str, str]
    exercises: dict[str, str]
    checks: dict[str, str]
    lessons: dict[str, str]
    experiments: dict[str, str]

    def lines(self) -> Iterator[str]:
        """One line for each."""
        for kind, named in vars(self).items():
            for name, why in named.items():
                yield f"not rehearsed: {kind.removesuffix('s')} {name} ({why})"


def cannot() -> Cannot:
    """What `rehearsal/not_rehearsed.toml` names."""
    groups = tomllib.loads((STAGE / "not_rehearsed.toml").read_text("utf-8"))["cannot"]

    def named(kind: str) -> dict[str, str]:
        return {name: group["why"] for group in groups for name in group.get(kind, [])}

    return Cannot(*(named(kind) for kind in Cannot.__dataclass_fields__))


@dataclass
class Step:
    """What of one step was rehearsed, what went wrong in it, and what had too few devices."""

    passed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    on_cpu: list[str] = field(default_factory=list)


def of_tests(out: Path, code: int) -> Step:
    """The tests that pytest ran."""
    step = Step(wrong=_ended(code, (0,)))
    if (junit := out / "tests.xml").is_file():
        for case in ElementTree.parse(junit).iter("testcase"):
            name, troubles = case.get("name", ""), [trouble.tag for trouble in case]
            if troubles:
                step.wrong.append(f"{name}: {', '.join(troubles)}")
            else:
                step.passed.append(name)
    return step


def of_solutions(out: Path, code: int, exercises: Sequence[str], known: Cannot) -> Step:
    """The checks of all records, judged again, for the reasons of the verdicts.

    What was graded on simulated CPU devices, for it needs more GPUs, was not rehearsed.
    """
    step = Step(wrong=_ended(code, JUDGED))
    records = {path.name[:4]: path for path in sorted((out / "records").glob("*.json"))}
    step.wrong += [f"{name}: no record" for name in exercises if name not in records]
    for name, path in records.items():
        report = _report(path)
        on_cpu = report["machine"]["platform"] == "cpu"
        step.on_cpu += [name] * on_cpu
        for verdict in report["verdicts"]:
            check = f"{name}:{verdict['check']}"
            if verdict["status"] == "pass":
                step.passed += [check] * (check not in known.checks and not on_cpu)
            elif check not in known.checks:
                why = verdict.get("reason") or verdict.get("observed", "")
                step.wrong.append(f"{check}: {verdict['status']}: {why}")
    return step


def _report(record: Path) -> dict[str, Any]:
    """What `grader judge` makes of a record."""
    command = [sys.executable, "-m", "grader", "judge", str(record), "--format", "json"]
    judged = subprocess.run(
        command, cwd=ROOT, env=gpu.environment(), capture_output=True, text=True
    )
    if not judged.stdout:
        raise SystemExit(f"gpu-rehearsal: {record} cannot be judged: {judged.stderr.strip()}")
    report: dict[str, Any] = json.loads(judged.stdout)["reports"][0]
    return report


def of_claims(out: Path, code: int) -> Step:
    """The proofs that were recorded, by their names."""
    step = Step(wrong=_ended(code, (0,)))
    for _, data in _recordings(out, "claims.*.json", step):
        step.passed += data["proofs"].values()
    return step


def of_figures(out: Path, code: int, experiments: Sequence[str]) -> Step:
    """The experiments of which figures were recorded, by the hashes of their code."""
    step = Step(wrong=_ended(code, (0,)))
    for _, data in _recordings(out, "experiments.*.json", step):
        step.passed += data["experiments"]
    if (found := len(step.passed)) != len(experiments):
        step.wrong.append(f"figures of {found} experiments, not of {len(experiments)}")
    return step


def of_lessons(out: Path, code: int, lessons: Sequence[str]) -> Step:
    """The lessons that were recorded, by their names."""
    step = Step(wrong=_ended(code, (0,)))
    for name, data in _recordings(out, "[0-9]*.json", step):
        if any(data["cells"].values()):
            step.passed.append(name)
        else:
            step.wrong.append(f"{name}: the recording is empty")
    missing = set(lessons) - {name.partition(".")[0] for name in step.passed}
    step.wrong += [f"{name}: no recording" for name in sorted(missing)]
    return step


def _recordings(out: Path, pattern: str, step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
    """Recordings of this run, each of which says that it is a rehearsal's."""
    for path in sorted(out.glob(pattern)):
        data = json.loads(path.read_text("utf-8"))
        if data["device"].get("rehearsed") and data["device"]["kind"] == KIND:
            yield path.name, data
        else:
            step.wrong.append(f"{path.name}: does not say that it is a rehearsal's")


def _ended(code: int, well: Sequence[int]) -> list[str]:
    return [] if code in well else [f"ended with exit code {code}"]


def some(found: Sequence[str], named: Sequence[str], known: dict[str, str]) -> list[str]:
    """What can be rehearsed of the exercises or lessons `found`: of those named, or of all.

    Raises SystemExit where nothing is left.
    """
    asked = [one for one in found if not named or any(one.startswith(name) for name in named)]
    left = [one for one in asked if one not in known]
    if not left:
        raise SystemExit(f"gpu-rehearsal: nothing to rehearse of {', '.join(named)}")
    return left


def rehearse(count: int, out: Path, chosen: gpu.Chosen, known: Cannot) -> dict[str, Step]:
    """Runs `gpu.py` with so many devices, and reads what it left in the folder `out`."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "scripts/gpu.py", "--out", str(out), "--tests", chosen.tests]
    command += [word for name in chosen.exercises for word in ("--exercise", name)]
    command += [word for name in chosen.lessons for word in ("--lesson", name)]
    command += [word for name in chosen.experiments for word in ("--experiment", name)]
    path = os.pathsep.join(filter(None, [str(STAGE), os.environ.get("PYTHONPATH", "")]))
    left_out = " ".join(f"--deselect={test}" for test in known.tests)
    environment = {"PYTHONPATH": path, COUNT: str(count), "PYTEST_ADDOPTS": left_out}
    subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False)
    if not (summary := out / "steps.json").is_file():
        return {"machine": Step(wrong=["gpu.py did not get to its steps"])}
    ran = json.loads(summary.read_text("utf-8"))
    codes = {name: step["exit"] for name, step in ran["steps"].items()}
    return {
        "machine": of_machine(ran["machine"], count),
        "tests": of_tests(out, codes["tests"]),
        "solutions": of_solutions(out, codes["solutions"], chosen.exercises, known),
        "figures": of_figures(out, codes["figures"], chosen.experiments),
        "claims": of_claims(out, codes["claims"]),
        "lessons": of_lessons(out, codes["lessons"], chosen.lessons),
    }


def of_machine(said: str, count: int) -> Step:
    """The machine that `gpu.py` saw: the stage, and nothing that was really there."""
    stands = said.endswith(f" on {count} x {KIND}")
    return Step([said], []) if stands else Step([], [f"the stage does not stand: {said}"])


def told(count: int, steps: dict[str, Step]) -> Iterator[str]:
    """What was rehearsed with so many devices, one line a step, and what went wrong."""
    for name, step in steps.items():
        yield f"rehearsed with {count} devices: {name}: {len(step.passed)} passed"
        for one in step.on_cpu:
            yield f"not rehearsed with {count} devices: {name}: {one} (it needs more)"
        yield from (f"FAILED with {count} devices: {name}: {wrong}" for wrong in step.wrong)
        if not step.passed:
            yield f"FAILED with {count} devices: {name}: nothing was rehearsed"


def main(arguments: list[str] | None = None) -> int:
    """The whole rehearsal; 0 when all that can be rehearsed went well, else 1."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--out", type=Path, default=ROOT / "build" / "gpu-rehearsal")
    options.add_argument("--devices", type=int, nargs="+", default=[1, 8], help="how many, in turn")
    options.add_argument("--exercise", action="append", default=[], help="ex07; all by default")
    options.add_argument("--lesson", action="append", default=[], help="04; all by default")
    options.add_argument("--experiment", action="append", default=[], help="G6; all by default")
    options.add_argument("--tests", default="", help="as pytest's -k; all by default")
    asked, known = options.parse_args(arguments), cannot()
    files = (ROOT / "solutions").glob("ex*.py"), (ROOT / "docs" / "lessons").glob("[0-9]*.py")
    exercises, lessons = (sorted(path.stem for path in found) for found in files)
    listed = tomllib.loads((ROOT / "docs" / "claims" / "experiments.toml").read_text("utf-8"))
    experiments = [each["id"] for each in listed["experiment"]]
    chosen = gpu.Chosen(
        some([stem[:4] for stem in exercises], asked.exercise, known.exercises),
        some(lessons, asked.lesson, known.lessons),
        some(experiments, asked.experiment, known.experiments),
        asked.tests,
    )
    out = asked.out.resolve()
    steps = {n: rehearse(n, out / str(n), chosen, known) for n in asked.devices}
    lines = [line for count, found in steps.items() for line in told(count, found)]
    wheels = [] if any((ROOT / "wheelhouse").glob("*.whl")) else [NO_WHEELS]
    print("\n".join(["", *known.lines(), *wheels, *lines]))
    return int(any(line.startswith("FAILED") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
