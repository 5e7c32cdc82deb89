"""A server that one check leaves behind for the next: found, used, refused, ended, attacked.

Commands run in terminals of their own (`terminal`), with a runtime folder of their own.
"""

import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fenced
import psutil
import pytest
from fenced import ROOT, TOKEN
from terminal import Command, Ran, Terminal, copied_checkout, opened

from grader.app.lingering import LEFT_BEHIND
from grader.running import kept
from grader.running.launch import KeptForkServer, Lost

STEM = "ex01_find_devices"
CHECK = ("check", "ex01", "--device", "cpu")
JSON = (*CHECK, "--format", "json")
SECONDS = 60.0
"""For what should come at once: a busy machine may be slow, and a test must end."""


@pytest.fixture
def token() -> str:
    """What is in the environment of all processes of one test."""
    return f"token-{uuid.uuid4().hex}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A learner's folder with the solution of ex01."""
    (tmp_path / "exercises").mkdir()
    shutil.copy(ROOT / "solutions" / f"{STEM}.py", tmp_path / "exercises")
    return tmp_path


@pytest.fixture
def terminal(folder: Path, token: str) -> Iterator[Terminal]:
    """A terminal in the learner's folder; no process may outlive it."""
    with opened(folder, **{TOKEN: token}) as found:
        yield found
    wait_until(lambda: not fenced.processes(token))


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what must come."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def sockets(folder: Path) -> list[Path]:
    """The sockets of kept servers."""
    return sorted((folder / "runtime").glob("*/*"))


def server(token: str) -> int:
    """The one server that is left."""
    wait_until(lambda: len(servers(token)) == 1)
    return servers(token).pop()


def servers(token: str) -> set[int]:
    """The processes that are left, without those that one of them keeps for the next command."""
    found = {pid: _parent(pid) for pid in fenced.processes(token)}
    return {pid for pid, parent in found.items() if parent not in found}


