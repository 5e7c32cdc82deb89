"""Several processes for one submission: how each end is reported, and that none is left."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fenced
import pytest
from conftest import ROOT
from fenced import TOKEN

from grader.stages import hosts
from grader.stages.hosts import Ran, together

SOLUTION = (ROOT / "solutions" / "ex29_two_processes.py").read_text("utf-8")
Run = Callable[[str], list[Ran]]


def part(submission: ModuleType, index: int, address: str, given: Any, say: Any) -> None:
    """Runs in each process, and so uses nothing of this module."""
    say("given", given)
    submission.run(index, address)


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A token in the environment of every process of this test; none of them may be left."""
    token = f"token-{uuid.uuid4().hex}"
    monkeypatch.setenv(TOKEN, token)
    yield token
    assert not left(token)


def left(token: str) -> set[int]:
    """Processes that are still there after ten seconds to end in."""
    deadline = time.monotonic() + 10
    while (found := fenced.processes(token)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.fixture
def run(token: str, tmp_path: Path) -> Run:
    """Runs a body of `run(index, address)` in two processes."""

    def run(body: str) -> list[Ran]:
        submission = ModuleType("submission")
        submission.__file__ = str(tmp_path / "mine.py")
        text = "import jax, os, time\n\ndef run(index, address):\n"
        Path(submission.__file__).write_text(text + "".join(f"    {x}\n" for x in body.split("\n")))
        files = fenced.open_files()
        ran = together(submission, part, ["first", "second"], devices=2)
        assert not left(token)  # what was killed takes a moment to end
        assert fenced.open_files() <= files
        return ran

    return run


JOIN = "jax.distributed.initialize(address, 2, index)\n"


def test_each_process_is_given_its_own_argument(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run("print('number', index, jax.device_count())")
    assert [process.end for process in ran] == ["finished", "finished"]
    assert [process.told["given"] for process in ran] == ["first", "second"]
    printed = capsys.readouterr().out
    assert printed == "process 0: number 0 2\nprocess 1: number 1 2\n"


def test_processes_meet(run: Run) -> None:
    ran = run(JOIN + "assert jax.device_count() == 4, jax.device_count()")
    assert [(process.end, process.message) for process in ran] == [("finished", "")] * 2


def test_when_one_raises_the_other_is_stopped(run: Run) -> None:
    started = time.monotonic()
    ran = run("if index == 1: raise ValueError('no rows')\n" + JOIN)
    assert (ran[1].end, ran[1].message, ran[1].line) == ("raised", "ValueError: no rows", 4)
    assert (ran[0].end, ran[0].line) == ("stopped", None)
    assert time.monotonic() - started < hosts.START_SECONDS


def test_processes_that_wait_for_one_that_never_comes(run: Run) -> None:
    """The line is reported, long before JAX's own limit of five minutes."""
    ran = run("jax.distributed.initialize(address, 3, index)")
    assert [process.end for process in ran] == ["stuck", "stuck"]
    assert {process.line for process in ran} == {4}
    assert "waited" in ran[0].message


def test_a_process_that_waits_for_one_that_has_finished(run: Run) -> None:
    total = "import jax.numpy as jnp\nx = jax.device_put(jnp.ones(4), jax.NamedSharding("
    mesh = "jax.make_mesh((4,), ('x',)), jax.P('x')))\n"
    ran = run(JOIN + total + mesh + "if index == 0: print(float(jnp.sum(x)))")
    assert [process.end for process in ran] == ["stuck", "finished"]
    assert ran[0].line == 7


def test_a_loop_without_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes all the time, so it is not taken for a process that waits."""
    monkeypatch.setattr(hosts, "BUSY_SECONDS", 1.5)
    ran = run("while index: pass")
    assert [(process.end, process.line) for process in ran] == [("finished", None), ("stuck", 4)]
    assert "still ran after" in ran[1].message


def test_too_little_time_is_no_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "LONGEST_SECONDS", 0.5)
    with pytest.raises(OSError, match="this machine"):
        run("while index: pass")


@pytest.mark.parametrize(
    ("body", "end", "says"),
    [
        ("os._exit(7)", "exited", "ended with code 7"),
        ("raise SystemExit(0)", "raised", "SystemExit: 0"),
        ("raise SyntaxError('', ('', 1, 1, 5))", "raised", "SyntaxError: Python cannot print"),
        ("os.abort()", "killed", "signal 6"),
        ("os.kill(os.getpid(), 9)", "killed", "signal 9"),
        ("[print('x' * 1000) for _ in iter(int, 1)]", "flooded", "printed more than"),
        ("os.closerange(3, 64); time.sleep(60)", "stuck", "waited"),
    ],
)
def test_other_ways_to_end(run: Run, body: str, end: str, says: str) -> None:
    ran = run(f"if index == 1: {body}")
    assert ran[1].end == end
    assert says in ran[1].message


PIPES = "[n for n in range(3, 64) if 'pipe:' in os.path.realpath(f'/dev/fd/{n}')]"


@pytest.mark.parametrize(
    "said", ["b'no'", """b'["raised", 1]\\n'""", "b'[' * 100_000", "b'x' * (1 << 21)"]
)
def test_messages_of_a_process_are_not_trusted(run: Run, said: str) -> None:
    """A learner's code can find the pipe to the worker, and write into it."""
    ran = run(f"if index == 0: [os.write(fd, {said}) for fd in {PIPES}]")
    assert ran[0].end == "garbled"


def test_processes_that_a_process_starts_end_with_it(run: Run) -> None:
    ran = run("os.fork() or time.sleep(60)\ntime.sleep(60) if index else None")
    assert ran[0].end == "finished"


@pytest.mark.parametrize("fence", ["namespaces", "none"])
def test_a_grader_that_is_killed_leaves_nothing(token: str, tmp_path: Path, fence: str) -> None:
    """It is killed while both processes wait for a third."""
    slow = SOLUTION.replace("num_processes=count", "num_processes=count + 1")
    assert slow != SOLUTION
    (tmp_path / "ex29_two_processes.py").write_text(slow)
    refuse = [sys.executable, str(ROOT / "tests" / "fences" / "refuse_namespaces.py")]
    check = fenced.command("check", "ex29", "--device", "cpu")
    words = [*refuse, *check] if fence == "none" else check
    pipe = subprocess.DEVNULL
    command = subprocess.Popen(words, cwd=tmp_path, env=fenced.environ(), stdout=pipe, stderr=pipe)
    deadline = time.monotonic() + 60
    while not modules(token) and command.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(modules(token)) >= 1
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    assert not left(token)


def modules(token: str) -> set[int]:
    """The processes that `together` started."""
    name = b"grader.stages.one_host"
    return {pid for pid in fenced.processes(token) if name in words_of(pid)}


def words_of(pid: int) -> bytes:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("fence", ["namespaces", "none"])
def test_the_solution_passes_at_every_level_of_isolation(tmp_path: Path, fence: str) -> None:
    (tmp_path / "ex29_two_processes.py").write_text(SOLUTION)
    refuse = [sys.executable, str(ROOT / "tests" / "fences" / "refuse_namespaces.py")]
    check = fenced.command("check", "ex29", "--device", "cpu")
    ran = fenced.run(tmp_path, [*refuse, *check] if fence == "none" else check)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert ("refused: namespaces" in ran.stdout) == (fence == "none")
