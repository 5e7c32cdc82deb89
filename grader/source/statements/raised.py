"""Finds the place that the words of an exception are about, which nobody's line raised."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

from grader.records.record import Record
from grader.records.verdict import Culprit
from grader.source.file import File, reached
from grader.source.statements.calling import call
from grader.source.statements.loops import callback
from grader.source.statements.search import (
    calls_among,
    entry_of,
    given_back,
    name_of,
    nodes_of,
    only_place,
    returned_by,
)
from grader.source.trees import Function, own_nodes

_PROMISED, _LEFT_ALONE = re.compile(r"`(\w+)` returns "), re.compile(r"`(\w+)` leaves ")
_CHANGING = ("pop", "popitem", "clear", "setdefault", "update", "delete")
"""Methods that change a dict, or a list, or delete an array."""


def of_promise(record: Record, functions: Sequence[str], promise: str) -> list[Culprit]:
    """What stands in a function's `return`, if `promise` says of it: "`step` returns (a, b)".

    Of a generator, it is the `yield`. The function is one of `functions`, or the only one of its
    name inside them. If the promise is that it "leaves" an argument as it is, it is the only
    statement that changes a dict or a list.
    """
    file = File(record.source)
    if (left := _LEFT_ALONE.match(promise)) and left[1] in functions:
        return only_place(file, _changes(file, left[1]))
    promised = _PROMISED.match(promise)
    if not promised:
        return []
    top = [file.defined(name) for name in functions if name == promised[1]]
    inner = (node for name in functions for node in nodes_of(file, name))
    found = [
        node for node in top or inner if isinstance(node, Function) and node.name == promised[1]
    ]
    given = (returned_by(found[0]) or _yielded(found[0])) if len(found) == 1 else []
    return [file.place(given[0])] if len(given) == 1 else []


def _yielded(function: Function) -> list[ast.expr]:
    """What makes a function a generator."""
    nodes = own_nodes(function.body)
    return [node for node in nodes if isinstance(node, ast.Yield | ast.YieldFrom)]


def _changes(file: File, function: str) -> Iterator[ast.AST]:
    """What changes a dict or a list in a function: the call of a method, or what an item gets."""
    nodes = list(nodes_of(file, function))
    yield from calls_among(nodes, *_CHANGING)
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        if any(isinstance(target, ast.Subscript) for target in targets):
            yield node


_JIT = frozenset(("jit", "pjit", "pmap", "shard_map"))

_OF_A_CALL = re.compile(
    r"\b(p?jit|pmap|shard_map|\w+_(specs|shardings|argnums|axes))\b|static arg|donated|"
    r"context mesh|axis to squeeze out"
)
"""What JAX's own words name when the call of a jitted function goes wrong."""

_ARGUMENT = re.compile(r"\b(in_specs|out_specs|in_shardings|out_shardings)\b")
"""An argument of jit or shard_map that such words are about."""

_OTHER_SHARDING = "Sharding passed to jit does not match"

_SHARDINGS = ("in_shardings", "out_shardings")
"""What decides how an argument is to lie, and how it lies where the call before has made it."""

_TOO_LONG = re.compile(r"an out_specs entry which is too long.*?out_specs\[(\d+)\]", re.DOTALL)
"""What shard_map says of a returned value with fewer dimensions than its spec speaks of."""


def of_jit(record: Record, functions: Iterable[str], message: str) -> list[Culprit]:
    """Where a jitted function was made whose call raised `message`, outside of the file's code.

    Nothing if the message does not speak of such a call, or more than one of `functions` makes
    one.
    """
    if not _OF_A_CALL.search(message):
        return []
    file = File(record.source)
    found = [name for name in functions if any(map(_jits, nodes_of(file, name)))]
    if len(found) != 1:
        return []
    if too_long := _TOO_LONG.search(message):
        part = int(too_long[1])
        parts = (given_back(file, found[0], part, of, inner=True) for of in range(part + 1, 5))
        if value := next(filter(None, parts), None):
            return [file.place(value[1])]
    named = _ARGUMENT.search(message)
    asked = _SHARDINGS if _OTHER_SHARDING in message else named.groups() if named else ()
    of_it = [place for argument in asked for place in entry_of(file, found[0], argument)]
    return of_it or call(record, found[0], "shard_map", "jit", "pmap")


def jits_inside(record: Record, functions: Iterable[str]) -> bool:
    """Whether one of these functions makes a jitted function whenever it is called."""
    found = map(File(record.source).defined, functions)
    return any(any(map(_jits, own)) for own in (_body(top) for top in found))


