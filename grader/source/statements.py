"""Finds, inside a function of the learner's file, what makes the value that a failure is about.

A check knows the function, and what is wrong with what it made: a call that should do something
else, the entry of a dict, a result. Where exactly one expression can be meant, that is the place;
else it is the line that defines the function. No verdict is reached here.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from grader.records.record import Leaf, Record
from grader.records.verdict import Culprit
from grader.source.places import (
    File,
    Function,
    names_in,
    of_definitions,
    own_nodes,
    reached,
)
from grader.source.sole_difference import sole_unlike

_FILLED = frozenset(("append", "appendleft", "add", "extend", "insert", "update", "setdefault"))
"""Methods that put something into a list or a dict."""
_EMPTIED = frozenset(("clear", "pop", "popitem", "popleft", "remove"))
"""Methods that take something out again."""
_PROMISED = re.compile(r"`(\w+)` returns ")
_OF_KEYS = re.compile(r"`([^`]*\['\w+'\])`")
"""A value, in a failure's words, that a dict holds under a name."""
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
_SENDS = {
    "all-gather": ("all_gather",),
    "all-to-all": ("all_to_all",),
    "collective-permute": ("ppermute",),
    "reduce-scatter": ("psum_scatter",),
    "all-reduce": ("psum", "pmean", "pmax", "pmin"),
}
"""The functions of jax.lax that become each collective of a program."""


def call(record: Record, function: str, *names: str) -> list[Culprit]:
    """The only call in a function of one of `names`; the first name with just one call counts.

    Of `np.pad` and a `pad` of the learner's own, `np.pad` is meant. Where the function has no such
    call, what it names at the top level is searched.
    """
    file = File(record.source)
    for nodes in _reached(file, function):
        for name in names:
            found = list(_calls(nodes, name))
            dotted = [node for node in found if isinstance(node.func, ast.Attribute)]
            if len(found := dotted if len(dotted) == 1 else found) == 1:
                return [file.place(found[0])]
    return of_definitions(file, [function])


def sending(record: Record, function: str, op: str) -> list[Culprit]:
    """The only call in a function that becomes a collective `op`, "all-gather"; else nothing."""
    file = File(record.source)
    return _only(file, _sending(file, function, op))


def every_sending(record: Record, function: str, op: str) -> list[Culprit]:
    """The calls in a function that become a collective `op`."""
    file = File(record.source)
    return [file.place(node) for node in _sending(file, function, op)]


def _sending(file: File, function: str, op: str) -> list[ast.Call]:
    return _first(file, function, lambda nodes: _calls(nodes, *_SENDS.get(op, ())))


def every(record: Record, function: str, name: str) -> list[Culprit]:
    """Every call of `name` in a function, or else in what it names of the file.

    If there is none, it is every call in the function that hands `name` on: `map(name, items)`.
    """
    file = File(record.source)
    found = _first(file, function, lambda nodes: _calls(nodes, name))
    if not found:
        calls = (node for node in _nodes(file, function) if isinstance(node, ast.Call))
        found = [node for node in calls if _gets(node, name)]
    places = sorted(map(file.place, found), key=lambda place: place.line)
    return places or of_definitions(file, [function])


def reading(record: Record, function: str, attribute: str) -> list[Culprit]:
    """The only place in a function, or else in what it names, that reads `x.attribute`; or none."""
    file = File(record.source)

    def reads(nodes: Iterable[ast.AST]) -> Iterator[ast.Attribute]:
        return (n for n in nodes if isinstance(n, ast.Attribute) and n.attr == attribute)

    return _only(file, _first(file, function, reads))


def with_one_argument(record: Record, function: str, name: str) -> list[Culprit]:
    """The calls of `name` in a function that give it one argument, and so name no device."""
    file = File(record.source)
    found = _calls(_nodes(file, function), name)
    return [file.place(node) for node in found if len(node.args) == 1 and not node.keywords]


def dropped(record: Record, function: str, name: str) -> list[Culprit]:
    """The calls of `name` in a function that are statements of their own."""
    file = File(record.source)
    return [file.place(node) for node in _calls(_alone(_nodes(file, function)), name)]


def dropped_at_top(record: Record, argument: str, *names: str) -> list[Culprit]:
    """The calls of one of `names` with `argument` that are statements at the top level."""
    file = File(record.source)
    found = _calls(_alone(file.tree.body), *names)
    return [file.place(node) for node in found if _gets(node, argument)]


def deciding(record: Record, line: int, other: int) -> list[Culprit]:
    """The conditions of the `if` statements that lead to one of two lines, and not to the other."""
    file = File(record.source)
    found = (node for node in ast.walk(file.tree) if isinstance(node, ast.If))
    ways = [(node, body) for node in found for body in (node.body, node.orelse) if body]
    parted = [node.test for node, body in ways if _spans(body, line) != _spans(body, other)]
    return [file.place(test) for test in dict.fromkeys(parted)]


