"""Reads what JAX's C++ runtime notes of a run: the second witness on simulated devices.

The runtime notes copies, compiles, launches and waits for its profiler, whatever Python was told,
each with its thread and its times. A `Runtime` keeps a session of that profiler open while a
submission runs, without the profiler's own watching of Python, and marks in the trace to what
phase, step and line events belong, as `grader.probes.marks` does in a book. It counts nothing:
that is for `grader.judging.witness`. The names are in `grader.probes.private`. None is believed
before a known event of its kind was seen under it exactly once, and whoever counts asks that this
be so after the submission, too.

What it cannot see, on CPU devices and jax 0.12:

- Reads. They are no copy here; one leaves a trace only where it waits, or where an array lies on
  several devices, and then not in each way. `grader.probes.reads` stands alone.
- Waits that poll (`is_ready`), wait for several arrays at once, for an array on several devices, or
  for effects. A wait for one array is noted if it has to wait: so is a read by a private method,
  but not on jax 0.11. What the probes of reads see doing that is no second wait: they bracket it
  (`seeing`).
- A copy from the host that is none: an array whose memory suits the device is taken as it is.
- What is computed with. Of the programs that are launched, only those are noted whose devices met
  for a collective, wherever it was compiled, and however often it ran.
- Whether a copy led to another device, or its bytes.

On a GPU the session is not opened. There, `device_copies` reads what the GPU itself has copied; but
a program copies within itself, too, and which of the names above its client uses was not measured.
"""

import bisect
import random
import re
import secrets
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from grader.judging import witness
from grader.judging.witness import PROOF
from grader.probes import private
from grader.records.book import Entry, EntryKind, Mark
from grader.records.record import Collective, Witnessed

MOST_LINES = 50_000
"""Marks of lines. Beyond them, only phases, steps and pauses are marked."""
_SESSION_SECONDS = 1.0
"""So long a session lasts before its events are read and forgotten: programs that are launched
without end would fill the memory with them. What another thread is doing just then is lost."""
_SIDE = 256
"""Of a matrix. The device takes longer to multiply two than the host to ask for it."""
_PRODUCTS = (2, 20, 200, 1_000)
"""How many products the device makes while a known wait goes on: one try after another."""


class _Noted(NamedTuple):
    """An event of the trace: seconds on the clock of `time.perf_counter`, and the thread's number
    in its session."""

    name: str
    start: float
    end: float
    thread: int


class _Met(NamedTuple):
    """One device met the others, in one run of a program, for a collective."""

    run: int
    op: str
    parties: int


