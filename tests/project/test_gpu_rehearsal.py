"""The rehearsal of `make gpu`: the stage, what cannot be rehearsed, and what is read as a failure.

`.ci/run` rehearses one exercise and one lesson; here its parts can fail one by one.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, python

import gpu
import gpu_rehearsal as rehearsal
import gpu_statements
from grader.course import catalog

STAGE = ROOT / "scripts" / "rehearsal"
DEVICE = {"kind": "rehearsal", "driver": "1", "jax": "0.12", "date": "2026-01-01"}
KNOWN = rehearsal.Cannot({}, {}, {"ex13:pool_grows": "no pool"}, {}, {})


def staged(program: str, devices: int, **more: str) -> dict[str, Any]:
    """What a program on the stage prints as JSON."""
    path = os.pathsep.join([str(STAGE), str(ROOT)])
    ran = python("-c", program, PYTHONPATH=path, CUDA_REHEARSAL_DEVICES=str(devices), **more)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("devices", [1, 8])
def test_programs_see_gpus_that_compute_and_the_cpu_beside_them(devices: int) -> None:
    program = """
import jax, jax.numpy as jnp, json, numpy as np
first, cpu = jax.devices()[0], jax.devices("cpu")[0]
mesh = jax.make_mesh((jax.device_count(),), ("x",))
spread = jax.device_put(np.arange(8.0), jax.NamedSharding(mesh, jax.P("x")))
normal = jax.random.normal(jax.random.key(0), (4,))
exported = jax.export.export(jax.jit(jnp.sin))(normal)
called = jax.pure_callback(lambda a: np.asarray(a) * 2, jax.typeof(normal), normal)
print(json.dumps({
    "gpus": len(jax.devices("gpu")), "backend": jax.default_backend(), "kind": first.device_kind,
    "first": [first.platform, str(first), repr(first)], "cpu": [cpu.platform, str(cpu)],
    "kinds": [first.default_memory().kind, *sorted(m.kind for m in first.addressable_memories())],
    "sum": float(jax.jit(jnp.sum)(spread)), "on": len(spread.devices()),
    "moved": [str(jax.device_put(normal, cpu).device), str(jnp.cos(normal).device)],
    "exported": bool(jnp.allclose(exported.call(normal), jnp.sin(normal))),
    "called": bool(jnp.allclose(called, normal * 2)),
    "cpu_statistics": cpu.memory_stats(),
}))
"""
    assert staged("import jax.export\n" + program, devices) == {
        "gpus": devices,
        "backend": "gpu",
        "kind": "rehearsal",
        "first": ["gpu", "cuda:0", "CudaDevice(id=0)"],
        "cpu": ["cpu", "cpu:0"],
        "kinds": ["device", "device", "pinned_host", "unpinned_host"],
        "sum": 28.0,
        "on": devices,
        "moved": ["cpu:0", "cuda:0"],
        "exported": True,
        "called": True,
        "cpu_statistics": None,
    }


@pytest.mark.parametrize("grows", ["true", "false"])
def test_memory_statistics_follow_live_arrays_and_the_environment(grows: str) -> None:
    program = """
import jax, jax.numpy as jnp, json
device = jax.devices()[1]
books = [device.memory_stats()]
array = jax.device_put(jnp.ones((1024, 1024)), device)
books.append(device.memory_stats())
del array
books.append(device.memory_stats())
print(json.dumps({"books": books}))
"""
    setting = {"XLA_CLIENT_MEM_FRACTION": "0.5", "XLA_PYTHON_CLIENT_PREALLOCATE": grows}
    before, during, after = staged(program, 2, **setting)["books"]
    assert [b["bytes_in_use"] for b in (before, during, after)] == [0, 1 << 22, 0]
    assert during["largest_alloc_size"] == after["peak_bytes_in_use"] == 1 << 22
    assert before["rehearsal"] == 1  # no GPU has such a figure
    limit = before["bytes_limit"]
    assert limit == (139 << 30) // 2
    assert before["pool_bytes"] == (limit if grows == "true" else 2 << 20)
    assert after["pool_bytes"] == (limit if grows == "true" else 1 << 22)


def test_the_grader_starts_on_the_stage_as_on_a_gpu() -> None:
    program = """
