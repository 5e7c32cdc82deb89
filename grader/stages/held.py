"""Holds each step of a training loop on its device until the host comes for the next one.

A loop that runs ahead of its device never notices. A loop that waits for a step before it takes
the next one waits for ever, by whatever means it waits: no probe has to know them. So this finds
waits that `grader.probes.reads` cannot see, and needs no comparison of times. It finds where a
host waits, not on which line. Drives of exercises with a loop use it on CPU devices only: a GPU
runs callbacks in the thread that calls the program.
"""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

IDLE_SECONDS = 0.25
"""A host whose threads all sleep for so long waits for the device."""
LONGEST_SECONDS = 4.0
"""A host whose threads ran for so long, and took no step, waits for the device, though it may be
busy with that. On a machine that does other work too, that may take much longer by the clock."""
LATEST_SECONDS = 30.0
"""The same by the clock, for a host that hardly gets to run."""
_SAMPLE_SECONDS = 0.01
_AWAKE = 0.2
"""A process whose threads ran, or were ready to run, for less than this share of the time slept."""
_TASKS = Path("/proc/self/task")
_SIDE = 256
"""The side of a matrix that the device multiplies for a while before it is held."""
_FIRST_PRODUCTS, _MOST_PRODUCTS = 4, 256
"""How often. Where the host was slower to call the next program than that takes, twice as often."""


class Held:
    """Holds the steps of one run. `waited` numbers the steps that the host waited for, from 0.

    After the first such step nothing is held any more, so a loop that waits costs one wait.
    """

    def __init__(self) -> None:
        self.waited: list[int] = []
        self._free: list[threading.Event] = []
        self._main = self._begun = 0
        self._ended = False
        self._products = _FIRST_PRODUCTS
        self._before = jax.device_put(_START)
        # A callback is part of the program that is compiled for it: one program for each run.
        self._after = jax.jit(self._then_hold)

    def hold(self, result: tuple[Any, Any]) -> tuple[Any, Any]:
        """(params, loss) of a step, held until the next call of `hold` or of `release`.

        `loss` is one array. Numbers, shapes and dtypes stay as they are.
        """
        params, loss = result
        self._main = threading.get_native_id()
        self._free.append(threading.Event())
        # A program whose inputs are there runs in the thread that calls it, if it is short. That
        # of the step before is still held; only the first step needs something to wait for.
        before = self._before
        if before[0].devices() != loss.devices():
            before = jax.device_put(_START, loss.sharding)
        *held, self._before = self._after(params, loss, _multiplied(*before))
        for event in self._free[-2:-1]:  # those before it are set
            event.set()
        return held[0], held[1]

    def let_go(self) -> None:
        """Hold none of the steps so far: the host did what they were held for."""
        for event in self._free[-2:]:  # those before them are set
            event.set()

    def release(self) -> None:
        """Hold nothing any more: the host has asked for a batch, and there is none."""
        self._ended = True
        self.let_go()

    def end(self) -> None:
        """Let go of what the next step would wait for: there is none. JAX keeps this object."""
        del self._before

    def _then_hold(self, params: Any, loss: Any, before: Any) -> Any:
        # The callback takes nothing and returns NumPy's: it reads no array, where reads count.
        products = jax.pure_callback(self._wait, jax.ShapeDtypeStruct((), np.int32))
        return jax.lax.optimization_barrier((params, loss, (before, products)))

    def _wait(self) -> Any:
        """How many products the next step waits for: more if this one found nothing to wait for."""
        number, self._begun = self._begun, self._begun + 1
        # Called in the host's own thread, the device cannot be ahead of it.
        ahead = threading.get_native_id() != self._main
        held = ahead and not (self._ended or self.waited)
        if held and not (_came(self._free[number]) or self._ended):
            self.waited.append(number)
        if self._ended or self.waited:
            return np.int32(0)  # nothing is held any more
        if not ahead:
            self._products = min(2 * self._products, _MOST_PRODUCTS)
        return np.int32(self._products)


_START = (np.eye(_SIDE, dtype=np.float32), np.int32(_FIRST_PRODUCTS))
"""A matrix, and how often it is multiplied with itself before the first step is held."""


@jax.jit
def _multiplied(matrix: Any, products: Any) -> Any:
    return jax.lax.fori_loop(0, products, lambda _, power: power @ matrix, matrix)


def _came(event: threading.Event) -> bool:
    """Whether `event` is set before the process falls asleep, or has been busy for too long."""
    start = quiet_since = time.monotonic()
    first = before = _active()
    busy, now = 0.0, start
    while busy < LONGEST_SECONDS and now - start < LATEST_SECONDS:
        now = time.monotonic()
        if event.wait(_SAMPLE_SECONDS):
            return True
        active = _active()
        if active is None or before is None or first is None:
            busy = now - start
        else:
            busy = active.ran - first.ran
            if active.awake - before.awake > _AWAKE * IDLE_SECONDS:
                quiet_since, before = now, active
            elif now - quiet_since >= IDLE_SECONDS:
                if not _ready():
                    return False
                quiet_since = now
    return False


class _Active(NamedTuple):
    """Seconds for which threads ran, and for which they ran or were ready to run."""

    ran: float
    awake: float


def _ready() -> bool:
    """Whether another thread of this process would run if it had a processor.

    How long it has been ready is written down only when it runs again.
    """
    own = str(threading.get_native_id())
    for task in _TASKS.iterdir() if _TASKS.is_dir() else ():
        with suppress(OSError, IndexError):  # the thread has just ended
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if task.name != own and state in "RD":
                return True
    return False


def _active() -> _Active | None:
    """What the other threads of this process did so far.

    None where the system does not say: then the clock alone can tell that it took too long.
    """
    own, total = str(threading.get_native_id()), None
    for task in _TASKS.iterdir() if _TASKS.is_dir() else ():
        if task.name == own:
            continue
        try:
            ran, ready, _ = (task / "schedstat").read_text().split()
        except (OSError, ValueError):
            continue  # this thread has just ended
        before = total or _Active(0.0, 0.0)
        total = _Active(before.ran + int(ran) / 1e9, before.awake + (int(ran) + int(ready)) / 1e9)
    return total
