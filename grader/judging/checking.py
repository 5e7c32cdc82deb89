"""The words an exercise and its checks are written in.

A check is a pure function of a `Record`. It returns None if the fact in its docstring
holds, a `Failure` if it does not, and `Unable` if that cannot be known. The functions with
which a check reads a record are in `grader.judging.evidence`; the words of the other half
of an exercise, its drive, are in `grader.probes.observe`. Neither JAX nor a process lives
here.
"""

import ast
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.records.record import Record
from grader.records.verdict import Culprit, Ground


@dataclass(frozen=True)
class Failure:
    """A fact that does not hold.

    `expected` and `observed` are facts; advice belongs in hints. `culprits` are
    places in the learner's file.
    """

    expected: str
    observed: str
    culprits: Sequence[Culprit] = ()
    hint: str = ""
    """The hint that what was observed asks for, in place of the check's first one."""
    made: Sequence[Culprit] = ()
    """Where the value is made that it is about. If `culprits` is no more than a definition, and its
    text shows no slip, this is the place."""


@dataclass(frozen=True)
class Unable:
    """A fact that could not be checked here, and why."""

    reason: str


Result = Failure | Unable | None


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

    `function` is the edited function. In the control run, which must fail, the drive's
    `naive` replaces it. `apart(steps)` units of a window are not counted: every loop takes
    this time, and it would hide how loops differ. The drive says what a unit is, and how a
    window is prepared (`grader.probes.observe.TimedDrive`).
    """

    at_most: float
    function: str
    apart: Callable[[int], float] = lambda _: 0.0
    window_seconds: float = 0.04
    """About how long one window should take."""


@dataclass(frozen=True)
class ProgramTiming:
    """A program must take at most `at_most` times the reference program's time."""

    program: str
    at_most: float


@dataclass
class Exercise:
    """One exercise's metadata and checks. How its submissions are driven is in its `drive.py`.

    `edits` are the names a learner may define anew; everything else in the file must
    stay as it is, though imports, functions and classes may be added. `devices` is
    how many the drive wants; on a machine with fewer GPUs than that (or than
    `fewest_gpus`, where the drive can do with fewer), CPU devices are simulated.
    `lesson` is the page under docs/, without suffix; `anchor` its paragraph.
    """

    title: str
    lesson: str
    anchor: str
    edits: tuple[str, ...]
    devices: int = 1
    fewest_gpus: int | None = None
    loop_timing: LoopTiming | None = None
    program_timing: ProgramTiming | None = None
    next_door: bool = False
    """Whether its sentences speak of copies, reads, waits, compiles or memory, so that it gains
    from a device next door: `--device next-door` runs it there."""
    flops: float = 0.0
    """Operations that a device next door does in a second while this exercise is timed; 0 for
    as many as it can."""
    allowed_modules: tuple[str, ...] = ()
    """Modules that this exercise asks for, and others do not: rows of the policy's table that
    hold on request. With "flax.nnx", attributes of models may be set in place."""
    hints: tuple[str, ...] = ()
    checks: list[Check] = field(default_factory=list)
    model: str = ""
    """The text of the reference solution: it says what is given, and what returns something."""

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
        """Register a check. `after` names checks that must pass before it is judged."""

        def register(function: CheckFunction) -> CheckFunction:
            lines = _docstring(function).strip().splitlines()
            if not lines:
                raise TypeError(f"check {function.__name__} has no docstring")
            self.checks.append(
                Check(
                    name=function.__name__,
                    title=lines[0],
                    function=function,
                    ground=ground,
                    after=tuple(after),
                    hints=tuple(hints),
                    lesson=f"{self.lesson}#{anchor or self.anchor}",
                )
            )
            return function

        return register


def _docstring(function: CheckFunction) -> str:
    """The docstring of a check, also where Python was told to drop docstrings (`-OO`)."""
    if function.__doc__ or sys.flags.optimize < 2:
        return function.__doc__ or ""
    code = function.__code__
    tree = ast.parse(Path(code.co_filename).read_text("utf-8"))
    found = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == code.co_name)
    return next((ast.get_docstring(node) or "" for node in found), "")
