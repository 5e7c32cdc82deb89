"""Workers and sessions from outside: waiting, cancelling, lying answers."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fenced
import msgspec
import pytest
from fenced import ATTACKS, SECONDS, Place

from grader.judging.judge import judge
from grader.records import stack_dump
from grader.records.record import Machine, Observed, Outcome
from grader.running import grade, launch, messages, process, session, sides
from grader.running.launch import BrokenInstallation
from grader.running.messages import Ended, Request, Setup
from grader.running.process import Failed, Worker
from grader.running.session import NoDevice, Options, Session


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One fenced session."""
    with fenced.place(tmp_path_factory.mktemp("process")) as opened:
        yield opened


class Silent:
    """A control of a worker that is only a pair of pipes."""

    def __init__(self) -> None:
        self.fences: list[str] = []

    def ended(self) -> Ended | None:
        return None

    def lost(self) -> str:
        return ""

    def cancel(self) -> None:
        return None

    def close(self) -> None:
        return None


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[tuple[Worker, int, int]]:
    """A worker, and the ends of its result and output pipes that a process would hold."""
    inbox, result, output = os.pipe(), os.pipe(), os.pipe()
    (tmp_path / "stack").touch()
    worker = Worker(inbox[1], result[0], output[0], (tmp_path / "stack").open("rb"), Silent())
    yield worker, result[1], output[1]
    worker.close()
    for fd in (inbox[0], result[1], output[1]):
        os.close(fd)


def test_answer(pipes: tuple[Worker, int, int]) -> None:
    worker, result, output = pipes
    os.write(output, b"hello")
    os.write(result, messages.frame(Setup("cpu", 1)) + messages.frame(Setup("gpu", 2)))
    assert msgspec.json.decode(worker.answer(1))["platform"] == "cpu"
    assert msgspec.json.decode(worker.answer(1))["platform"] == "gpu"
    assert worker.output() == "hello"
    worker.forget_output()
    assert worker.output() == ""


def test_cancel_wakes_who_waits(pipes: tuple[Worker, int, int]) -> None:
    worker, _, _ = pipes
    threading.Timer(0.1, worker.cancel).start()
    started = time.monotonic()
    with pytest.raises(Failed, match="stopped by the grader"):
        worker.answer(60)
    assert time.monotonic() - started < 2


