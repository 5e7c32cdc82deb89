"""The words an exercise and its checks are written in.

A check is a pure function of a `Record`: it returns nothing when the fact in its
docstring holds, and returns a `Failure` or `Unable` when it does not or cannot be
known. What a check finds in a record, it finds with `grader.evidence`. Neither JAX nor
a process lives here; `drive()` meets JAX through `Observe`.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

from grader.record import Record
from grader.verdict import Culprit, Ground


@dataclass(frozen=True)
class Failure:
    """A fact that does not hold.

    `expected` and `observed` are facts; advice belongs into hints. `culprits` are
    places in the learner's file.
    """

    expected: str
    observed: str
    culprits: Sequence[Culprit] = ()


@dataclass(frozen=True)
class Unable:
    """A fact that could not be checked here, and why."""

    reason: str


Result = Failure | Unable | None


class Observe(Protocol):
    """What `drive()` may ask the worker to observe."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Label all events inside the block."""
        ...

    def mark(self) -> None:
        """Count one step; events carry the number of marks so far."""
        ...

    def value(self, name: str, tree: Any, *, data: bool = True) -> None:
        """Keep a pytree: every leaf's placement, and its values if `data`."""
        ...

    def fact(self, name: str, value: Any) -> None:
        """Keep a plain JSON value."""
        ...

    def jitted(self, name: str, function: Any) -> bool:
        """Whether `function` is what jax.jit returns; `evidence.not_jitted` reads it by `name`."""
        ...

    def program(self, name: str, function: Any, *args: Any) -> None:
        """Export `function` for `args` (arrays), without running it.

        A function that `jax.jit` did not make is jitted first, without donation. Called
        again under the same name, it adds `args` as another set of inputs to run on.
        """
        ...

    def target(self, name: str, function: Any, *args: Any) -> None:
        """Export `function` for the machine of `--target`; without one, do nothing.

        As `program`, but it is compiled only, so that `args` may be of any size: give
        `jax.ShapeDtypeStruct`s with shardings over a mesh of `jax.devices()`, of which
        there are as many as the target has.
        """
        ...

    def unwatched(self) -> AbstractContextManager[None]:
        """A block whose events are the drive's own and do not count."""
        ...


class Drive(Protocol):
    """Runs a submission on fresh inputs under observation."""

    def __call__(self, submission: ModuleType, observe: Observe, rng: Any) -> None:
        """`rng` is a `numpy.random.Generator`, the same for submission and reference."""
        ...


class Pace(Protocol):
    """Prepares one timed run of a submission; returns what to time.

    The returned function runs the work and returns a flat list of floats, which is
    compared between the two sides of a comparison.
    """

    def __call__(
        self, submission: ModuleType, rng: Any, steps: int, unit: float
    ) -> Callable[[], list[float]]:
        """`steps` is the length of the window; `unit` is `LoopTiming.unit`'s latest figure."""
        ...


CheckFunction = Callable[[Record], Result]


@dataclass(frozen=True)
class Check:
    """A named check; its title is the first line of the function's docstring."""

    name: str
    title: str
    function: CheckFunction
    ground: Ground
    after: tuple[str, ...]
    hints: tuple[str, ...]
    lesson: str


@dataclass(frozen=True)
class LoopTiming:
    """A Python loop must take at most `at_most` times the reference's time.

    `naive` replaces the edited function in the control run, which must fail. `unit`
    measures seconds that every window may scale with; only the reference is asked.
    `apart(steps)` units of a window are not counted: time that every loop takes alike, and
    that would hide how they differ.
    """

    at_most: float
    pace: Pace
    unit: Callable[[ModuleType, Any], float]
    naive: Callable[..., Any]
    function: str
    apart: Callable[[int], float] = lambda _: 0.0
    window_seconds: float = 0.04
    """How long one window is to be, about."""


@dataclass(frozen=True)
class ProgramTiming:
    """A program must take at most `at_most` times the reference program's time."""

    program: str
    at_most: float


@dataclass
class Exercise:
    """One exercise's metadata, drive and checks.

    `edits` are the names a learner may define anew; everything else of the file must
    stay as it is, though imports, functions and classes may be added. `devices` is
    how many the drive wants; on a machine with fewer GPUs than that (or than
    `fewest_gpus`, where the drive can do with fewer), CPU devices are simulated.
    `lesson` is the page under docs/, without suffix; `anchor` its paragraph.
    """

    title: str
    lesson: str
    anchor: str
    edits: tuple[str, ...]
    drive: Drive
    devices: int = 1
    fewest_gpus: int | None = None
    loop_timing: LoopTiming | None = None
    program_timing: ProgramTiming | None = None
    allowed_modules: tuple[str, ...] = ()
    """Modules the source policy refuses elsewhere, but this exercise needs."""
    hints: tuple[str, ...] = ()
    checks: list[Check] = field(default_factory=list)

    @property
    def has_program(self) -> bool:
        """Whether a check needs the exported program."""
        return any(check.ground == "program" for check in self.checks)

    @property
    def has_target(self) -> bool:
        """Whether a check needs a program compiled for a target."""
        return any(check.ground == "target" for check in self.checks)

    def check(
        self,
        *,
        ground: Ground,
        after: Sequence[str] = (),
        hints: Sequence[str] = (),
        anchor: str = "",
    ) -> Callable[[CheckFunction], CheckFunction]:
        """Register a check; `after` names checks that must pass before it is judged."""

        def register(function: CheckFunction) -> CheckFunction:
            title = (function.__doc__ or "").strip().splitlines()
            if not title:
                raise TypeError(f"check {function.__name__} has no docstring")
            lesson = f"{self.lesson}#{anchor or self.anchor}"
            self.checks.append(
                Check(
                    function.__name__,
                    title[0],
                    function,
                    ground,
                    tuple(after),
                    tuple(hints),
                    lesson,
                )
            )
            return function

        return register


class Misused(Exception):
    """What the learner's code returned cannot be driven; raised inside `drive()`."""

    def __init__(self, expected: str, observed: str) -> None:
        super().__init__(observed)
        self.expected = expected
        self.observed = observed


def unpack(value: Any, count: int, promise: str) -> tuple[Any, ...]:
    """`value` as a tuple of `count`, else `Misused` with what was promised.

    `promise` reads like "`train` returns (params, losses)".
    """
    if isinstance(value, tuple | list) and len(value) == count:
        return tuple(value)
    size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    raise Misused(promise, f"it returned a {type(value).__name__}{size}")
