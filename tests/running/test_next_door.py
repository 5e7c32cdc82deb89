"""Gradings on a device next door: the book counts, the probes give the lines, and both agree."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from grader.course import catalog
from grader.course.catalog import Entry
from grader.device.start import CouldNotStart
from grader.judging import witness
from grader.judging.judge import judge
from grader.records.record import Observed, Record
from grader.running.grade import grade
from grader.running.messages import DriveJob
from grader.running.session import Options, Session, modules_of
from grader.running.sides import Place, drive

EX07, EX02 = Entry("ex07_quiet_loop"), Entry("ex02_mixed_devices")
OBSERVED = "no_reads_in_loop"


@pytest.fixture(scope="module")
def next_door() -> Iterator[Session]:
    """Workers that are clients of devices next door."""
    with Session(Options(device="next-door"), modules_of(catalog.entries())) as found:
        yield found


def observed(session: Session, entry: Entry, source: str, devices: int = 1) -> Observed:
    """What was observed of a source that no policy has looked at."""
    job = DriveJob(entry.drive_module, entry.file_name, source, 7)
    found, _ = drive(session, Place("next-door", devices), job, hide=True)
    return found


def counts(observed: Observed, kind: str) -> Counter[str]:
    """Phase -> events of one kind, as they are judged."""
    found: Counter[str] = Counter()
    for event in witness.counted(observed).events:
        if event.kind == kind:
            found[event.phase] += event.count
    return found


def of_the_book(observed: Observed, kind: str) -> Counter[str]:
    """Phase -> events of one kind, as the book alone has them."""
    assert observed.witnessed is not None
    assert observed.witnessed.problem == ""
    found: Counter[str] = Counter()
    for event in observed.witnessed.events:
        if event.kind == kind:
            found[event.phase] += event.count
    return found


def train(read: str, before: str = "") -> str:
    """ex07's starter, but for how a loss is read: `read` makes it of `loss`, in one line."""
    source: str = (ROOT / "exercises" / "ex07_quiet_loop.py").read_text("utf-8")
    assert source.count("losses.append(float(loss))") == 1
    return before + source.replace("losses.append(float(loss))", f"losses.append(float({read}))")


ORIGINAL = """
import jax
import numpy as np

def original(name):
    found = type(jax.numpy.zeros(())).__dict__[name]
    wrapper = found.fget if isinstance(found, property) else found
    cells = [cell.cell_contents for cell in wrapper.__closure__]
    return next(each for each in cells if callable(each) and each.__name__ != "before"
                and "_before" not in each.__name__)
"""
HELD = """
import jax

class Reads:
    def __init__(self, array):
        self.array = array
    def block_until_ready(self):
        self.value = float(self.array)
        return self
    def copy_to_host_async(self):
        self.value = float(self.array)

def inside_a_wait(array):
    reader = Reads(array)
    jax.block_until_ready(reader)
    return reader.value

def inside_a_copy(array):
    reader = Reads(array)
    jax.copy_to_host_async(reader)
    return reader.value
"""
RESTORED = (
    ORIGINAL
    + """
def restored(array):
    kind = type(array)
    wrapped = kind._value
    kind._value = property(original("_value"))
    try:
        return array._value
    finally:
        kind._value = wrapped
"""
)
WAYS = {
    "of C++, with its flag": ("loss._single_device_array_to_np_array_did_copy()[0]", ""),
    "of C++, unbound": ("type(loss)._single_device_array_to_np_array_did_copy(loss)[0]", ""),
    "of C++, on a shard": (
        "loss.addressable_shards[0].data._single_device_array_to_np_array_did_copy()[0]",
        "",
    ),
    "of C++, started first": (
        "(loss._copy_single_device_array_to_host_async(), "
        "loss._single_device_array_to_np_array_did_copy())[1][0]",
        "",
    ),
    "of C++, of a copy": ("loss.copy()._single_device_array_to_np_array_did_copy()[0]", ""),
    "the getter from its wrapper's closure": ("original('_value')(loss)", ORIGINAL),
    "that getter, on a shard": ("original('_value')(loss.addressable_data(0))", ORIGINAL),
    "inside what looks like a started copy": ("inside_a_copy(loss)", HELD),
    "the type, restored for a moment": ("restored(loss)", RESTORED),
    "inside what looks like a wait": ("inside_a_wait(loss)", HELD),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_read_by_a_way_that_no_wrapper_knows_is_counted(way: str, next_door: Session) -> None:
    """The held-out idea, ten times. Every step's loss is read, and no probe sees a single one."""
    found = observed(next_door, EX07, train(*WAYS[way]))
    assert found.outcome.kind == "finished", found.outcome
    blind = [e for e in found.events if e.kind == "d2h" and e.phase]
    assert not blind, "a probe sees this read: it is no test of the book"
    steps = {f"{count} steps": count for count in found.facts["runs"]}
    assert counts(found, "d2h") == of_the_book(found, "d2h") == steps
    record = Record(EX07.stem, "x.py", train(*WAYS[way]), 7, submission=found, reference=found)
    verdicts = {verdict.check: verdict for verdict in judge(record, EX07.exercise).verdicts}
    assert verdicts[OBSERVED].status == "fail"


def test_the_book_and_the_probes_agree(next_door: Session) -> None:
    source = EX07.solution.read_text("utf-8")
    found = observed(next_door, EX07, source)
    probes: Counter[str] = Counter()
    for event in found.events:
        if event.kind == "d2h":
            probes[event.phase] += event.count
    assert probes == of_the_book(found, "d2h") == {f"{n} steps": n for n in found.facts["runs"]}
    assert counts(found, "d2h") == probes
    assert found.witnessed is not None
    lines = {e.line for e in found.witnessed.events if e.kind == "d2h"}
    assert lines == {e.line for e in found.events if e.kind == "d2h"} != {None}


def test_a_copy_between_devices_has_its_line(next_door: Session) -> None:
    path = ROOT / "tests/variants/ex02_mixed_devices/wrong/device_put_in_the_loop.py"
    record = grade(EX02, path, next_door)
    report = judge(record, EX02.exercise)
    failed = [verdict for verdict in report.verdicts if verdict.status == "fail"]
    assert [verdict.check for verdict in failed] == ["no_copy_in_the_loop"]
    assert "device_put" in failed[0].culprits[0].text
    assert record.machine is not None
    assert record.machine.device_kind == "next door"


def test_what_a_worker_says_of_the_book_is_replaced(next_door: Session) -> None:
    """The record's counts come from the device, whatever a worker's answer claims."""
    found = observed(next_door, EX07, EX07.solution.read_text("utf-8"))
    assert found.witnessed is not None
    assert found.witnessed.events


def test_where_no_device_can_be_started_simulated_ones_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise CouldNotStart("the protocol of this jaxlib is unknown")

    monkeypatch.setattr("grader.running.next_door.Nursery.start", refuse)
    with Session(Options(device="next-door"), modules_of([EX02])) as session:
        record = grade(EX02, EX02.solution, session)
    assert record.machine is not None
    assert record.machine.simulated
    assert record.machine.instead == "the protocol of this jaxlib is unknown"
    assert judge(record, EX02.exercise).exit_code == 0


def test_an_exercise_that_gains_nothing_runs_on_simulated_devices(next_door: Session) -> None:
    entry = Entry("ex01_find_devices")
    record = grade(entry, Path(entry.solution), next_door)
    assert record.machine is not None
    assert record.machine.instead == "this exercise asks for nothing that needs one"
    assert record.submission is not None
    assert record.submission.witnessed is not None
    assert record.submission.witnessed.by == "trace"
