"""Puts counts and places into words that are the same in every message.

It also finds a file's line on a stack, for probes, stages and drives. It takes parts of a
record, and knows no check.
"""

from collections.abc import Iterable, Sequence
from types import FrameType

from grader.records.record import Collective, Leaf

EVERYWHERE = "whole, to each device of a mesh"
"""The `detail` of a copy that takes all of an array to each device."""
PARTS = "in parts, to several devices"
"""The `detail` of a copy that takes parts of an array to several devices."""


def plural(count: int, noun: str) -> str:
    """`1 read`, `3 reads`, `2 copies`, `2 arrays`, `2 batches`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{count} {noun}s"


def article(noun: str) -> str:
    """`a` or `an`: `an int`, `a float`, `an Array`."""
    return "an" if noun[:1].lower() in "aeiou" else "a"


def typed(name: str) -> str:
    """`None`, `a jax.Array`, `an int`, `a function, which was not called`: a value by its type."""
    if not name.replace(".", "").replace(" ", "").isidentifier():
        return f"an object of type `{name}`"
    return SAID.get(name) or f"{article(name)} {name}"


SAID = {
    "NoneType": "None",
    "ArrayImpl": "a jax.Array",
    "ndarray": "a NumPy array",
    "PjitFunction": "a jitted function, which was not called",
    "function": "a function, which was not called",
    "method": "a function, which was not called",
    "partial": "a function, which was not called",
    "generator": "a generator, which computes nothing until it is asked for items",
    "map": "a map, which computes nothing until it is asked for items",
    "DynamicJaxprTracer": "a tracer, not an array",
    "JitTracer": "a tracer, not an array",
}
"""Values by the names of their types, where the name alone says too little."""


def where(leaf: Leaf) -> str:
    """`cpu:3`, `cpu:0,1 pinned_host`, `NumPy (host)`: a leaf's place in words."""
    if leaf.kind == "numpy":
        return "NumPy (host memory, no device)"
    if leaf.kind != "jax":
        return f"{typed(leaf.type)}, not an array"
    ids = ",".join(map(str, leaf.devices))
    kind = f" {leaf.memory_kind}" if leaf.memory_kind not in (None, "device") else ""
    return f"{leaf.platform}:{ids}{kind}"


def in_memory(leaf: Leaf) -> str:
    """`, in pinned_host memory`, if an array is not in its device's own; or ""."""
    return "" if leaf.memory_kind in (None, "device") else f", in {leaf.memory_kind} memory"


def shards(leaf: Leaf) -> str:
    """`(4, 64) on each device, P('data', None)`: how an array is split, or where it is."""
    return f"{leaf.shard_shape} on each device, {leaf.spec}" if leaf.shard_shape else where(leaf)


def part_in_words(leaf: Leaf, device: int) -> str:
    """`[0:4, 8:16]`: the part of an array that a device holds; `nothing` if it holds none."""
    part = leaf.parts.get(device)
    return "nothing" if part is None else f"[{', '.join(f'{a}:{b}' for a, b in part)}]"


def exchanges(collectives: Iterable[Collective]) -> str:
    """`1 all-gather of 262,144 bytes, 2 all-reduces of 4 bytes in a loop of 3 rounds`.

    Of many, those of one kind are told together: `9 all-gathers of 960 to 262,144 bytes`.
    """
    found, groups = list(collectives), dict[tuple[str, int, int], list[Collective]]()
    for one in found:
        size = 0 if len(found) > LISTED else one.nbytes
        groups.setdefault((one.op, one.runs, size), []).append(one)
    return ", ".join(map(_exchange, groups.values())) or "no collective at all"


LISTED = 4
"""How many collectives are told one by one, at most."""


def _exchange(group: Sequence[Collective]) -> str:
    """Collectives of one operation, in loops of as many rounds."""
    op, runs = group[0].op, group[0].runs
    sizes = sorted({c.nbytes for c in group})
    span = " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
    loop = "" if runs == 1 else f" in a loop of {runs} rounds" if runs else " in a loop"
    return f"{plural(sum(c.count for c in group), op)} of {span} bytes{loop}"


def line_on_stack(frame: FrameType | None, path: str | None) -> int | None:
    """The innermost line of the file at `path`, at `frame` or in a frame that called it."""
    while frame is not None and frame.f_code.co_filename != path:
        frame = frame.f_back
    return None if frame is None else frame.f_lineno
