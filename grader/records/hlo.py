"""Reads optimised HLO text: collectives, aliasing, copies to and from host memory.

The text comes from `jax.stages.Compiled.as_text()`, on CPU or GPU, of jaxlib 0.11 and
0.12 (older forms that still turn up are read too). Plain text in, records out: neither
JAX nor a judgement lives here. A collective is counted once, however often it runs;
`Collective.runs` says how often the loops around it run it, if the text says so: it does not where
the collective stands in a branch, inside a loop. `Facts.work` counts what is computed as often as
it is.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from grader.records.record import Collective

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)

_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.*)")
_OPCODE = re.compile(r" ?(?P<op>[a-z][\w\-]*)(?P<operands>\(.*)")
_COMMENT = re.compile(r"/\*.*?\*/")
_SHAPE = re.compile(r"(?P<type>[a-z]\w*)\[(?P<dims>[\d,<=]*)\]")
_EXPLICIT_GROUPS = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_IOTA_GROUPS = re.compile(r"replica_groups=\[\d+,(\d+)\]<=")
_MESH_GROUPS = re.compile(r"replica_groups=@?\w+\[([^\]]*)\] \{([^}]*)\}")
_ALIAS = re.compile(r"\{(?P<output>[\d, ]*)\}: \((?P<argument>\d+), \{(?P<inner>[\d, ]*)\}")
_COMPUTATION = re.compile(r"(?:ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
_CALLED = re.compile(
    r"\b(?P<how>body|condition|calls|to_apply|true_computation|false_computation)=%?(?P<name>[\w.\-]+)"
)
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_TRANSFORMED = re.compile(r"fft_length=\{([\d,]*)\}")
_WINDOW = re.compile(r"window=\{size=([\dx]+)")
_LIBRARY = re.compile(r'custom_call_target="(lapack|blas|cublas|cusolver)')
_OF_SPECTRA = re.compile(r"(syevd|heevd|gesdd|gesvd|geev|gehrd|gees)\w*\"")
_LARGEST = re.compile(r'custom_call_target="\w*TopK')
_CONTRACTED = re.compile(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)')
_FREE = frozenset(
    {
        "bitcast",
        "bitcast-convert",
        "broadcast",
        "call",
        "concatenate",
        "conditional",
        "constant",
        "convert",
        "copy",
        "copy-done",
        "copy-start",
        "custom-call",
        "dynamic-slice",
        "dynamic-update-slice",
        "fusion",
        "gather",
        "get-tuple-element",
        "iota",
        "opt-barrier",
        "optimization-barrier",
        "pad",
        "parameter",
        "partition-id",
        "replica-id",
        "reshape",
        "reverse",
        "slice",
        "transpose",
        "tuple",
        "while",
    }
)
"""Instructions that move or name numbers, or whose work is that of the computations they call."""
_REDUCTIONS = frozenset({"reduce", "reduce-window"})
"""Instructions whose work is that of the computation which they run for each number."""
_COMPLEX = re.compile(r"\s*c(64|128)\[")
"""An array of complex numbers: a product of two of them is four of real ones."""
_OF_COMPLEX = {"multiply": 6, "divide": 11}
"""The operations on real numbers for one on complex ones, where they are more than two."""
_DECOMPOSED = 9
"""How many times the numbers of a matrix a library works for each of its eigenvectors, at least."""
_HOST = "S(5)"
"""Host memory, as the layout of a type names it."""


@dataclass(frozen=True)
class Instruction:
    """One line of a computation: its result's type and its operands, as text."""

    name: str
    type: str
    op: str
    operands: str
    line: str
    computation: str = ""


@dataclass(frozen=True)
class Facts:
    """What the text of one compiled program says."""

    collectives: list[Collective]
    """Distinct (op, bytes, runs) with counts, in order of appearance; bytes on one device."""
    aliases: dict[str, int]
    """Output index -> argument index that shares its buffer ("0" for a single output)."""
    host_copies: int
    """Copies between device memory and host memory."""
    work: int
    """Operations on one device, as often as they run; 0 if the length of a loop is not known."""


def read(text: str) -> Facts:
    """Read the text of one HLO module."""
    instructions = list(_instructions(text))
    runs = _runs(instructions, {i.name: i.type for i in instructions})
    collectives, work = _collectives(instructions, runs), _work(instructions, runs)
    return Facts(collectives, _aliases(text), _host_copies(instructions), work)


