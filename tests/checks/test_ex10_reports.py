"""Reports of broken machines: they hold JAX's own words, and the stage leaves nothing behind."""

import gc
import itertools
import logging
import re
import sys
from types import ModuleType
from unittest import mock

import jax
import numpy as np
import pytest

from grader.checks.ex10_diagnose import checks as ex10_diagnose
from grader.checks.ex10_diagnose import drive, way
from grader.checks.ex10_diagnose import reports as broken
from grader.course.catalog import Entry
from grader.stages import starting
from grader.stages.starting import Machine

FALLING_BACK = "Falling back to cpu"


@pytest.fixture(autouse=True)
def _started() -> None:
    """A stage needs a backend that has started."""
    jax.devices()


def reports(seed: int) -> dict[str, list[str]]:
    """Cause -> texts."""
    found: dict[str, list[str]] = {}
    for report in broken.reports(np.random.default_rng(seed)):
        found.setdefault(report.cause, []).append(report.text)
    return found


def test_every_cause_has_a_report_and_a_family() -> None:
    families = (
        *ex10_diagnose.INSTALLATION,
        *ex10_diagnose.LIBRARIES,
        *ex10_diagnose.DEVICES,
        *ex10_diagnose.ENVIRONMENT,
        *ex10_diagnose.SOUND,
    )
    assert sorted(reports(0)) == sorted(families)
    assert len(set(families)) == len(families)


def solution() -> ModuleType:
    """The solution as a module."""
    module = ModuleType("solution")
    exec(Entry("ex10_diagnose").solution.read_text("utf-8"), module.__dict__)
    return module


@pytest.mark.parametrize("seed", range(3))
def test_the_reference_names_the_true_cause(seed: int) -> None:
    """Its answers are what a submission's are compared with."""
    diagnose = solution().diagnose
    for cause, texts in reports(seed).items():
        assert {diagnose(text)[0] for text in texts} == {cause}


def test_no_true_cause_is_left_while_a_submission_runs() -> None:
    """Code that gets past the source policy looks for it in frames, and among all objects."""
    found: list[object] = []
    asked = itertools.count()

    def look(report: str) -> tuple[str, str]:
        frame = sys._getframe(1)
        while frame is not None:
            found.extend(v for name, v in frame.f_locals.items() if name in ("truth", "cause"))
            frame = frame.f_back
        if next(asked) % 40 == 0:  # all objects are many
            found.extend(o for o in gc.get_objects() if type(o) is broken.Report)
        return "gpu in use", "leave it"

    module = solution()
    module.diagnose = look
    observe = mock.MagicMock()
    drive.drive(module, observe, np.random.default_rng(0))
    assert found == []
    facts = {call.args[0]: call.args[1] for call in observe.fact.call_args_list}
    assert len(facts["answers"]) > 15
    assert all(set(answer) <= {"report", "cause", "remedy", "other"} for answer in facts["answers"])


