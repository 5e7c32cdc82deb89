"""Finds functions that return nothing where the reference's return something.

It compares two texts, the learner's file and the reference solution, and runs neither. What it
finds explains a failure; it never makes one.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from grader.source.file import File
from grader.source.trees import Function, own_nodes, text_of

_VALUES = ast.Subscript | ast.BinOp | ast.Compare | ast.Tuple | ast.List | ast.Dict | ast.Name
_KEEPING = frozenset(("jit", "pmap", "shard_map", "checkpoint", "remat", "wraps"))
"""Decorators of functions that return what the function returns."""


class Missing(NamedTuple):
    """A function without a `return`: its name, where it is, and what it is to return."""

    name: str
    line: int
    last: int
    """Its last line."""
    promise: str
    """What it is to return, `(params, losses)`; "" if that has no name."""
    top: int
    """The line of the definition at the top level that holds it, or that it decorates."""
    decorates: str = ""
    """The edited function in whose place it is called, as it belongs to a decorator of that."""

    @property
    def expected(self) -> str:
        """`train` returns (params, losses)"""
        return f"`{self.name}` returns {self.promise or 'a value'}"

    @property
    def observed(self) -> str:
        """What happens instead."""
        return f"`{self.name}` returned None: no `return` gives a value"


def missing(file: File, model: str, edits: tuple[str, ...]) -> list[Missing]:
    """The functions in the edited definitions whose `return` was forgotten, in their order."""
    promises = {path: _promise(node) for path, node in _functions(File(model).tree) if _gives(node)}
    found = []
    for path, node in _functions(ast.Module(file.in_place(File(model).names), [])):
        known = path in promises or (len(path) > 1 and _drops(node))
        if path[0] not in edits or not known or not _forgets(node):
            continue
        last, top = node.end_lineno or node.lineno, file.defined(path[0])
        if top is None or top.lineno <= node.lineno <= (top.end_lineno or top.lineno):
            line = top.lineno if top else node.lineno
            found.append(Missing(node.name, node.lineno, last, promises.get(path, ""), line))
    wanted = {name: promises[(name,)] for name in edits if (name,) in promises}
    return [*found, *_in_decorators(file, wanted)]


def _in_decorators(file: File, wanted: dict[str, str]) -> Iterator[Missing]:
    """What forgets its `return` in the file's own decorators: they, or what calls their function.

    `wanted` says what the decorated functions are to return.
    """
    for name, promise in wanted.items():
        if not isinstance(top := file.defined(name), Function):
            continue
        for decorator in top.decorator_list:
            if not isinstance(own := file.defined(_called(decorator)), Function):
                continue
            inside = [node for _, node in _functions(own)]
            given = {arg.arg for node in (own, *inside) for arg in node.args.args}
            for node in (own, *(node for node in inside if given & _called_in(node))):
                if _forgets(node):
                    last = node.end_lineno or node.lineno
                    yield Missing(node.name, node.lineno, last, promise, top.lineno, name)


def _called_in(function: Function) -> set[str]:
    """The names that a function itself calls."""
    calls = (node for node in own_nodes(function.body) if isinstance(node, ast.Call))
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def _functions(
    tree: ast.AST, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Function]]:
    """Every function with its name and those of the definitions around it."""
    for node in ast.iter_child_nodes(tree):
        inner = path
        if isinstance(node, Function | ast.ClassDef):
            inner = (*path, node.name)
        if isinstance(node, Function):
            yield inner, node
        yield from _functions(node, inner)


def _gives(function: Function) -> bool:
    """Whether each `return` of a function gives a value, and there is one."""
    given = [node.value for node in own_nodes(function.body) if isinstance(node, ast.Return)]
    return bool(given) and not any(value is None or _is_none(value) for value in given)


def _promise(function: Function) -> str:
    """What the last `return` of a function gives, if that is named; else ""."""
    values = [n.value for n in own_nodes(function.body) if isinstance(n, ast.Return) and n.value]
    if not values:
        return ""
    last = values[-1]
    simple = isinstance(last, ast.Name) or (
        isinstance(last, ast.Tuple) and all(isinstance(e, ast.Name) for e in last.elts)
    )
    if simple:
        return text_of(last) if isinstance(last, ast.Tuple) else f"`{text_of(last)}`"
    if isinstance(last, ast.Tuple):
        return f"{len(last.elts)} values"
    return ""


def _drops(function: Function) -> bool:
    """Whether the last line of a function is a value that goes nowhere."""
    last = function.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, _VALUES)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _forgets(function: Function) -> bool:
    """Whether a function ends without a value, whatever happens."""
    if not all(_called(decorator) in _KEEPING for decorator in function.decorator_list):
        return False  # a decorator may return something else
    nodes = list(own_nodes(function.body))
    if any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Raise) for node in nodes):
        return False
    values = [node.value for node in nodes if isinstance(node, ast.Return)]
    return all(value is None or _is_none(value) for value in values)


def _called(decorator: ast.expr) -> str:
    """The last name of a decorator; of `partial(jax.jit, ...)`, that of its first argument."""
    if isinstance(decorator, ast.Call):
        name = _called(decorator.func)
        return _called(decorator.args[0]) if name == "partial" and decorator.args else name
    return getattr(decorator, "attr", getattr(decorator, "id", ""))