def _spans(body: Sequence[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or 0)


_TAKERS = frozenset(("list", "tuple", "islice", "batched", "device_put"))
"""Functions that take several items of an iterator at once."""


def taken(record: Record, function: str, iterator: str) -> list[Culprit]:
    """Where a function takes several items of `iterator` at once, or the line that defines it."""
    file = File(record.source)
    nodes = list(_nodes(file, function))
    calls = [file.place(node) for node in _calls(nodes, *_TAKERS) if _gets(node, iterator)]
    lists = [
        file.place(node)
        for node in nodes
        if isinstance(node, ast.ListComp) and ast.unparse(node.generators[0].iter) == iterator
    ]
    return calls or lists[:1] or of_definitions(file, [function])


def _only(file: File, nodes: Iterable[ast.AST]) -> list[Culprit]:
    """The place of the only one of `nodes`; nothing if there are several, or none."""
    found = list(nodes)
    return [file.place(found[0])] if len(found) == 1 else []


def _calls(nodes: Iterable[ast.AST], *names: str) -> Iterator[ast.Call]:
    """The calls among `nodes` of what ends in one of `names`."""
    return (n for n in nodes if isinstance(n, ast.Call) and _name(n.func) in names)


def _alone(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The expressions among `nodes` that are statements of their own."""
    return (node.value for node in nodes if isinstance(node, ast.Expr))


def _gets(call: ast.Call, name: str) -> bool:
    """Whether a call gets `name` as an argument, or all that it gives, in a list as well."""
    lists = (arg for arg in call.args if isinstance(arg, ast.List | ast.Tuple))
    given = [*call.args, *(part for one in lists for part in one.elts)]
    values = (arg.value if isinstance(arg, ast.Starred) else arg for arg in given)
    return any(isinstance(value, ast.Name) and value.id == name for value in values)


def remainder(record: Record, function: str) -> list[Culprit]:
    """The only `%` in a function, or else its only `//`."""
    file = File(record.source)
    found = _operation(file, function, ast.Mod) or _operation(file, function, ast.FloorDiv)
    return found or of_definitions(file, [function])


def division(record: Record, function: str) -> list[Culprit]:
    """The only `/` in a function, or in what it names; else nothing."""
    return _operation(File(record.source), function, ast.Div)


def times(record: Record, function: str, name: str) -> list[Culprit]:
    """The only product in a function with what is called `name`, or a part of it; else nothing."""
    file = File(record.source)
    held = (node for node in _nodes(file, function) if isinstance(node, ast.BinOp))
    products = (node for node in held if isinstance(node.op, ast.Mult))
    return _only(file, (n for n in products if name in map(_innermost, (n.left, n.right))))


def _operation(file: File, function: str, kind: type[ast.operator]) -> list[Culprit]:
    for nodes in _reached(file, function):
        held = (node for node in nodes if isinstance(node, ast.BinOp | ast.AugAssign))
        if place := _only(file, (node for node in held if isinstance(node.op, kind))):
            return place
    return []


_REDUCTIONS = ("all", "any", "max", "min", "sorted", "sum")


def taking_apart(record: Record, functions: Iterable[str]) -> list[Culprit]:
    """The calls, in functions, of Python's own `max`, `sum` and the like for one value."""
    file = File(record.source)
    nodes = (node for name in functions for node in _nodes(file, name))
    found = (node for node in _calls(nodes, *_REDUCTIONS) if isinstance(node.func, ast.Name))
    whole = ast.Name | ast.Attribute | ast.Subscript | ast.Call
    return [file.place(n) for n in found if len(n.args) == 1 and isinstance(n.args[0], whole)]


def calls(record: Record, function: str, name: str) -> bool:
    """Whether a function uses something called `name`, such as jax.jit."""
    return _is_used(name, _nodes(File(record.source), function))


def uses(record: Record, function: str, name: str) -> bool:
    """Whether a function, or what it names at the top level, uses something called `name`."""
    tops = reached(File(record.source), function)
    return _is_used(name, (node for top in tops for node in ast.walk(top)))


def _is_used(name: str, nodes: Iterable[ast.AST]) -> bool:
    return any(isinstance(n, ast.Attribute | ast.Name) and _name(n) == name for n in nodes)


def argument(record: Record, function: str, called: str, index: int) -> list[Culprit]:
    """What makes the argument at `index` of the only call of `called` in a function.

    Where the function has no such call, what it names at the top level is searched.
    Of a name, it is the last statement that gives the name its value; of what else in the file
    makes the value, that is meant. Otherwise it is the call.
    """
    file = File(record.source)
    top = file.doing(function)
    found = _first(file, function, lambda nodes: _calls(nodes, called))
    if len(found) != 1:
        return of_definitions(file, [function])
    spread = next((n for n, arg in enumerate(found[0].args) if isinstance(arg, ast.Starred)), index)
    made: list[ast.AST] = []
    match found[0].args[min(index, spread) :]:
        case [ast.Starred(value=value), *_]:
            made = _elsewhere(file, value, index - spread)
        case [ast.Name(id=name), *_]:
            made = _made(top, name) if top else []
        case [value, *_]:
            made = _elsewhere(file, value)
    return [file.place(made[-1] if made else found[0])]


def _elsewhere(file: File, value: ast.expr, index: int | None = None) -> list[ast.AST]:
    """What the file's only function of its name returns for a call, or for a property.

    Of several values, the one at `index` is meant. Of an attribute that is no property, it is the
    only value that the file gives it.
    """
    name = _name(value.func if isinstance(value, ast.Call) else value)
    nodes = list(ast.walk(file.tree))
    owners = [node for node in nodes if isinstance(node, Function) and node.name == name]
    given = [(owner, one) for owner in owners for one in _returned(owner)]
    if len(given) != 1:
        targets = (node for node in nodes if isinstance(node, ast.Assign))
        held = [node for node in targets if any(map(_is_attribute(name), node.targets))]
        return [held[0].value] if len(held) == 1 and not owners else []
    owner, one = given[0]
    if index is not None and isinstance(one, ast.Tuple) and index < len(one.elts):
        one = one.elts[index]
    return (_made(owner, one.id) if isinstance(one, ast.Name) else []) or [one]


def _is_attribute(name: str) -> Callable[[ast.expr], bool]:
    return lambda node: isinstance(node, ast.Attribute) and node.attr == name


def unlike(record: Record, function: str) -> list[Culprit]:
    """The only place where the file's own words for a given `function` part from it, or nothing."""
    found = sole_unlike(record.source, function)
    return [File(record.source).place(found)] if found is not None else []


def entry(record: Record, function: str, key: str) -> list[Culprit]:
    """The only expression in a function that a dict, or a call, gets under `key`.

    Of a name, it is the last statement that gives the name its value.
    """
    file = File(record.source)
    return _entry(file, function, key) or of_definitions(file, [function])


def of_keys(file: File, function: str, text: str) -> list[Culprit]:
    """What a dict gets in a function under the keys that `text` names: "`create(...)['bias']`".

    Of a path of several keys, the innermost counts for which there is one expression only.
    """
    paths = (re.findall(r"\['(\w+)'\]", quoted) for quoted in _OF_KEYS.findall(text))
    found = (
        next(filter(None, (_entry(file, function, key) for key in reversed(path))), [])
        for path in paths
    )
    return list({place.line: place for places in found for place in places}.values())


def unnamed(record: Record, function: str, keys: Iterable[str]) -> list[str]:
    """Which of `keys` a function does not write, where it writes some of them."""
    nodes = _nodes(File(record.source), function)
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    left = [key for key in keys if key not in texts]
    return left if len(left) < len(list(keys)) else []


def _entry(file: File, function: str, key: str) -> list[Culprit]:
    """The place of `entry`, if there is exactly one in the function, or else in what it names."""
    values = _first(
        file, function, lambda nodes: (value for node in nodes for value in _entries(node, key))
    )
    if len(values) != 1:
        return []
    value = values[0]
    if isinstance(value, ast.Name):
        around = [
            node
            for node in chain(*_reached(file, function))
            if isinstance(node, Function) and any(inner is value for inner in ast.walk(node))
        ]
        made = (_made(node, value.id) for node in reversed(around))  # the innermost function first
        return [file.place((next(filter(None, made), None) or [value])[-1])]
    return [file.place(value)]


def result(
    record: Record, function: str, index: int | None = None, of: int = 0, *, inner: bool = False
) -> list[Culprit]:
    """The last statement that gives a function's result its value, or its `return`.

    Where that maps a function over a tree, it is what the function returns for each leaf. Of a
    result of `of` values, the one at `index` is meant. An `inner` one is that of the only
    function inside which returns so many values, or the only one that is in no other.
    """
    file = File(record.source)
    found = _given_back(file, function, index, of, inner=inner)
    if found is None:
        return of_definitions(file, [function])
    owner, value = found
    made: list[ast.AST] = []
    match value:
        case ast.Name(id=name):
            made = _made(owner, name)
        case ast.Attribute() | ast.Subscript(value=ast.Attribute()):
            made = _asked(owner, _innermost(value))
    place = made[-1] if made else value
    given = place.value if isinstance(place, ast.Assign) else place
    return [file.place(_of_each_leaf(file, owner, given) or place)]


def _innermost(value: ast.expr) -> str:
    """The variable whose attribute, or part, a value is."""
    while isinstance(value, ast.Attribute | ast.Subscript):
        value = value.value
    return _name(value)


def _asked(function: Function, name: str) -> list[ast.AST]:
    """The statements in a function that call a method of what is called `name`."""
    found = (node for node in own_nodes(function) if isinstance(node, ast.Expr))
    return [
        node
        for node in found
        if isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and _name(node.value.func.value) == name
    ]


def _of_each_leaf(file: File, owner: Function, value: ast.AST) -> ast.expr | None:
    """What a function with one `return` gives, which a value maps over a tree by its name."""
    match value:
        case ast.Call(func=ast.Attribute(attr="map" | "tree_map"), args=[ast.Name(id=name), _]):
            inner = [n for n in ast.walk(owner) if isinstance(n, Function) and n.name == name]
            mapped = inner[0] if len(inner) == 1 else file.defined(name)
            given = _returned(mapped) if isinstance(mapped, Function) else []
            return given[0] if len(given) == 1 else None
    return None


def returned(
    record: Record, function: str, index: int | None = None, of: int = 0, *, inner: bool = False
) -> list[Culprit]:
    """What stands for a result in the `return`: as `result`, but a name is not looked up."""
    file = File(record.source)
    found = _given_back(file, function, index, of, inner=inner)
    return of_definitions(file, [function]) if found is None else [file.place(found[1])]


def left_whole(record: Record, function: str, key: str) -> list[Culprit]:
    """Where a function gives an array a PartitionSpec that splits nothing, by its name `key`.

    That is the entry of that name, or the only empty spec. Of several, the only one that does not
    hang on a condition.
    """
    file = File(record.source)
    if found := _entry(file, function, key):
        return found
    parts = _reached(file, function)
    nodes = next((part for part in parts if any(_calls(part, *_SPECS))), parts[0])
    empty = [node for node in _calls(nodes, *_SPECS) if not (node.args or node.keywords)]
    if len(empty) > 1:
        hang = {
            inner
            for node in nodes
            if isinstance(node, ast.If | ast.IfExp)
            for inner in ast.walk(node)
        }
        empty = [node for node in empty if node not in hang]
    if len(empty) != 1:
        return of_definitions(file, [function])
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if empty[0] in ast.walk(
                value
            ):
                uses = [one for one in nodes if _gives_name(one, name)]
                return [file.place(uses[0] if len(uses) == 1 else node)]
    around = [node for node in _calls(nodes, "NamedSharding") if empty[0] in ast.walk(node)]
    return [file.place((around or empty)[0])]


_SPECS = ("P", "PartitionSpec")


def laid(record: Record, function: str, leaf: Leaf) -> list[Culprit]:
    """Where a function says how an array lies: what it gives the array's name; else nothing.

    Where it goes by no names, or by others than the array's, that is the only PartitionSpec, in it
    or in what it reaches, which prints as the array's; or which splits as that does, or does not.
    """
    file = File(record.source)
    arguments = (leaf.spec or "P()").removeprefix("P").replace(",)", ")")
    every = [list(_calls(nodes, *_SPECS)) for nodes in _reached(file, function)]
    plain = (node for node in chain(*every) if _is_plain(node))
    others = [file.place(node) for node in plain if _arguments(node) != arguments]
    named = _entry(file, function, leaf.path.rpartition("['")[2].removesuffix("']"))
    if named and named[0] not in others:
        return named
    alike = [[node for node in specs if _arguments(node) == arguments] for specs in every]
    split = [[node for node in specs if bool(node.args) == (arguments != "()")] for specs in every]
    return next(filter(None, (_only(file, found) for found in (*alike, *split))), [])


def _is_plain(spec: ast.Call) -> bool:
    """Whether a spec spells out what it gets."""
    return all(isinstance(arg, ast.Constant) for arg in spec.args)


def _arguments(spec: ast.Call) -> str:
    """What a spec gets, as the spec itself prints it."""
    return f"({', '.join(map(ast.unparse, spec.args))})"


def _gives_name(node: ast.AST, name: str) -> bool:
    """Whether a node returns a name, and nothing else."""
    return (
        isinstance(node, ast.Return) and isinstance(node.value, ast.Name) and node.value.id == name
    )


def matching(record: Record, function: str, pattern: str) -> list[Culprit]:
    """The only call whose text matches a pattern from its beginning; else nothing.

    It is one in a function, or else in what that names of the file.
    """
    file = File(record.source)

    def matches(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
        calls = (node for node in nodes if isinstance(node, ast.Call))
        return (node for node in calls if re.match(pattern, ast.unparse(node)))

    return _only(file, _first(file, function, matches))


def of_spec(record: Record, functions: Sequence[str], promise: str, message: str) -> list[Culprit]:
    """The only spec with arguments in the function that `promise` names, where that is at fault.

    A drive says so with a message that begins with the spec.
    """
    named = re.match(r"`(\w+)`", promise)
    if not named or named[1] not in functions or not message.startswith("P("):
        return []
    file = File(record.source)
    return _only(file, (node for node in _calls(_nodes(file, named[1]), *_SPECS) if node.args))


_MOVING = ("with_sharding_constraint", "device_put", "reshard")
_MOVERS = frozenset((*_MOVING, "optimization_barrier"))
"""Functions of JAX that return the numbers of their first argument."""


def computed(record: Record, function: str, index: int, of: int) -> list[Culprit]:
    """The last statement that computes an inner result: as `result`, for what is wrong in number.

    Where that only moves a value, it is the statement that makes the value.
    """
    file = File(record.source)
    found = _given_back(file, function, index, of, inner=True)
    if found is None:
        return of_definitions(file, [function])
    owner, value = found
    place: ast.AST = value
    for _ in range(_MOST_NAMES):
        match value:
            case ast.Name(id=name) if made := _made(owner, name):
                place = made[-1]
                value = place.value if isinstance(place, ast.Assign) else ast.Constant(None)
            case ast.Call(args=[ast.Name() as moved, *_]) if _moves(file, function, value):
                value = moved
            case _:
                break
    return [file.place(place)]


def _moves(file: File, function: str, call: ast.Call) -> bool:
    """Whether a call only moves a value: one of JAX's, or of what the file defines for that."""
    name = _name(call.func)
    nodes = chain(*_reached(file, function))
    own = [node for node in nodes if isinstance(node, Function) and node.name == name]
    given = [value for node in own for value in _returned(node)]
    calls = [_name(value.func) for value in given if isinstance(value, ast.Call)]
    return name in _MOVERS or (len(calls) == len(given) > 0 and _MOVERS.issuperset(calls))


_MOST_NAMES = 8
"""How many names are looked up one after another."""


def naming(record: Record, function: str, text: str, *names: str) -> list[Culprit]:
    """The calls in a function of one of `names` that get `text`, such as the name of an axis."""
    file = File(record.source)
    found = _calls(_nodes(file, function), *names)
    return [
        file.place(node)
        for node in found
        if any(
            isinstance(inner, ast.Constant) and inner.value == text
            for arg in (*node.args, *(keyword.value for keyword in node.keywords))
            for inner in (arg.elts if isinstance(arg, ast.Tuple) else [arg])
        )
    ]


def _given_back(
    file: File, function: str, index: int | None, of: int, *, inner: bool
) -> tuple[Function, ast.expr] | None:
    """The part of a `return` that `result` means, and the function that returns it."""
    top = file.doing(function)
    functions = [node for node in ast.walk(top) if isinstance(node, Function)] if top else []
    given = [
        (owner, part)
        for owner in (functions[1:] if inner else functions[:1])
        for value in _returned(owner)
        if (part := _part(value, index, of))
    ]
    if not (given or inner):  # then what is returned is made in one
        whole = ((owner, value) for owner in functions[:1] for value in _returned(owner))
        given = [(owner, value) for owner, value in whole if not isinstance(value, ast.Tuple)]
    nearest = [(owner, part) for owner, part in given if owner in getattr(top, "body", ())]
    found = nearest if inner and len(nearest) == 1 else given
    return found[0] if len(found) == 1 else None


_STARTS = {"scan": 1, "fori_loop": 3, "while_loop": 2}
"""Which argument of a loop it starts with."""


def start(record: Record, function: str) -> list[Culprit]:
    """What the only loop of jax.lax in a function starts with; of a name, what makes it."""
    file = File(record.source)
    nodes = list(_nodes(file, function))
    found = [
        (loop, loop.args[_STARTS[_name(loop.func)]])
        for loop in _calls(nodes, *_STARTS)
        if len(loop.args) > _STARTS[_name(loop.func)]
    ]
    if len(found) != 1:
        return of_definitions(file, [function])
    loop, value = found[0]
    holders = [node for node in nodes if isinstance(node, Function) and loop in ast.walk(node)]
    made = _made(holders[-1], value.id) if isinstance(value, ast.Name) and holders else []
    return [file.place(made[0] if len(made) == 1 else value)]


_ROUNDS = {"scan": 0, "fori_loop": 2, "while_loop": 1}
"""Which argument of a loop is the function that makes a round of it."""


def each_round(record: Record, function: str) -> list[Culprit]:
    """What the function returns that the only loop of jax.lax calls in each round; else nothing."""
    return _given_to_call(File(record.source), function, _ROUNDS)


def condition(record: Record, function: str) -> list[Culprit]:
    """What the condition of the only jax.lax.while_loop in a function returns; else nothing."""
    return _given_to_call(File(record.source), function, {"while_loop": 0})


def differentiated(record: Record, function: str) -> list[Culprit]:
    """What the function returns that the only jax.value_and_grad or jax.grad gets; else nothing."""
    return _given_to_call(File(record.source), function, {"value_and_grad": 0, "grad": 0})


def callback(record: Record, function: str) -> list[Culprit]:
    """What the callback returns that the only make_array_from_callback gets; else nothing."""
    return _given_to_call(File(record.source), function, {"make_array_from_callback": 2})


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
            found += _only(file, _calls(_nodes(file, function), "device_put"))
    return found


def of_zero(record: Record, functions: Iterable[str], message: str) -> list[Culprit]:
    """The only division in functions that rounds down, if `message` says that a divisor is 0."""
    if not message.startswith("ZeroDivisionError"):
        return []
    file = File(record.source)
    nodes = [node for function in functions for node in _nodes(file, function)]
    down = (n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv))
    return _only(file, [*down, *_calls(nodes, "divmod")])


def _given_to_call(file: File, function: str, places: Mapping[str, int]) -> list[Culprit]:
    """What a function of the file returns that the only call of one of `places` gets there.

    That is one by its name, a method, an object that can be called, or a lambda. Where it returns
    nothing, it is the function.
    """
    loops = _first(file, function, lambda nodes: _calls(nodes, *places))
    if len(loops) != 1:
        return []
    place = places[_name(loops[0].func)]
    named = [keyword.value for keyword in loops[0].keywords if keyword.arg == "data_callback"]
    given = [*loops[0].args[place : place + 1], *named]
    match given:
        case [ast.Call(func=called, args=[first, *_])] if _name(called) == "partial":
            given = [first]
    match given:
        case [ast.Lambda(body=value)]:
            return [file.place(value)]
        case [ast.Name() | ast.Attribute() | ast.Call() as taken]:
            every = [node for node in ast.walk(file.tree) if isinstance(node, Function)]
            name = _name(taken)
            if isinstance(taken, ast.Call):  # of a class, or of a function that returns one
                made = _elsewhere(file, taken)
                name = _name(made[-1]) if made and isinstance(made[-1], ast.Name) else "__call__"
            owners = [node for node in every if node.name == name]
            values = [value for owner in owners for value in _returned(owner)]
            return _only(file, values or owners)
    return []


def of_gradients(record: Record, function: str) -> list[Culprit]:
    """Where a function adds up the gradients of the parts of a batch, or takes them.

    That is the first thing returned by the function inside that takes them, where a loop calls
    it; or what a loop of that function returns each round; or the only other call of that
    function; or the call that takes the gradients.
    """
    file = File(record.source)
    nodes = list(_nodes(file, function))
    taking = list(_calls(nodes, "value_and_grad", "grad"))
    if len(taking) != 1:
        return of_definitions(file, [function])
    top = file.doing(function)
    inside = (n for n in nodes if isinstance(n, Function) and n is not top)
    owners = [n for n in inside if taking[0] in ast.walk(n)]
    if not owners:
        return [file.place(taking[0])]
    owner = owners[-1]
    if loops := list(_calls(nodes, *_ROUNDS)):
        around = any(node in loops for node in ast.walk(owner))
        if around and (made := each_round(record, function)):
            return made
        given = [_part(value, 0, 2) or value for value in _returned(owner)]
        return [file.place(given[0] if len(given) == 1 else taking[0])]
    calls = list(_calls(nodes, owner.name))
    return [file.place(calls[0] if len(calls) == 1 else taking[0])]


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
    given = [value for one in owners for value in _returned(one)]
    parts = [part for value in given if (part := _part(value, index, of))]
    name = {part.id for part in parts if isinstance(part, ast.Name)}
    there = {node for part in parts for node in ast.walk(part)}
    calls = [node for node in _calls(_nodes(file, function), *names) if node not in there]
    about = [node for node in calls if not (node.args and names_in(node.args[0]) <= name)]
    return _only(file, about or _calls(_reached(file, function)[1], *names))


def moving(record: Record, function: str, *more: str) -> list[Culprit]:
    """The only call that moves an array, other than the first of two values of an inner `return`.

    Calls of `more` are meant, too. Nothing if there are several, or none.
    """
    return apart_from(record, function, 0, 2, (*_MOVING, *more), inner=True)


def _names_indexed(node: ast.AST) -> set[str]:
    """The names of which a `return` gives only a part: `found[-1]`."""
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Subscript))
    return set().union(*map(names_in, parts)) if isinstance(node, ast.Return) else set()


