"""Workers from outside: waiting, cancelling, lying answers, and lives without a fence."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import fenced
from fenced import ATTACKS, FILE, ROOT, SECONDS, TOKEN, Place
from grader import isolation, launch, messages, process, session, stuck
from grader.launch import BrokenInstallation
from grader.messages import Ended, Request, Setup
from grader.process import Failed, Worker
from grader.session import NoDevice, Options, Session

RIGHT = fenced.submission(
    """def train(step, params, batches):
    losses = []
    for batch in batches:
        params, loss = step(params, batch)
        losses.append(loss)
    return params, [float(loss) for loss in losses]
"""
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One fenced session."""
    with fenced.place(tmp_path_factory.mktemp("process")) as opened:
        yield opened


class Silent:
    """A control of a worker that is only a pair of pipes."""

    fences: list[str] = []

    def ended(self) -> Ended | None:
        return None

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


def test_too_much_output(pipes: tuple[Worker, int, int]) -> None:
    worker, _, output = pipes
    data = memoryview(b"x" * (process.MAX_OUTPUT + 2))

    def flood() -> None:
        with pytest.raises(BrokenPipeError):
            messages.write_all(output, data.tobytes() * 2)

    writer = threading.Thread(target=flood)
    writer.start()
    with pytest.raises(Failed, match="more than 16 MiB") as failed:
        worker.answer(30)
    assert len(failed.value.outcome.output) <= process.TAIL
    worker.close()
    writer.join()


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
    frames = stuck.frames_in(stack, "mine.py", source)
    assert [(f.line, f.function, f.text) for f in frames] == [
        (2, "outer", "second"),
        (3, "inner", "third"),
    ]
    crash = stack.replace("Thread 0x00007f01", "Current thread 0x00007f01")
    assert [f.line for f in stuck.frames_in(crash, "mine.py", source)] == [1]
    assert stuck.frames_in("", "mine.py", source) == []


