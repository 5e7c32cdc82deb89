"""A place to grade: one launcher kept for many gradings, and the machine it found.

Open it with `with`; leaving it ends every process. `cancel()` may be called from
another thread or a signal handler and makes every wait return.
"""

import ast
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from grader import catalog
from grader.checking import Exercise
from grader.launch import Launcher, launcher
from grader.messages import Ready, Request, Setup
from grader.process import Failed, Worker
from grader.record import Machine

PRELOADABLE = ("jax", "haiku", "flax.linen", "flax.nnx", "optax", "numpy")
LATE = ("jax.export", "jax.experimental.multihost_utils", "jaxlib.mlir.dialects.mhlo")
"""What JAX imports when it first compiles."""
MEMORY = 8 << 30
UNOPTIMISED = "--xla_backend_optimization_level=0"
"""Halves the time of a compile on a CPU, where nothing is timed. What is observed
(placement, transfers, donation) and what is read of a program (memory, collectives,
aliases) stays the same: it concerns LLVM alone."""
START_SECONDS = 60.0
FOR_TARGET = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
"""The plugin then asks for no driver, and no library but its own."""


Role = tuple[str, int, bool, bool, bool]
"""Platform, devices, observe, hide, timed: what makes one worker as good as another."""


class NoDevice(Exception):
    """The platform asked for cannot be had; the message says why."""


@dataclass
class Options:
    """What a person may ask for."""

    device: str = "auto"
    devices: int | None = None
    timeout: float = 60.0
    fenced: bool = True


@dataclass
class Prepared:
    """A worker whose backend runs, and the machine it found."""

    worker: Worker
    machine: Machine
    said: str = ""
    """The last it printed while it started."""


@dataclass
class Session(AbstractContextManager["Session"]):
    """Workers on demand. `modules` are imported once, before any fork."""

    options: Options
    modules: Sequence[str]
    _launcher: Launcher | None = None
    _gpus: int | None = None
    _cancelled: bool = False
    _workers: set[Worker] = field(default_factory=set)
    _standby: dict[tuple[str, int, bool, bool, bool], Future[Prepared]] = field(
        default_factory=dict
    )
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    def __enter__(self) -> Self:
        self._launcher = launcher(self.modules)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()
        # First the launcher: whoever waits for a worker that it never started is woken.
        if self._launcher is not None:
            self._launcher.close()
        self.pool.shutdown()
        for worker in list(self._workers):
            self.release(worker)

    def cancel(self) -> None:
        """Tell every worker to die, now and from now on; those who wait for one are woken."""
        self._cancelled = True
        for worker in list(self._workers):
            worker.cancel()

    def prepare(
        self, platform: str, devices: int, *, observe: bool, hide: bool, timed: bool = False
    ) -> Prepared:
        """A worker with its backend started: one that stands by, else a new one.

        `observe` installs the probes, `hide` keeps solutions and checks out of sight,
        `timed` compiles as well as XLA can.

        Raises:
          Failed: it was cancelled.
          NoDevice: the backend's own error, or how it died.
          BrokenInstallation: the libraries cannot be imported.
        """
        waiting = self._standby.pop((platform, devices, observe, hide, timed), None)
        if waiting is not None:
            return waiting.result()
        return self._start(platform, devices, observe=observe, hide=hide, timed=timed)

    def prepare_compiler(self, *, hide: bool) -> Prepared:
        """A worker that compiles for targets; on this machine it uses the CPU alone.

        Raises:
          Failed, NoDevice, BrokenInstallation: as `prepare`.
        """
        return self._start("target", 1, observe=False, hide=hide, more=FOR_TARGET)

    def stand_by(self, platform: str, devices: int, *, program: bool) -> None:
        """Start the next submission's workers now, while nobody waits for them."""
        for observe in (True, False) if program else (True,):
            key = (platform, devices, observe, True, False)
            if key not in self._standby:
                start = partial(self._start, platform, devices, observe=observe, hide=True)
                self._standby[key] = self.pool.submit(start, warm=not observe)

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
    ) -> Prepared:
        assert self._launcher is not None
        hidden = hidden_folders() if hide else []
        # A GPU's driver keeps large books, so that no limit on data fits every GPU.
        memory = 0 if platform == "gpu" else MEMORY
        environment = {"XLA_FLAGS": UNOPTIMISED} if not timed and platform == "cpu" else {}
        environment |= more or {}
        request = Request(environment, hidden, memory, fenced=self.options.fenced)
        worker = self._launcher.start(request)
        self._workers.add(worker)
        if self._cancelled:
            worker.cancel()
        seconds = self.options.timeout
        timeout = min(seconds - 1, seconds * 0.9)
        setup = Setup(platform, devices, observe, timeout=timeout, warm=warm)
        try:
            ready = msgspec.json.decode(worker.ask(setup, START_SECONDS), type=Ready)
        except BaseException as error:
            self.release(worker)
            if isinstance(error, Failed) and not self._cancelled:
                self._launcher.check()
                problem = f"JAX did not live to name one: {error}"
                raise NoDevice(problem + _said(error.outcome.output)) from error
            raise
        if ready.machine is None:
            problem = ready.problem + _said(worker.output())
            self.release(worker)
            raise NoDevice(problem)
        said = _said(worker.output())
        worker.forget_output()
        return Prepared(worker, ready.machine, said)

    def release(self, worker: Worker) -> None:
        """End one worker."""
        worker.close()
        self._workers.discard(worker)

    def gpus(self) -> int:
        """How many GPUs JAX finds; asks a worker once, and only where one may be.

        Raises:
          NoDevice: `--device gpu` was asked for and the backend did not start.
        """
        if self._gpus is None:
            self._gpus = self._count_gpus()
        return self._gpus

    def _count_gpus(self) -> int:
        if self.options.device == "cpu" or not (self.options.device == "gpu" or gpu_likely()):
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

        GPUs if there are enough of them, else simulated CPU devices.

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
        return "cpu", wanted


def _said(output: str) -> str:
    """The last a process said, which of a plugin's log is its error."""
    said = output.strip().splitlines()
    return f" ({said[-1]})" if said else ""


def gpu_likely() -> bool:
    """Whether this machine shows a GPU's device node."""
    return any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"))


def hidden_folders() -> list[str]:
    """What a learner's process must not see: solutions, checks and their tests."""
    root = catalog.course_root()
    folders = (root / "solutions", root / "tests", root / ".git", catalog.PACKAGE / "checks")
    return [os.fspath(folder) for folder in folders if folder.is_dir()]


def modules_of(entries: Iterable[catalog.Entry]) -> list[str]:
    """What the fork server loads before any fork: libraries, probes, and the checks, which
    a learner's worker cannot see any more once it is fenced."""
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
    checks = [f"grader.checks.{entry.stem}" for entry in entries]
    grounds = {check.ground for entry in entries for check in entry.exercise.checks}
    program = ["grader.program"] if grounds & {"program", "target"} else []
    return [*libraries, *LATE, "grader.worker", "grader.probes.observer", *program, *checks]