def assigned(record: Record, function: str, *names: str) -> list[Culprit]:
    """The last statement in a function that gives a name a value: the first of `names` with one.

    Where there is none, it is what the file's only function of such a name returns.
    """
    file = File(record.source)
    top = file.doing(function)
    found = [_made(top, name) for name in names] if top else []
    found += [_elsewhere(file, ast.Name(name)) for name in names]
    for made in filter(None, found):
        return [file.place(made[-1])]
    return of_definitions(file, [function])


def choice(record: Record, function: str) -> list[Culprit]:
    """The condition of the only `if` in a function, or else the line that defines it."""
    file = File(record.source)
    tests = (node.test for node in _nodes(file, function) if isinstance(node, ast.If | ast.IfExp))
    return _only(file, tests) or of_definitions(file, [function])


def rounds(record: Record, function: str) -> list[Culprit]:
    """What the only `for` in a function goes over; else nothing."""
    file = File(record.source)
    return _only(file, (node.iter for node in _nodes(file, function) if isinstance(node, ast.For)))


def choosing(record: Record, function: str, index: int, of: int) -> list[Culprit]:
    """The condition that decides whether a statement gives a result its last value.

    It is that of the innermost `if` around the statement. Where there is none, it is the statement.
    """
    file, place = File(record.source), result(record, function, index, of)
    tests = [
        node.test
        for node in _nodes(file, function)
        if isinstance(node, ast.If) and any(_spans(node.body, one.line) for one in place)
    ]
    return [file.place(tests[-1])] if tests else place


