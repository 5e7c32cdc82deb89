"""Starts a device next door, says what a program's environment needs, and ends it.

Runs in the process of whoever wants a device, which never imports JAX. The device's own
processes are in `grader.device.front` and `grader.device.executor`; `grader.device.nursery` keeps a
process that starts them faster.
"""

import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from grader.device.messages import kept, wire
from grader.device.options import Options
from grader.device.setup import SHARED, AskCounts, Close, Closed, Counts, Ready, Setup
from grader.records import book as books

START_SECONDS = 60.0
END_SECONDS = 10.0
_MOST_DEVICES = 64
_LONGEST_PATH = 100
"""Characters of a socket's path; a system takes 104 or 108."""
_PREFIX = "grader-device-"
_STALE_SECONDS = 10.0
_SHARE = 0.75
"""Of this machine's memory, for all devices together, where none was asked for."""
_KEPT = re.compile(r"^(PATH|LD_LIBRARY_PATH|LANG|LC_.*|TZ|PYTHONPATH|SYSTEMROOT|TMPDIR)$")
_ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder that `grader` is imported from."""


class CouldNotStart(Exception):
    """No device next door can be started here; the message says why."""


class Device:
    """A device that runs until `close`. Get one from `start`."""

    def __init__(self, folder: "Folder", control: socket.socket, ended: Callable[[], None],
                 book: Path, fences: list[str]) -> None:  # fmt: skip
        self._folder = folder
        self._line = wire.Line(control)
        self._ended = ended
        self._closed = False
        self.book = book
        """The book. It is whole after `close`, and then gone unless `Options.book` named it:
        `finish` reads it before."""
        self.fences = fences
        """What was achieved around the device's processes, and what was refused."""
        self.environment = environment(folder.path)
        """What a program's environment needs, to be laid over its own: its default device is
        then this device, and `jax.devices("cpu")` still shows the host."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when the device ends by itself, or is killed."""
        return self._line.fileno()

    def counts(self) -> Counts:
        """What the book holds so far, once all that was asked is done, and memory in use.

        Raises:
          OSError: the device has ended.
        """
        self._line.send(AskCounts())
        try:
            answer, _, _ = self._line.receive(msgspec.msgpack.Decoder(Counts))
        except (EOFError, wire.Broken) as error:
            raise OSError("the device next door has ended") from error
        return answer

    def admit(self, user: int) -> None:
        """Let processes of another user be clients, instead of this process's own.

        Raises:
          PermissionError: this process is not root.
        """
        for name in ("socket", "bridge"):
            os.chown(self._folder.path / name, user, -1)

    def close(self) -> None:
        """End the device and write the book's last line. A second call does nothing."""
        self._end()
        self._folder.remove()

    def finish(self) -> books.Book:
        """End the device and return its book, which was written whole; call it once.

        Raises:
          NotABook, OSError: the book cannot be read.
        """
        self._end()
        try:
            return books.read(self.book)
        finally:
            self._folder.remove()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(OSError, EOFError, wire.Broken):
            self._line.send(Close())
            self._line.receive(msgspec.msgpack.Decoder(Closed))
        self._line.close()
        self._ended()

    def __enter__(self) -> "Device":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Folder:
    """A device's own folder, locked as long as its front, or whoever started it, lives."""

    def __init__(self) -> None:
        base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
        if os.geteuid() == 0 and not _passable(Path(base)):
            base = tempfile.gettempdir()  # its processes, and its clients, are users of their own
        if len(base) + len(_PREFIX) + 16 > _LONGEST_PATH or not os.access(base, os.W_OK):
            base = "/tmp"  # a socket's path must be short
        sweep(Path(base))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        self.path.chmod(0o711)
        self.lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self.lock, fcntl.LOCK_SH)

    def remove(self) -> None:
        """Remove the folder and all that is in it. A second call does nothing."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1
            _remove(self.path)


def _passable(folder: Path) -> bool:
    """Whether any user may pass through a folder."""
    with suppress(OSError):
        return all(each.stat().st_mode & 0o001 for each in (folder, *folder.absolute().parents))
    return False


def sweep(base: Path) -> None:
    """Remove folders of devices that ended by force, together with whoever started them."""
    for path in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime < _STALE_SECONDS:
                continue
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(handle)


def _remove(folder: Path) -> None:
    """Remove a device's folder, and its other one in memory."""
    for path in (SHARED / folder.name, folder):
        shutil.rmtree(path, ignore_errors=True)


