"""Counts launched programs, from the profiler's own trace of the host; and how long they are.

JAX names no event for a launch of a program that is compiled already; the profiler sees
each one. What its events are called depends on the version and the backend, so a known
count comes first, and picks the name. How long a program is tells its text.
"""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from grader.probes import dumped

NAMES = (r".*Executable::ExecuteHelper\w*", r"ParseArguments")
"""What is seen once for each launch: where the runtime executes, and where `jit` prepares."""
_KNOWN = 3
_FUNCTION = re.compile(r"PjitFunction\((.*)\)")


class Launches(NamedTuple):
    """How many programs were launched, and the names of their functions, sorted."""

    total: int
    functions: list[str]


class Counter:
    """Counts launches in a call; `problem` says why it cannot, if it cannot."""

    def __init__(self) -> None:
        self.problem, self._name = "", ""
        program, values = jax.jit(lambda x: x + x), jax.device_put(np.ones(3, np.float32))
        program(values).block_until_ready()
        try:
            seen = _events(lambda: [program(values) for _ in range(_KNOWN)])
        except Exception as error:  # noqa: BLE001 (the profiler is another library's code)
            self.problem = f"the profiler does not work here: {type(error).__name__}: {error}"
            return
        fitting = [name for name in NAMES if _count(name, seen) == _KNOWN]
        if not fitting:
            self.problem = f"{_KNOWN} known launches were not seen in the profiler's trace"
        else:
            self._name = fitting[0]

    def count(self, run: Callable[[], Any]) -> tuple[Any, Launches]:
        """What `run` returned, waited for, and what it launched."""
        if self.problem:
            return run(), Launches(0, [])
        results: list[Any] = []

        def kept() -> Any:
            results.append(run())
            return results

        seen = _events(kept)
        functions = {match[1] for name in seen if (match := _FUNCTION.fullmatch(name))}
        return results[0], Launches(_count(self._name, seen), sorted(functions))


def _count(name: str, seen: list[str]) -> int:
    return sum(re.fullmatch(name, event) is not None for event in seen)


def _events(run: Callable[[], Any]) -> list[str]:
    """The names of all events of the host while `run` runs and its result is waited for."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # Python's own calls are not wanted
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            jax.block_until_ready(run())
        file = next(Path(folder).rglob("*.xplane.pb"))
        data = jax.profiler.ProfileData.from_file(str(file))
        planes = [plane for plane in data.planes if plane.name.startswith("/host:")]
        return [event.name for plane in planes for line in plane.lines for event in line.events]


class Reader:
    """Reads the text of what a call compiles; `problem` says why it cannot, if it cannot."""

    def __init__(self) -> None:
        self.problem, values = "", np.ones(3, np.float32)
        try:
            _, lines = self.read(lambda: jax.jit(lambda x: x - x)(values))
        except Exception as error:  # noqa: BLE001 (what JAX writes, and where, is its own)
            self.problem = f"JAX does not write programs down: {type(error).__name__}: {error}"
        else:
            self.problem = "" if lines else "a known program was not written down"

    def read(self, run: Callable[[], Any]) -> tuple[Any, int]:
        """What `run` returned, waited for, and how many lines the programs have it compiled."""
        if self.problem:
            return run(), 0
        with dumped.programs() as programs:
            result = jax.block_until_ready(run())
        return result, sum(program.count("\n") for program in programs)
