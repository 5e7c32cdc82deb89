"""Reports of broken machines: JAX's own words are in them, and nothing of the stage stays."""

import logging
from unittest import mock

import jax
import numpy as np
import pytest

from grader.checks import ex10_diagnose
from grader.probes import broken, starting
from grader.probes.starting import Machine

FALLING_BACK = "Falling back to cpu"


@pytest.fixture(autouse=True)
def _started() -> None:
    """Stages stand on a backend that runs."""
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


def test_reports_are_drawn_afresh_and_can_be_repeated() -> None:
    def undated(seed: int) -> list[str]:
        return [
            text for texts in reports(seed).values() for text in texts if ":jax._src" not in text
        ]

    assert undated(1) == undated(1)
    assert set(undated(1)).isdisjoint(undated(2))


def test_the_generic_line_follows_a_missing_plugin_and_a_failing_one() -> None:
    """What `looks_above_the_generic_line` judges is there to be judged."""
    missing = starting.start(Machine(visible=True))
    failing = starting.start(Machine(visible=True, initialize=[RuntimeError("of its own")]))
    assert FALLING_BACK in missing.lines[-1]
    assert FALLING_BACK in failing.lines[-1]
    assert "RuntimeError: of its own" in failing.lines
    others = [cause for cause, texts in reports(0).items() if FALLING_BACK in "".join(texts)]
    assert {"no plugin", "no driver", "gpu hidden", "foreign library"} <= set(others)


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
    told = starting.start(machine)
    assert told.backend.startswith(backend)
    assert bool(told.backend) == bool(backend)
    assert error in told.error


def test_the_stage_leaves_nothing_behind() -> None:
    logger = logging.getLogger(jax.devices.__module__)
    before = jax.devices(), logger.handlers[:], logger.propagate, jax.config.jax_platforms
    reports(3)
    assert before == (jax.devices(), logger.handlers, logger.propagate, jax.config.jax_platforms)


def test_a_name_that_is_gone_is_said() -> None:
    machine = Machine(visible=True, initialize=[RuntimeError("x")])
    bridge = mock.patch("grader.probes.staging._bridge", side_effect=starting.Gone("moved"))
    with bridge, pytest.raises(starting.Gone, match="moved"):
        starting.start(machine)
    with (
        mock.patch("jaxlib.plugin_support.check_plugin_version", None),
        pytest.raises(starting.Gone, match="check_plugin_version"),
    ):
        starting.plugin_mismatch("jax_cuda13_plugin", "0.12.0", "0.11.0")


def test_versions_that_fit_are_no_report() -> None:
    """A stage that says nothing of a fault is noticed."""
    with pytest.raises(starting.Gone, match="does not mind"):
        starting.plugin_mismatch("jax_cuda13_plugin", "0.12.0", "0.12.0")
    with pytest.raises(starting.Gone, match="does not mind"):
        starting.jaxlib_mismatch("0.12.0", "0.12.0", "0.12.0")