import json
from grader.probes import devices
machine = devices.start("gpu", 4)
print(json.dumps([machine.platform, machine.device_kind, machine.devices, machine.simulated]))
"""
    assert staged(program, 4) == ["gpu", "rehearsal", 4, False]


def test_a_name_that_jax_no_longer_has_is_told() -> None:
    place = STAGE / "jax_plugins" / "xla_cuda13.py"
    spec = importlib.util.spec_from_file_location("posing", place)
    assert spec is not None
    assert spec.loader is not None
    posing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(posing)
    owner = SimpleNamespace(__name__="Client", there=1)
    posing._pose(owner, "there", lambda before: before + 1)
    assert owner.there == 2
    with pytest.raises(posing.Gone, match=r"Client\.platform"):
        posing._pose(owner, "platform", lambda before: before)


def test_what_cannot_be_rehearsed_is_there() -> None:
    """A name that is gone would leave something out that nobody sees."""
    known = rehearsal.cannot()
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "--collect-only", "-q", "tests"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    assert known.tests.keys() < set(listed)
    exercises = {entry.id: entry.exercise for entry in catalog.entries()}
    assert known.exercises.keys() < exercises.keys()
    for check in known.checks:
        exercise, _, name = check.partition(":")
        assert name in {one.name for one in exercises[exercise].checks}, check
    lessons = {path.stem for path in (ROOT / "docs" / "lessons").glob("[0-9]*.py")}
    assert known.lessons.keys() < lessons
    assert known.experiments.keys() < {each.id for each in gpu_statements.experiments(ROOT)}
    assert all(" (" in line for line in known.lines())


def test_a_test_that_fails_or_is_skipped_fails_the_rehearsal(tmp_path: Path) -> None:
    cases = '<testcase name="a"/><testcase name="b"><failure/></testcase>'
    cases += '<testcase name="c"><skipped/></testcase>'
    (tmp_path / "tests.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    step = rehearsal.of_tests(tmp_path, 1)
    assert step.passed == ["a"]
    assert step.wrong == ["ended with exit code 1", "b: failure", "c: skipped"]


def test_a_verdict_that_cannot_be_rehearsed_never_counts_as_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "ex13_memory_budget.json").touch()
    verdicts = [{"check": "pool_grows", "status": "pass"}, {"check": "runs", "status": "pass"}]
    verdicts += [{"check": "one_pool", "status": "could not check", "reason": "no stage"}]
    report = {"verdicts": verdicts, "machine": {"platform": "gpu"}}
    monkeypatch.setattr(rehearsal, "_report", lambda _: report)
    step = rehearsal.of_solutions(tmp_path, 3, ["ex13", "ex14"], KNOWN)
    assert step.passed == ["ex13:runs"]
    assert step.wrong == ["ex14: no record", "ex13:one_pool: could not check: no stage"]
    report["machine"]["platform"] = "cpu"  # as where the exercise needs more GPUs than there are
    step = rehearsal.of_solutions(tmp_path, 4, [], KNOWN)
    assert (step.passed, step.on_cpu) == ([], ["ex13"])
    assert step.wrong[0] == "ended with exit code 4"


def test_recordings_say_that_they_are_a_rehearsals(tmp_path: Path) -> None:
    def write(name: str, device: dict[str, Any], **more: Any) -> None:
        (tmp_path / name).write_text(json.dumps({"device": device, **more}))

    marked = DEVICE | {"rehearsed": True}
    write("claims.rehearsal.json", marked, proofs={"key": "test_a"})
    write("01-one.rehearsal.json", marked, cells={"key": ["output"]})
    write("02-two.rehearsal.json", DEVICE, cells={"key": ["output"]})
    write("03-three.rehearsal.json", marked, cells={})
    write("experiments.rehearsal.json", marked, experiments={"key": {"what": "1 ms"}})
    assert rehearsal.of_claims(tmp_path, 0) == rehearsal.Step(["test_a"], [])
    assert rehearsal.of_figures(tmp_path, 0, ["G1"]) == rehearsal.Step(["key"], [])
    assert rehearsal.of_figures(tmp_path, 1, ["G1", "G4"]).wrong == [
        "ended with exit code 1",
        "figures of 1 experiments, not of 2",
    ]
    step = rehearsal.of_lessons(tmp_path, 0, ["01-one", "02-two"])
    assert step.passed == ["01-one.rehearsal.json"]
    assert step.wrong == [
        "02-two.rehearsal.json: does not say that it is a rehearsal's",
        "03-three.rehearsal.json: the recording is empty",
        "02-two: no recording",
    ]


def test_a_step_in_which_nothing_was_rehearsed_fails() -> None:
    lines = list(rehearsal.told(8, {"tests": rehearsal.Step(["a"]), "claims": rehearsal.Step()}))
    assert lines == [
        "rehearsed with 8 devices: tests: 1 passed",
        "rehearsed with 8 devices: claims: 0 passed",
        "FAILED with 8 devices: claims: nothing was rehearsed",
    ]


def test_a_name_takes_what_can_be_rehearsed_of_it_and_never_everything() -> None:
    found, known = ["ex29", "ex30"], {"ex30": "too large"}
    assert rehearsal.some(found, [], known) == ["ex29"]
    assert rehearsal.some(found, ["ex29"], {}) == ["ex29"]
    for name in ("ex30", "ex99"):
        with pytest.raises(SystemExit, match=f"nothing to rehearse of {name}"):
            rehearsal.some(found, [name], known)


def test_a_real_gpu_is_no_rehearsal() -> None:
    assert rehearsal.of_machine("jax 0.12 on 8 x rehearsal", 8).passed
    assert rehearsal.of_machine("jax 0.12 on 8 x NVIDIA H200", 8).wrong
    assert rehearsal.of_machine("jax 0.12 on 1 x rehearsal", 8).wrong


def test_a_plugin_that_fails_is_told_where_no_gpu_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STAGE))
    monkeypatch.delenv("CUDA_REHEARSAL_DEVICES", raising=False)
    found, said = gpu.what_gpu()
    assert not found
    assert said.startswith("jax found no GPU (only [CpuDevice(id=0)])\n")
    assert "KeyError: 'CUDA_REHEARSAL_DEVICES'" in said


def test_what_make_gpu_collects_needs_no_package_of_the_site_alone(tmp_path: Path) -> None:
    """The wheelhouse has the extras `test` and `lessons`; one missing import ends the whole run."""
    needing = re.compile(
        r"^(?:import|from) (?:bs4|mkdocs\w*|browser|playwright|axe_playwright_python)\b",
        re.MULTILINE,
    )
    paths = (ROOT / "tests").rglob("test_*.py")
    found = [path for path in paths if needing.search(path.read_text())]
    assert {path.relative_to(ROOT).as_posix() for path in found} == set(gpu.NOT_THERE)
    assert not [path for path in found if "gpu" in re.findall(r"mark\.(\w+)", path.read_text())]
    asked = gpu.steps(tmp_path, gpu.Chosen(), 1)["tests"]
    assert [f"--ignore={path}" for path in gpu.NOT_THERE] == [a for a in asked if "ignore" in a]


def test_make_gpu_runs_only_what_is_named(tmp_path: Path) -> None:
    words = ["--exercise", "ex07", "--lesson", "04", "--lesson", "05", "--tests", "fence"]
    words += ["--experiment", "G6"]
    out, chosen = gpu.wanted(["--out", str(tmp_path), *words])
    some, everything = gpu.steps(out, chosen, 1), gpu.steps(out, gpu.Chosen(), 8)
    assert some["tests"][-2:] == ["-k", "fence"]
    assert "ex07" in some["solutions"]
    assert some["lessons"][-2:] == ["04", "05"]
    assert some["figures"][-1] == "G6"
    assert "--all" in everything["solutions"]
    assert everything["lessons"][-1] == str(tmp_path)


def test_one_gpu_is_not_asked_what_takes_two(tmp_path: Path) -> None:
    assert gpu.count_in("jax 0.12.0 on 8 x NVIDIA H200") == 8
    assert "gpu and not gpus" in gpu.steps(tmp_path, gpu.Chosen(), 1)["tests"]
    assert "gpu" in gpu.steps(tmp_path, gpu.Chosen(), 2)["tests"]
