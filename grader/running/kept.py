"""The life of a process that one command leaves behind for the next, and how it is found again.

    kept     at the end of a command, its helper process binds a socket and stays (`publish`)
    found    the next command connects (`join`); both sides ask the kernel whose the other is
    stale    the process no longer holds what is on disk: it takes its socket away and ends
    hung     it does not answer within `PATIENCE`: whoever asked kills it, and does without
    ended    ten minutes without work, the end of the terminal's session, or `stop`

The sockets lie in a folder that only this user may enter. A socket's name stands for the world
in which the process was started (see `world`): a command from another world, another checkout
or Python or folder, never finds it, and leaves it alone. A process that is killed leaves a dead
socket, which the next `publish` or `stop` removes.

Nothing here knows what the process does; for the fork server that is in
`grader.running.forkserver`. Linux only: elsewhere nothing is kept.
"""

import hashlib
import os
import select
import signal
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

POSSIBLE = sys.platform == "linux"
"""Whether anything is kept here: peers are known by the kernel's word, and folders by number."""
IDLE_SECONDS = 600.0
PATIENCE = 5.0
"""Seconds to wait for an answer. A process that is importing a library answers afterwards."""
WELCOME, REFUSAL = b"+", b"-"
"""Yes and no. A process sends yes to whoever connects, if it still holds what is on disk."""
_NAME = "where-does-my-array-live"
_STATUS = (b"Umask", b"Uid", b"Gid", b"Groups", b"Cap", b"NoNewPrivs", b"Seccomp", b"Cpus", b"Mems")


class NotPrivate(OSError):
    """Somebody else could reach what lies in the folder."""


def folder() -> Path:
    """Where this user's sockets lie: in the user's runtime folder, else among temporary files."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == os.geteuid():
        return runtime / _NAME
    return Path(tempfile.gettempdir(), f"{_NAME}-{os.geteuid()}")


def made_folder() -> Path:
    """The folder, if it can be made: what hides it from submissions must find it."""
    path = folder()
    with suppress(OSError):
        path.mkdir(0o700)
    return path


def world(environment: Mapping[str, str]) -> str:
    """A name for all that a process inherits from the command that starts it.

    `environment` is what the process is given of the environment. With it count the Python,
    this checkout, the working folder, and from the kernel: user, privileges, umask,
    processors, limits, niceness, control group and namespaces.

    Raises:
      OSError: the working folder is gone, or the kernel does not tell.
    """
    here = Path.cwd()
    status = Path("/proc/self/status").read_bytes().splitlines()
    facts = (
        sys.executable,
        sys.version,
        __file__,
        (here, here.stat().st_dev, here.stat().st_ino),
        sorted(environment.items()),
        [line for line in status if line.startswith(_STATUS)],
        Path("/proc/self/limits").read_bytes(),
        Path("/proc/self/cgroup").read_bytes(),
        [entry.readlink() for entry in sorted(Path("/proc/self/ns").iterdir())],
        os.nice(0),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def session_leader() -> int | None:
    """The process with which this terminal's session ends: the shell, say.

    None where that is this very process, or out of sight: nothing should stay behind then.
    """
    leader = os.getsid(0)
    return None if leader in (0, os.getpid()) else leader


def join(name: str) -> socket.socket | None:
    """A line to the process that is kept under `name`, if it is there and welcomes us."""
    try:
        with _opened(folder()) as where:
            line = _connected(where / name)
    except OSError:
        return None
    try:
        if line.recv(1) == WELCOME:
            line.settimeout(None)
            return line
    except TimeoutError:
        _kill(line)
    except OSError:
        pass
    line.close()
    return None


class Published:
    """A socket in the folder, at which this process can be found until `withdraw`."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self.listener, self._path = listener, path
        self._mark = self._state()

    def _state(self) -> tuple[int, int]:
        """What tells this socket from another of its name: numbers of files are used again."""
        found = self._path.stat()
        return found.st_ino, found.st_ctime_ns

    def accept(self) -> socket.socket | None:
        """The line to whoever connected; None if that is another user, fenced, or gone again."""
        try:
            line, _ = self.listener.accept()
        except OSError:
            return None
        pid, user = _peer(line)
        if user == os.geteuid() and _unfenced(pid):
            return line
        line.close()
        return None

    def withdraw(self) -> None:
        """Be found no longer."""
        with suppress(OSError):  # the folder may have gone, and been made again
            if self._state() == self._mark:
                self._path.unlink()
        self.listener.close()


def publish(path: Path, name: str) -> Published | None:
    """Let commands find this process as `name` in the folder `path`; None if another has the name.

    Raises:
      OSError: the folder is not private, cannot be written, or is being changed right now.
    """
    import fcntl  # here, since this module is loaded on Windows too

    with _opened(path) as where:
        fcntl.flock(int(where.name), fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sweep(where)
        if (where / name).exists():
            return None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind(os.fspath(where / name))
            (where / name).chmod(0o600)
            listener.listen()
            return Published(listener, path / name)
        except OSError:
            listener.close()
            raise


def stop() -> int:
    """Kill every process that this user keeps; returns how many there were.

    A command that such a process is serving goes on without it.
    """
    count = 0
    if not POSSIBLE:
        return count
    with suppress(OSError), _opened(folder()) as where:
        for path in where.iterdir():
            with suppress(OSError), _connected(path) as line:
                count += _kill(line)
        _sweep(where)
    return count


@contextmanager
def _opened(path: Path) -> Iterator[Path]:
    """The folder, made where it is missing, by its descriptor: what is checked is what is used.

    That path is short, too: the address of a socket may have 107 bytes.

    Raises:
      NotPrivate: it belongs to another user, or others may enter it.
      OSError: it is a link or a file, or cannot be made.
    """
    with suppress(FileExistsError):
        path.mkdir(0o700)
    where = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(where)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise NotPrivate(f"{path} is not private")
        yield Path(f"/proc/self/fd/{where}")
    finally:
        os.close(where)


def _connected(path: Path) -> socket.socket:
    """A line to the process at a socket; its answers are waited for with patience.

    Raises:
      OSError: there is none, it is dead or has no time, or it belongs to another user.
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.settimeout(PATIENCE)
        line.connect(os.fspath(path))
        if _peer(line)[1] != os.geteuid():
            raise NotPrivate(f"{path.name} belongs to another user")
    except OSError:
        line.close()
        raise
    return line


def _peer(line: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel knows them."""
    pid, user, _ = struct.unpack("iii", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, user


def _unfenced(pid: int) -> bool:
    """Whether a process lives in this one's pid namespace: no submission does, where this stays."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False


def _kill(line: socket.socket) -> bool:
    """Kill the process that listens at the other end, and wait for its end."""
    pid, _ = _peer(line)
    try:
        process = os.pidfd_open(pid)
    except OSError:  # it has ended, or lives in another pid namespace
        return False
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [], PATIENCE)
    finally:
        os.close(process)
    return True


def _sweep(where: Path) -> None:
    """Remove the sockets of processes that are dead."""
    for path in where.iterdir():
        try:
            _connected(path).close()
        except ConnectionRefusedError:
            path.unlink()
        except OSError:
            continue  # whatever it is, it is not dead
