"""A program in the foreground: its exit code, its streams and its signals are its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, python
from pseudo_terminals import PATIENCE

RUN = """
import os, sys
from grader.app.next_door import foreground
code = foreground.run([sys.executable, *sys.argv[1:]], {**os.environ, "MORE": "1"})
print("then the page", file=sys.stderr, flush=True)
sys.exit(foreground.end_like(code))
"""
SAYS_SIGNALS = """
import os, signal, sys, time
def say(number, frame):
    print(signal.Signals(number).name, flush=True)
    os._exit(5)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, say)
print("ready", os.getpid(), flush=True)
time.sleep(100)
"""


def started(*arguments: str, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        **more,  # type: ignore[call-overload]
    )


def program_of(process: subprocess.Popen[str]) -> int:
    """The program's process, which has said that it is ready."""
    assert process.stdout is not None
    ready, pid = process.stdout.readline().split()
    assert ready == "ready"
    return int(pid)


def test_streams_and_exit_code_are_the_programs() -> None:
    code = "import os, sys; print(sys.stdin.read(), os.environ['MORE']); sys.exit(42)"
    ran = python("-c", RUN, "-c", code, stdin="typed")
    assert (ran.returncode, ran.stdout, ran.stderr) == (42, "typed 1\n", "then the page\n")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGINT", "SIGABRT"])
def test_a_program_that_a_signal_ends_ends_us_by_that_signal(name: str) -> None:
    code = f"import os, signal; signal.signal(signal.{name}, signal.SIG_DFL) if '{name}' != "
    code += f"'SIGKILL' else 0; os.kill(os.getpid(), signal.{name})"
    ran = python("-c", RUN, "-c", code)
    assert (ran.returncode, ran.stderr) == (-signal.Signals[name], "then the page\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_us_alone_is_handed_on(number: signal.Signals) -> None:
    with started("-c", SAYS_SIGNALS) as process:
        program_of(process)
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, error) == (5, f"{number.name}\n", "then the page\n")


def test_what_ctrl_c_ends_ends_by_it_and_the_page_still_comes() -> None:
    quiet = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    with started(
        "-c", quiet + "import os; print('ready', os.getpid(), flush=True); time.sleep(100)"
    ) as process:
        program_of(process)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (-signal.SIGINT, "then the page\n")


def test_a_program_that_stops_and_goes_on_is_waited_for() -> None:
    code = "import os; print('ready', os.getpid(), flush=True); input(); print('on')"
    with started("-c", code, stdin=subprocess.PIPE) as process:
        pid = program_of(process)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)
        out, _ = process.communicate("\n", timeout=PATIENCE)
    assert (process.returncode, out) == (0, "on\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_program_does_not_outlive_us() -> None:
    with started("-c", SAYS_SIGNALS) as process:
        pid = program_of(process)
        process.kill()
        deadline = time.monotonic() + PATIENCE
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
                break
            time.sleep(0.01)
        else:
            assert not Path(f"/proc/{pid}").exists()


def test_what_cannot_be_started_is_an_error() -> None:
    ran = python("-c", RUN.replace("sys.executable", "'/nowhere'"), "x")
    assert ran.returncode == 1
    assert "FileNotFoundError" in ran.stderr