def discarding(record: Record, function: str) -> list[Culprit]:
    """The only statement in a function that gives `_` a value, else nothing."""
    file = File(record.source)
    return _only(file, (node for node in _nodes(file, function) if "_" in _given(node)))


def leaving(record: Record, function: str) -> list[Culprit]:
    """The only `break` in a function, else nothing."""
    file = File(record.source)
    return _only(file, (node for node in _nodes(file, function) if isinstance(node, ast.Break)))


def kept_of_the_last_round(record: Record, function: str, called: str) -> list[Culprit]:
    """Where a loop gives a name, which the function returns, a new value of `called` each round.

    That is not where the old value is used, or kept, in the loop. Nothing if there is none.
    """
    file = File(record.source)
    top = file.doing(function)
    given = _returned(top) if top else []
    returned = {name for value in given for name in names_in(value)}
    found = []
    for loop in (node for node in _nodes(file, function) if isinstance(node, ast.For)):
        for node in ast.walk(loop):
            if isinstance(node, ast.Assign) and any(_calls(ast.walk(node.value), called)):
                names = (n for n in ast.walk(loop) if isinstance(n, ast.Name))
                read = {name.id for name in names if isinstance(name.ctx, ast.Load)}
                found += [node] * bool(returned & {*_given(node)} - read)
    return [file.place(node) for node in found]


