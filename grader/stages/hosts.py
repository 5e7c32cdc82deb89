"""Runs one file in several processes at once, which may find each other over loopback.

The worker has a started backend, and `jax.distributed` must come before any backend. So each
process is a fresh Python (`grader.stages.one_host`). What a process tells comes from the
learner's process, and can be trusted no more than what a worker observes.

A run ends when all processes are done, when one cannot go on, or when all wait and none
will ever be woken. No process outlives the run, however it ends. Each is also killed when the
worker dies (`grader.fences`). What a run means is judged by the exercise's checks.
"""

import linecache
import marshal
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal

import msgspec

from grader.fences import imports
from grader.records.stack_dump import frames_in
from grader.stages.one_host import Job, Part

LOOK_SECONDS = 0.05
QUIET_SECONDS = 5.0
"""If for this long no process told anything and none computed, they all wait for each other.
A process that finds nobody at the meeting place tries again within 3 s."""
IDLE = 0.02
"""The share of that time for which a process computes while it only waits for messages."""
BUSY_SECONDS = 5.0
"""A process that has computed for this long will not end: a right run takes under a second."""
START_SECONDS, LONGEST_SECONDS = 30.0, 25.0
"""Limits of wall time for the imports, and for the run. A run that reaches its limit says nothing
about the submission: the machine gave its processes too little time."""
HEAD_START_SECONDS = 0.2
"""Process 0 opens the meeting place. A process that comes earlier tries again a second later."""
DUMP_SECONDS = 0.5
LAST_SECONDS = 1.0
MAX_TOLD = 1 << 20
MAX_PRINTED, SHOWN = 1 << 18, 4000
OF_LIBRARIES = re.compile(r"\[Gloo\]|\s*@\s+0x|\*\*\* Check failure|=== Source Loc|external/xla")

End = Literal["finished", "raised", "exited", "killed", "stuck", "stopped", "flooded", "garbled"]
"""`stuck`: it waited, or computed without end. `stopped`: another process could not go on."""


class Ran(msgspec.Struct):
    """How one process ended, and what it told."""

    end: End = "stopped"
    message: str = ""
    line: int | None = None
    """The learner's line that raised, or that did not end."""
    told: dict[str, Any] = {}


def together(
    submission: ModuleType, part: Part, given: Sequence[Any], *, devices: int
) -> list[Ran]:
    """Run `part` in one process for each JSON value of `given`; returns how each one ended.

    Each has `devices` simulated CPU devices. What they print is printed, each line with its
    process.

    Raises:
      OSError: processes cannot be started here, or get too little time for a verdict.
    """
    path = str(submission.__file__)
    source = "".join(linecache.getlines(path))
    with ExitStack() as stack:
        address = stack.enter_context(_Address())
        code = b64encode(marshal.dumps(part.__code__)).decode()
        jobs = [Job(path, source, code, i, address, devices, own) for i, own in enumerate(given)]
        processes = [stack.enter_context(_Process(job)) for job in jobs]
        _watch(processes)
        for process in processes:
            process.show()
        return [process.ran for process in processes]