def _parent(pid: int) -> int:
    """The parent of a process, or 0 once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def passed(ran: Ran) -> bool:
    """Whether it says so itself."""
    return ran.code == 0 and "ex01_find_devices: all 10 checks pass" in ran.out


def test_the_second_check_uses_the_first_ones_server(
    terminal: Terminal, folder: Path, token: str
) -> None:
    first = terminal.run(*JSON)
    assert first.code == 0, first
    assert first.said == LEFT_BEHIND + "\n"
    pid = server(token)
    second = terminal.run(*JSON)
    assert (second.code, second.said) == (0, "")
    assert server(token) == pid
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    reports = [json.loads(ran.out)["reports"][0] for ran in (first, second)]
    assert [v["status"] for v in reports[0]["verdicts"]] == ["pass"] * len(reports[0]["verdicts"])
    for report in reports:
        for drawn in ("seed", "seconds"):
            del report[drawn]
        del report["made"]["date"]
    assert reports[0] == reports[1]
    (path,) = sockets(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_another_exercise_needs_other_libraries(terminal: Terminal, token: str) -> None:
    """They are imported then; what the server holds is still what is on disk."""
    terminal.run(*CHECK)
    pid = server(token)
    for _ in range(2):
        ran = terminal.run("check", "ex05", "--submission", str(ROOT / "solutions"))
        assert ran.code == 0, ran
        assert LEFT_BEHIND not in ran.said
    assert server(token) == pid


@pytest.mark.parametrize(
    ("words", "off", "more"),
    [
        (["--fresh"], (False, False), {}),
        ([], (True, False), {}),
        ([], (False, True), {}),
        ([], (False, False), {"GRADER_WARM": "0"}),
        ([], (False, False), {"CI": "true"}),
    ],
    ids=["--fresh", "no stdin", "no stderr", "GRADER_WARM=0", "CI"],
)
def test_no_server_stays(
    words: list[str],
    off: tuple[bool, bool],
    more: dict[str, str],
    terminal: Terminal,
    folder: Path,
    token: str,
) -> None:
    ran = terminal.run(*JSON, *words, off=off, **more)
    assert (ran.code, ran.said) == (0, "")
    assert not fenced.processes(token)
    assert not sockets(folder)


def test_fresh_does_not_use_one(terminal: Terminal, token: str) -> None:
    """Nor touch it."""
    terminal.run(*CHECK)
    pid = server(token)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert terminal.run(*JSON, "--fresh").code == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    assert server(token) == pid


def test_namespaces_refused(folder: Path, token: str) -> None:
    """A submission could reach the server then, so none stays."""
    refuse = [sys.executable, str(ROOT / "tests" / "fences" / "refuse_namespaces.py")]
    with opened(folder, **{TOKEN: token}) as terminal:
        terminal.before = refuse
        ran = terminal.run(*JSON)
        assert (ran.code, ran.said) == (0, "")
        assert "refused: namespaces" in ran.out
        assert not fenced.processes(token)


# What could make a verdict stale.


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout to edit."""
    return copied_checkout(tmp_path)


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that must be there."""
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def test_no_verdict_is_stale(checkout: Path, token: str) -> None:
    """Each edit shows in the very next check, and each server that is stale ends."""
    site = checkout / "site"
    site.mkdir()
    path = os.pathsep.join([str(site), str(checkout)])
    with opened(checkout, checkout, **{TOKEN: token, "PYTHONPATH": path}) as terminal:
        solution = checkout / "solutions" / f"{STEM}.py"
        submission = checkout / "exercises" / f"{STEM}.py"
        shutil.copy(solution, submission)
        report = json.loads(terminal.run(*JSON).out)["reports"][0]
        assert report["machine"]["device_kind"] == "cpu"
        before = server(token)

        edit(submission, "return 0", "return 1")
        assert terminal.run(*JSON).code == 1
        edit(submission, "return 1", "return 0")
        assert terminal.run(*JSON).code == 0

        edit(solution, "return 0", "return 1")  # its run before the edit counts no longer
        assert terminal.run(*JSON).code != 0
        edit(solution, "return 1", "return 0")
        assert terminal.run(*JSON).code == 0
        assert server(token) == before

        edit(checkout / "grader" / "probes" / "devices.py", "found[0].device_kind", "'edited'")
        ran = terminal.run(*JSON)
        assert json.loads(ran.out)["reports"][0]["machine"]["device_kind"] == "edited"
        assert server(token) != before

        edit(
            checkout / "grader" / "checks" / STEM / "drive.py",
            "\nimport ",
            "\nraise Edited\nimport ",
        )
        ran = terminal.run(*JSON)
        assert ran.code != 0
        assert "Edited" in ran.said
        edit(checkout / "grader" / "checks" / STEM / "drive.py", "raise Edited\n", "")
        assert terminal.run(*JSON).code == 0

        (site / "jax-0.10.2.dist-info").mkdir()
        text = "Metadata-Version: 2.1\nName: jax\nVersion: 0.10.2\n"
        (site / "jax-0.10.2.dist-info" / "METADATA").write_text(text)
        ran = terminal.run(*JSON)
        assert ran.code == 2
        assert "jax 0.10.2 is installed" in ran.said
        shutil.rmtree(site / "jax-0.10.2.dist-info")
        assert terminal.run(*JSON).code == 0

        elsewhere = checkout / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "jax.py").write_text("raise ImportError('another jax')")
        path = os.pathsep.join([str(elsewhere), path])
        ran = terminal.run(*JSON, PYTHONPATH=path)
        assert ran.code == 2
        assert "another jax" in ran.said
        assert terminal.run(*JSON).code == 0
    wait_until(lambda: not fenced.processes(token))


def test_another_world_has_a_server_of_its_own(
    terminal: Terminal, folder: Path, token: str
) -> None:
    """And leaves the first alone."""
    terminal.run(*CHECK)
    (first,) = sockets(folder)
    assert LEFT_BEHIND in terminal.run(*CHECK, TZ="Asia/Tokyo").said
    assert len(sockets(folder)) == len(servers(token)) == 2
    assert LEFT_BEHIND not in terminal.run(*CHECK).said
    assert first in sockets(folder)


def test_what_makes_a_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = kept.world({})
    assert kept.world({}) == here
    assert kept.world({"TZ": "UTC"}) != here
    before = os.umask(0o077)
    assert kept.world({}) != here or before == 0o077
    os.umask(before)
    monkeypatch.chdir(tmp_path)
    assert kept.world({}) != here


# How it ends.


def test_stop(terminal: Terminal, folder: Path, token: str) -> None:
    assert terminal.run("stop").out == "no server was running\n"
    terminal.run(*CHECK)
    assert len(fenced.processes(token)) > len(servers(token)) == 1, "nothing stands by"
    assert terminal.run("stop").out == "stopped 1 server\n"
    wait_until(lambda: not fenced.processes(token))
    assert not sockets(folder)
    ran = terminal.run("stop")
    assert (ran.code, ran.out) == (0, "no server was running\n")


def test_the_end_of_the_session(terminal: Terminal, folder: Path, token: str) -> None:
    """A check in another terminal may be using it, and is finished first."""
    with opened(folder, **{TOKEN: token}) as first:
        first.run(*CHECK)
        pid = server(token)
        running = hanging(terminal, folder, token)
        first.end()
        wait_until(lambda: not sockets(folder))
        assert pid in fenced.processes(token)
        ran = running.wait()
        assert (ran.code, "still running after 10 s" in ran.out) == (1, True)
        wait_until(lambda: pid not in fenced.processes(token))


def test_an_idle_end(checkout: Path, token: str) -> None:
    edit(checkout / "grader" / "running" / "kept.py", "IDLE_SECONDS = 600.0", "IDLE_SECONDS = 0.5")
    shutil.copy(checkout / "solutions" / f"{STEM}.py", checkout / "exercises")
    with opened(checkout, checkout, **{TOKEN: token}) as terminal:
        assert LEFT_BEHIND in terminal.run(*CHECK).said
        wait_until(lambda: not fenced.processes(token))
        assert not sockets(checkout)


def test_a_refused_file_on_a_kept_server(terminal: Terminal, folder: Path, token: str) -> None:
    """Its reference had been started already, and is ended."""
    terminal.run(*CHECK)
    pid = server(token)
    edit(folder / "exercises" / f"{STEM}.py", "import jax\n", "import jax\nimport os\n")
    ran = terminal.run(*CHECK)
    assert (ran.code, "FAIL  source" in ran.out) == (1, True)
    assert server(token) == pid


# Whatever happens to it, the verdict is right, and nothing is left.

HANG = "def try_gpu(i=0):\n    while True:\n        pass\n"


def hanging(terminal: Terminal, folder: Path, token: str, seconds: int = 10) -> Command:
    """A check of a submission that never ends, once its code has kept a core busy."""
    text = (ROOT / "solutions" / f"{STEM}.py").read_text("utf-8")
    start, rest = text.split("def try_gpu(")
    end = rest[rest.index("\n\n\n") :]
    path = folder / "hanging" / f"{STEM}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(start + HANG.rstrip("\n") + end, "utf-8")
    running = terminal.start(*CHECK, "--submission", str(path), "--timeout", str(seconds))
    used = {pid: busy(pid) for pid in fenced.processes(token)}
    wait_until(lambda: any(busy(pid) > used.get(pid, 0.0) + 1.5 for pid in fenced.processes(token)))
    return running


def busy(pid: int) -> float:
    """Seconds of a core that a process has used; 0 once it has ended."""
    try:
        return float(psutil.Process(pid).cpu_times().user)
    except psutil.NoSuchProcess:
        return 0.0


def test_the_server_is_killed_in_a_check(terminal: Terminal, folder: Path, token: str) -> None:
    terminal.run(*CHECK)
    pid = server(token)
    running = hanging(terminal, folder, token)
    os.kill(pid, signal.SIGKILL)
    ran = running.wait()
    assert ran.code == 1
    assert "still running after 10 s" in ran.out
    assert server(token) != pid  # the check went on with a server of its own, and left that
    assert len(sockets(folder)) == 1


def test_a_server_that_dies_after_its_workers() -> None:
    """Its line may still be open when theirs have closed; nothing of theirs counts then."""
    for answers in (True, False):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, ThreadPoolExecutor(1) as pool:
            confirmed = pool.submit(KeptForkServer(ours).confirm)
            assert theirs.recv(1 << 10)
            if answers:
                theirs.send(kept.WELCOME)
                confirmed.result()
            else:
                theirs.shutdown(socket.SHUT_RDWR)
                with pytest.raises(Lost):
                    confirmed.result()


def test_the_server_is_stopped_in_a_check(terminal: Terminal, folder: Path, token: str) -> None:
    terminal.run(*CHECK)
    running = hanging(terminal, folder, token)
    assert terminal.run("stop").out == "stopped 1 server\n"
    ran = running.wait()
    assert (ran.code, "still running after 10 s" in ran.out) == (1, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGHUP])
def test_the_command_is_ended(
    number: signal.Signals, terminal: Terminal, folder: Path, token: str
) -> None:
    """The server lives on, and nothing that it forked does."""
    terminal.run(*CHECK)
    pid = server(token)
    running = hanging(terminal, folder, token, seconds=15)
    running.send(number)
    assert running.wait().code == (130 if number == signal.SIGINT else -number)
    wait_until(lambda: fenced.processes(token) == {pid})
    assert passed(terminal.run(*CHECK))
    assert server(token) == pid


def test_the_first_check_is_ended(terminal: Terminal, folder: Path, token: str) -> None:
    """It leaves no server: something may be wrong with it."""
    running = hanging(terminal, folder, token)
    running.send(signal.SIGINT)
    assert running.wait().code == 130
    wait_until(lambda: not fenced.processes(token))


def test_the_server_hangs(terminal: Terminal, folder: Path, token: str) -> None:
    """It is killed, and replaced."""
    terminal.run(*CHECK)
    pid = server(token)
    os.kill(pid, signal.SIGSTOP)
    ran = terminal.run(*CHECK)
    assert passed(ran)
    assert LEFT_BEHIND in ran.said
    assert server(token) != pid
    os.kill(server(token), signal.SIGSTOP)
    assert terminal.run("stop").out == "stopped 1 server\n"


def test_the_server_was_killed(terminal: Terminal, folder: Path, token: str) -> None:
    """What it leaves, a socket that nobody hears, is removed."""
    terminal.run(*CHECK)
    os.kill(server(token), signal.SIGKILL)
    ran = terminal.run(*CHECK)
    assert passed(ran)
    assert LEFT_BEHIND in ran.said
    assert len(sockets(folder)) == len(servers(token)) == 1


def test_two_checks_at_once(terminal: Terminal, folder: Path, token: str) -> None:
    """Without a server one of theirs stays; with one, both use it."""
    for _ in range(2):
        both = [terminal.start(*CHECK) for _ in range(2)]
        ended = [each.wait() for each in both]
        assert all(map(passed, ended)), ended
        server(token)
        assert len(sockets(folder)) == 1


@pytest.mark.parametrize("fault", ["open to others", "a link", "a file", "full"])
def test_a_folder_that_cannot_be_used(
    fault: str, terminal: Terminal, folder: Path, token: str
) -> None:
    """The check does without, and touches nothing."""
    path, victim = folder / "runtime" / "where-does-my-array-live", folder / "victim"
    victim.mkdir(mode=0o700)
    match fault:
        case "open to others":
            path.mkdir()
            path.chmod(0o755)
        case "a link":
            path.symlink_to(victim)
        case "a file":
            path.touch()
        case "full":  # as near as a test comes: no file of any name can be made
            path.parent.rmdir()
            path.parent.symlink_to("/proc/self")
    ran = terminal.run(*CHECK)
    assert passed(ran)
    assert LEFT_BEHIND not in ran.said
    assert not fenced.processes(token)
    assert not list(victim.iterdir())


# The folder and its sockets, without a command.


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime folder for this very process."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_where_the_folder_is(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.folder().parent == runtime
    for other in ("", "relative", str(runtime / "missing")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", other)
        assert kept.folder().name.endswith(f"-{os.geteuid()}")


def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    """An address may have 107 bytes."""
    path = tmp_path / ("long" * 30)
    published = kept.publish(path, "name")
    assert published is not None
    published.withdraw()
    assert not list(path.iterdir())


def test_only_one_has_a_name(runtime: Path) -> None:
    published = kept.publish(kept.folder(), "name")
    assert published is not None
    assert kept.publish(kept.folder(), "name") is None
    published.listener.close()  # as if it were killed
    again = kept.publish(kept.folder(), "name")
    assert again is not None
    published.withdraw()
    assert [path.name for path in kept.folder().iterdir()] == ["name"]
    again.withdraw()


def test_other_users_share_nothing(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides ask the kernel; here it names another user than there is."""
    published = kept.publish(kept.folder(), "name")
    assert published is not None
    monkeypatch.chdir(kept.folder())  # a socket's address has 107 bytes at most
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect("name")
        monkeypatch.setattr(kept, "_peer", lambda _: (os.getpid(), os.geteuid() + 1))
        assert published.accept() is None
        assert line.recv(1) == b""
    assert kept.join("name") is None
    assert kept.stop() == 0
    published.withdraw()