def _instructions(text: str) -> Iterator[Instruction]:
    computation = ""
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            computation = header["name"]
        elif found := _INSTRUCTION.match(line):
            type_, rest = _split_type(_COMMENT.sub("", found["rest"]))
            if op := _OPCODE.match(rest):
                operands = op["operands"]
                inner = operands[1 : _closing(operands)]
                yield Instruction(found["name"], type_, op["op"], inner, line, computation)


def _runs(instructions: list[Instruction], types: dict[str, str]) -> dict[str, int]:
    """How often each computation is run, 0 if unknown."""
    runs: dict[str, int] = {}
    for instruction in reversed(instructions):  # a module prints callees before their callers
        here = runs.setdefault(instruction.computation, 1)
        for name, times in _called(instruction, types):
            before = runs.get(name)
            sometimes = instruction.op == "conditional" and here > 1  # in some rounds of a loop
            unknown = 0 in (before, here, times) or sometimes
            runs[name] = 0 if unknown else (before or 0) + here * times
    return runs


def _called(instruction: Instruction, types: dict[str, str]) -> Iterator[tuple[str, int]]:
    """The computations that an instruction runs, and how often it runs each, 0 if unknown.

    A loop looks at its condition once more than it runs its body. A reduction runs its computation
    for each number, and one with a window for each number of each window.
    """
    trips = _TRIPS.search(instruction.line)
    rounds = int(trips[1]) if trips else 0
    each = 1
    if instruction.op in _REDUCTIONS:
        each = math.prod(_sizes(types.get(_operand(instruction, 0), instruction.operands)))
    if window := _WINDOW.search(instruction.line):
        each = math.prod(_sizes(_elements(instruction.type)[0]))
        each *= math.prod(map(int, window[1].split("x")))
    times = {"body": rounds, "condition": rounds + 1 if rounds else 0}
    for found in _CALLED.finditer(instruction.line):
        yield found["name"], times.get(found["how"], each)
    if branches := _BRANCHES.search(instruction.line):
        yield from ((name.strip(" %"), 1) for name in branches[1].split(","))


def _split_type(text: str) -> tuple[str, str]:
    """Split `TYPE opcode(...)`; a tuple's type holds spaces and nested brackets."""
    end = _closing(text) + 1 if text.startswith("(") else text.find(" ")
    return text[:end], text[end:]


def _closing(text: str) -> int:
    """Index of the bracket that closes the one at the start; the last one if none does."""
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter in "({[") - (letter in ")}]")
        if depth == 0:
            return index
    return len(text) - 1


def _elements(type_: str) -> list[str]:
    """The elements of a tuple type; the type itself if it is no tuple."""
    if not type_.startswith("("):
        return [type_]
    parts, rest = [], type_[1:-1].strip()
    while rest:
        end = _element_end(rest)
        parts.append(rest[:end])
        rest = rest[end:].lstrip(", ")
    return parts


def _element_end(text: str) -> int:
    """Index of the comma after the first element; the length of the text if there is none."""
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter in "({[") - (letter in ")}]")
        if depth == 0 and letter == ",":
            return index
    return len(text)


def nbytes(type_: str) -> int:
    """Bytes of an HLO type, arrays of a tuple summed; dynamic dimensions at their bound."""
    return sum(
        math.ceil(math.prod(_dimensions(shape["dims"])) * _bits(shape["type"]) / 8)
        for shape in _SHAPE.finditer(type_)
    )


def _dimensions(text: str) -> list[int]:
    return [int(size.lstrip("<=")) for size in text.split(",") if size]


def _bits(type_: str) -> int:
    if type_ == "pred":
        return 8
    width = re.search(r"\d+", type_)
    return int(width[0]) if width else 0  # token[] and opaque[] hold nothing


def _collectives(instructions: list[Instruction], runs: dict[str, int]) -> list[Collective]:
    counts: Counter[tuple[str, int, int]] = Counter()
    for instruction in instructions:
        op = instruction.op.removesuffix("-start")
        if op in COLLECTIVES and _group_size(instruction.line) != 1:
            size = nbytes(_result(instruction, op))
            counts[op, size, runs[instruction.computation]] += 1
    return [Collective(op, size, count, times) for (op, size, times), count in counts.items()]


def _result(instruction: Instruction, op: str) -> str:
    """The type of what arrives: a `-start` also carries its operands and a context."""
    if instruction.op == op:
        return instruction.type
    parts = _elements(instruction.type)
    bare = op == "all-reduce" and not parts[0].startswith("(")
    return instruction.type if bare or len(parts) == 1 else parts[1]


