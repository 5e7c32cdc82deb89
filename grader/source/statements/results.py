"""Finds what a function returns, what gives its names their values, and what decides it."""

import ast
import re
from collections.abc import Iterable
from itertools import chain

from grader.records.record import Record
from grader.records.verdict import Culprit
from grader.source.file import File, reached
from grader.source.places import of_definitions
from grader.source.sole_difference import sole_unlike
from grader.source.statements.calling import MOVING
from grader.source.statements.search import (
    elsewhere,
    entry_of,
    given_back,
    innermost,
    made_in,
    name_of,
    nodes_of,
    only_place,
    reached_by,
    returned_by,
    spans,
)
from grader.source.trees import Function, own_nodes


def unlike(record: Record, function: str) -> list[Culprit]:
    """The only place where the file's own words for a given `function` part from it, or nothing."""
    found = sole_unlike(record.source, function)
    return [File(record.source).place(found)] if found is not None else []


def entry(record: Record, function: str, key: str) -> list[Culprit]:
    """The only expression in a function that a dict, or a call, gets under `key`.

    Of a name, it is the last statement that gives the name its value.
    """
    file = File(record.source)
    return entry_of(file, function, key) or of_definitions(file, [function])


_OF_KEYS = re.compile(r"`([^`]*\['\w+'\])`")
"""A value, in a failure's words, that a dict holds under a name."""


def of_keys(file: File, function: str, text: str) -> list[Culprit]:
    """What a dict gets in a function under the keys that `text` names: "`create(...)['bias']`".

    Of a path of several keys, the innermost counts for which there is one expression only.
    """
    paths = (re.findall(r"\['(\w+)'\]", quoted) for quoted in _OF_KEYS.findall(text))
    found = (
        next(filter(None, (entry_of(file, function, key) for key in reversed(path))), [])
        for path in paths
    )
    return list({place.line: place for places in found for place in places}.values())


def unnamed(record: Record, function: str, keys: Iterable[str]) -> list[str]:
    """Which of `keys` a function does not write, where it writes some of them."""
    nodes = nodes_of(File(record.source), function)
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    left = [key for key in keys if key not in texts]
    return left if len(left) < len(list(keys)) else []


def result(
    record: Record,
    function: str,
    index: int | None = None,
    of: int = 0,
    *,
    inner: bool = False,
    element: int | None = None,
) -> list[Culprit]:
    """The last statement that gives a function's result its value, or its `return`.

    Of a tuple that is spelled out, it is the `element` of that number, if one is asked for. Where
    that maps a function over a tree, it is what the function returns for each leaf. Of a
    result of `of` values, the one at `index` is meant. An `inner` one is that of the only
    function inside which returns so many values, or the only one that is in no other.
    """
    file = File(record.source)
    found = given_back(file, function, index, of, inner=inner)
    if found is None:
        return of_definitions(file, [function])
    owner, value = found
    made: list[ast.AST] = []
    match value:
        case ast.Name(id=name):
            made = made_in(owner, name)
        case ast.Attribute() | ast.Subscript(value=ast.Attribute()):
            made = _asked(owner, innermost(value))
    place = made[-1] if made else value
    given = place.value if isinstance(place, ast.Assign) else place
    if element is not None and isinstance(given, ast.Tuple) and element < len(given.elts):
        place = given = _element(owner, given.elts[element])
    return [file.place(_of_each_leaf(file, owner, given) or place)]


def _element(function: Function, part: ast.expr) -> ast.AST:
    """Where an element of a tuple is made, if it is there by its name, or else itself."""
    part = part.value if isinstance(part, ast.Starred) else part
    made = made_in(function, part.id) if isinstance(part, ast.Name) else []
    return made[-1] if made else part


def _asked(function: Function, name: str) -> list[ast.AST]:
    """The statements in a function that call a method of what is called `name`."""
    found = (node for node in own_nodes(function.body) if isinstance(node, ast.Expr))
    return [
        node
        for node in found
        if isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and name_of(node.value.func.value) == name
    ]


def _of_each_leaf(file: File, owner: Function, value: ast.AST) -> ast.expr | None:
    """What a function with one `return` gives, which a value maps over a tree by its name."""
    match value:
        case ast.Call(func=ast.Attribute(attr="map" | "tree_map"), args=[ast.Name(id=name), _]):
            inner = [n for n in ast.walk(owner) if isinstance(n, Function) and n.name == name]
            mapped = inner[0] if len(inner) == 1 else file.defined(name)
            given = returned_by(mapped) if isinstance(mapped, Function) else []
            return given[0] if len(given) == 1 else None
    return None