class _Address:
    """While entered, a loopback port that the system gives to no other process."""

    def __enter__(self) -> str:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if hasattr(socket, "SO_REUSEPORT"):  # a process that asks for this very port still gets it
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class _Process:
    """One process, seen from the worker."""

    def __init__(self, job: Job) -> None:
        self.job, self.ran, self.open = job, Ran(), True
        self._told, self._printed = bytearray(), bytearray()

    def __enter__(self) -> "_Process":
        self._stack: IO[bytes] = tempfile.TemporaryFile()
        command = imports.command("grader.stages.one_host", str(self._stack.fileno()))
        pipe, kept = subprocess.PIPE, [self._stack.fileno()]
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=kept, start_new_session=True
        )
        self.tell(msgspec.json.encode(self.job) + b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for file in (self._stack, *self._pipes()):
            file.close()

    def _pipes(self) -> list[IO[bytes]]:
        process = self._process
        return [p for p in (process.stdin, process.stdout, process.stderr) if p is not None]

    def tell(self, message: bytes) -> None:
        """Write to the process. If it is dead, `hear` will notice."""
        inbox = self._pipes()[0]
        with suppress(BrokenPipeError):
            inbox.write(message)
            inbox.flush()

    def hear(self) -> bool:
        """Take what there is to read; returns whether there was anything."""
        ended = self._process.poll()  # asked first, so that all a dead process wrote is read
        before = len(self._told) + len(self._printed)
        _, told, printed = self._pipes()
        for pipe, kept in ((told, self._told), (printed, self._printed)):
            while select.select([pipe], [], [], 0)[0] and (
                chunk := os.read(pipe.fileno(), 1 << 16)
            ):
                kept += chunk
                if len(self._told) > MAX_TOLD:
                    self._stop("garbled", "its answer is too long")
                    return True
                if len(self._printed) > MAX_PRINTED:
                    self._stop("flooded", f"it printed more than {MAX_PRINTED >> 10} KiB")
                    return True
        self._read()
        if self.open and ended is not None:
            self._died(ended)
        return len(self._told) + len(self._printed) > before

    def _read(self) -> None:
        """Turn whole lines into what was told."""
        for line in bytes(self._told).split(b"\n")[:-1]:
            try:
                name, value = msgspec.json.decode(line, type=tuple[str, Any])
            except (msgspec.DecodeError, RecursionError):
                return self._stop("garbled", "its answer cannot be read")
            self.ran.told[name] = value
        if self.open and "raised" in self.ran.told:
            self._raised(self.ran.told["raised"])
        elif self.open and "finished" in self.ran.told:
            self._stop("finished")
        return None

    def _raised(self, raised: Any) -> None:
        try:
            message, self.ran.line = msgspec.convert(raised, tuple[str, int | None])
        except msgspec.ValidationError:
            return self._stop("garbled", "its answer cannot be read")
        return self._stop("raised", message)

    def _died(self, code: int) -> None:
        if code >= 0:
            return self._stop("exited", f"it ended with code {code} before the run was over")
        what, self.ran.line = signal.strsignal(-code) or "unknown", self._frame()
        # Where JAX itself ends a process, it prints why.
        _, known, why = self._printed.decode("utf-8", "replace").rpartition("absl::Status: ")
        why = f", for {why.partition('\n')[0].rstrip('.')}" if known else ""
        return self._stop("killed", f"it was killed by signal {-code} ({what}){why}")

    def _stop(self, end: End, message: str = "") -> None:
        """Note how it ended. Nothing more is heard from it."""
        self.open, self.ran.end, self.ran.message = False, end, message

    def stuck(self, message: str) -> None:
        """Note on which of the learner's lines it was when the run was given up."""
        self.ran.line = self.line()
        self._stop("stuck", message)

    def line(self) -> int | None:
        """The learner's line that runs now."""
        os.killpg(self._process.pid, signal.SIGUSR1)
        deadline = time.monotonic() + DUMP_SECONDS
        while (line := self._frame()) is None and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return line

    def _frame(self) -> int | None:
        """The learner's innermost line in the stack that the process left."""
        stack = os.pread(self._stack.fileno(), 1 << 18, 0).decode("utf-8", "replace")
        frames = frames_in(stack, self.job.path, self.job.source)
        return frames[-1].line if frames else None

    def computed(self) -> float:
        """Seconds of processor time so far. Where the system does not say, it grows slowly."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return 2 * IDLE * time.monotonic()

    def wants_to_run(self) -> bool:
        """Whether one of its threads would compute if the machine had time for it."""
        for stat in Path(f"/proc/{self._process.pid}/task").glob("*/stat"):
            with suppress(OSError):  # it has ended
                if stat.read_text().rpartition(")")[2].split()[0] in "RD":
                    return True
        return False

    def show(self) -> None:
        """Print what it printed, without what libraries print by themselves."""
        lines = self._printed.decode("utf-8", "replace").splitlines()
        kept = [line for line in lines if line.strip() and not OF_LIBRARIES.match(line)]
        for line in "\n".join(kept)[-SHOWN:].splitlines():
            print(f"process {self.job.index}: {line}")  # noqa: T201 (the learner's own output)


def _watch(processes: Sequence[_Process]) -> None:
    """Let the processes run until all have ended, or none goes on."""
    _wait_until(processes, lambda: all("ready" in p.ran.told or not p.open for p in processes))
    for process in processes:
        process.tell(b"go\n")
        time.sleep(HEAD_START_SECONDS)
    started = quiet_since = time.monotonic()
    began = computed = [p.computed() for p in processes]
    while _going(processes):
        now, spent = time.monotonic(), [p.computed() for p in processes]
        if _heard(processes) or _most(spent, computed) > IDLE * QUIET_SECONDS:
            quiet_since, computed = now, spent
        if now - quiet_since > QUIET_SECONDS and not any(p.wants_to_run() for p in processes):
            _give_up(processes, "it waited")
        elif _most(spent, began) > BUSY_SECONDS:
            _give_up(processes, f"it still ran after {now - started:.0f} s")
        elif now - started > LONGEST_SECONDS:
            raise OSError(f"in {LONGEST_SECONDS:.0f} s this machine did not let them end or stop")
        time.sleep(LOOK_SECONDS)
    _let_raise(processes)


def _let_raise(processes: Sequence[_Process]) -> None:
    """Where one has failed, let others come to their own end that compute on, for a moment.

    On a busy machine they may be about to raise the same. One that waits is not waited for.
    """
    deadline = time.monotonic() + LAST_SECONDS
    while any(p.open and p.wants_to_run() for p in processes) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        _heard(processes)


def _most(now: Sequence[float], before: Sequence[float]) -> float:
    """The largest increase of any process."""
    return max(after - earlier for after, earlier in zip(now, before, strict=True))


def _wait_until(processes: Sequence[_Process], ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        _heard(processes)
        if time.monotonic() > deadline:
            raise OSError(f"a process did not start within {START_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)


def _heard(processes: Sequence[_Process]) -> bool:
    heard = [process.hear() for process in processes]  # a list: `any` alone would stop early
    return any(heard)


def _going(processes: Sequence[_Process]) -> bool:
    """Whether to wait on: a process still runs, and none has failed."""
    failed = any(not p.open and p.ran.end != "finished" for p in processes)
    return not failed and any(p.open for p in processes)


def _give_up(processes: Sequence[_Process], why: str) -> None:
    for process in processes:
        if process.open:
            process.stuck(why)
