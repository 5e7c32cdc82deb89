"""Runs code under jax.profiler, and reads what it wrote, for lessons 06 and 17."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import jax


class Span(NamedTuple):
    """Something that took time: `start` and `length` in milliseconds."""

    name: str
    start: float
    length: float
    thread: str
    device: bool
    """Whether an operation of a compiled program ran, on a GPU or a thread of a CPU device."""


def record(run, *args):
    """What `run(*args)` returned, and all spans while it ran, by their start."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # no calls of Python functions: they would be thousands
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            result = jax.block_until_ready(run(*args))
        file = next(Path(folder).rglob("*.xplane.pb"))
        return result, sorted(_spans(file), key=lambda span: span.start)


def _spans(file):
    data = jax.profiler.ProfileData.from_file(str(file))
    found = []
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                device = any(key == "hlo_module" for key, _ in event.stats)
                times = event.start_ns / 1e6, event.duration_ns / 1e6
                found.append(Span(event.name, *times, f"{plane.name} {line.name}", device))
    first = min((span.start for span in found if span.start > 0), default=0.0)
    return [span._replace(start=span.start - first) for span in found if span.start > 0]


def launches(spans):
    """The names of the programs that Python launched, one for each launch."""
    names, until = [], 0.0
    for span in spans:
        if span.name.startswith("PjitFunction(") and span.start >= until:
            names.append(span.name[len("PjitFunction(") : -1])
            until = span.start + span.length
    return names