def divided_in_part(record: Record, function: str) -> list[Culprit]:
    """The `a - b / c` that a function returns, where `(a - b) / c` may be meant."""
    file = File(record.source)
    top = file.doing(function)
    for value in _returned(top) if top else []:
        match value:
            case ast.BinOp(op=ast.Sub(), right=ast.BinOp(op=ast.Div())):
                return [file.place(value)]
    return []


def piled(record: Record, function: str) -> list[Culprit]:
    """The statements in a function that fill the one list or dict it never empties or returns.

    If there are several such lists and dicts, it is the line that defines the function.
    """
    file = File(record.source)
    nodes = list(_nodes(file, function))
    left = {
        _name(node.func.value)
        for node in _calls(nodes, *_EMPTIED)
        if isinstance(node.func, ast.Attribute)
    }
    left |= {
        name
        for node in nodes
        if isinstance(node, ast.Return | ast.Delete)
        for name in names_in(node) - _names_indexed(node)
    }
    found = [(node, _fills(node) - left) for node in nodes if _fills(node) - left]
    if len(set().union(*(names for _, names in found))) != 1:
        return of_definitions(file, [function])
    return [file.place(node) for node, _ in found]


def _fills(node: ast.AST) -> set[str]:
    """The lists and dicts into which a statement puts something."""
    match node:
        case ast.Assign(targets=targets):
            return {name for t in targets if isinstance(t, ast.Subscript) for name in _targets(t)}
        case ast.Expr():
            return set(_given(node))
    return set()


