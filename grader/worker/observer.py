"""Answers what a drive asks to be observed, and collects it as one `Observed`.

An `Observer` implements `grader.probes.observe.Observe`. It installs the probes and proves
each one, and they count into a `Tally`. Its own reads of arrays are not counted. How things
are seen is in `grader.probes`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import CodeType
from typing import Any, Protocol, Self

import jax

from grader.judging.witness import PROOF
from grader.probes.compiles import Compiles
from grader.probes.describe import describe, flatten, leaves_of
from grader.probes.lines import Lines
from grader.probes.marks import Marker
from grader.probes.observe import Misused
from grader.probes.plain import plain
from grader.probes.reads import Reads
from grader.probes.runtime import Runtime
from grader.probes.tally import MAX_EVENTS, Tally
from grader.probes.transfers import GuardLog
from grader.program.export import TARGET_PLATFORM, export_program
from grader.records.record import EventKind, Leaf, Observed, Outcome, Program, Witnessed


class Probe(Protocol):
    """Watches one kind of thing while it is entered."""

    name: str

    def __enter__(self) -> Self:
        """Install it. If that is not possible, what this raises says why."""
        ...

    def __exit__(self, *_: object) -> None:
        """Put everything back."""
        ...

    def prove(self) -> str:
        """Cause a known event; returns what was not seen of it, or ""."""
        ...


PROVED_AGAIN: dict[str, set[EventKind]] = {
    "transfers": {"h2d", "d2d"},
    "reads": {"d2h", "wait"},
    "compiles": {"compile", "trace"},
}
"""What each probe must see of the known events after the learner's code."""


