"""Queues of work on engines, in the order in which it was asked for: what a device's time is.

Work names the engines that it needs and the values that it waits for. An engine does one
thing at a time, in the order of asking, and what stands first holds up what stands behind
it, as in a stream of a GPU. Work ends when it has been done, or when its modelled time has
passed, whichever is later. What the work is, this module does not know
(`grader.device.executor.process`); times are `time.monotonic()`.
"""

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

Engine = Hashable


class Value:
    """What work makes and other work waits for: nothing yet, a result, or an error."""

    __slots__ = ("at", "error", "ready", "result", "waiting")

    def __init__(self) -> None:
        self.ready = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.at = 0.0
        """When it became ready."""
        self.waiting: list[Work] = []


@dataclass(eq=False)
class Work:
    """One thing to do."""

    engines: Sequence[Engine]
    needs: Sequence[Value]
    makes: Sequence[Value]
    do: Callable[[], Sequence[Any]]
    """Does it, and returns a result for each value that it makes."""
    ended: Callable[["Work"], None]
    """Called once it has ended, in any thread; it must not raise."""
    seconds: float = 0.0
    """The modelled time."""
    quick: bool = False
    """Whether it may be done in the thread that asks: it never blocks, and ends at once."""
    error: BaseException | None = None
    start: float = 0.0
    end: float = 0.0
    asked: float = field(default_factory=time.monotonic)
    results: Sequence[Any] = ()
    missing: int = 0
    """How many values and engines it still waits for."""


class Schedule:
    """All engines of a machine. Any thread may `ask` and `settle`."""

    def __init__(self, threads: int) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Engine, deque[Work]] = {}
        self._free_since: dict[Engine, float] = {}
        self._pool = ThreadPoolExecutor(threads, "engine")
        self._later: list[tuple[float, int, Work]] = []
        self._number = itertools.count()
        self._timer = threading.Condition(threading.Lock())
        threading.Thread(target=self._time, name="timer", daemon=True).start()

    def ask(self, work: Work) -> None:
        """Queue work."""
        with self._lock:
            for value in work.needs:
                if not value.ready:
                    value.waiting.append(work)
                    work.missing += 1
            for engine in work.engines:
                queue = self._queues.setdefault(engine, deque())
                work.missing += bool(queue)
                queue.append(work)
            runs = work.missing == 0
        if runs:
            self._begin([work], here=work.quick)

    def settle(self, value: Value, result: Any, error: BaseException | None = None) -> None:
        """Give a value that no work makes its result."""
        with self._lock:
            ready = self._settled(value, result, error, time.monotonic())
        self._begin(ready)

    def _settled(
        self, value: Value, result: Any, error: BaseException | None, at: float
    ) -> list[Work]:
        """Note a value; returns the work that can now begin. The lock is held."""
        if value.ready:
            return []
        value.result, value.error, value.at, value.ready = result, error, at, True
        waiting, value.waiting = value.waiting, []
        return [work for work in waiting if self._one_less(work)]

    @staticmethod
    def _one_less(work: Work) -> bool:
        work.missing -= 1
        return work.missing == 0

    def _begin(self, ready: list[Work], here: bool = False) -> None:
        """Do work that can begin: the last one `here`, in this thread, and others beside it."""
        while ready:
            mine = ready.pop() if here or all(work.quick for work in ready) else None
            for work in ready:
                self._pool.submit(self._run, work)
            if mine is None:
                return
            ready = self._do(mine)

    def _run(self, work: Work) -> None:
        """In a thread of the pool: do it, and then what it was that others waited for."""
        self._begin([work], here=True)

    def _do(self, work: Work) -> list[Work]:
        """Do one thing; returns what can begin after it, or nothing if it ends later."""
        free = [self._free_since.get(engine, 0.0) for engine in work.engines]
        work.start = max(work.asked, *free, *(value.at for value in work.needs), 0.0)
        work.error = next((value.error for value in work.needs if value.error), None)
        if work.error is None:
            try:
                work.results = work.do()
            except BaseException as error:  # noqa: BLE001 (a program may fail in any way)
                work.error = error
        now = time.monotonic()
        modelled = work.start + work.seconds if work.error is None else 0.0
        work.end = max(now, modelled) if work.seconds else now
        if work.end > now:
            self._end_later(work)
            return []
        return self._end(work)

    def _end(self, work: Work) -> list[Work]:
        """Note that work has ended; returns what can begin after it."""
        ready: list[Work] = []
        with self._lock:
            results = work.results if work.error is None else [None] * len(work.makes)
            for value, result in zip(work.makes, results, strict=True):
                ready += self._settled(value, result, work.error, work.end)
            for engine in work.engines:
                queue = self._queues[engine]
                queue.popleft()
                self._free_since[engine] = work.end
                if queue and self._one_less(queue[0]):
                    ready.append(queue[0])
        work.ended(work)
        work.results = work.needs = work.makes = ()
        return ready

    def _end_later(self, work: Work) -> None:
        with self._timer:
            heapq.heappush(self._later, (work.end, next(self._number), work))
            self._timer.notify()

    def _time(self) -> None:
        """End work whose modelled time has passed; in a thread of its own."""
        while True:
            with self._timer:
                if not self._later:
                    self._timer.wait()
                    continue
                left = self._later[0][0] - time.monotonic()
                if left > 0:
                    self._timer.wait(left)
                    continue
                work = heapq.heappop(self._later)[2]
            self._begin(self._end(work))
