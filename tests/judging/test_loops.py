"""What `grader.judging.loops` finds in a loop's calls, and in the reads between them."""

import msgspec
import numpy as np
import pytest

from grader.judging.arrays import dump
from grader.judging.loops import (
    Call,
    calls_of,
    early_step,
    kept,
    most_ahead,
    not_the_last,
    rounded,
    stalls,
    unjudged,
)
from grader.records.record import Event, Leaf, Observed, Outcome, Record

EAGER: list[Call] = [("put", 0), ("step", 0), ("put", 1), ("stop", 0), ("step", 1), ("stop", 1)]
LATE: list[Call] = [("put", 0), ("step", 0), ("stop", 0), ("put", 1), ("step", 1), ("stop", 1)]


def record(calls: list[Call], *reads: int) -> Record:
    """A record of one run; each of `reads` is the number of calls before a read."""
    events = [Event("d2h", "run", step=place, line=7) for place in reads]
    seen = Observed(Outcome("finished"), facts={"calls of run": calls}, events=events)
    return Record("ex", "", "", 0, submission=seen)


def test_a_next_batch_that_is_put_first_is_no_stall() -> None:
    assert list(stalls(record(EAGER, 3, 5), "run", 2)) == []


def test_a_wait_before_the_next_batch_is_put_is_a_stall() -> None:
    assert list(stalls(record(LATE), "run", 2)) == [(0, None)]


def test_a_read_that_only_the_probe_saw_is_a_stall_with_its_line() -> None:
    found = list(stalls(record(EAGER, 2), "run", 2))
    assert [(step, event and event.line) for step, event in found] == [(0, 7)]


def test_after_the_last_batch_there_is_nothing_to_put() -> None:
    assert list(stalls(record(LATE[:3]), "run", 1)) == []


def test_reads_of_another_run_do_not_count() -> None:
    assert list(stalls(record([("put", 0), ("step", 0)]), "run", 2)) == []
    assert calls_of(record(EAGER), "run") == EAGER


@pytest.mark.parametrize(
    ("calls", "step"),
    [
        (EAGER, None),
        ([("step", 0), ("step", 1)], 1),
        ([("step", 0), ("stop", 0), ("step", 1)], None),
    ],
)
def test_a_step_before_the_verdict_on_the_last_is_early(
    calls: list[Call], step: int | None
) -> None:
    assert early_step(calls) == step


def test_batches_ahead_are_those_without_a_step() -> None:
    assert most_ahead(EAGER, "put") == 1
    assert most_ahead([("put", 0), ("put", 1), ("step", 0), ("put", 2)], "put") == 2


@pytest.mark.parametrize(
    ("told", "observed"),
    [
        ([(0, "float", 2.0), (1, "float32", 1.0)], ""),
        ([(0, "float", 2.0), (0, "float", 2.0), (1, "float", 1.0)], ""),
        ([(0, "float", 2.0)], "it was called after 1 step of 2 (run of run)"),
        ([], "`stop` was never called (run of run)"),
        ([(0, "float", 2.0), (1, "float", 2.0)], "the loss of step 0 (run of run)"),
        ([(0, "float", 1.5)], "a number that is no step's loss (run of run)"),
        ([(0, "ArrayImpl", 2.0)], "the loss of step 0, as a jax.Array (run of run)"),
    ],
)
def test_stop_gets_the_loss_of_the_step_before_as_a_float(
    told: list[tuple[int, str, float]], observed: str
) -> None:
    of_run = record(EAGER)
    assert of_run.submission is not None
    of_run.submission.facts |= {"losses in run": [2.0, 1.0], "told in run": told}
    found = unjudged(of_run, "run")
    assert (found[1].removeprefix("it got ") if found else "") == observed


@pytest.mark.parametrize(
    ("alive", "observed"),
    [
        ([10, 10 + 7], ""),
        ([10, 10 + 10 + 7 * 2], ""),  # batch 1, batch 0 as well, and the params of both steps
        ([10, 11 + 10 + 7 * 2], "when step 1 begins, 25 bytes are there besides the batches"),
        ([61, 10], "when step 0 begins, 51 bytes are there besides the batches"),
    ],
)
def test_what_no_step_waits_for_may_be_held_by_a_few_names(alive: list[int], observed: str) -> None:
    of_run = record(EAGER)
    assert of_run.submission is not None
    of_run.submission.facts |= {"alive in run": alive, "aged in run": []}
    of_run.reference = Observed(
        Outcome("finished"), facts={"bytes of a batch and of params": {"run": (10, 7)}}
    )
    found = kept(of_run, "run")
    assert (found[1].partition(" that wait")[0] if found else "") == observed


def test_what_a_step_before_the_last_one_was_given_is_gone() -> None:
    of_run = record(EAGER)
    assert of_run.submission is not None
    of_run.submission.facts |= {"alive in run": [10, 17], "aged in run": [(3, 1), (4, 1)]}
    of_run.reference = Observed(
        Outcome("finished"), facts={"bytes of a batch and of params": {"run": (10, 7)}}
    )
    found = kept(of_run, "run")
    assert found is not None
    assert found[1].startswith("when step 3 begins, something that step 1 was given is still there")


@pytest.mark.parametrize(
    ("kind", "observed"), [("device", ""), ("pinned_host", "it is on cpu:0 pinned_host")]
)
def test_what_the_last_step_returned_lies_where_that_put_it(kind: str, observed: str) -> None:
    last = Leaf("", "jax", "ArrayImpl", (), "float64", "cpu", (0,), memory_kind="device")
    last = msgspec.structs.replace(last, data=dump(np.array(1.0)))
    mine = msgspec.structs.replace(last, memory_kind=kind)
    values = {"params after run": [mine], "last in run": [last]}
    seen = Observed(Outcome("finished"), values)
    found = not_the_last(Record("ex", "", "", 0, submission=seen), "run", "params after run")
    assert (found.observed if found else "") == observed


@pytest.mark.parametrize(("loss", "named"), [(1.2345678, False), (1.23457, True)])
def test_a_loss_is_the_number_that_its_step_returned(loss: float, named: bool) -> None:
    leaf = Leaf("[0]", "python", "float", data=dump(np.array(loss)))
    told = {"losses in run": [1.2345678]}
    seen = Observed(Outcome("finished"), {"losses of run": [leaf]}, facts=told)
    found = rounded(Record("ex", "", "", 0, submission=seen), "run")
    assert (found is not None) == named
