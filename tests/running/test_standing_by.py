"""Workers that one command leaves standing by for the next: used, refused, replaced, ended.

Sessions here join one fork server, as commands at a terminal join a kept one.
"""

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import fenced
import msgspec
import pytest
from fenced import TOKEN

from grader.course.catalog import Entry
from grader.judging.judge import judge
from grader.records.record import Record
from grader.running import grade, kept, launch, session
from grader.running.launch import ForkServer, KeptForkServer
from grader.running.messages import Left, Request
from grader.running.process import Worker
from grader.running.session import Options, Session, modules_of
from grader.running.sides import reference_job

DEVICES, NUMBERS = Entry("ex01_find_devices"), Entry("ex30_roofline")
"""Their references tell little: one that tells more than a pipe holds waits to be read."""
PROCESSES = 3
"""Of one worker: its supervisor, its init, and itself."""
SECONDS = 60.0


@pytest.fixture(scope="module")
def token() -> str:
    """What is in the environment of all processes of this module."""
    return f"token-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def shared(token: str) -> Iterator[ForkServer]:
    """One server for all tests; no process may outlive it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN, token)
        opened = ForkServer(modules_of([DEVICES, NUMBERS]))
    yield opened
    opened.close()
    assert not fenced.processes(token)


@pytest.fixture
def server(shared: ForkServer, token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """A server that every session of a test joins, and for which nothing stands by yet."""
    monkeypatch.setattr(kept, "PATIENCE", SECONDS)  # the first session waits for its imports
    monkeypatch.setattr(session, "launcher", lambda *_, **__: KeptForkServer(shared._socket.dup()))
    yield shared
    for _, worker in launch._taken(shared._socket, str):
        worker.close()
    wait_until(lambda: fenced.processes(token) == {shared._process.pid})


def check(entry: Entry, path: Path | None = None, more: Options | None = None) -> Record:
    """What `grader check` does at a terminal."""
    options = more or Options(device="cpu", kept=True)
    with Session(options, modules_of([entry])) as opened:
        ahead = grade.try_ahead(entry, opened, None)
        record = grade.grade(entry, path or entry.solution, opened, ahead=ahead)
        grade.leave_ahead(entry, opened, None)
    return record


def not_passed(record: Record, entry: Entry = DEVICES) -> list[str]:
    """The checks that it does not pass, and what was observed, or why nothing was."""
    verdicts = judge(record, entry.exercise).verdicts
    return [f"{v.check}: {v.observed or v.reason}" for v in verdicts if v.status != "pass"]


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what must come."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def standing_by(server: ForkServer, token: str) -> set[int]:
    """The processes of the submission's worker that stands by, once the reference is done."""
    found: set[int] = set()

    def only_one() -> bool:
        found.clear()
        found.update(fenced.processes(token) - {server._process.pid})
        return len(found) == PROCESSES and sum(map(is_supervisor, found)) == 1

    def is_supervisor(pid: int) -> bool:
        try:
            return f"\nPPid:\t{server._process.pid}\n" in Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return False

    wait_until(only_one)
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The workers that had to be started."""
    found: list[Request] = []
    start = KeptForkServer.start

    def noted(self: KeptForkServer, request: Request) -> Worker:
        found.append(request)
        return start(self, request)

    monkeypatch.setattr(KeptForkServer, "start", noted)
    return found


def test_the_next_check_starts_no_worker(
    server: ForkServer, token: str, started: list[Request]
) -> None:
    """It finds one that is ready, and a reference that is done; each check has its own seed."""
    seeds = []
    for workers in (2, 0, 0):
        record = check(DEVICES)
        assert not not_passed(record)
        assert len(started) == workers
        started.clear()
        assert record.machine is not None
        assert record.machine.isolation
        assert not record.machine.refused
        seeds.append(record.seed)
        standing_by(server, token)
    assert len(set(seeds)) == len(seeds)


def test_a_wrong_file_fails_all_the_same(server: ForkServer, tmp_path: Path) -> None:
    path = tmp_path / DEVICES.file_name
    text = DEVICES.solution.read_text("utf-8")
    assert "return 0" in text
    path.write_text(text.replace("return 0", "return 1"), "utf-8")
    found = [not not_passed(check(DEVICES, each)) for each in (None, path, None)]
    assert found == [True, False, True]


def test_another_exercise_uses_none(server: ForkServer, token: str, started: list[Request]) -> None:
    """What stood by for the other ends."""
    check(DEVICES)
    before = standing_by(server, token)
    started.clear()
    assert not not_passed(check(NUMBERS), NUMBERS)
    assert started
    assert not before & standing_by(server, token)


@pytest.mark.parametrize(
    "more",
    [
        Options(device="cpu", kept=True, timeout=30),
        Options(device="cpu", kept=True, devices=7),
        Options(device="cpu", kept=True, fenced=False),
    ],
    ids=["timeout", "devices", "fences"],
)
def test_what_was_started_otherwise_is_not_used(
    more: Options, server: ForkServer, token: str, started: list[Request]
) -> None:
    check(DEVICES)
    standing_by(server, token)
    started.clear()
    check(DEVICES, more=more)
    assert len(started) == 2


def test_a_reference_of_before_an_edit_is_not_used(server: ForkServer, token: str) -> None:
    check(DEVICES)
    standing_by(server, token)
    with Session(Options(device="cpu", kept=True), modules_of([DEVICES])) as opened:
        job = reference_job(DEVICES, 0, None)
        edited = msgspec.structs.replace(job, source=job.source + "# edited\n")
        assert opened.take_left(edited) is None
        wait_until(lambda: fenced.processes(token) == {server._process.pid})


@pytest.mark.parametrize("seen", [True, False])
def test_those_that_died_are_replaced(
    seen: bool,
    server: ForkServer,
    token: str,
    started: list[Request],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where memory runs out, they are the first to go; maybe so late that nobody sees it yet."""
    check(DEVICES)
    for pid in standing_by(server, token):
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: fenced.processes(token) == {server._process.pid})
    started.clear()
    if not seen:
        monkeypatch.setattr(Worker, "has_ended", lambda self: False)
    assert not not_passed(check(DEVICES))
    assert len(started) == 1