def test_a_forged_answer_is_worth_no_more_than_a_right_one(place: Place) -> None:
    """Without the policy, code can speak for its worker: this is why there is a policy.

    Even so it must know the right losses, which no process it can reach holds.
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
    assert {"same_losses", "same_params"} <= set(failed)


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
    record, report = place.grade(RIGHT)
    assert report.exit_code == 0
    assert record.machine is not None
    assert record.machine.refused == []
    assert any(line.startswith("namespaces") for line in record.machine.isolation)


# Sessions.


def test_session_leaves_nothing_open(tmp_path: Path) -> None:
    files, fds = fenced.files_left(), len(os.listdir("/proc/self/fd"))
    mounts = Path("/proc/self/mountinfo").read_text()
    with fenced.place(tmp_path) as opened:
        opened.session.prepare("cpu", 2, observe=False, hide=True)
        assert opened.left()
    assert len(os.listdir("/proc/self/fd")) == fds
    assert fenced.files_left() == files
    assert Path("/proc/self/mountinfo").read_text() == mounts


def test_cancelled_session(tmp_path: Path) -> None:
    with fenced.place(tmp_path) as opened:
        opened.session.cancel()
        with pytest.raises(Failed, match="stopped by the grader"):
            opened.session.prepare("cpu", 1, observe=True, hide=True)


def test_modules_that_cannot_be_imported() -> None:
    with (
        Session(Options(device="cpu"), ["no_such_module"]) as opened,
        pytest.raises(BrokenInstallation, match="`import no_such_module`: ModuleNotFoundError"),
    ):
        opened.prepare("cpu", 1, observe=True, hide=True)


def test_a_worker_that_dies_before_it_names_a_device(place: Place) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "MEMORY", 1 << 20)
        with pytest.raises(NoDevice, match="JAX did not live to name one|Resource|memory|Memory"):
            place.session.prepare("cpu", 8, observe=True, hide=True)
    assert not place.left()


def test_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag")
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    found = launch.environment("/scratch")
    assert not {"SECRET_TOKEN", "XLA_FLAGS", "JAX_PLATFORMS"} & set(found)
    assert (found["HOME"], found["TMPDIR"]) == ("/scratch", "/scratch")


# Without a fence.


def test_strays_are_killed_without_namespaces(tmp_path: Path) -> None:
    files = fenced.files_left()
    text = (ATTACKS / "children_left.py").read_text("utf-8")
    with fenced.place(tmp_path, fenced=False) as opened:
        record, report = opened.grade(fenced.submission(text), policy=False)
        assert report.exit_code == 0
        assert record.machine is not None
        assert record.machine.refused == [
            "refused: namespaces, and a fence around files (not asked for)"
        ]
        assert not opened.left()
        for name in ("fork_bomb", "exit_past_python"):
            text = (ATTACKS / f"{name}.py").read_text("utf-8")
            opened.grade(fenced.submission(text), policy=False)
            assert not opened.left()
    assert fenced.files_left() == files


def test_unshare_refused(tmp_path: Path) -> None:
    """The level is named, in both forms of the report; a learner can work all the same."""
    (tmp_path / FILE).write_text(RIGHT.replace("[float(loss) for loss in losses]", "losses"))
    token, files = f"token-{uuid.uuid4().hex}", fenced.files_left()
    environment = {**os.environ, TOKEN: token, "PYTHONPATH": str(ROOT)}
    says = "refused: namespaces, and a fence around files (Operation not permitted)"
    for form in ("json", "text"):
        ran = subprocess.run(
            [sys.executable, str(ROOT / "tests" / "refuse_namespaces.py"), sys.executable]
            + ["-P", "-m", "grader", "check", "ex07", "--device", "cpu", "--format", form],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (1, "")
        if form == "json":
            machine = json.loads(ran.stdout)["reports"][0]["machine"]
            assert says in machine["isolation"]
        else:
            assert f"  fence  {says}" in ran.stdout.splitlines()
    assert not fenced.processes(token)
    assert fenced.files_left() == files


def test_spawned_workers(tmp_path: Path) -> None:
    """What systems without fork have grades the same."""
    files = fenced.files_left()
    with fenced.place(tmp_path, spawn=True) as opened:
        record, report = opened.grade(RIGHT)
        assert report.exit_code == 0
        assert record.machine is not None
        assert record.machine.refused == [
            "refused: fences (this system has no fork that is safe)"
        ]
        text = (ATTACKS / "segmentation_fault.py").read_text("utf-8")
        record, _ = opened.grade(fenced.submission(text), policy=False)
        assert record.submission is not None
        assert record.submission.outcome.kind == "killed"
        assert record.submission.outcome.frames
        assert not opened.left()
    assert fenced.files_left() == files


def test_sockets_of_others_are_found(tmp_path: Path) -> None:
    path = tmp_path / "bus"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert str(path) in isolation.sockets_of_others()


def test_sockets_of_others_are_dead(place: Place, tmp_path: Path) -> None:
    """A session bus would start programs outside the fence for whoever asks."""
    path = tmp_path / "bus"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o777)
        listening.listen()
        listening.settimeout(0)
        text = fenced.submission(
            f"""import socket


def train(step, params, batches):
    with socket.socket(socket.AF_UNIX) as bus:
        bus.connect({str(path)!r})
"""
        )
        record, _ = place.grade(text, policy=False)
        assert record.submission is not None
        assert "ConnectionRefusedError" in record.submission.outcome.message
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_time_is_measured_from_outside(place: Place) -> None:
    started = time.monotonic()
    text = (ATTACKS / "stopped.py").read_text("utf-8")
    place.grade(fenced.submission(text), policy=False)
    assert SECONDS <= time.monotonic() - started < SECONDS + 5


def test_request_is_small() -> None:
    """It must fit one packet to the fork server."""
    request = Request(launch.environment("/scratch"), session.hidden_folders(), 1 << 33)
    assert len(msgspec.json.encode(request)) < 1 << 16