class Runtime:
    """The trace of one process; `kinds` are those of which a known event was seen.

    Raises:
      Gone: this version of JAX has no profiler that is used in this way.
    """

    def __init__(self) -> None:
        self._profiler = private.Profiler()
        self._secret = secrets.token_hex(8)
        self._lock = threading.RLock()  # a learner's `__del__` may run while it is held
        self._known = Known()
        self._session: Any = None
        self._is_lent = False
        self._began = 0.0
        self._brackets = 0
        self._replaced = ""
        self._lines = MOST_LINES
        self._own = threading.get_ident()
        self._marks: list[Mark] = []
        self._noted: list[list[_Noted]] = []
        self._launched: dict[int, tuple[float, int]] = {}
        """Run of a program -> when it was launched, and by which client."""
        self._met: list[_Met] = []
        self.kinds = self._proved()

    def _proved(self) -> list[EntryKind]:
        """The kinds of which one known event is one event in the trace."""
        with self:
            self.send("", 0, 0, watched=False)
            self.prove()
            self.send(PROOF, 0, 0, watched=True)
        found = Counter(entry.event for entry in self._entries())
        counts: dict[EntryKind, int] = {"h2d": 1, "d2d": 1, "compile": 1, "launch": 1}
        kinds = [kind for kind, count in counts.items() if found[kind] == count]
        return [*kinds, "wait"] if found["wait"] else kinds

    def __enter__(self) -> Self:
        """Open the session. Sessions that others ask for until `__exit__` are read here, too."""
        self._marks, self._noted, self._lines = [], [], MOST_LINES
        self._launched, self._met = {}, []
        self._own = threading.get_ident()
        self._profiler.replace(self._lend)
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session; closing it twice does nothing."""
        with self._lock:
            if self._session is not None:
                self._end()
                self._replaced = self._profiler.restore()

    def witnessed(self) -> Witnessed:
        """What was noted between `__enter__` and `__exit__`, by phase, step and line."""
        with self._lock:
            entries = self._entries()
        marks, sent = [e.mark for e in entries if e.mark], self._marks
        problem = self._replaced
        if marks != sent:
            problem = f"of {len(sent)} marks, {len(marks)} are in the runtime's trace"
        return witness.traced(entries, self.kinds, problem)

    # What the submission's steps and lines are called in the trace.

    def send(self, phase: str, step: int, line: int, *, watched: bool) -> None:
        """What was noted since the last mark belongs to this."""
        with self._lock:
            if time.perf_counter() - self._began > _SESSION_SECONDS and self._may_end():
                self._begin()
            number = len(self._marks)
            self._marks.append(Mark(phase, step, line, watched))
            with self._profiler.span(f"{self._secret} {number}"):
                pass

    def send_line(self, phase: str, step: int, line: int, *, watched: bool) -> None:
        """As `send`, at the end of a line; left out where a program runs too many lines."""
        if self._lines > 0:
            self._lines -= 1
            self.send(phase, step, line, watched=watched)

    @contextmanager
    def seeing(self) -> Iterator[None]:
        """A block in which a probe sees this thread read or wait: its waits are counted there."""
        with self._lock:
            self._brackets += 1
        try:
            with self._profiler.span(self._secret):
                yield
        finally:
            with self._lock:
                self._brackets -= 1

    def prove(self) -> None:
        """Cause a known event of each kind; who counts must find them."""
        self._known.cause()
        self._begin()
        for _ in self._known.waits():
            with self._lock:
                self._begin()
                if any(private.RUNTIME.get(noted.name) == "wait" for noted in self._noted[-1]):
                    return

    # Sessions. Only one can be open in a process.

    def _may_end(self) -> bool:
        """Whether nobody needs the session just now: no probe that sees something, and nobody to
        whom it was lent, who would lose what was noted so far. Only the thread that began may."""
        in_use = self._brackets or self._is_lent
        return not in_use and threading.get_ident() == self._own

    def _begin(self) -> None:
        """Open a session of our own; read the one before it."""
        self._lend(None)

    def _end(self) -> None:
        with self._lock:
            if self._session is not None:
                self._read(self._profiler.stop(self._session))
            self._session = None

    def _lend(self, options: Any) -> "Lent":
        """A session with the options of somebody who asked JAX for one, or our own."""
        with self._lock:
            self._end()
            self._began, self._is_lent = time.perf_counter(), options is not None
            self._session = self._profiler.start(options)
            with self._profiler.span(f"{self._secret} by {threading.get_ident()}"):
                return Lent(self._session, self._given_back)

    def _given_back(self, session: Any, *, as_bytes: bool = False) -> Any:
        """End a session that was lent; returns its data, read or serialised."""
        with self._lock:
            given = session.stop() if as_bytes else self._profiler.stop(session)
            if session is self._session:
                self._session = None
                self._read(self._profiler.data_of(given) if as_bytes else given)
                self._begin()
            return given

    def _read(self, data: Any) -> None:
        """Keep what is known of the events of a session."""
        began, found, launched = self._began, list[_Noted](), dict[int, tuple[float, int]]()
        for thread, line in enumerate(_host_lines(data)):
            for event in line.events:
                name, start = event.name, began + event.start_ns / 1e9
                if name in private.RUNTIME or name.startswith(self._secret):
                    found.append(_Noted(name, start, began + event.end_ns / 1e9, thread))
                elif name == private.RENDEZVOUS:
                    self._met += _met(event)
                elif name.startswith(private.LAUNCH):
                    launched |= dict.fromkeys(_run_of(event), (start, thread))
        self._noted.append(sorted(found, key=lambda noted: noted.start))
        ours = self._own_threads(found)
        for run, (start, thread) in launched.items():
            self._launched[run] = start, 1 if thread in ours else 2

    def _own_threads(self, session: Sequence[_Noted]) -> set[int]:
        """The numbers that the thread has in a session that began to watch."""
        return {noted.thread for noted in session if noted.name == f"{self._secret} by {self._own}"}

    def _entries(self) -> list[Entry]:
        """The trace as entries of a book: what another thread than ours did is client 2's."""
        found = [entry for session in self._noted for entry in self._entries_of(session)]
        return [*found, *self._exchanges()]

    def _exchanges(self) -> Iterator[Entry]:
        """The launches of programs in which devices exchanged something, with their collectives."""
        runs = defaultdict[int, Counter[_Met]](Counter)
        for met in self._met:
            runs[met.run][met] += 1
        for run, every in runs.items():
            if run in self._launched:  # else it was launched before anything was watched
                start, client = self._launched[run]
                held = [Collective(m.op, 0, -(-n // m.parties)) for m, n in every.items()]
                yield Entry("launch", start, start, client=client, collectives=held)

    def _entries_of(self, session: Sequence[_Noted]) -> Iterator[Entry]:
        ours = self._own_threads(session)
        seen = _Brackets(noted for noted in session if noted.name == self._secret)
        for noted in session:
            client = 1 if noted.thread in ours else 2
            if (number := self._number_of(noted)) is not None:
                mark = self._marks[number]
                yield Entry("mark", noted.start, noted.end, client=client, mark=mark)
            elif (kind := private.RUNTIME.get(noted.name)) and not seen.hold(noted):
                yield Entry(kind, noted.start, noted.end, client=client)

    def _number_of(self, noted: _Noted) -> int | None:
        """The number of the mark that this is, if it is one."""
        word, _, number = noted.name.partition(" ")
        return int(number) if word == self._secret and number.isdecimal() else None


class _Brackets:
    """The times in which a probe saw a thread read or wait. On one thread, they are disjoint."""

    def __init__(self, brackets: Iterable[_Noted]) -> None:
        self._of: dict[int, list[tuple[float, float]]] = {}
        for bracket in brackets:
            self._of.setdefault(bracket.thread, []).append((bracket.start, bracket.end))

    def hold(self, noted: _Noted) -> bool:
        """Whether this is a wait in one of them."""
        if private.RUNTIME[noted.name] != "wait":
            return False
        times = self._of.get(noted.thread, [])
        before = bisect.bisect_right(times, noted.start, key=lambda time: time[0])
        return before > 0 and noted.end <= times[before - 1][1]


_RUN, _KEY = re.compile(r"RunId: (-?\d+)"), "RendezvousKey"


def _run_of(event: Any) -> list[int]:
    """The number of the run that was launched, if it is told."""
    return [int(value) for name, value in event.stats if name == "run_id"]


def _met(event: Any) -> list[_Met]:
    """For which collective, of which run, a device met others, if it is told."""
    told = {name: str(value) for name, value in event.stats}
    op, key, rest = told.get("name", "").partition(_KEY)
    run, parties = _RUN.search(rest), told.get("num_threads", "")
    if not (key and run and parties.isdecimal() and int(parties)):
        return []
    return [_Met(int(run[1]), op.strip().replace(" ", "-"), int(parties))]


def _host_lines(data: Any) -> Iterator[Any]:
    """The threads of this process that a trace has."""
    for plane in data.planes:
        if plane.name.startswith("/host:"):
            yield from plane.lines


class Lent:
    """A session of the profiler that others asked for. It is what `ProfilerSession` is to JAX.

    JAX 0.12 asks for the data of a session, and 0.11 for files.
    """

    def __init__(self, session: Any, given_back: Callable[..., Any]) -> None:
        self._session, self._given_back = session, given_back

    def stop_and_get_profile_data(self) -> Any:
        """End the session; returns its data."""
        return self._given_back(self._session)

    def stop(self) -> Any:
        """End the session; returns its data as bytes."""
        return self._given_back(self._session, as_bytes=True)

    def export(self, data: bytes, folder: str) -> None:
        """Write what `stop` returned into files."""
        self._session.export(data, folder)

    def stop_and_export(self, folder: str) -> None:
        """End the session, and write its data into files."""
        self.export(self.stop(), folder)


class Known:
    """One event of each kind that the runtime notes, and one read."""

    def __init__(self) -> None:
        self._numbers = random.SystemRandom()
        self._wait_for = private.array_type().__dict__["block_until_ready"]  # no probe's yet
        self._matrix = jax.device_put(np.eye(_SIDE, dtype=np.float32))
        self._slow = jax.jit(lambda matrix: matrix @ matrix).lower(self._matrix).compile()
        devices = jax.devices()[:2]  # one device alone exchanges nothing
        mesh = jax.sharding.Mesh(np.asarray(devices), "x")
        whole, split = (jax.NamedSharding(mesh, spec) for spec in (jax.P(), jax.P("x")))
        self._parts = jax.device_put(np.zeros(2, np.float32), split) if len(devices) > 1 else None
        gather = jax.jit(lambda parts: -parts, out_shardings=whole)
        self._gather = gather.lower(self._parts).compile() if self._parts is not None else None

    def cause(self) -> None:
        """Copy from the host, copy on the device, compile, exchange, read, and wait for what is
        there."""
        if self._gather is not None:
            self._wait_for(self._gather(self._parts))
        askew = np.zeros(5, np.float32)[1:]  # no device takes memory that begins there as it is
        placed = jax.device_put(askew)
        jax.device_put(placed, jax.devices()[0], may_alias=False).block_until_ready()
        self._compile()
        np.asarray(placed)

    def _compile(self) -> None:
        """Compile what no file of compiled programs holds, nor will hold."""
        number = self._numbers.random()
        before = jax.config.jax_persistent_cache_min_compile_time_secs
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
        try:
            jax.jit(lambda: number).lower().compile()
        finally:
            jax.config.update("jax_persistent_cache_min_compile_time_secs", before)

    def waits(self) -> Iterator[None]:
        """Wait, so that no probe sees it: each time longer.

        Other programs may take the processor from this thread until there is nothing to wait for.
        """
        for count in _PRODUCTS:
            result = self._matrix
            for _ in range(count):
                result = self._slow(result)
            self._wait_for(result)
            yield


class Copied(NamedTuple):
    """One copy that a GPU made, as its driver reports it."""

    kind: str
    """`H2D`, `D2H`, `D2D`, `P2P`: from where to where. D2D is within one GPU."""
    nbytes: int | None
    device: str
    start: float
    """Seconds since the session began."""


_MEMCPY = re.compile(r"Memcpy(H2D|D2H|D2D|P2P)")
_SIZE = re.compile(r"\bsize:(\d+)")


def device_copies(data: Any) -> list[Copied]:
    """The copies that GPUs made, from a trace of JAX's profiler (`ProfileData`).

    Names and texts are those of XLA's profiler for CUDA: events `MemcpyH2D` and so on in the planes
    of devices, with the size in their `memcpy_details`. Not judged: see the module's docstring.
    """
    return [
        Copied(found[1], _size(event), plane.name, event.start_ns / 1e9)
        for plane in data.planes
        if plane.name.startswith("/device:GPU:")
        for line in plane.lines
        for event in line.events
        if (found := _MEMCPY.match(event.name))
    ]


def _size(event: Any) -> int | None:
    for name, value in event.stats:
        if name == "memcpy_details" and (found := _SIZE.search(str(value))):
            return int(found[1])
    return None