def test_a_reference_that_died_under_way_runs_again(
    server: ForkServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is cut short here, as if it was killed while it wrote."""
    check(DEVICES)
    standing_by(server, token)
    taken = launch._taken

    def cut(*arguments: object) -> list[tuple[Left, Worker]]:
        found = taken(*arguments)  # type: ignore[arg-type]
        for left, worker in found:
            if left.job is not None:
                wait_until(worker.has_ended)
                assert len(os.read(worker._result, 400)) == 400
        return found

    monkeypatch.setattr(launch, "_taken", cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "START_SECONDS", 1.0)
        assert not not_passed(check(DEVICES))


def test_only_the_last_ones_stand_by(server: ForkServer, token: str) -> None:
    check(DEVICES)
    before = standing_by(server, token)
    with Session(Options(device="cpu", kept=True), modules_of([DEVICES])) as opened:
        opened._fenced = True  # as if it had graded, without what stood by
        grade.leave_ahead(DEVICES, opened, None)
    wait_until(lambda: not before & fenced.processes(token))
    standing_by(server, token)


def test_a_submission_sees_none_of_them(server: ForkServer, token: str, tmp_path: Path) -> None:
    """Neither their processes nor what they were told."""
    path = tmp_path / DEVICES.file_name
    text = DEVICES.solution.read_text("utf-8")
    look = (
        "import os\n"
        "seen = sorted(int(name) for name in os.listdir('/proc') if name.isdigit())\n"
        "links = (f'/proc/self/fd/{fd}' for fd in os.listdir('/proc/self/fd'))\n"
        "files = [os.readlink(link) for link in links if os.path.lexists(link)]\n"
        "assert len(seen) == 2 and not any('left' in name for name in files), (seen, files)\n"
    )
    path.write_text(text.replace("import jax\n", look + "import jax\n", 1), "utf-8")
    check(DEVICES)
    standing_by(server, token)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grader.source.inspection.inspect_source", lambda *_: [])
        # Its own worker is a fresh one, and the others stand by meanwhile.
        options = Options(device="cpu", kept=True)
        with Session(options, modules_of([DEVICES])) as opened:
            record = grade.grade(DEVICES, path, opened)
    assert record.submission is not None
    assert record.submission.outcome.kind == "finished", record.submission.outcome
