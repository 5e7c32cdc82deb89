"""Collects what the probes see while a submission is driven, as one `Observed`.

Implements `checking.Observe` for `drive()`. Its own reads of arrays are not counted.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any

from grader.probes import compiles, reads, transfers
from grader.probes.describe import describe
from grader.probes.lines import Lines
from grader.record import Event, EventKind, Leaf, Observed, Outcome, Program

MAX_EVENTS = 10_000
Key = tuple[EventKind, str, int, int | None, int | None, str]


class Observer:
    """One per worker. `watching()` installs the probes; what fails to install is named."""

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}
        self._counts: Counter[Key] = Counter()
        self._lock = threading.RLock()
        self._phase, self._step, self._paused = "", 0, True
        self._values: dict[str, list[Leaf]] = {}
        self._trees: dict[str, str] = {}
        self._facts: dict[str, Any] = {}
        self._programs: dict[str, Program] = {}
        self._inputs: dict[str, list[list[Leaf]]] = {}
        self._targeted: dict[str, Program] = {}
        self.for_target = False
        """Export what `target()` is given."""
        self._lines = Lines(self._line_passed)
        self._log = transfers.GuardLog()
        self._stack = ExitStack()
        for probe in (self._log, reads.Reads(self), compiles.Compiles(self)):
            self._install(probe)

    def _install(self, probe: Any) -> None:
        """Install a probe and make it see a known event; one that does not is missing."""
        try:
            self._stack.enter_context(probe)
            self._paused = False
            unseen = probe.prove(self)
        except Exception as error:  # noqa: BLE001 (JAX's private names may fail in any way)
            unseen = f"{type(error).__name__}: {error}"
        finally:
            self._flush()
            self._paused = True
        if unseen:
            self.missing[probe.name] = unseen

    @contextmanager
    def watching(self, path: str) -> Iterator[None]:
        """Count events from here on, and attribute them to lines of `path`."""
        self._flush()
        self._counts.clear()
        self._lines.path, self._paused = path, False
        with self._stack, self._lines:
            try:
                yield
            finally:
                self._flush()
                self._paused = True

    def follow(self, code: CodeType) -> None:
        """Follow the lines of the learner's code."""
        self._lines.follow(code)

    # What probes call.

    def saw(self, kind: EventKind, *, nbytes: int | None = None, detail: str = "") -> None:
        """Count an event of a Python-level probe, at the learner's line on the stack."""
        if not self._paused:
            line = self._lines.line_on_stack(sys._getframe(1))
            self._count(kind, line or None, nbytes, detail)

    @property
    def step(self) -> int:
        """The number of marks so far."""
        return self._step

    def drain(self) -> Counter[str]:
        """Transfers logged since the last drain, by kind; for probes to prove themselves."""
        seen = self._log.drain()
        for transfer in seen:
            self._count(transfer.kind, None, transfer.nbytes, "")
        return Counter(transfer.kind for transfer in seen)

    def total(self, kind: EventKind) -> int:
        """Events of one kind so far."""
        return sum(n for key, n in self._counts.items() if key[0] == kind)

    def _count(self, kind: EventKind, line: int | None, nbytes: int | None, detail: str) -> None:
        key: Key = (kind, self._phase, self._step, line, nbytes, detail)
        with self._lock:
            if len(self._counts) < MAX_EVENTS or key in self._counts:
                self._counts[key] += 1

    def _line_passed(self, line: int) -> None:
        """The learner's code is about to run another line: what was logged is `line`'s."""
        with self._lock:  # JAX runs callbacks, which may be the learner's, in its own threads
            for transfer in self._log.drain():
                if not self._paused:
                    self._count(transfer.kind, line or None, transfer.nbytes, "")

    def _flush(self) -> None:
        self._line_passed(self._lines.current)

    # What drive() calls.

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Label all events inside the block, and count its steps from zero."""
        self._flush()
        before, self._phase, self._step = (self._phase, self._step), name, 0
        try:
            yield
        finally:
            self._flush()
            self._phase, self._step = before

    def mark(self) -> None:
        """Count one step."""
        self._flush()
        self._step += 1

    @contextmanager
    def _own(self) -> Iterator[None]:
        """What the observer does itself is not the learner's."""
        self._flush()
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._flush()
            self._paused = before

    def unwatched(self) -> Any:
        """A block whose events do not count: the drive's own work."""
        return self._own()

    def value(self, name: str, tree: Any, *, data: bool = True) -> None:
        """Keep a pytree."""
        with self._own():
            self._values[name], self._trees[name] = describe(tree, data=data)

    def fact(self, name: str, value: Any) -> None:
        """Keep a plain JSON value."""
        self._facts[name] = value

    def jitted(self, name: str, function: Any) -> bool:
        """Whether `function` is exactly what jax.jit returns; kept as a fact."""
        import jax

        made = type(function) is type(jax.jit(len))
        self._facts[f"type of {name}"] = "jax.jit" if made else type(function).__name__
        return made

    def program(self, name: str, function: Any, *args: Any) -> None:
        """Export `function` for `args`, without running it, and keep the inputs."""
        from grader.program import export_program

        with self._own():
            if name not in self._programs:
                self._programs[name] = export_program(name, function, args)
            self._inputs.setdefault(name, []).append(describe(args)[0])

    def target(self, name: str, function: Any, *args: Any) -> None:
        """Export `function` for the target's platform, if there is a target."""
        from grader.program import TARGET_PLATFORM, export_program

        if self.for_target:
            with self._own():
                self._targeted[name] = export_program(name, function, args, TARGET_PLATFORM)

    def observed(self, outcome: Outcome) -> Observed:
        """Everything, once the drive has ended."""
        events = [
            Event(kind, phase, step, line, count, nbytes, detail)
            for (kind, phase, step, line, nbytes, detail), count in self._counts.items()
        ]
        return Observed(
            outcome,
            self._values,
            self._trees,
            self._facts,
            events,
            self._programs,
            self._inputs,
            self.missing,
            self._targeted,
        )
