"""Searches a function of the learner's file, and what it reaches, for nodes.

The other modules of this folder are written in these words. A function's nodes are those of all
statements that make what is called by its name (`File.written`).
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from grader.records.verdict import Culprit
from grader.source.file import File, reached
from grader.source.trees import Function, names_in, own_nodes

FILLED = frozenset(("append", "appendleft", "add", "extend", "insert", "update", "setdefault"))
"""Methods that put something into a list or a dict."""


def nodes_of(file: File, function: str) -> Iterator[ast.AST]:
    """Every node of a definition at the top level, and of what it only calls; decorators too."""
    return (node for top in file.written(function) for node in ast.walk(top))


def reached_by(file: File, function: str) -> tuple[list[ast.AST], list[ast.AST]]:
    """The nodes of a definition, and those of all else that it reaches.

    One with a condition that decides what it reaches, reaches nothing here: which way it goes is
    its own matter.
    """
    own = list(nodes_of(file, function))
    conditions = [node for node in own if isinstance(node, ast.If | ast.IfExp)]
    decides = any(names_in(node) & {*file.names} for node in conditions)
    others = [] if decides else reached(file, function)[1:]
    return own, [node for top in others for node in ast.walk(top)]


def first_in[Kind: ast.AST](
    file: File, function: str, pick: Callable[[list[ast.AST]], Iterable[Kind]]
) -> list[Kind]:
    """What is picked of a definition's nodes, or else of those of what it reaches."""
    parts = (list(pick(nodes)) for nodes in reached_by(file, function))
    return next(filter(None, parts), [])


def only_place(file: File, nodes: Iterable[ast.AST]) -> list[Culprit]:
    """The place of the only one of `nodes`; nothing if there are several, or none."""
    found = list(nodes)
    return [file.place(found[0])] if len(found) == 1 else []


def name_of(function: ast.expr) -> str:
    """The last name of what is called or written, such as "psum" of `jax.lax.psum`; "" if none."""
    return getattr(function, "attr", getattr(function, "id", ""))


def innermost(value: ast.expr) -> str:
    """The variable whose attribute, or part, a value is."""
    while isinstance(value, ast.Attribute | ast.Subscript):
        value = value.value
    return name_of(value)


def calls_among(nodes: Iterable[ast.AST], *names: str) -> Iterator[ast.Call]:
    """The calls among `nodes` of what ends in one of `names`."""
    return (n for n in nodes if isinstance(n, ast.Call) and name_of(n.func) in names)


def gets(call: ast.Call, name: str) -> bool:
    """Whether a call gets `name` as an argument, or all that it gives, in a list as well."""
    lists = (arg for arg in call.args if isinstance(arg, ast.List | ast.Tuple))
    given = [*call.args, *(part for one in lists for part in one.elts)]
    values = (arg.value if isinstance(arg, ast.Starred) else arg for arg in given)
    return any(isinstance(value, ast.Name) and value.id == name for value in values)


