"""Engines do one thing at a time, in the order of asking, and modelled time passes."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from grader.device.executor.schedule import Schedule, Value, Work


class Machine:
    """A schedule, and what has ended on it."""

    def __init__(self) -> None:
        self.schedule = Schedule(8)
        self.ended: list[str] = []
        self.works: dict[str, Work] = {}
        self._all = threading.Semaphore(0)

    def ask(
        self,
        name: str,
        engines: Sequence[str],
        needs: Sequence[Value] = (),
        seconds: float = 0.0,
        do: Callable[[], Sequence[Any]] | None = None,
        quick: bool = False,
    ) -> Value:
        made = Value()

        def ended(work: Work) -> None:
            self.ended.append(name)
            self._all.release()

        work = Work(engines, needs, [made], do or (lambda: [name]), ended, seconds, quick=quick)
        self.works[name] = work
        self.schedule.ask(work)
        return made

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self._all.acquire(timeout=30)


@pytest.fixture
def on() -> Machine:
    return Machine()


def test_an_engine_works_in_the_order_of_asking(on: Machine) -> None:
    late = Value()
    on.ask("first", ["a"], [late])
    on.ask("second", ["a"], quick=True)
    on.ask("elsewhere", ["b"], quick=True)
    assert on.ended == ["elsewhere"]
    on.schedule.settle(late, 1)
    on.wait(3)
    assert on.ended == ["elsewhere", "first", "second"]


def test_work_waits_for_what_it_needs(on: Machine) -> None:
    seen: list[Any] = []
    one = on.ask("one", ["a"], seconds=0.05)

    def use() -> list[Any]:
        seen.append(one.result)
        return [2]

    two = on.ask("two", ["b"], [one, one], do=use)
    on.wait(2)
    assert seen == ["one"]
    assert two.result == 2
    assert on.works["two"].start >= on.works["one"].end


def test_modelled_times_add_up_on_one_engine_and_overlap_on_two(on: Machine) -> None:
    for number in range(3):
        on.ask(f"copy {number}", ["in"], seconds=0.1)
    on.ask("compute", ["compute"], seconds=0.3)
    on.wait(4)
    copies = [on.works[f"copy {number}"] for number in range(3)]
    compute = on.works["compute"]
    assert copies[2].end - copies[0].start == pytest.approx(0.3)
    assert [round(work.end - work.start, 6) for work in copies] == [0.1] * 3
    assert compute.end - compute.start == pytest.approx(0.3)
    assert compute.start < copies[1].start < compute.end


def test_an_error_goes_to_all_that_need_it_and_holds_up_nothing(on: Machine) -> None:
    def fail() -> list[Any]:
        raise ValueError("on purpose")

    one = on.ask("one", ["a"], do=fail, seconds=9.0)
    two = on.ask("two", ["b"], [one])
    three = on.ask("three", ["a", "b"])
    on.wait(3)
    assert str(one.error) == str(two.error) == "on purpose"
    assert (three.error, three.result) == (None, "three")


def test_work_on_two_engines_takes_both(on: Machine) -> None:
    on.ask("both", ["a", "b"], seconds=0.05)
    on.ask("a", ["a"])
    on.ask("b", ["b"])
    on.wait(3)
    assert on.ended[0] == "both"


def test_a_thousand_works_in_one_chain_end(on: Machine) -> None:
    """A chain is worked off in a loop: its length is no depth of calls."""
    value = on.ask("0", ["a"])
    for number in range(1, 3000):
        value = on.ask(str(number), ["a"], [value])
    on.wait(3000)
    assert on.ended == [str(number) for number in range(3000)]


def test_many_threads_ask_at_once(on: Machine) -> None:
    def ask(which: int) -> None:
        for number in range(200):
            on.ask(f"{which}-{number}", [f"engine {number % 3}", "all"], quick=bool(number % 2))

    threads = [threading.Thread(target=ask, args=(which,)) for which in range(5)]
    for thread in threads:
        thread.start()
    on.wait(1000)
    starts = sorted((work.start, work.end) for work in on.works.values())
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(starts))
    assert time.monotonic() >= starts[-1][1]