def returned(
    record: Record, function: str, index: int | None = None, of: int = 0, *, inner: bool = False
) -> list[Culprit]:
    """What stands for a result in the `return`: as `result`, but a name is not looked up."""
    file = File(record.source)
    found = given_back(file, function, index, of, inner=inner)
    return of_definitions(file, [function]) if found is None else [file.place(found[1])]


_MOVERS = frozenset((*MOVING, "optimization_barrier"))
"""Functions of JAX that return the numbers of their first argument."""


def computed(record: Record, function: str, index: int, of: int) -> list[Culprit]:
    """The last statement that computes an inner result: as `result`, for what is wrong in number.

    Where that only moves a value, it is the statement that makes the value.
    """
    file = File(record.source)
    found = given_back(file, function, index, of, inner=True)
    if found is None:
        return of_definitions(file, [function])
    owner, value = found
    place: ast.AST = value
    for _ in range(_MOST_NAMES):
        match value:
            case ast.Name(id=name) if made := made_in(owner, name):
                place = made[-1]
                value = place.value if isinstance(place, ast.Assign) else ast.Constant(None)
            case ast.Call(args=[ast.Name() as moved, *_]) if _moves(file, function, value):
                value = moved
            case _:
                break
    return [file.place(place)]


def _moves(file: File, function: str, call: ast.Call) -> bool:
    """Whether a call only moves a value: one of JAX's, or of what the file defines for that."""
    name = name_of(call.func)
    nodes = chain(*reached_by(file, function))
    own = [node for node in nodes if isinstance(node, Function) and node.name == name]
    given = [value for node in own for value in returned_by(node)]
    calls = [name_of(value.func) for value in given if isinstance(value, ast.Call)]
    return name in _MOVERS or (len(calls) == len(given) > 0 and _MOVERS.issuperset(calls))


_MOST_NAMES = 8
"""How many names are looked up one after another."""


def assigned(record: Record, function: str, *names: str) -> list[Culprit]:
    """The last statement in a function that gives a name a value: the first of `names` with one.

    Where there is none, it is what the file's only function of such a name returns.
    """
    file = File(record.source)
    top = file.doing(function)
    found = [made_in(top, name) for name in names] if top else []
    found += [elsewhere(file, ast.Name(name)) for name in names]
    for made in filter(None, found):
        return [file.place(made[-1])]
    return of_definitions(file, [function])


WRITERS = ("update", "setdefault", "pop", "popitem", "clear", "fill", "sort", "itemset", "put")
"""Methods that change what they belong to."""


def written_into(record: Record, function: str) -> list[Culprit]:
    """The only line behind a function that writes into a part of something, or its definition.

    Where no line gives a part a new value, one that calls a method of WRITERS may.
    """
    file = File(record.source)
    nodes = [node for top in reached(file, function) for node in ast.walk(top)]
    stored = [n for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and _changes_a_name(node)]
    found = stored or calls
    return [file.place(found[0])] if len(found) == 1 else of_definitions(file, [function])


def _changes_a_name(call: ast.Call) -> bool:
    """Whether a call is of a method of WRITERS of something that has a name."""
    match call.func:
        case ast.Attribute(value=ast.Name(), attr=method):
            return method in WRITERS
    return False


def divided_in_part(record: Record, function: str) -> list[Culprit]:
    """The `a - b / c` that a function returns, where `(a - b) / c` may be meant."""
    file = File(record.source)
    top = file.doing(function)
    for value in returned_by(top) if top else []:
        match value:
            case ast.BinOp(op=ast.Sub(), right=ast.BinOp(op=ast.Div())):
                return [file.place(value)]
    return []


def deciding(record: Record, line: int, other: int) -> list[Culprit]:
    """The conditions of the `if` statements that lead to one of two lines, and not to the other."""
    file = File(record.source)
    found = (node for node in ast.walk(file.tree) if isinstance(node, ast.If))
    ways = [(node, body) for node in found for body in (node.body, node.orelse) if body]
    parted = [node.test for node, body in ways if spans(body, line) != spans(body, other)]
    return [file.place(test) for test in dict.fromkeys(parted)]


def choice(record: Record, function: str) -> list[Culprit]:
    """The condition of the only `if` in a function, or else the line that defines it."""
    file = File(record.source)
    tests = (node.test for node in nodes_of(file, function) if isinstance(node, ast.If | ast.IfExp))
    return only_place(file, tests) or of_definitions(file, [function])


def choosing(record: Record, function: str, index: int, of: int) -> list[Culprit]:
    """The condition that decides whether a statement gives a result its last value.

    It is that of the innermost `if` around the statement. Where there is none, it is the statement.
    """
    file, place = File(record.source), result(record, function, index, of)
    tests = [
        node.test
        for node in nodes_of(file, function)
        if isinstance(node, ast.If) and any(spans(node.body, one.line) for one in place)
    ]
    return [file.place(tests[-1])] if tests else place
