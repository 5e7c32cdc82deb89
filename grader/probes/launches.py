"""Counts the programs that a call launches, and the operations of those that it compiles.

JAX reports no event when it launches a program that is already compiled, but its profiler
sees each launch. The names of the profiler's events depend on the version and the backend. So
a `Counter` first makes a known number of launches, and takes the name that was seen that
often. `Places` says on which devices programs ran, and what they were given. A `Reader` counts
operations in the text of each program (`grader.probes.dumped`).
"""

import re
import tempfile
from collections import Counter as Multiset
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from grader.probes import dumped, private
from grader.probes.observe import Misused

NAMES = (
    r".*Executable::ExecuteHelper\w*",
    r"IfrtProxyEntrypointLoadedExecutableExecute",
    r"ParseArguments",
)
"""Events seen once for each launch: where the runtime executes, here or next door, or where `jit`
prepares it, which it does for calls that it traces, too."""
_KNOWN = 3
_FUNCTION = re.compile(r"PjitFunction\((.*)\)")
_NAME = r'@"?([^\s"(]+)'
_DEFINED, _CALLED = re.compile(rf"func\.func .*?{_NAME}"), re.compile(rf"\bcall {_NAME}")
_OPERATION = re.compile(r'= "?(?:stablehlo|chlo)\.(\w+)')
_PLAIN = frozenset(("broadcast_in_dim", "concatenate", "constant", "convert", "iota")) | frozenset(
    ("reshape", "return", "slice", "transpose")
)
"""Operations that make, convert or move numbers."""
MOST = 1 << 40
"""No count is larger: nested calls multiply."""


class Launches(NamedTuple):
    """How many programs were launched, and how often each function was called, by its name.

    A function that another one calls, or is traced into it, is not counted: only what Python
    called from outside.
    """

    total: int
    functions: dict[str, int]


class Counter:
    """Counts launches in a call; `problem` says why, if it cannot."""

    def __init__(self) -> None:
        self.problem, self._name = "", ""
        program, values = jax.jit(lambda x: x + x), jax.device_put(np.ones(3, np.float32))
        program(values).block_until_ready()
        try:
            _, seen = _traced(lambda: [program(values) for _ in range(_KNOWN)])
        except Exception as error:  # noqa: BLE001 (the profiler does not promise what it raises)
            self.problem = f"the profiler does not work here: {type(error).__name__}: {error}"
            return
        fitting = [name for name in NAMES if _count(name, seen) == _KNOWN]
        if not fitting:
            self.problem = f"{_KNOWN} known launches were not seen in the profiler's trace"
        else:
            self._name = fitting[0]

    def count(self, run: Callable[[], Any]) -> tuple[Any, Launches]:
        """Call `run` and wait for its result; returns the result, and what was launched.

        Raises:
          Misused: it ended the profiler's session.
        """
        if self.problem:
            return run(), Launches(0, {})
        result, seen = _traced(run)
        return result, Launches(_count(self._name, seen), _called(seen))


class _Event(NamedTuple):
    """An event of the host; `line` is that of its thread, times are in ns."""

    line: int
    begin: float
    end: float
    name: str


def _count(name: str, seen: list[_Event]) -> int:
    return sum(re.fullmatch(name, event.name) is not None for event in seen)


def _called(seen: list[_Event]) -> dict[str, int]:
    """How often each function was called from outside all others, most often first."""
    found, line, until = Multiset[str](), -1, 0.0
    for event in sorted(seen, key=lambda event: (event.line, event.begin, -event.end)):
        match = _FUNCTION.fullmatch(event.name)
        if match and (event.line != line or event.begin >= until):
            line, until = event.line, event.end
            found[match[1]] += 1
    return dict(found.most_common())


def _traced(run: Callable[[], Any]) -> tuple[Any, list[_Event]]:
    """What `run` returned, and all events of the host until that was ready."""
    profile: Any = jax.profiler
    options = profile.ProfileOptions()
    options.python_tracer_level = 0  # Python's own calls are not wanted
    if hasattr(profile, "ProfileSession"):
        with profile.trace(profiler_options=options) as session:
            result = jax.block_until_ready(run())
            _require(session.is_running)
        return result, _events(session.profile_data)
    with tempfile.TemporaryDirectory() as folder:  # JAX 0.11 writes all that it has into files
        profile.start_trace(folder, profiler_options=options)
        try:
            result = jax.block_until_ready(run())
        finally:
            stopped = _stopped()
        file = next(Path(folder).rglob("*.xplane.pb"), None)
        _require(stopped and file is not None)
        return result, _events(profile.ProfileData.from_file(str(file)))


def _stopped() -> bool:
    """Stop JAX's profiler, and say whether it ran."""
    try:
        jax.profiler.stop_trace()
    except RuntimeError:
        return False
    return True


