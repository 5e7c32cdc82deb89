"""Finds calls and operations in a function of the learner's file."""

import ast
import re
from collections.abc import Iterable, Iterator

from grader.records.record import Record
from grader.records.verdict import Culprit
from grader.source.file import File, reached
from grader.source.places import of_definitions
from grader.source.statements.search import (
    alone,
    calls_among,
    elsewhere,
    first_in,
    gets,
    innermost,
    is_used,
    made_in,
    nodes_of,
    only_place,
    part_of,
    reached_by,
    returned_by,
)
from grader.source.trees import Function, names_in, text_of


def call(record: Record, function: str, *names: str) -> list[Culprit]:
    """The only call in a function of one of `names`; the first name with just one call counts.

    Of `np.pad` and a `pad` of the learner's own, `np.pad` is meant. Where the function has no such
    call, what it names at the top level is searched.
    """
    file = File(record.source)
    for nodes in reached_by(file, function):
        for name in names:
            found = list(calls_among(nodes, name))
            dotted = [node for node in found if isinstance(node.func, ast.Attribute)]
            if len(found := dotted if len(dotted) == 1 else found) == 1:
                return [file.place(found[0])]
    return of_definitions(file, [function])


_SENDS = {
    "all-gather": ("all_gather",),
    "all-to-all": ("all_to_all",),
    "collective-permute": ("ppermute",),
    "reduce-scatter": ("psum_scatter",),
    "all-reduce": ("psum", "pmean", "pmax", "pmin"),
}
"""The functions of jax.lax that become each collective of a program."""


def sending(record: Record, function: str, op: str) -> list[Culprit]:
    """The only call in a function that becomes a collective `op`, "all-gather"; else nothing."""
    file = File(record.source)
    return only_place(file, _sending(file, function, op))


def every_sending(record: Record, function: str, op: str) -> list[Culprit]:
    """The calls in a function that become a collective `op`."""
    file = File(record.source)
    return [file.place(node) for node in _sending(file, function, op)]


def _sending(file: File, function: str, op: str) -> list[ast.Call]:
    return first_in(file, function, lambda nodes: calls_among(nodes, *_SENDS.get(op, ())))


def every(record: Record, function: str, name: str) -> list[Culprit]:
    """Every call of `name` in a function, or else in what it names of the file.

    If there is none, it is every call in the function that hands `name` on: `map(name, items)`.
    """
    file = File(record.source)
    found = first_in(file, function, lambda nodes: calls_among(nodes, name))
    if not found:
        calls = (node for node in nodes_of(file, function) if isinstance(node, ast.Call))
        found = [node for node in calls if gets(node, name)]
    places = sorted(map(file.place, found), key=lambda place: place.line)
    return places or of_definitions(file, [function])


def reading(record: Record, function: str, attribute: str) -> list[Culprit]:
    """The only place in a function, or else in what it names, that reads `x.attribute`; or none."""
    file = File(record.source)

    def reads(nodes: Iterable[ast.AST]) -> Iterator[ast.Attribute]:
        return (n for n in nodes if isinstance(n, ast.Attribute) and n.attr == attribute)

    return only_place(file, first_in(file, function, reads))


def with_one_argument(record: Record, function: str, name: str) -> list[Culprit]:
    """The calls of `name` in a function that give it one argument, and so name no device."""
    file = File(record.source)
    found = calls_among(nodes_of(file, function), name)
    return [file.place(node) for node in found if len(node.args) == 1 and not node.keywords]


def dropped(record: Record, function: str, name: str) -> list[Culprit]:
    """The calls of `name` in a function that are statements of their own."""
    file = File(record.source)
    return [file.place(node) for node in calls_among(alone(nodes_of(file, function)), name)]


def dropped_at_top(record: Record, argument: str, *names: str) -> list[Culprit]:
    """The calls of one of `names` with `argument` that are statements at the top level."""
    file = File(record.source)
    found = calls_among(alone(file.tree.body), *names)
    return [file.place(node) for node in found if gets(node, argument)]


def donated(record: Record, function: str) -> list[Culprit]:
    """Where a function asks that a copy gives its array away: on some devices, it is deleted."""
    file = File(record.source)
    nodes = (node for top in reached(file, function) for node in ast.walk(top))
    asked = (n for n in nodes if isinstance(n, ast.keyword) and n.arg == "donate")
    return [file.place(n.value) for n in asked if text_of(n.value) != "False"]


_TAKERS = frozenset(("list", "tuple", "islice", "batched", "device_put"))
"""Functions that take several items of an iterator at once."""


def taken(record: Record, function: str, iterator: str) -> list[Culprit]:
    """Where a function takes several items of `iterator` at once, or the line that defines it."""
    file = File(record.source)
    nodes = list(nodes_of(file, function))
    calls = [file.place(node) for node in calls_among(nodes, *_TAKERS) if gets(node, iterator)]
    lists = [
        file.place(node)
        for node in nodes
        if isinstance(node, ast.ListComp) and text_of(node.generators[0].iter) == iterator
    ]
    return calls or lists[:1] or of_definitions(file, [function])


def remainder(record: Record, function: str) -> list[Culprit]:
    """The only `%` in a function, or else its only `//`."""
    file = File(record.source)
    found = _operation(file, function, ast.Mod) or _operation(file, function, ast.FloorDiv)
    return found or of_definitions(file, [function])


def division(record: Record, function: str, apart: str = "") -> list[Culprit]:
    """The only `/` in a function, or in what it names other than `apart`; else nothing."""
    return _operation(File(record.source), function, ast.Div, apart)


