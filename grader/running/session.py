"""A place to grade: one launcher kept for many gradings, and the machine it found.

Open it with `with`; leaving it ends every process. `cancel()` may be called from
another thread or a signal handler and makes every wait return.
"""

import ast
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from grader.course import catalog
from grader.device.start import CouldNotStart, Device
from grader.fences.system import REFUSED
from grader.judging.checking import Exercise
from grader.program import targets
from grader.records.book import Closing, Entry, Opening
from grader.records.record import Machine, Observed, Witnessed
from grader.running import kept
from grader.running.launch import ForkServer, KeptForkServer, Launcher, launcher
from grader.running.messages import (
    WORKER,
    DriveJob,
    Ended,
    Left,
    Measurements,
    Ready,
    Request,
    Setup,
    Targeted,
)
from grader.running.next_door import Doors, environment, finish
from grader.running.process import Failed, Worker

CLIENT = "grader.probes.next_door"
"""What a worker needs for a device next door; imported before any fork, like the rest."""
PRELOADABLE = ("jax", "haiku", "flax.linen", "flax.nnx", "optax", "numpy")
LATE = (
    "jax.export",
    "jax.experimental.multihost_utils",
    "jaxlib.mlir.dialects.builtin",
    "jaxlib.mlir.dialects.mhlo",
)
"""What JAX imports when it first compiles."""
EXPORTED = ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")
"""What JAX imports when it first exports a program, or reads one that was exported."""
NEXT_DOOR = "next-door"
TIMES_NEXT_DOOR = 3
"""How many times longer a run may take next door: each read is a question to another process, which
must get its turn on a machine that is busy."""
REACHING, TIMES_REACHING = 100, 2
"""From which number of a file on its runs are longer, and how many times longer they may take."""
MEMORY = 8 << 30
UNOPTIMISED = "--xla_backend_optimization_level=0"
"""Halves the time of a compile on a CPU, where nothing is timed. What is observed
(placement, transfers, donation) and what is read of a program (memory, collectives,
aliases) stays the same: it concerns LLVM alone."""
START_SECONDS = 60.0
FOR_TARGET = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
"""The plugin then asks for no driver, and no library but its own."""
DECODED = (Ready, Ended, Observed, Measurements, Targeted, Opening, Entry, Closing)
"""What the threads of a session read. msgspec looks into a type when it first meets it; two threads
that do so at once end the process, so it is done before there are any."""


Role = tuple[str, int, bool, bool, bool]
"""Platform, devices, observe, hide, timed: what makes one worker as good as another."""


class NoDevice(Exception):
    """The platform asked for cannot be had; the message says why."""


class NotNextDoor(Exception):
    """No device next door can be had; the session knows why, and asks for none again."""


@dataclass
class Options:
    """What a person may ask for."""

    device: str = "auto"
    devices: int | None = None
    timeout: float = 60.0
    fenced: bool = True
    kept: bool = False
    """Use the fork server that an earlier command left behind, and leave one behind."""


@dataclass
class Prepared:
    """A worker whose backend runs, and the machine it found."""

    worker: Worker
    machine: Machine
    said: str = ""
    """The last it printed while it started."""
    stood_by: bool = False
    """Whether an earlier command has left it behind."""