def test_a_crash_in_printing_the_stack_of_a_late_run_is_lateness(
    pipes: tuple[Worker, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, result, _ = pipes
    monkeypatch.setattr(Silent, "ended", lambda _: Ended(signal=signal.SIGSEGV))
    os.dup2(os.open(os.devnull, os.O_WRONLY), result)  # its end of the line is closed
    with pytest.raises(Failed, match="signal 11"):
        worker.answer(60)
    (tmp_path / "stack").write_text("Timeout (0:00:59)!\n", "utf-8")
    with pytest.raises(Failed, match="still running after 60 s"):
        worker.answer(60)


def test_too_much_output(pipes: tuple[Worker, int, int]) -> None:
    worker, _, output = pipes

    def flood() -> None:
        with contextlib.suppress(BrokenPipeError):
            while True:
                messages.write_all(output, b"x" * (1 << 20))

    writer = threading.Thread(target=flood)
    writer.start()
    with pytest.raises(Failed, match="more than 16 MiB") as failed:
        worker.answer(30)
    assert len(failed.value.outcome.output) <= process.TAIL
    worker.close()
    writer.join()


def test_output_is_not_read_to_its_end_from_a_process_that_prints_on(
    pipes: tuple[Worker, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, _, output = pipes
    monkeypatch.setattr(process, "PIPE", 10)
    os.write(output, b"x" * 15)
    assert worker.output() == "x" * 10


def test_stack_of_several_threads() -> None:
    stack = """Timeout (0:00:02)!
Thread 0x00007f01 (most recent call first):
  File "mine.py", line 1 in helper
Thread 0x00007f02 (most recent call first):
  File "/lib/threading.py", line 9 in wait
  File "mine.py", line 3 in inner
  File "mine.py", line 2 in outer
  File "/lib/runpy.py", line 8 in run
"""
    source = "first\nsecond\n  third\n"
    frames = stack_dump.frames_in(stack, "mine.py", source)
    assert [(f.line, f.function, f.text) for f in frames] == [
        (2, "outer", "second"),
        (3, "inner", "third"),
    ]
    crash = stack.replace("Thread 0x00007f01", "Current thread 0x00007f01")
    assert [f.line for f in stack_dump.frames_in(crash, "mine.py", source)] == [1]
    assert stack_dump.frames_in("", "mine.py", source) == []


def test_a_forged_answer_is_worth_no_more_than_a_right_one(place: Place) -> None:
    """Without the policy, code can speak for its worker: this is why there is a policy.

    Even so it must say what only a run that was drawn can tell.
    """
    text = (ATTACKS / "answer_of_garbage.py").read_text("utf-8")
    forged = text.replace(
        'b"\\xff{]" * 50',
        """b'{"outcome": {"kind": "finished"}, "values": {}, "trees": {}}'""",
    )
    assert forged != text
    record, report = place.grade(fenced.submission(forged), policy=False)
    assert record.submission is not None
    assert record.submission.outcome.kind == "finished"
    assert report.exit_code == 1
    failed = [v.check for v in report.verdicts if v.status == "fail"]
    assert failed == ["one_step_for_each_batch", "batches_as_they_come"]


def test_a_submission_cannot_say_that_the_grader_broke(place: Place) -> None:
    text = (ATTACKS / "answer_of_garbage.py").read_text("utf-8")
    forged = text.replace(
        'b"\\xff{]" * 50', """b'{"outcome": {"kind": "broken", "message": "not me"}}'"""
    )
    assert forged != text
    record, report = place.grade(fenced.submission(forged), policy=False)
    assert record.submission is not None
    assert (record.broken, record.submission.outcome.kind) == ("", "unusable")
    assert report.exit_code == 1
    assert report.verdicts[1].observed.endswith("the run ended in its own words: not me")


def test_a_fault_in_one_grading_costs_the_next_one_nothing(tmp_path: Path) -> None:
    (path := tmp_path / fenced.FILE).write_text(fenced.solution(), "utf-8")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("by accident")

    with fenced.place(tmp_path) as opened:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grade, "_collect", broken)
            record = grade.grade(fenced.untimed(), path, opened.session)
        assert record.broken.startswith("ZeroDivisionError: by accident (test_process.py:")
        record = grade.grade(fenced.untimed(), path, opened.session)
        assert judge(record, fenced.untimed().exercise).exit_code == 0


def test_a_reference_that_was_kept_from_its_time_runs_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (path := tmp_path / fenced.FILE).write_text(fenced.solution(), "utf-8")
    drive, failed = sides.drive, []

    def starved(*args: Any, hide: bool) -> tuple[Observed, Machine]:
        observed, machine = drive(*args, hide=hide)
        if not hide and not failed:
            failed.append(observed)
            observed = Observed(Outcome("timeout", "still running after 3 s"))
        return observed, machine

    monkeypatch.setattr(sides, "drive", starved)
    record = grade.grade(fenced.untimed(), path, place.session)
    assert len(failed) == 1
    assert record.broken == ""
    assert judge(record, fenced.untimed().exercise).exit_code == 0


def test_lines_of_the_log_can_be_added_not_hidden(place: Place) -> None:
    """What is printed before the guard's line, and without an end, hides no transfer."""
    copies = """import sys
import numpy


def train(step, params, batches):
    losses = []
    for batch in batches:
        SAY
        params, loss = step(params, jax.device_put(jax.tree.map(numpy.asarray, batch)))
        losses.append(loss)
    return params, [float(loss) for loss in losses]
"""
    counts = []
    for say in ("pass", 'sys.stderr.write("] device-to-host transfer: ")'):
        record, _ = place.grade(fenced.submission(copies.replace("SAY", say)), policy=False)
        assert record.submission is not None
        counts.append(sum(e.count for e in record.submission.events if e.kind == "h2d"))
    assert counts[0] == counts[1] > 0


def test_outcome_when_the_reference_is_not_to_blame(place: Place) -> None:
    record, report = place.grade(fenced.solution())
    assert report.exit_code == 0
    assert record.machine is not None
    assert record.machine.refused == []
    assert any(line.startswith("namespaces") for line in record.machine.isolation)


# Sessions.


def test_session_leaves_nothing_open(tmp_path: Path) -> None:
    files, fds = fenced.files_left(), fenced.open_files()
    mounts = Path("/proc/self/mountinfo").read_text()
    with fenced.place(tmp_path) as opened:
        opened.session.prepare("cpu", 2, observe=False, hide=True)
        assert opened.left()
    assert fenced.open_files() <= fds
    assert fenced.files_left() == files
    assert Path("/proc/self/mountinfo").read_text() == mounts


def test_cancelled_session(tmp_path: Path) -> None:
    with fenced.place(tmp_path) as opened:
        opened.session.cancel()
        with pytest.raises(Failed, match="stopped by the grader"):
            opened.session.prepare("cpu", 1, observe=True, hide=True)


def test_workers_stand_by_for_one_kind_of_submission(tmp_path: Path) -> None:
    """`grader watch` goes from exercise to exercise: what stood by for the last one ends."""
    each = 3  # supervisor, init, worker
    with fenced.place(tmp_path) as opened:
        opened.session.stand_by("cpu", 2, program=True)
        _until(lambda: len(opened.left()) == 2 * each)
        before = opened.left()
        opened.session.stand_by("cpu", 3, program=False)
        _until(lambda: len(opened.left()) == each and not opened.left() & before)
        now = opened.left()
        opened.session.stand_by("cpu", 3, program=False)
        assert opened.session.prepare("cpu", 3, observe=True, hide=True).machine.devices == 3
        assert opened.left() == now, "it was ready"


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_modules_that_cannot_be_imported() -> None:
    with (
        Session(Options(device="cpu"), ["no_such_module"]) as opened,
        pytest.raises(BrokenInstallation, match="`import no_such_module`: ModuleNotFoundError"),
    ):
        opened.prepare("cpu", 1, observe=True, hide=True)


def test_a_worker_that_dies_before_it_names_a_device(place: Place) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "MEMORY", 1 << 20)
        with pytest.raises(NoDevice, match=r"JAX did not live|[Mm]emory"):
            place.session.prepare("cpu", 8, observe=True, hide=True)
    assert place.ended()


def test_the_fork_server_has_one_thread(place: Place) -> None:
    """A fork copies one thread; locks that others hold would stay locked for ever."""
    place.grade(fenced.solution())
    (server,) = place.kept
    assert len(list(Path(f"/proc/{server}/task").iterdir())) == 1


def test_the_fork_server_dies(tmp_path: Path) -> None:
    """That is no fault of the learner's, and takes every worker with it."""
    text = (ATTACKS / "loop_in_python.py").read_text("utf-8")
    with fenced.place(tmp_path) as opened:
        opened.grade(fenced.solution())
        (server,) = opened.kept
        threading.Timer(1.0, os.kill, (server, signal.SIGKILL)).start()
        with pytest.raises(AssertionError, match="the fork server ended with code -9"):
            opened.grade(fenced.submission(text))
        assert opened.ended()


def test_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag")
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    found = launch.environment("/scratch")
    assert not {"SECRET_TOKEN", "XLA_FLAGS", "JAX_PLATFORMS"} & set(found)
    assert (found["HOME"], found["TMPDIR"]) == ("/scratch", "/scratch")


def test_time_is_measured_from_outside(place: Place) -> None:
    started = time.monotonic()
    text = (ATTACKS / "stopped.py").read_text("utf-8")
    place.grade(fenced.submission(text), policy=False)
    assert SECONDS <= time.monotonic() - started < SECONDS + 5


def test_request_is_small() -> None:
    """It must fit one packet to the fork server."""
    request = Request(launch.environment("/scratch"), session.hidden_folders(), 1 << 33)
    assert len(msgspec.json.encode(request)) < 1 << 16
