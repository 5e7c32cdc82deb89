"""Finds slips of the pen that a text shows by itself.

They are a result that is dropped, a value that a loop does not carry on, a `return` that ends a
loop in its first round, and a parameter that is used nowhere.

It compares two texts, the learner's file and the reference solution, and runs neither. What it
finds explains a failure that has no line of its own; it never makes one. A forgotten `return` is in
`grader.judging.returns`.
"""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grader.judging.places import File
from grader.judging.verdict import Culprit

_NEW_VALUES = (
    "device_put",
    "apply_updates",
    "with_sharding_constraint",
    "reshard",
    "astype",
    "random.split",
)
"""How calls end that change nothing and return a new value."""
_AT = frozenset(("add", "divide", "max", "min", "multiply", "power", "set"))


class Slip(NamedTuple):
    """A slip: where it is, what it is, and the edited function that holds it."""

    place: Culprit
    words: str
    function: str
    about: str = ""
    """The parameter that it is about: it explains only what has to do with that."""


def slips(file: File, model: str, edits: Sequence[str]) -> Iterator[Slip]:
    """The slips in the edited functions, the most telling ones first."""
    right = {node.name: node for node in File(model).tree.body if isinstance(node, ast.FunctionDef)}
    mine = [
        (node, right[node.name])
        for node in file.tree.body
        if isinstance(node, ast.FunctionDef) and node.name in edits and node.name in right
    ]
    for find in (_dropped, _not_fed_back, _ends_its_loop, _unused):
        for node, reference in mine:
            for place, words in find(node, reference):
                text = file.lines[place.lineno - 1]
                column = len(text.encode()[: place.col_offset].decode("utf-8", "ignore")) + 1
                end = place.end_col_offset if place.end_lineno == place.lineno else None
                last = column + (end - place.col_offset) if end else len(text) + 1
                at = Culprit(place.lineno, text.strip(), 1, column, last)
                about = place.arg if isinstance(place, ast.arg) else ""
                yield Slip(at, words, node.name, about)


_Found = Iterator[tuple[ast.expr | ast.stmt | ast.arg, str]]


def _dropped(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Calls whose result is the point of them, as statements of their own."""
    given = {arg.arg for arg in right.args.args} - set(_called_for_effect(right))
    for node in ast.walk(mine):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = ast.unparse(node.value.func)
            is_at = name.rpartition(".")[2] in _AT and ".at[" in name
            if is_at or name in given or f".{name}".endswith(tuple(f".{n}" for n in _NEW_VALUES)):
                shown = name if len(name) <= MAX_NAME else f"...{name.rpartition('.')[2]}"
                yield node.value, f"what `{shown}` returns on this line is dropped"


MAX_NAME = 40
"""The longest name of a called function that is repeated."""


def _called_for_effect(function: ast.FunctionDef) -> Iterator[str]:
    """What a function calls in a statement of its own, or only to decide where to go on."""
    for node in ast.walk(function):
        match node:
            case ast.Expr(value=ast.Call(func=called)):
                yield ast.unparse(called)
            case ast.If(test=ast.Call(func=called)) | ast.While(test=ast.Call(func=called)):
                yield ast.unparse(called)


def _not_fed_back(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Calls that get the same value in each round, where the reference's get a new one."""
    fed = {(name, arg.id) for loop, name, arg in _given_in_loops(right) if arg.id in _bound(loop)}
    for loop, name, arg in _given_in_loops(mine):
        if (name, arg.id) in fed and arg.id not in _bound(loop):
            yield (
                arg,
                f"`{arg.id}` is the same in each round of this loop, which does not assign it",
            )


def _given_in_loops(function: ast.FunctionDef) -> Iterator[tuple[ast.For, str, ast.Name]]:
    """Names that a loop passes to a parameter of the function that is called, with both."""
    given = {arg.arg for arg in function.args.args}
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [arg for arg in node.args if isinstance(arg, ast.Name)]
                yield from ((loop, node.func.id, arg) for arg in names if node.func.id in given)


def _bound(loop: ast.For) -> set[str]:
    names = (node for node in ast.walk(loop) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _ends_its_loop(mine: ast.FunctionDef, _: ast.FunctionDef) -> _Found:
    """A `return` that stands last in a loop, and that nothing in the loop passes by."""
    for node in ast.walk(mine):
        if not isinstance(node, ast.For) or not isinstance(node.body[-1], ast.Return):
            continue
        if not any(isinstance(inner, ast.Continue) for inner in ast.walk(node)):
            yield node.body[-1], "this `return` is inside the loop: it ends it in its first round"


def _unused(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Parameters that the reference uses, and this function does not."""
    if any(isinstance(node, ast.Name) and node.id == "locals" for node in ast.walk(mine)):
        return
    for arg in (*mine.args.posonlyargs, *mine.args.args, *mine.args.kwonlyargs):
        if arg.arg in _read(right) and arg.arg not in _read(mine):
            yield arg, f"`{mine.name}` does not use `{arg.arg}`"


def _read(function: ast.FunctionDef) -> set[str]:
    """The names that are read anywhere in a function."""
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Load)}
