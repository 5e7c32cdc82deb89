"""Keeps the text of the programs that JAX compiles in a block, and finds constants in it.

JAX itself writes them to a folder when its option `jax_dump_ir_to` is set. What else the text means
is for the caller to say.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import jax

_TENSOR = re.compile(r"((?:\d+x)*)[a-z]+(\d+)")
"""The type of an array in StableHLO: `50x16xf32`."""
_SHAPE = re.compile(r"tensor<((?:\d+x)+)")
_MODULE = re.compile(r"module @([\w.]+)")
_ARRAY = re.compile(r"tensor<\d")
_TOLD = re.compile(r"custom_call @\w*callback\w*\(.*: \(.*tensor<(?:\d+x)*f\d+>.*\) ->")
_ON_THE_HOST = re.compile(r"pinned_host|annotate_device_placement|_xla_compute_type")


@contextmanager
def programs() -> Iterator[list[str]]:
    """A list that is filled when the block ends: programs in StableHLO, in order of their names."""
    found: list[str] = []
    before = jax.config.values["jax_dump_ir_to"]
    with TemporaryDirectory() as folder:
        jax.config.update("jax_dump_ir_to", folder)
        try:
            yield found
        finally:
            jax.config.update("jax_dump_ir_to", before)
        found += [path.read_text("utf-8") for path in sorted(Path(folder).rglob("*.mlir"))]


def uses_the_host(program: str) -> bool:
    """Whether a program keeps an array in host memory, or computes on the host."""
    return bool(_ON_THE_HOST.search(program))


def tells_python(program: str) -> bool:
    """Whether a program gives numbers, that are no whole ones, to a function of Python."""
    return bool(_TOLD.search(program))


def name(program: str) -> str:
    """What JAX calls a program, as `bare` writes it."""
    found = _MODULE.search(program)
    return bare(found[1]) if found else ""


def bare(name: str) -> str:
    """The letters and digits of a name: JAX writes `jit(step)` as `jit_step` in a program."""
    return "".join(filter(str.isalnum, name))


def largest(program: str) -> int:
    """The numbers of the largest array that a program is given, makes or returns."""
    shapes = set(_SHAPE.findall(program))
    return max((math.prod(map(int, shape.split("x")[:-1])) for shape in shapes), default=1)


def holds_arrays(program: str) -> bool:
    """Whether a program has arrays that are no scalars."""
    return bool(_ARRAY.search(program))


def constants(program: str) -> Iterator[int]:
    """The bytes of each constant of a program that holds numbers of its own, and not one for all.

    That is what JAX makes of a NumPy array which a function closes over.
    """
    for line in program.splitlines():
        _, found, value = line.partition("stablehlo.constant dense")
        if not found or not value.startswith(("<[", '<"', "_resource<")):
            continue
        if kind := _TENSOR.match(value.rpartition(" : tensor<")[2]):
            sizes = [int(size) for size in kind[1].split("x") if size]
            yield math.prod(sizes) * int(kind[2]) // 8
