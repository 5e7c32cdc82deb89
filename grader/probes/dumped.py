"""Keeps the text of the programs that JAX compiles in a block, and finds constants in it.

JAX itself writes them to a folder when its option `jax_dump_ir_to` is set. What else the text means
is for the caller to say.
"""

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np

_SMALL, _FEW = 64, 8
"""Bytes of constants that may be small tables of whole numbers, and of other numbers, as rates."""
_SINGLE = re.compile(r"stablehlo\.constant dense<(-?\d+\.\d+(?:E[-+]\d+)?)>", re.I)
"""A single float in a program."""
_TENSOR = re.compile(r"((?:\d+x)*)([a-z]+)(\d+)")
"""The type of an array in StableHLO: `50x16xf32`."""
_SHAPE = re.compile(r"tensor<((?:\d+x)+)")
_NUMBERS = re.compile(r"stablehlo\.constant dense<(\d{1,7})> : tensor<i\d+>")
"""A whole number with a sign, as rounds are counted: those of random bits have none."""
_FLOAT = re.compile(r"-?\d\.\d+(?:[eE][+-]\d+)?")
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


def rounds(program: str) -> int:
    """How often a loop of a program may run its body, as far as a number in its text says; or 1."""
    if "stablehlo.while" not in program:
        return 1
    return max((int(number) for number in _NUMBERS.findall(program)), default=1)


def holds_arrays(program: str) -> bool:
    """Whether a program has arrays that are no scalars."""
    return bool(_ARRAY.search(program))


def held(programs: Iterable[str]) -> int:
    """The bytes of all constants: each device has them that runs these. A few count as none.

    Single numbers with a fraction count, too, as float32, each once in a program: no size is one.
    """
    texts = list(programs)
    tables = [table for text in texts for table in _tables(text)]
    fractions = sum(size for kind, size in tables if "f" in kind)
    found = (set(map(float, _SINGLE.findall(text))) for text in texts)
    single = 4 * sum(bool(number % 1) for numbers in found for number in numbers)
    nbytes = single + sum(size for _, size in tables)
    return nbytes if nbytes > _SMALL or single + fractions > _FEW else 0


def numbers(program: str) -> Iterator[float]:
    """The float32 numbers that stand in constants of a program, alone or in a list."""
    for line in program.splitlines():
        _, found, value = line.partition("stablehlo.constant dense<")
        if found and "f32>" in value:
            yield from (float(np.float32(text)) for text in _FLOAT.findall(value))


def constants(program: str) -> Iterator[int]:
    """The bytes of each constant of a program that holds numbers of its own, and not one for all.

    That is what JAX makes of a NumPy array which a function closes over.
    """
    yield from (size for _, size in _tables(program))


def _tables(program: str) -> Iterator[tuple[str, int]]:
    """The type of the numbers, and the bytes, of each such constant."""
    for line in program.splitlines():
        _, found, value = line.partition("stablehlo.constant dense")
        if not found or not value.startswith(("<[", '<"', "_resource<")):
            continue
        if kind := _TENSOR.match(value.rpartition(" : tensor<")[2]):
            sizes = [int(size) for size in kind[1].split("x") if size]
            yield kind[2], math.prod(sizes) * int(kind[3]) // 8