def environment(folder: Path) -> dict[str, str]:
    """What a program needs in its environment for the device whose sockets lie in `folder`."""
    path = [str(Path(__file__).parent / "path"), os.environ.get("PYTHONPATH", "")]
    if "site-packages" not in _ROOT.parts:  # a checkout, which its programs may not know
        path.append(str(_ROOT))
    return {
        "JAX_PLATFORMS": "proxy,cpu",
        "JAX_BACKEND_TARGET": f"grpc://unix:{folder}/socket",
        "GRADER_DEVICE": str(folder),
        "TF_CPP_MIN_LOG_LEVEL": _quiet(os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


def _quiet(level: str) -> str:
    """The client warns as it starts; JAX itself sets 1 when it is imported."""
    return "2" if level in ("", "1") else level


def resolved(options: Options) -> Options:
    """`options` with the memory that a device has.

    Raises:
      CouldNotStart: no device can be as they say.
    """
    if not 1 <= options.devices <= _MOST_DEVICES:
        raise CouldNotStart(f"{options.devices} devices, where 1 to {_MOST_DEVICES} are possible")
    if options.memory is not None:
        if options.memory <= 0:
            raise CouldNotStart(f"a device with {options.memory} bytes of memory")
        return options
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory = int(physical * _SHARE) // options.devices
    return msgspec.structs.replace(options, memory=memory)


def described() -> bytes:
    """The descriptions of the protocol that the installed jaxlib speaks.

    Raises:
      CouldNotStart: it is unknown, or something is missing.
    """
    for name in ("jax", "grpc", "google.protobuf"):
        if find_spec(name) is None:
            raise CouldNotStart(f"the Python package of `{name}` is not installed")
    cache = kept.folder()
    try:
        if (data := kept.load(cache)) is not None:
            return data
        found = subprocess.run(
            [sys.executable, "-P", "-m", "grader.device.messages.protocol"],
            env=process_environment(),
            capture_output=True,
            timeout=START_SECONDS,
        )
    except (LookupError, OSError, subprocess.TimeoutExpired) as error:
        raise CouldNotStart(str(error)) from error
    if found.returncode:
        raise CouldNotStart(_last_line(found.stderr) or "jaxlib's protocol cannot be read")
    kept.save(cache, found.stdout)
    return found.stdout


def start(options: Options) -> Device:
    """Start a device; it is ready for programs when this returns.

    Raises:
      CouldNotStart: the protocol of this jaxlib is unknown, or something is missing.
    """
    if sys.platform != "linux":
        raise CouldNotStart("a device next door runs on Linux only")
    return launch(resolved(options), described(), _Spawn())


class _Spawn:
    """Starts the two processes from scratch."""

    def __call__(self, ends: "Ends", devices: int) -> Callable[[], None]:
        executor = self._process(
            "executor", [ends.executor.fileno(), devices, user(2)], [ends.executor.fileno()], ends
        )
        fds = [ends.control.fileno(), ends.front.fileno(), ends.book]
        front = self._process("front", fds, [*fds, ends.lock], ends)

        def ended() -> None:
            for process in (front, executor):
                try:
                    process.wait(END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

        return ended

    @staticmethod
    def _process(
        name: str, arguments: Sequence[int], kept_open: Sequence[int], ends: "Ends"
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-P", "-m", f"grader.device.{name}.process", *map(str, arguments)],
            pass_fds=kept_open,
            env=process_environment(),
            stdin=subprocess.DEVNULL,
            stdout=ends.log,
            stderr=ends.log,
            start_new_session=True,
        )


@dataclass(frozen=True)
class Ends:
    """What a device's processes inherit."""

    control: socket.socket
    """The front's end of the line to whoever starts the device."""
    front: socket.socket
    """The front's end of the line between the two."""
    executor: socket.socket
    book: int
    lock: int
    """The locked folder."""
    log: IO[bytes]
    """Where both write what goes wrong."""


Starter = Callable[[Ends, int], Callable[[], None]]
"""Starts both processes, for so many devices, and returns what waits for their end."""


def launch(options: Options, protocol: bytes, starter: Starter) -> Device:
    """Start a device with `starter`; see `start`."""
    folder = Folder()
    control, control_end = socket.socketpair()
    book = options.book or folder.path / "book.jsonl"
    ended: Callable[[], None] | None = None
    try:
        with tempfile.TemporaryFile() as log:
            ended = _processes(starter, options.devices, control_end, book, folder, log)
            plain = msgspec.structs.replace(options, book=None)
            setup = Setup(plain, str(folder.path), user(1), time.monotonic())
            ready = _ready(control, setup, protocol, log)
    except BaseException as error:
        control.close()
        control_end.close()
        if ended is not None:
            ended()
        folder.remove()
        if isinstance(error, OSError):
            raise CouldNotStart(f"a device next door: {error}") from error
        raise
    return Device(folder, control, ended, book, ready.fences)


def _processes(
    starter: Starter,
    devices: int,
    control: socket.socket,
    book: Path,
    folder: Folder,
    log: IO[bytes],
) -> Callable[[], None]:
    """Start both processes, and keep nothing open that is theirs."""
    file = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    front, executor = socket.socketpair()
    try:
        return starter(Ends(control, front, executor, file, folder.lock, log), devices)
    finally:
        os.close(file)
        for each in (control, front, executor):
            each.close()


def user(which: int) -> int:
    """A number for the user of one of a device's processes, that no other process has.

    0 for no user of its own: only root can have that.
    """
    return os.getpid() * 4 + which if os.geteuid() == 0 else 0


def _ready(control: socket.socket, setup: Setup, protocol: bytes, log: IO[bytes]) -> Ready:
    """Say what the device is to be, and wait until it is."""
    line = wire.Line(control)
    try:
        control.settimeout(START_SECONDS)
        line.send(setup, protocol)
        ready, _, _ = line.receive(msgspec.msgpack.Decoder(Ready))
        control.settimeout(None)
    except TimeoutError as error:
        raise CouldNotStart(f"the device was not ready after {START_SECONDS:.0f} s") from error
    except (EOFError, OSError, wire.Broken) as error:
        log.seek(0)
        why = _last_line(log.read()) or "it ended as it started"
        raise CouldNotStart(f"the device next door: {why}") from error
    if ready.problem:
        raise CouldNotStart(ready.problem)
    return ready


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def process_environment() -> dict[str, str]:
    """The environment of the device's own processes: an allow-list, and quiet libraries."""
    some = {name: value for name, value in os.environ.items() if _KEPT.match(name)}
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join(filter(None, [str(_ROOT), some.get("PYTHONPATH", "")]))
    return {
        **some,
        **threads,
        "PYTHONPATH": path,
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "GRPC_VERBOSITY": "NONE",
    }