def _group_size(line: str) -> int | None:
    """Devices in one group; None where the text names no groups: then all form one."""
    if found := _EXPLICIT_GROUPS.search(line):
        return found[1].count(",") + 1
    if found := _IOTA_GROUPS.search(line):
        return int(found[1])
    if found := _MESH_GROUPS.search(line):
        sizes = dict(re.findall(r"'([^']*)'=(\d+)", found[1]))
        axes = re.findall(r"'([^']*)'(?::\(\d+\)(\d+))?", found[2])
        return math.prod(int(part or sizes[axis]) for axis, part in axes)
    return None


def _aliases(text: str) -> dict[str, int]:
    header = text[: text.find("\n")]
    start = header.find("input_output_alias=")
    if start < 0:
        return {}
    table = header[start + len("input_output_alias=") :]
    table = table[: _closing(table) + 1]
    return {
        entry["output"].strip() or "0": int(entry["inner"] or entry["argument"])
        for entry in _ALIAS.finditer(table)
    }


def _work(instructions: list[Instruction], runs: dict[str, int]) -> int:
    """The operations of all instructions, 0 if one stands in a loop of unknown length."""
    types, total = {i.name: i.type for i in instructions}, 0
    for instruction in instructions:
        operations = _operations(instruction, types)
        if operations and not runs[instruction.computation]:
            return 0
        total += operations * runs[instruction.computation]
    return total


def _operations(instruction: Instruction, types: dict[str, str]) -> int:
    """Operations of one run of one instruction, without those of computations that it calls."""
    line = instruction.line
    contracted = _CONTRACTED.search(line)
    if contracted:  # a product, also one that a library computes
        type_ = types.get(_operand(instruction, 0), instruction.operands)
        first, each = _sizes(type_), 8 if _COMPLEX.match(type_) else 2
        axes = [int(axis) for axis in contracted[1].replace('"', "").split(",") if axis]
        shared = math.prod(first[axis] for axis in axes if axis < len(first))
        return each * math.prod(_sizes(_elements(instruction.type)[0])) * shared
    op = instruction.op.removesuffix("-start").removesuffix("-done")
    if op in ("triangular-solve", "cholesky") or _LIBRARY.search(line):
        # Each number of the matrix has its part in each column of the result.
        matrix = _sizes(types.get(_operand(instruction, 0), instruction.operands))
        columns = _sizes(instruction.type)[-1]
        return math.prod(matrix) * columns * (_DECOMPOSED if _OF_SPECTRA.search(line) else 1)
    if op == "sort" or _LARGEST.search(line):
        row = _sizes(types.get(_operand(instruction, 0), instruction.operands))
        return round(math.prod(row) * math.log2(max(*row, 2)))
    if op in _FREE or op in COLLECTIVES or op in _REDUCTIONS or instruction.op in _FREE:
        return 0
    if op == "convolution":
        kernel = _sizes(types.get(_operand(instruction, 1), ""))
        return 2 * math.prod(_sizes(instruction.type)) * math.prod(kernel)
    numbers = math.prod(_sizes(_elements(instruction.type)[0]))
    if lengths := _TRANSFORMED.search(line):
        given = math.prod(_sizes(types.get(_operand(instruction, 0), instruction.operands)))
        points = math.prod(map(int, filter(None, lengths[1].split(","))))
        return round(2.5 * math.log2(max(points, 2)) * max(numbers, given))
    return numbers * (_OF_COMPLEX.get(op, 2) if _COMPLEX.match(instruction.type) else 1)


def _operand(instruction: Instruction, index: int) -> str:
    """The name of an operand."""
    names = re.findall(r"%([\w.\-]+)", instruction.operands)
    return str(names[index]) if index < len(names) else ""


def _sizes(type_: str) -> list[int]:
    """The dimensions of the first array in a type."""
    shape = _SHAPE.search(type_)
    return _dimensions(shape["dims"]) if shape else [0]


def _host_copies(instructions: list[Instruction]) -> int:
    types = {instruction.name: instruction.type for instruction in instructions}
    return sum(_crosses(i, types) for i in instructions if i.op in ("copy", "copy-start"))


def result_memories(text: str) -> list[str]:
    """The kind of memory of each result, as a module's first line says: "device", "pinned_host"."""
    layout = text[: text.find("\n")].partition("entry_computation_layout=")[2]
    results = layout[: _closing(layout)].rpartition("->")[2]
    return ["pinned_host" if _HOST in part else "device" for part in _elements(results)]


def _crosses(instruction: Instruction, types: dict[str, str]) -> bool:
    """Whether a copy goes from device memory to host memory, or back."""
    target = _elements(instruction.type)[0]
    source = types.get(instruction.operands.split(" ")[-1].lstrip("%"), "")
    return (_HOST in target) != (_HOST in source)