class Observer:
    """One per worker. `watching()` counts; `missing` names each probe that does not work."""

    def __init__(self, *, next_door: bool = False) -> None:
        self.missing: dict[str, str] = {}
        self._values: dict[str, list[Leaf]] = {}
        self._trees: dict[str, str] = {}
        self._forms: dict[str, list[str]] = {}
        self._facts: dict[str, Any] = {}
        self._programs: dict[str, Program] = {}
        self._inputs: dict[str, list[list[Leaf]]] = {}
        self._targeted: dict[str, Program] = {}
        self.for_target = False
        """Whether to export what `target()` is given."""
        self.reference = False
        self._lines = Lines(self._line_passed)
        self._tally = Tally(self._lines.line_on_stack)
        self._log = GuardLog()
        self._draining = threading.RLock()  # a learner's `__del__` may run while it is held
        self._stack = ExitStack()
        self._runtime = _runtime() if jax.default_backend() == "cpu" and not next_door else None
        self._marker: Marker | Runtime | None = None
        seeing = self._runtime.seeing if self._runtime else nullcontext
        self._reads = Reads(self._tally, seeing)
        probes: list[Probe] = [self._log, self._reads, Compiles(self._tally)]
        for probe in probes[next_door:]:
            self._install(probe)
        if next_door:
            self._marker = self._proved_marker()

    def _proved_marker(self) -> Marker | None:
        """What marks the requests to a device next door, if it works here."""
        try:
            marker = Marker()
            marker.prove()
        except Exception as error:  # noqa: BLE001 (as in `_install`)
            self.missing[Marker.name] = f"{type(error).__name__}: {error}"
            return None
        return marker

    def _install(self, probe: Probe) -> None:
        """Install a probe and let it prove itself; one that does not is missing."""
        try:
            self._stack.enter_context(probe)
            self._tally.paused = False
            unseen = probe.prove()
        except Exception as error:  # noqa: BLE001 (JAX's private names may fail in any way)
            unseen = f"{type(error).__name__}: {error}"
        finally:
            self._tally.paused = True
            self._flush()
        if unseen:
            self.missing[probe.name] = unseen

    @contextmanager
    def watching(self, path: str) -> Iterator[None]:
        """Count events from here on, and attribute them to lines of `path`."""
        self._flush()
        self._tally.clear()
        self._lines.path = path
        with self._stack, self._runtime or nullcontext(), self._lines:
            self._marker = self._runtime or self._marker
            self._flush()
            self._tally.paused = False
            try:
                yield
            finally:
                self._flush()
                self._tally.paused = True

    def require_all_counted(self) -> None:
        """Nothing, if each event was counted.

        Raises:
          Misused: there were too many different ones, so that later ones count for nothing.
        """
        if self._tally.is_full:
            promise = "each copy, read and compile can be counted"
            raise Misused(promise, f"there are more than {MAX_EVENTS:,} different ones")

    def prove_again(self) -> None:
        """Cause known events after the learner's code: each witness must see them still."""
        if self._runtime is None:
            return
        with self.phase(PROOF):
            self._runtime.prove()
        seen = self._tally.take(PROOF)
        for probe, kinds in PROVED_AGAIN.items():
            if unseen := sorted(kinds - seen):
                self.missing.setdefault(
                    probe, f"after the submission, known events were not seen: {', '.join(unseen)}"
                )

    def follow(self, code: CodeType) -> None:
        """Follow the lines of the learner's code."""
        self._lines.follow(code)

    def _line_passed(self, line: int) -> None:
        """The learner's code leaves `line`: what was logged until now belongs to it."""
        with self._draining:  # JAX runs callbacks, which may be the learner's, in its own threads
            self._drain(line)
            if self._marker is not None:
                tally = self._tally
                self._marker.send_line(tally.phase, tally.step, line, watched=not tally.paused)

    def _drain(self, line: int) -> None:
        for transfer in self._log.drain():
            self._tally.count(transfer.kind, line, transfer.nbytes, transfer.to)

    def _flush(self) -> None:
        """What happened until now belongs to this phase and step."""
        with self._draining:
            tally, line = self._tally, self._lines.current
            self._drain(line)
            if self._marker is not None:
                self._marker.send(tally.phase, tally.step, line, watched=not tally.paused)

    # What `drive()` calls.

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Label all events inside the block, and count its steps from zero."""
        self._flush()
        tally = self._tally
        before, tally.phase, tally.step = (tally.phase, tally.step), name, 0
        try:
            yield
        finally:
            self._flush()
            tally.phase, tally.step = before

    def mark(self) -> None:
        """Count one step."""
        self._flush()
        self._tally.step += 1

    @contextmanager
    def _own(self) -> Iterator[None]:
        """A block whose events do not count, since the learner's code did not cause them."""
        self._flush()
        before, self._tally.paused = self._tally.paused, True
        try:
            yield
        finally:
            self._flush()
            self._tally.paused = before

    def unwatched(self) -> Any:
        """A block whose events do not count: the drive's own work."""
        return self._own()

    @contextmanager
    def waits(self, told: Callable[[list[Any]], None]) -> Iterator[None]:
        """Tell of each wait, poll and read in the block, when it has ended."""

        def tell(arrays: list[Any]) -> None:
            with self._own():  # what is asked of the arrays is no poll of the learner's
                told(arrays)

        self._reads.told = tell
        try:
            yield
        finally:
            self._reads.told = None

    def without_trace(self) -> None:
        """Close the runtime's trace: from here on, the probes stand alone."""
        if self._runtime is not None:
            self._runtime.__exit__()
            self._runtime = self._marker = None

    def value(self, name: str, tree: Any, *, data: bool = True) -> None:
        """Keep a pytree."""
        flat = flatten(tree)  # watched: a learner's nodes and keys may work while it is done
        self._trees[name], self._forms[name] = flat.text, flat.forms
        with self._own():
            self._values[name] = leaves_of(flat, data=data)

    def fact(self, name: str, value: Any) -> None:
        """Keep a plain JSON value."""
        self._facts[name] = value

    def jitted(self, name: str, function: Any) -> bool:
        """Whether `function` is exactly what jax.jit returns; kept as a fact."""
        made = type(function) is type(jax.jit(len))
        self._facts[f"type of {name}"] = "jax.jit" if made else type(function).__name__
        return made

    def program(self, name: str, function: Any, *args: Any) -> Program:
        """Export `function` for `args`, without running it, and keep the inputs."""
        with self._own():
            if name not in self._programs:
                self._programs[name] = export_program(name, function, args)
            self._inputs.setdefault(name, []).append(describe(args)[0])
            return self._programs[name]

    def target(self, name: str, function: Any, *args: Any) -> None:
        """Export `function` for the target's platform, if there is a target."""
        if self.for_target:
            with self._own():
                self._targeted[name] = export_program(name, function, args, TARGET_PLATFORM)

    def observed(self, outcome: Outcome) -> Observed:
        """Everything that was observed, once the drive has ended."""
        return Observed(
            outcome,
            values=self._values,
            trees=self._trees,
            forms=self._forms,
            facts={name: plain(value) for name, value in self._facts.items()},
            events=self._tally.events(),
            programs=self._programs,
            inputs=self._inputs,
            missing_probes=self.missing,
            targeted=self._targeted,
            witnessed=self._witnessed(outcome),
            ran=self._lines.ran(),
        )

    def _witnessed(self, outcome: Outcome) -> Witnessed | None:
        """What the runtime's trace says of a run that was proved when it had finished."""
        if self._runtime is None or outcome.kind != "finished":
            return None
        return self._runtime.witnessed()


def _runtime() -> Runtime | None:
    """The second witness, if JAX's profiler can be used for it here."""
    try:
        return Runtime()
    except Exception:  # noqa: BLE001 (as in `_install`; without it, the probes stand alone)
        return None