def _body(top: ast.stmt | None) -> Iterator[ast.AST]:
    """The nodes inside a function; none of anything else."""
    statements = top.body if isinstance(top, Function) else []
    return (node for one in statements for node in ast.walk(one))


def _jits(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Name) and name_of(node) in _JIT


_TWO_LENGTHS = re.compile(r"contracting dimensions .* got \((\d+),\) and \((\d+),\)")


def of_shard_map(record: Record, functions: Iterable[str], message: str) -> list[Culprit]:
    """What shard_map gets as its specs, if these led to what was raised inside, by `message`.

    A product met a part of what it takes, or in_specs do not fit, or out_specs promise too much.
    Nothing if not one of `functions` has such specs.
    """
    argument = "out_specs" if "Too few leaves for PyTreeDef" in message else "in_specs"
    if lengths := _TWO_LENGTHS.search(message):
        less, more = sorted(map(int, lengths.groups()))
        if not less or more % less:
            return []
    elif argument == "in_specs" and "shard_map in_specs" not in message:
        return []
    file = File(record.source)
    found = [place for name in functions for place in entry_of(file, name, argument)]
    return found if len(found) == 1 else []


_OF_BLOCKS = re.compile("Expected shard shape|canonicalize_value")
"""What JAX's words hold where a callback returned no block, or another one."""

_OF_DEVICES = re.compile("must be from distinct devices|per-device arrays devices do not match")
"""What they hold where blocks lie on other devices than the sharding says."""


def of_blocks(record: Record, functions: Iterable[str], message: str) -> list[Culprit]:
    """What makes or places the blocks of an array, if `message` is about these; else nothing."""
    file, found = File(record.source), list[Culprit]()
    for function in functions:
        if _OF_BLOCKS.search(message):
            found += callback(record, function)
        if _OF_DEVICES.search(message):
            found += only_place(file, calls_among(nodes_of(file, function), "device_put"))
    return found


def of_zero(record: Record, functions: Iterable[str], message: str) -> list[Culprit]:
    """The only division in functions that rounds down, if `message` says that a divisor is 0."""
    if not message.startswith("ZeroDivisionError"):
        return []
    file = File(record.source)
    nodes = [node for function in functions for node in nodes_of(file, function)]
    down = (n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv))
    return only_place(file, [*down, *calls_among(nodes, "divmod")])


_GIVE_NOTHING = frozenset(("append", "appendleft", "extend", "insert", "sort", "reverse", "clear"))
"""Methods of lists that change these, and return None."""


def of_none(record: Record, functions: Iterable[str], message: str) -> list[Culprit]:
    """What keeps or hands on the None of a method, if `message` speaks of None; else nothing."""
    if "NoneType" not in message:
        return []
    file, found = File(record.source), list[ast.Call]()
    for node in _reached(file, functions):
        match node:
            case ast.Call(args=values):
                found += filter(_gives_nothing, values)
            case ast.Assign(value=ast.Call() as value) if _gives_nothing(value):
                found.append(value)
    return only_place(file, found)


def _gives_nothing(value: ast.expr) -> TypeGuard[ast.Call]:
    called = value.func if isinstance(value, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else ""
    return name in _GIVE_NOTHING or name == "copy_to_host_async"


_OTHER_NODE = re.compile(r" is a (list|tuple), where a (list|tuple) is expected")


def of_other_node(record: Record, functions: Iterable[str], message: str) -> list[Culprit]:
    """The only list, or tuple, that a function returns, if `message` says that it is the other."""
    if not (said := _OTHER_NODE.search(message)):
        return []
    kinds = (ast.List, ast.ListComp) if said[1] == "list" else (ast.Tuple,)
    file = File(record.source)
    makers = (node for node in _reached(file, functions) if isinstance(node, Function))
    given = (value for node in makers for value in returned_by(node))
    return only_place(file, (value for value in given if isinstance(value, kinds)))


def of_left_out(record: Record, functions: Iterable[str], message: str) -> list[Culprit]:
    """The only condition by which a dict leaves things out, if `message` says that a key lacks."""
    if not message.startswith("KeyError"):
        return []
    file = File(record.source)
    made = (node for node in _reached(file, functions) if isinstance(node, ast.DictComp))
    return only_place(file, [one for node in made for part in node.generators for one in part.ifs])


def _reached(file: File, functions: Iterable[str]) -> Iterator[ast.AST]:
    tops = dict.fromkeys(top for function in functions for top in reached(file, function))
    return (node for top in tops for node in ast.walk(top))