def test_of_an_answer_of_megabytes_the_beginning_is_kept() -> None:
    module = solution()
    module.diagnose = lambda _: ("ab" * 10_000_000, "leave it")
    answer = drive._answer(module, "a report")
    assert (answer.cause, answer.remedy) == ("ab" * (drive.LONGEST // 2), "leave it")
    assert max(map(len, (*module.CAUSES, *module.REMEDIES))) < drive.LONGEST


def test_reports_are_drawn_afresh_and_can_be_repeated() -> None:
    def undated(seed: int) -> list[str]:
        return [
            text for texts in reports(seed).values() for text in texts if ":jax._src" not in text
        ]

    assert undated(1) == undated(1)
    assert set(undated(1)).isdisjoint(undated(2))


def test_names_are_misspelt_in_more_ways_than_one() -> None:
    """In each grading: letters exchanged, left out or doubled, and what was never a name."""
    lengths = {len(flag.partition("=")[0]) for flag in broken._FLAGS}
    for seed in range(3):
        texts = "\n".join(reports(seed)["XLA_FLAGS is misspelt"])
        found = {len(name) for name in re.findall(r"Unknown flag in XLA_FLAGS: --(\w+)", texts)}
        assert all(found & {length + more for length in lengths} for more in (-1, 0, 1))
        assert "'nvidia' is not in the list" in "\n".join(
            reports(seed)["JAX_PLATFORMS is misspelt"]
        )


def test_what_a_library_says_does_not_tell_whether_it_is_missing_or_another_comes_first() -> None:
    for plugin in ("cuda12", "cuda13"):
        for cause in ("library missing", "foreign library"):
            texts = [text for text in reports(1)[cause] if plugin in text]
            assert any("library was not found" in text for text in texts), (plugin, cause)


def test_the_generic_line_follows_a_missing_plugin_and_a_failing_one() -> None:
    """So `looks_above_the_generic_line` has something to judge."""
    missing = starting.start(Machine(visible=True))
    failing = starting.start(Machine(visible=True, initialize=[RuntimeError("of its own")]))
    assert FALLING_BACK in missing.lines[-1]
    assert FALLING_BACK in failing.lines[-1]
    assert "RuntimeError: of its own" in failing.lines
    every = [
        {cause for cause, texts in reports(seed).items() if FALLING_BACK in "".join(texts)}
        for seed in range(5)
    ]
    assert all(len(causes) > 2 for causes in every)
    assert {"no plugin", "no driver", "gpu hidden", "foreign library"} <= set().union(*every)


@pytest.mark.parametrize(
    ("machine", "backend", "error"),
    [
        (Machine(gpus=2, visible=True), "gpu: 2 x NVIDIA H200", ""),
        (Machine(gpus=2), "cpu: ", ""),
        (Machine(gpus=2, visible=True, platforms="cpu"), "cpu: ", ""),
        (Machine(gpus=2, visible=True, platforms="gpu"), "", "Backend 'rocm' is not"),
        (Machine(gpus=2, visible=True, platforms="cuda, cpu"), "", "Backend ' cpu' is not"),
        (Machine(visible=True, platforms="cuda"), "", "Backend 'cuda' is not"),
        (Machine(connect="x", platforms="cuda"), "", "AssertionError: assert "),
        (Machine(connect="it broke", visible=True), "", "Unable to initialize backend 'cuda': it"),
    ],
)
def test_a_machine_starts_as_jax_says(machine: Machine, backend: str, error: str) -> None:
    started = starting.start(machine)
    assert started.backend.startswith(backend)
    assert bool(started.backend) == bool(backend)
    assert error in started.error


def test_the_stage_leaves_nothing_behind() -> None:
    logger = logging.getLogger(jax.devices.__module__)
    before = jax.devices(), logger.handlers[:], logger.propagate, jax.config.jax_platforms
    reports(3)
    assert before == (jax.devices(), logger.handlers, logger.propagate, jax.config.jax_platforms)


def test_a_missing_private_name_is_reported() -> None:
    machine = Machine(visible=True, initialize=[RuntimeError("x")])
    bridge = mock.patch("grader.stages.machines.bridge_module", side_effect=starting.Gone("moved"))
    with bridge, pytest.raises(starting.Gone, match="moved"):
        starting.start(machine)
    with (
        mock.patch("jaxlib.plugin_support.check_plugin_version", None),
        pytest.raises(starting.Gone, match="check_plugin_version"),
    ):
        starting.plugin_mismatch("jax_cuda13_plugin", "0.12.0", "0.11.0")


def test_versions_that_fit_give_no_report() -> None:
    """A staged fault that JAX does not report is noticed."""
    with pytest.raises(starting.Gone, match="does not mind"):
        starting.plugin_mismatch("jax_cuda13_plugin", "0.12.0", "0.12.0")
    with pytest.raises(starting.Gone, match="does not mind"):
        starting.jaxlib_mismatch("0.12.0", "0.12.0", "0.12.0")


def test_only_the_beginning_of_a_report_is_a_habit() -> None:
    """A code that looks at the beginning of each line does what it should."""
    looks = "def diagnose(report):\n    return [x for x in report.split() if {}.startswith('$')]\n"
    assert way.habit(looks.format("report")) == way.HABITS["startswith"]
    assert way.habit(looks.format("x")) == ""
