"""A held step: a loop that runs ahead passes, and one that waits is found, by any means."""

import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from grader.stages import held
from grader.stages.held import Held

STEPS = 40


@jax.jit
def _step(total: Any, x: Any) -> Any:
    return total + x.sum(), (total * x).sum()


def _waited(between: Callable[[Any, Any], object]) -> list[int]:
    """The steps waited for; `between` gets the losses of this step and of the one before."""
    steps, total, before = Held(), jnp.zeros(()), None
    for _ in range(STEPS):
        total, loss = steps.hold(_step(total, jnp.ones((8, 8))))
        between(loss, before)
        before = loss
    steps.release()
    jax.block_until_ready(total)
    return steps.waited


def _late(_: Any, before: Any) -> None:
    if before is not None:
        float(before)


def _poll(loss: Any, _: Any) -> None:
    while not loss.is_ready():
        time.sleep(0.001)


def test_a_loop_that_runs_ahead_waits_for_nothing() -> None:
    assert _waited(lambda loss, before: None) == []


def test_a_read_one_step_late_is_no_wait() -> None:
    assert _waited(_late) == []


@pytest.mark.parametrize("wait", [lambda loss, before: float(loss), _poll])
def test_a_wait_is_found_and_only_the_first_one_costs_time(wait: Callable[[Any, Any], Any]) -> None:
    assert len(_waited(wait)) == 1


def test_a_host_that_is_slow_to_call_the_next_program_does_not_hide_its_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a step waits for has ended before the host gets to run again, so it takes longer."""
    multiplied = held._multiplied

    def slowly(*before: Any) -> Any:
        after = multiplied(*before)
        time.sleep(0.005)
        return after

    monkeypatch.setattr(held, "_multiplied", slowly)
    assert len(_waited(_poll)) == 1


@pytest.mark.parametrize(("runs", "came"), [(0.0, True), (1.0, False)])
def test_a_host_that_others_keep_from_running_is_not_taken_for_one_that_waits(
    runs: float, came: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ready to run all the time; `runs` is the share of the time in which it does."""

    def active() -> held._Active:
        return held._Active(runs * time.monotonic(), time.monotonic())

    monkeypatch.setattr(held, "_active", active)
    monkeypatch.setattr(held, "LONGEST_SECONDS", 0.1)
    event = threading.Event()
    threading.Timer(1.0, event.set).start()
    assert held._came(event) is came


def test_a_thread_that_is_ready_and_never_gets_its_turn_is_not_asleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it waits for a processor is written down only when it has one."""
    monkeypatch.setattr(held, "_active", lambda: held._Active(0.0, 0.0))
    turns = iter([True, True, False])
    monkeypatch.setattr(held, "_ready", lambda: next(turns))
    start = time.monotonic()
    assert not held._came(threading.Event())
    assert time.monotonic() - start >= 3 * held.IDLE_SECONDS
    assert next(turns, None) is None