CONNECT = """
import os, socket, sys

if os.unshare(int(sys.argv[2])) or os.fork() == 0:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(sys.argv[1])
        print(line.recv(1))
        os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(("flags", "heard"), [(0, b"b'+'"), (os.CLONE_NEWPID, b"b''")])
def test_who_comes_out_of_a_fence_is_refused(flags: int, heard: bytes, runtime: Path) -> None:
    """A submission that found the socket all the same."""
    if flags and os.geteuid() != 0:
        flags |= os.CLONE_NEWUSER
    published = kept.publish(kept.folder(), "name")
    assert published is not None
    words = [sys.executable, "-c", CONNECT, "name", str(flags)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=kept.folder()) as other:
        assert select.select([published.listener], [], [], SECONDS)[0]
        if (line := published.accept()) is not None:
            line.send(kept.WELCOME)
            line.close()
        assert other.communicate(timeout=SECONDS)[0].strip() == heard
    published.withdraw()


def test_nobody_answers(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks waits for a while, kills what does not answer, and does without."""
    monkeypatch.setattr(kept, "PATIENCE", 0.2)
    killed: list[socket.socket] = []
    monkeypatch.setattr(kept, "_kill", killed.append)
    published = kept.publish(kept.folder(), "name")
    assert published is not None
    assert kept.join("name") is None
    assert len(killed) == 1
    published.withdraw()
    assert kept.join("name") is None
    assert len(killed) == 1


def test_a_submission_cannot_reach_it(
    runtime: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Neither its socket nor the folder's other contents are there."""
    published = kept.publish(kept.folder(), "name")
    assert published is not None
    folder = kept.folder()
    text = fenced.submission(
        f"""import os
import socket


def train(step, params, batches):
    assert os.listdir({str(folder)!r}) == []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect({str(folder / "name")!r})
"""
    )
    with fenced.place(tmp_path_factory.mktemp("reach")) as place:
        record, _ = place.grade(text, policy=False)
    assert record.submission is not None
    assert "FileNotFoundError" in record.submission.outcome.message
    assert not select.select([published.listener], [], [], 0)[0]
    published.withdraw()