def _require(running: bool) -> None:
    if not running:
        expected = "the session of JAX's profiler, in which launches are counted, is left alone"
        raise Misused(expected, "your function ended it: by `jax.profiler.stop_trace`?")


def _events(data: Any) -> list[_Event]:
    """All events of the host in what a profile holds."""
    planes = [plane for plane in data.planes if plane.name.startswith("/host:")]
    lines = enumerate(line for plane in planes for line in plane.lines)
    return [
        _Event(number, event.start_ns, event.start_ns + event.duration_ns, event.name)
        for number, line in lines
        for event in line.events
    ]


class Places:
    """Says on which devices programs run, and with what; `problem` says why, if it cannot.

    Calls of compiled functions stay without their shortcut (`private.no_shortcut`) for the rest of
    the process: one that was taken between two blocks would be taken inside the next one, too.
    """

    def __init__(self) -> None:
        self.problem = ""
        values = jax.device_put(np.ones(3, np.float32))
        program = jax.jit(lambda x: x + x)
        try:
            self._calls = private.no_shortcut()
            program(values)
            given: list[Any] = []
            with self.seen() as found, self.given(given.extend):
                program(values)
        except Exception as error:  # noqa: BLE001 (JAX's private names may fail in any way)
            self.problem = f"launches cannot be watched: {type(error).__name__}: {error}"
        else:
            (device,) = values.devices()
            same = len(given) == 1 and given[0] is values
            if found != {f"{device.platform}:{device.id}"} or not same:
                self.problem = "a known launch was not seen"

    @contextmanager
    def seen(self) -> Iterator[set[str]]:
        """The devices, such as `cpu:1`, on which programs run in the block."""
        found: set[str] = set()
        if self.problem:
            yield found
            return
        with private.executions(lambda program, _: found.update(program.places())):
            yield found

    @contextmanager
    def given(self, arrays: Callable[[Sequence[Any]], None]) -> Iterator[None]:
        """In the block, `arrays` gets what each program is given, each time that it runs."""
        with self.launched(lambda _, __, given: arrays(given)):
            yield

    @contextmanager
    def launched(self, run: Callable[[str, list[str], Sequence[Any]], None]) -> Iterator[None]:
        """In the block, `run` is told of each launch: the program's name, the devices, such as
        `cpu:1`, and the arrays that it is given."""
        if self.problem:
            yield
            return
        with private.executions(lambda program, given: run(program.name, program.places(), given)):
            yield


def given_there(devices: Sequence[str], given: Sequence[Any]) -> int:
    """How many of the arrays that a program is given lie on its own devices already."""
    arrays = (one for one in given if isinstance(one, jax.Array))
    devices_of: list[set[Any]] = [{*one.sharding.device_set} for one in arrays]
    places = ({f"{d.platform}:{d.id}" for d in there} for there in devices_of)
    return sum(place <= {*devices} for place in places)


class Text(NamedTuple):
    """What the text of programs says."""

    operations: int
    """How many operations there are, as the function `operations` counts them."""
    tells_python: bool
    """Whether one of them gives numbers to a function of Python."""


class Reader:
    """Reads the text of what a call compiles; `problem` says why, if it cannot."""

    def __init__(self) -> None:
        self.problem, values = "", np.ones(3, np.float32)
        inner = jax.jit(lambda x: x - x)
        try:
            _, found = self.read(lambda: jax.jit(lambda x: inner(inner(x)))(values))
        except Exception as error:  # noqa: BLE001 (JAX does not promise how it writes programs)
            self.problem = f"JAX does not write programs down: {type(error).__name__}: {error}"
        else:
            read = found.operations
            self.problem = "" if read == 2 else f"2 known operations were read as {read}"

    def read(self, run: Callable[[], Any]) -> tuple[Any, Text]:
        """Call `run`, wait for its result, and read what it compiled; returns both."""
        if self.problem:
            return run(), Text(0, tells_python=False)
        with dumped.programs() as programs:
            result = jax.block_until_ready(run())
        told = any(map(dumped.tells_python, programs))
        return result, Text(min(MOST, sum(map(operations, programs))), told)


def operations(program: str) -> int:
    """The operations in a program in StableHLO but those that only make, convert or move numbers.

    A function's count as often as the text calls it, a loop's body once.
    """
    own, calls, name = Multiset[str](), dict[str, list[str]](), ""
    for line in program.splitlines():
        if found := _DEFINED.search(line):
            name = found[1]
        elif found := _CALLED.search(line):
            calls.setdefault(name, []).append(found[1])
        elif (found := _OPERATION.search(line)) and found[1] not in _PLAIN:
            own[name] += 1

    @cache
    def total(function: str) -> int:
        return own[function] + sum(map(total, calls.get(function, ())))

    return total("main")