def subtraction(record: Record, function: str) -> list[Culprit]:
    """The only `-` in a function, or else in what it names; else nothing."""
    return _operation(File(record.source), function, ast.Sub)


def times(record: Record, function: str, name: str) -> list[Culprit]:
    """The only product in a function with what is called `name`, or a part of it; else nothing."""
    file = File(record.source)
    held = (node for node in nodes_of(file, function) if isinstance(node, ast.BinOp))
    products = (node for node in held if isinstance(node.op, ast.Mult))
    return only_place(file, (n for n in products if name in map(innermost, (n.left, n.right))))


def _operation(
    file: File, function: str, kind: type[ast.operator], apart: str = ""
) -> list[Culprit]:
    left_out = {*nodes_of(file, apart)} if apart else set()
    for nodes in reached_by(file, function):
        others = (node for node in nodes if node not in left_out)
        held = (node for node in others if isinstance(node, ast.BinOp | ast.AugAssign))
        if place := only_place(file, (node for node in held if isinstance(node.op, kind))):
            return place
    return []


_REDUCTIONS = ("all", "any", "max", "min", "sorted", "sum")


def taking_apart(record: Record, functions: Iterable[str]) -> list[Culprit]:
    """The calls, in functions, of Python's own `max`, `sum` and the like for one value."""
    file = File(record.source)
    nodes = (node for name in functions for node in nodes_of(file, name))
    found = (node for node in calls_among(nodes, *_REDUCTIONS) if isinstance(node.func, ast.Name))
    whole = ast.Name | ast.Attribute | ast.Subscript | ast.Call
    return [file.place(n) for n in found if len(n.args) == 1 and isinstance(n.args[0], whole)]


def uses(record: Record, function: str, name: str) -> bool:
    """Whether a function itself uses something called `name`, such as jax.jit."""
    return is_used(name, nodes_of(File(record.source), function))


def reaches(record: Record, function: str, name: str) -> bool:
    """Whether a function, or what it names at the top level, uses something called `name`."""
    tops = reached(File(record.source), function)
    return is_used(name, (node for top in tops for node in ast.walk(top)))


def argument(record: Record, function: str, called: str, index: int) -> list[Culprit]:
    """What makes the argument at `index` of the only call of `called` in a function.

    Where the function has no such call, what it names at the top level is searched.
    Of a name, it is the last statement that gives the name its value; of what else in the file
    makes the value, that is meant. Otherwise it is the call.
    """
    file = File(record.source)
    top = file.doing(function)
    found = first_in(file, function, lambda nodes: calls_among(nodes, called))
    if len(found) != 1:
        return of_definitions(file, [function])
    spread = next((n for n, arg in enumerate(found[0].args) if isinstance(arg, ast.Starred)), index)
    made: list[ast.AST] = []
    match found[0].args[min(index, spread) :]:
        case [ast.Starred(value=value), *_]:
            made = elsewhere(file, value, index - spread)
        case [ast.Name(id=name), *_]:
            made = made_in(top, name) if top else []
        case [value, *_]:
            made = elsewhere(file, value)
    return [file.place(made[-1] if made else found[0])]


def matching(record: Record, function: str, pattern: str) -> list[Culprit]:
    """The only call whose text matches a pattern from its beginning; else nothing.

    It is one in a function, or else in what that names of the file.
    """
    file = File(record.source)

    def matches(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
        calls = (node for node in nodes if isinstance(node, ast.Call))
        return (node for node in calls if re.match(pattern, text_of(node)))

    return only_place(file, first_in(file, function, matches))


def naming(record: Record, function: str, text: str, *names: str) -> list[Culprit]:
    """The calls in a function of one of `names` that get `text`, such as the name of an axis."""
    file = File(record.source)
    found = calls_among(nodes_of(file, function), *names)
    return [
        file.place(node)
        for node in found
        if any(
            isinstance(inner, ast.Constant) and inner.value == text
            for arg in (*node.args, *(keyword.value for keyword in node.keywords))
            for inner in (arg.elts if isinstance(arg, ast.Tuple) else [arg])
        )
    ]


MOVING = ("with_sharding_constraint", "device_put", "reshard")


def apart_from(
    record: Record, function: str, index: int, of: int, names: Iterable[str], *, inner: bool = False
) -> list[Culprit]:
    """The only call in a function of one of `names` that is not about one of its results alone.

    That is the result at `index` of `of`, of the function or of those inside: calls that get
    nothing but its name, and those in its place of the `return`, are left out. If none is left,
    what the function names at the top level is searched. Nothing if several are left, or none.
    """
    file = File(record.source)
    top = file.doing(function)
    functions = [node for node in ast.walk(top) if isinstance(node, Function)] if top else []
    owners = functions[1:] if inner else functions[:1]
    given = [value for one in owners for value in returned_by(one)]
    parts = [part for value in given if (part := part_of(value, index, of))]
    name = {part.id for part in parts if isinstance(part, ast.Name)}
    there = {node for part in parts for node in ast.walk(part)}
    calls = [node for node in calls_among(nodes_of(file, function), *names) if node not in there]
    about = [node for node in calls if not (node.args and names_in(node.args[0]) <= name)]
    return only_place(file, about or calls_among(reached_by(file, function)[1], *names))


def moving(record: Record, function: str, *more: str) -> list[Culprit]:
    """The only call that moves an array, other than the first of two values of an inner `return`.

    Calls of `more` are meant, too. Nothing if there are several, or none.
    """
    return apart_from(record, function, 0, 2, (*MOVING, *more), inner=True)