@dataclass
class Session(AbstractContextManager["Session"]):
    """Workers on demand. `modules` are imported once, before any fork.

    JAX loads its CUDA plugin's libraries as it is imported. Workers that compile for targets are
    therefore forked from a process of their own, which alone sees the plugin.
    """

    options: Options
    modules: Sequence[str]
    _launcher: Launcher | None = None
    _compilers: Launcher | None = None
    _gpus: int | None = None
    _cancelled: bool = False
    _workers: set[Worker] = field(default_factory=set)
    _fenced: bool | None = None
    """Whether every fence stood around every worker; None before the first worker's end."""
    left_behind: bool = False
    """Whether this session, now over, left its fork server to later commands."""
    _standby: dict[Role, Future[Prepared]] = field(default_factory=dict)
    _taken: list[tuple[Left, Worker]] = field(default_factory=list)
    """Workers that an earlier command left standing by, and that nobody has used yet."""
    _next: list[Left] = field(default_factory=list)
    """What this session, once over, leaves standing by."""
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    doors: Doors = field(default_factory=Doors)
    _lent: dict[Worker, Device] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for kind in DECODED:
            msgspec.json.Decoder(kind)
        if self.options.device == NEXT_DOOR:
            self.doors.open()
            self.modules = [*self.modules, CLIENT]
        self._launcher = launcher(self.modules, join=self.options.kept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()
        # First the launchers: whoever waits for a worker that was never started is woken.
        if self._compilers is not None:
            self._compilers.close()
        if self._launcher is not None:
            # Without fences, a submission could reach a server that outlives it.
            if kind is None and self.options.kept and self._fenced:
                self.left_behind = self._launcher.leave(self._next)
            else:
                self._launcher.close()
        self.pool.shutdown()
        for worker in list(self._workers):
            self.release(worker)
        self.doors.close()

    @property
    def joined(self) -> bool:
        """Whether the fork server is one that an earlier command left behind."""
        return isinstance(self._launcher, KeptForkServer)

    def confirm(self) -> None:
        """Called when a grading is done; see `Launcher.confirm`.

        Raises:
          Lost: what was observed counts for nothing.
        """
        assert self._launcher is not None
        self._launcher.confirm()

    def start_afresh(self) -> None:
        """Go on with a fork server of one's own, in place of one that was lost or cancelled."""
        assert self._launcher is not None
        self._cancelled = False
        self._launcher.close()
        self._standby.clear()
        self._taken.clear()
        self._fenced = None
        self._launcher = launcher(self.modules, join=False)

    def cancel(self) -> None:
        """Tell every worker to die, now and from now on; those who wait for one are woken."""
        self._cancelled = True
        for worker in list(self._workers):
            worker.cancel()

    def prepare(
        self,
        platform: str,
        devices: int,
        *,
        observe: bool,
        hide: bool,
        timed: bool = False,
        job: DriveJob | None = None,
        flops: float = 0.0,
    ) -> Prepared:
        """A worker with its backend started: one that stands by, else a new one.

        `observe` installs the probes, `hide` keeps solutions and checks out of sight,
        `timed` compiles as well as XLA can; `flops` is for `Doors.start`. `job` is what it will
        be asked for, if that is known: an earlier command may have asked for the same.

        Raises:
          Failed: it was cancelled.
          NoDevice: the backend's own error, or how it died.
          BrokenInstallation: the libraries cannot be imported.
          Lost: the fork server that an earlier command left behind is gone.
        """
        waiting = self._standby.pop((platform, devices, observe, hide, timed), None)
        if waiting is not None:
            return waiting.result()
        return self._start(
            platform, devices, observe=observe, hide=hide, timed=timed, job=job, flops=flops
        )

    def start_compilers(self) -> str:
        """Get ready to compile for targets; returns why nothing can be compiled for one, or ""."""
        problem = targets.missing()
        if self._compilers is None and not problem:
            self._compilers = ForkServer(["jax", *LATE, WORKER], targets.import_path())
        return problem

    def prepare_compiler(self, *, hide: bool) -> Prepared:
        """A worker that compiles for targets, after `start_compilers` found no problem.

        On this machine it uses the CPU alone.

        Raises:
          Failed, NoDevice, BrokenInstallation: as `prepare`.
        """
        return self._start("target", 1, observe=False, hide=hide, more=FOR_TARGET)

    def stand_by(self, platform: str, devices: int, *, program: bool) -> None:
        """Start the next submission's workers now, while nobody waits for them.

        Those that stand by for another kind of submission end.
        """
        roles: list[Role] = [(platform, devices, True, True, False)]
        if program:
            roles.append((measuring_platform(platform), devices, False, True, False))
        for role in self._standby.keys() - roles:
            self.pool.submit(self._dismiss, self._standby.pop(role))
        for role in roles:
            if role not in self._standby:
                start = partial(self._start, role[0], devices, observe=role[2], hide=True)
                self._standby[role] = self.pool.submit(start, warm=not role[2])

    def take_left(self, job: DriveJob) -> int | None:
        """Have what the command before this left standing by.

        Returns the seed on which it had `job` of the reference done. If there is none, what it
        left was for something else, and ends.

        Raises:
          Lost: the fork server does not answer.
        """
        assert self._launcher is not None
        taken = self._launcher.take()
        self._workers.update(worker for _, worker in taken)
        for each in (left.job for left, _ in taken if left.job is not None):
            if each == msgspec.structs.replace(job, seed=each.seed):
                self._taken = taken
                return each.seed
        for _, worker in taken:
            worker.cancel()
        return None

    def leave_standing_by(
        self, platform: str, devices: int, job: DriveJob, *, program: bool
    ) -> None:
        """Let the next command find the workers of `stand_by`, and `job` of the reference done.

        Only where this session leaves a fork server or has used one, and on the CPU: a GPU's
        memory is for others.
        """
        if platform != "cpu":
            return
        ask = partial(self._asked, platform, devices, timed=False, more={})
        self._next = [Left(*ask(observe=True, hide=True))]
        if program:
            self._next.append(Left(*ask(observe=False, hide=True, warm=True)))
        self._next.append(Left(*ask(observe=True, hide=False), job))

    def _left_for(self, request: Request, setup: Setup, job: DriveJob | None) -> Worker | None:
        """A worker that stands by and was told the same.

        One that has ended is none, unless its job is done: memory may have been short.
        """
        for left, worker in list(self._taken):  # another thread may look for its own
            told = msgspec.structs.replace(setup, warm=left.setup.warm)
            if left == Left(request, told, left.job and job):
                self._taken.remove((left, worker))
                return worker if left.job or not worker.has_ended() else None
        return None

    def _dismiss(self, waiting: Future[Prepared]) -> None:
        """End a worker that nobody needs any more, if it ever started."""
        if waiting.exception() is None:
            self.release(waiting.result().worker)

    def _start(
        self,
        platform: str,
        devices: int,
        *,
        observe: bool,
        hide: bool,
        timed: bool = False,
        warm: bool = False,
        more: Mapping[str, str] | None = None,
        job: DriveJob | None = None,
        flops: float = 0.0,
    ) -> Prepared:
        if platform == NEXT_DOOR:
            return self._start_next_door(
                devices, observe=observe, hide=hide, timed=timed, flops=flops
            )
        origin = self._compilers if platform == "target" else self._launcher
        assert origin is not None
        request, setup = self._asked(
            platform, devices, observe=observe, hide=hide, timed=timed, warm=warm, more=more or {}
        )
        worker = self._left_for(request, setup, job) or origin.start(request)
        return self._begun(origin, worker, setup)

    def _start_next_door(
        self, devices: int, *, observe: bool, hide: bool, timed: bool, flops: float
    ) -> Prepared:
        """A worker that is the client of a device of its own."""
        try:
            device = self.doors.start(devices, flops)
        except (CouldNotStart, OSError) as error:
            self.doors.problem = str(error)
            raise NotNextDoor(self.doors.problem) from error
        assert self._launcher is not None
        request, setup = self._asked(
            NEXT_DOOR, devices, observe=observe, hide=hide, timed=timed, more=environment(device)
        )
        request.door = device.environment["GRADER_DEVICE"]
        try:
            worker = self._launcher.start(request)
        except BaseException:
            device.close()
            raise
        self._lent[worker] = device
        try:
            return self._begun(self._launcher, worker, setup)
        except NoDevice as error:
            self.doors.problem = str(error)
            raise NotNextDoor(self.doors.problem) from error

    def _begun(self, origin: Launcher, worker: Worker, setup: Setup) -> Prepared:
        """Tell a worker its setup, and wait until it is ready; as `prepare`."""
        stood_by = worker.told > 0
        self._workers.add(worker)
        if self._cancelled:
            worker.cancel()
        try:
            ready = msgspec.json.decode(worker.ask(setup, START_SECONDS), type=Ready)
        except BaseException as error:
            self.release(worker)
            if isinstance(error, Failed) and not self._cancelled:
                origin.check()
                problem = f"JAX did not live to name one: {error}"
                raise NoDevice(problem + _said(error.outcome.output)) from error
            raise
        if ready.machine is None:
            problem = ready.problem + _said(worker.output())
            self.release(worker)
            raise NoDevice(problem)
        said = _said(worker.output())
        worker.forget_output()
        return Prepared(worker, ready.machine, said, stood_by)

    def _asked(
        self,
        platform: str,
        devices: int,
        *,
        observe: bool,
        hide: bool,
        timed: bool,
        more: Mapping[str, str],
        warm: bool = False,
    ) -> tuple[Request, Setup]:
        """What makes a worker, and what it is told first."""
        hidden = list(map(os.fsencode, hidden_folders())) if hide else []
        # A GPU's driver keeps large books, so that no limit on data fits every GPU.
        memory = 0 if platform == "gpu" else MEMORY
        unoptimised = not timed and platform in ("cpu", NEXT_DOOR)
        environment = {"XLA_FLAGS": UNOPTIMISED} if unoptimised else {}
        environment |= more
        # What a comparison of times is about was compiled for it, and a submission that no fence
        # held may have written anywhere.
        shares = platform == "cpu" and self.options.fenced and self._fenced is not False
        fenced, modules = self.options.fenced, [] if platform == "target" else list(self.modules)
        request = Request(
            environment,
            hidden,
            memory,
            fenced=fenced,
            modules=modules,
            compiled="" if timed or not shares else "read" if hide else "add",
        )
        seconds = self.limit(platform)
        timeout = min(seconds - 1, seconds * 0.9)
        return request, Setup(platform, devices, observe, timeout=timeout, warm=warm)

    def limit(self, platform: str, named: Sequence[float] = ()) -> float:
        """Seconds that one run of the code may take, which reaches the numbers that are `named`."""
        next_door = TIMES_NEXT_DOOR if platform == NEXT_DOOR else 1
        reaching = TIMES_REACHING if max(named, default=0) >= REACHING else 1
        return self.options.timeout * next_door * reaching

    def release(self, worker: Worker) -> Witnessed | None:
        """End one worker, and its device; returns what the device's book says, if it has one."""
        worker.close()
        device = self._lent.pop(worker, None)
        witnessed = None if device is None else finish(device)
        self._workers.discard(worker)
        stood = bool(worker.fences) and not any(f.startswith(REFUSED) for f in worker.fences)
        self._fenced = stood and self._fenced is not False
        return witnessed

    def gpus(self) -> int:
        """How many GPUs JAX finds; asks a worker once, and only where one may be.

        Raises:
          NoDevice: `--device gpu` was asked for and the backend did not start.
        """
        if self._gpus is None:
            self._gpus = self._count_gpus()
        return self._gpus

    def _count_gpus(self) -> int:
        if self.options.device in ("cpu", NEXT_DOOR) or not (
            self.options.device == "gpu" or gpu_likely()
        ):
            return 0
        try:
            prepared = self.prepare("gpu", 1, observe=False, hide=False)
        except NoDevice:
            if self.options.device == "gpu":
                raise
            return 0
        self.release(prepared.worker)
        return prepared.machine.devices

    def platform_for(self, exercise: Exercise) -> tuple[str, int]:
        """The platform and number of devices for an exercise.

        GPUs if there are enough of them, else simulated CPU devices; devices next door where
        they are asked for, the exercise gains from them, and they can be had.

        Raises:
          NoDevice: fewer were asked for than the exercise can do with.
        """
        wanted = self.options.devices or exercise.devices
        fewest = exercise.fewest_gpus or exercise.devices
        if wanted < fewest:
            raise NoDevice(f"it takes {fewest} devices, and --devices says {wanted}")
        fewest = self.options.devices or fewest
        if self.gpus() >= fewest:
            return "gpu", min(self.gpus(), wanted)
        if self.options.device == NEXT_DOOR and exercise.next_door and self.doors.possible(wanted):
            return NEXT_DOOR, wanted
        return "cpu", wanted

    def instead_of_next_door(self, exercise: Exercise) -> str:
        """Why an exercise does not run on the device next door that was asked for, or ""."""
        if self.options.device != NEXT_DOOR:
            return ""
        if not exercise.next_door:
            return "this exercise asks for nothing that needs one"
        return self.doors.problem


def measuring_platform(platform: str) -> str:
    """Where programs are measured that a worker exported: the CPU for a device next door's."""
    return "cpu" if platform == NEXT_DOOR else platform


def _said(output: str) -> str:
    """The last a process said, which of a plugin's log is its error."""
    said = output.strip().splitlines()
    return f" ({said[-1]})" if said else ""


def gpu_likely() -> bool:
    """Whether this machine shows a GPU's device node."""
    return any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"))


def hidden_folders() -> list[str]:
    """What a learner's process must not see: the course but for the grader, and kept processes.

    The course has solutions, checks, tests and its history, and what was built of it: a site that
    shows the solutions, and wheels that hold them. Another copy may lie on the import path.
    """
    told = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    places: tuple[str | Path, ...] = (catalog.PACKAGE, sys.prefix, sys.base_prefix, *told)
    needed = [Path(place).resolve() for place in places]
    found = [catalog.PACKAGE / "checks", catalog.PACKAGE / "_data"]
    for root in {catalog.PACKAGE.parent, *map(Path, filter(None, sys.path))}:
        if (root / "grader" / "checks").is_dir() and (root / "pyproject.toml").is_file():
            found += root.iterdir()
        found.append(root / "grader" / "_data")
    if kept.POSSIBLE:
        found.append(kept.made_folder())
    hidden = {path for path in found if path.is_dir() and not path.is_symlink()}
    return sorted(
        os.fspath(path)
        for path in hidden
        if not any(one.is_relative_to(path.resolve()) for one in needed)
    )


def modules_of(entries: Iterable[catalog.Entry]) -> list[str]:
    """What the fork server loads before any fork: libraries, the worker's own code, and the
    drives, which a learner's worker cannot see any more once it is fenced."""
    entries = list(entries)
    wanted = {"jax", "numpy"}
    for entry in entries:
        for node in ast.walk(ast.parse(entry.solution.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                wanted |= {f"{node.module}.{alias.name}" for alias in node.names}
                wanted.add(node.module or "")
    libraries = [module for module in PRELOADABLE if module in wanted]
    late = LATE + EXPORTED * any(entry.exercise.has_program for entry in entries)
    return [*libraries, *late, WORKER, *(entry.drive_module for entry in entries)]