def filled(record: Record, name: str) -> list[Culprit]:
    """The only statement of the file that puts something into what is called `name`.

    `name` is a variable or an attribute. If nothing is put into it, it is the last statement that
    gives it a value.
    """
    file = File(record.source)
    nodes = [node for node in ast.walk(file.tree) if isinstance(node, ast.stmt)]
    found = [node for node in nodes if _puts_into(node, name)]
    if len(found) == 1:
        return [file.place(found[0])]
    made = [node for node in nodes if name in _given(node)]
    return [file.place(made[-1])] if made and not found else [file.place(node) for node in found]


def _puts_into(node: ast.stmt, name: str) -> bool:
    """Whether a statement puts something into what is called `name`, and keeps what it holds."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=filled, attr=method))):
            return method in _FILLED and _name(filled) == name
        case ast.Assign(targets=[ast.Subscript(value=filled)]) | ast.AugAssign(target=filled):
            return _name(filled) == name
        case ast.Assign(targets=[target], value=value):
            again = (n for n in ast.walk(value) if isinstance(n, ast.Name | ast.Attribute))
            return _name(target) == name and name in map(_name, again)
    return False


def of_promise(record: Record, functions: Sequence[str], promise: str) -> list[Culprit]:
    """What stands in a function's `return`, if `promise` says of it: "`step` returns (a, b)".

    The function is one of `functions`, or the only one of its name inside them.
    """
    promised = _PROMISED.match(promise)
    if not promised:
        return []
    file = File(record.source)
    top = [file.defined(name) for name in functions if name == promised[1]]
    inner = (node for name in functions for node in _nodes(file, name))
    found = [
        node for node in top or inner if isinstance(node, Function) and node.name == promised[1]
    ]
    given = _returned(found[0]) if len(found) == 1 else []
    return [file.place(given[0])] if len(given) == 1 else []


def of_jit(record: Record, functions: Iterable[str], message: str) -> list[Culprit]:
    """Where a jitted function was made whose call raised `message`, outside of the file's code.

    Nothing if the message does not speak of such a call, or more than one of `functions` makes
    one.
    """
    if not _OF_A_CALL.search(message):
        return []
    file = File(record.source)
    found = [name for name in functions if any(map(_jits, _nodes(file, name)))]
    if len(found) != 1:
        return []
    if too_long := _TOO_LONG.search(message):
        part = int(too_long[1])
        parts = (_given_back(file, found[0], part, of, inner=True) for of in range(part + 1, 5))
        if value := next(filter(None, parts), None):
            return [file.place(value[1])]
    named = _ARGUMENT.search(message)
    asked = _SHARDINGS if _OTHER_SHARDING in message else named.groups() if named else ()
    of_it = [place for argument in asked for place in _entry(file, found[0], argument)]
    return of_it or call(record, found[0], "shard_map", "jit", "pmap")


def jits_inside(record: Record, functions: Iterable[str]) -> bool:
    """Whether one of these functions makes a jitted function whenever it is called."""
    found = map(File(record.source).defined, functions)
    return any(any(map(_jits, own)) for own in (_body(top) for top in found))


def _body(top: ast.stmt | None) -> Iterator[ast.AST]:
    """The nodes inside a function; none of anything else."""
    statements = top.body if isinstance(top, Function) else []
    return (node for one in statements for node in ast.walk(one))


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
    found = [place for name in functions for place in _entry(file, name, argument)]
    return found if len(found) == 1 else []


def _jits(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Name) and _name(node) in _JIT


def _nodes(file: File, function: str) -> Iterator[ast.AST]:
    """Every node of a definition at the top level, and of what it only calls; decorators too."""
    return (node for top in file.written(function) for node in ast.walk(top))


def _reached(file: File, function: str) -> tuple[list[ast.AST], list[ast.AST]]:
    """The nodes of a definition, and those of all else that it reaches.

    One with a condition that decides what it reaches, reaches nothing here: which way it goes is
    its own matter.
    """
    own = list(_nodes(file, function))
    conditions = [node for node in own if isinstance(node, ast.If | ast.IfExp)]
    decides = any(names_in(node) & {*file.names} for node in conditions)
    others = [] if decides else reached(file, function)[1:]
    return own, [node for top in others for node in ast.walk(top)]


def _first[Kind: ast.AST](
    file: File, function: str, pick: Callable[[list[ast.AST]], Iterable[Kind]]
) -> list[Kind]:
    """What is picked of a definition's nodes, or else of those of what it reaches."""
    parts = (list(pick(nodes)) for nodes in _reached(file, function))
    return next(filter(None, parts), [])


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


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


def _returned(function: Function) -> list[ast.expr]:
    """What the `return` statements of a function give, not those of functions inside it."""
    found = (n for n in own_nodes(function) if isinstance(n, ast.Return))
    return [node.value for node in found if node.value is not None]


def _part(value: ast.expr, index: int | None, of: int) -> ast.expr | None:
    """The value that is meant; None if the `return` is not of that form."""
    if index is None:
        return value
    fits = isinstance(value, ast.Tuple) and len(value.elts) == of
    return value.elts[index] if isinstance(value, ast.Tuple) and fits else None


def _made(function: Function, name: str) -> list[ast.AST]:
    """The statements in a function that give `name` a value, or put something into it."""
    return [node for node in own_nodes(function) if name in _given(node)]


def _given(node: ast.AST) -> Iterable[str]:
    """The names to which a statement gives a value."""
    match node:
        case ast.Assign(targets=targets):
            return [name for target in targets for name in _targets(target)]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            return _targets(target)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))):
            return [name] if method in _FILLED else []
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