def alone(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The expressions among `nodes` that are statements of their own."""
    return (node.value for node in nodes if isinstance(node, ast.Expr))


def is_used(name: str, nodes: Iterable[ast.AST]) -> bool:
    """Whether something called `name` stands among `nodes`."""
    return any(isinstance(n, ast.Attribute | ast.Name) and name_of(n) == name for n in nodes)


def spans(body: Sequence[ast.stmt], line: int) -> bool:
    """Whether a line lies in a block."""
    return body[0].lineno <= line <= (body[-1].end_lineno or 0)


def returned_by(function: Function) -> list[ast.expr]:
    """What the `return` statements of a function give, not those of functions inside it."""
    found = (n for n in own_nodes(function.body) if isinstance(n, ast.Return))
    return [node.value for node in found if node.value is not None]


def part_of(value: ast.expr, index: int | None, of: int) -> ast.expr | None:
    """The value that is meant; None if the `return` is not of that form."""
    if index is None:
        return value
    fits = isinstance(value, ast.Tuple) and len(value.elts) == of
    return value.elts[index] if isinstance(value, ast.Tuple) and fits else None


def given_back(
    file: File, function: str, index: int | None, of: int, *, inner: bool
) -> tuple[Function, ast.expr] | None:
    """The part of a `return` that `result` means, and the function that returns it."""
    top = file.doing(function)
    functions = [node for node in ast.walk(top) if isinstance(node, Function)] if top else []
    given = [
        (owner, part)
        for owner in (functions[1:] if inner else functions[:1])
        for value in returned_by(owner)
        if (part := part_of(value, index, of))
    ]
    if not (given or inner):  # then what is returned is made in one
        whole = ((owner, value) for owner in functions[:1] for value in returned_by(owner))
        given = [(owner, value) for owner, value in whole if not isinstance(value, ast.Tuple)]
    nearest = [(owner, part) for owner, part in given if owner in getattr(top, "body", ())]
    found = nearest if inner and len(nearest) == 1 else given
    return found[0] if len(found) == 1 else None


def made_in(function: Function, name: str) -> list[ast.AST]:
    """The statements in a function that give `name` a value, or put something into it."""
    return [node for node in own_nodes(function.body) if name in given_by(node)]


def given_by(node: ast.AST) -> Iterable[str]:
    """The names to which a statement gives a value."""
    match node:
        case ast.Assign(targets=targets):
            return [name for target in targets for name in _targets(target)]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            return _targets(target)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))):
            return [name] if method in FILLED else []
    return []


def _targets(target: ast.expr) -> list[str]:
    match target:
        case ast.Name(id=name):
            return [name]
        case ast.Subscript(value=inner) | ast.Starred(value=inner):
            return _targets(inner)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [name for part in parts for name in _targets(part)]
    return []


def elsewhere(file: File, value: ast.expr, index: int | None = None) -> list[ast.AST]:
    """What the file's only function of its name returns for a call, or for a property.

    Of several values, the one at `index` is meant. Of an attribute that is no property, it is the
    only value that the file gives it.
    """
    name = name_of(value.func if isinstance(value, ast.Call) else value)
    nodes = list(ast.walk(file.tree))
    owners = [node for node in nodes if isinstance(node, Function) and node.name == name]
    given = [(owner, one) for owner in owners for one in returned_by(owner)]
    if len(given) != 1:
        targets = (node for node in nodes if isinstance(node, ast.Assign))
        held = [node for node in targets if any(map(_is_attribute(name), node.targets))]
        return [held[0].value] if len(held) == 1 and not owners else []
    owner, one = given[0]
    if index is not None and isinstance(one, ast.Tuple) and index < len(one.elts):
        one = one.elts[index]
    return (made_in(owner, one.id) if isinstance(one, ast.Name) else []) or [one]


def _is_attribute(name: str) -> Callable[[ast.expr], bool]:
    return lambda node: isinstance(node, ast.Attribute) and node.attr == name


def entry_of(file: File, function: str, key: str) -> list[Culprit]:
    """The place of `entry`, if there is exactly one in the function, or else in what it names."""
    values = first_in(
        file, function, lambda nodes: (value for node in nodes for value in _entries(node, key))
    )
    if len(values) != 1:
        return []
    value = values[0]
    if isinstance(value, ast.Name):
        around = [
            node
            for node in chain(*reached_by(file, function))
            if isinstance(node, Function) and any(inner is value for inner in ast.walk(node))
        ]
        # The innermost function comes first.
        made = (made_in(node, value.id) for node in reversed(around))
        return [file.place((next(filter(None, made), None) or [value])[-1])]
    return [file.place(value)]


def _entries(node: ast.AST, key: str) -> Iterator[ast.expr]:
    """What a node gives the name `key`: in a dict, as `f(key=...)`, or as `d[key] = ...`."""
    match node:
        case ast.Dict(keys=keys, values=values):
            yield from (value for k, value in zip(keys, values, strict=True) if _is_key(k, key))
        case ast.Call(keywords=keywords):
            yield from (keyword.value for keyword in keywords if keyword.arg == key)
        case ast.Assign(targets=[ast.Subscript(slice=k)], value=value) if _is_key(k, key):
            yield value


def _is_key(node: ast.expr | None, key: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == key
