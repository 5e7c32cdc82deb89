"""Finds the one place where a learner's file parts from the reference solution.

Where a submission fails, and all else in it is the reference's, this place is the cause, since the
reference passes. It makes no difference how a file calls its own variables, how it imports what it
uses, in which order it gives keywords, which annotations and docstrings it has, whether it
gives a name to what its next statement uses, and what it leaves to helpers. Of two places, one may
be harmless: then nothing is said, unless one statement holds both. Where a file writes a given
function anew, the one place is found in which it parts from that. A statement that the reference
has too is seldom the cause by itself.

It compares two texts and runs neither. It tells where to look, never what should stand there.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from grader.source.file import File
from grader.source.inlined import Replacing, inlined, is_large, with_lambdas
from grader.source.trees import Definition, Function, names_in, own_nodes, text_of

Node = ast.expr | ast.stmt | ast.arg | ast.keyword
_Compound = Definition | ast.For | ast.While | ast.If | ast.With | ast.Try | ast.Match
_Way = tuple[Node, ...]
"""A node of the learner's file that differs, after all the nodes that hold it."""
_PARAMETERS = {
    "jax.device_put": ("x", "device"),
    "jax.lax.fori_loop": ("lower", "upper", "body_fun", "init_val"),
    "jax.lax.pmean": ("x", "axis_name"),
    "jax.lax.psum": ("x", "axis_name"),
    "jax.lax.scan": ("f", "init", "xs"),
    "jax.lax.while_loop": ("cond_fun", "body_fun", "init_val"),
    "jax.lax.with_sharding_constraint": ("x", "shardings"),
    "jax.make_array_from_callback": ("shape", "sharding", "data_callback"),
    "jax.NamedSharding": ("mesh", "spec"),
    "jax.numpy.mean": ("a", "axis"),
    "jax.numpy.sum": ("a", "axis"),
    "jax.sharding.NamedSharding": ("mesh", "spec"),
}
"""How some functions call what may be given by place or by name."""
_BODIES = ("body", "orelse", "finalbody")
_NO_MATTER = frozenset(("ctx", "annotation", "returns", "type_comment", "type_params", "kind"))
_NAMES = frozenset(("id", "arg", "name"))


@dataclass(frozen=True)
class Parting:
    """What differs between a file and its model, compared in two ways."""

    joined: list[_Way]
    """The differences, where what one statement computes may be an intermediate step of another."""
    apart: list[_Way]
    """The differences of the files as they are."""
    reading: Sequence[ast.stmt] = ()
    """Statements that read a variable to which only the model gives one more value."""

    def sole(self, function: str = "") -> Node | None:
        """The only expression or statement which the model does not have at this place.

        Of a `function`, that is the only one in it, if both files define the same things. None if
        there are several in more than one statement, or none, or if it is the file that lacks one.
        """
        joined, apart = (_of_function(ways, function) for ways in (self.joined, self.apart))
        match apart:
            case [(*_, ast.expr() as exact)]:  # a step that is joined to another has moved
                return exact
        for ways in (joined, apart):
            if (node := _held_by_all(ways)) and not _is_all(node, ways[0]):
                return _shown(node, ways[0])
        return None

    @property
    def own(self) -> list[ast.stmt]:
        """The innermost statements that are others in the model, in the order of the text."""
        innermost = (_innermost_statement(way) for way in self.apart if way)
        return sorted(dict.fromkeys(innermost), key=lambda node: node.lineno)

    @property
    def lacks(self) -> bool:
        """Whether the file lacks a statement of the model's, which may be the cause as well."""
        return not all(self.apart)


def parting(source: str, model: str) -> Parting:
    """How a file parts from the `model`, which is right; not at all, if it can't be read.

    They are compared as they are, with helpers in the place of their calls, and of their names:
    that form counts in which one difference is the only one, else the first two's with fewer.
    """
    kept = {_title(node) for node in File(model).tree.body}
    forms: list[Callable[[ast.Module], ast.Module]] = [
        lambda tree: tree,
        lambda tree: inlined(tree, kept),
        lambda tree: with_lambdas(inlined(tree, kept), kept),
    ]
    found: list[Parting] = []
    if is_large(File(source).tree):
        return Parting([], [])
    try:
        for form in forms:
            found.append(_parting(source, model, form))
            if found[-1].sole() or not found[-1].joined:
                return found[-1]
    except (RecursionError, ValueError):  # too deep, or a number of too many digits
        return Parting([], [])
    return min(found[:-1], key=lambda one: len(one.apart))


def _parting(source: str, model: str, form: Callable[[ast.Module], ast.Module]) -> Parting:
    def differences(*, joined: bool) -> list[_Way]:
        mine, theirs = (_plain(form(File(text).tree), joined=joined) for text in (source, model))
        return list(_Comparison().of_files(mine, theirs))

    if not (joined := differences(joined=True)):
        return Parting([], [])
    apart = differences(joined=False)
    return Parting(joined, apart, list(_reading(File(source).tree, File(model).tree)))


def _reading(mine: ast.Module, theirs: ast.Module) -> Iterator[ast.stmt]:
    """The statements that read a variable to which the model gives more values than the file."""
    right = {node.name: node for node in theirs.body if isinstance(node, Function)}
    for function in mine.body:
        if not isinstance(function, Function) or function.name not in right:
            continue
        given, wanted = _times_given(function), _times_given(right[function.name])
        fewer = {name for name, times in wanted.items() if 0 < given[name] < times}
        for node in own_nodes(function.body):
            if isinstance(node, ast.stmt) and not isinstance(node, _Compound):
                used = _used(ast.walk(node), ast.Load)
                yield from [node] * bool(fewer.intersection(used))


def _times_given(function: Function) -> Counter[str]:
    """How often each variable of a function itself is given a value; a parameter comes with one."""
    given = [arg.arg for arg in function.args.args]
    return Counter([*given, *_used(own_nodes(function.body), ast.Store)])


def _used(nodes: Iterable[ast.AST], way: type[ast.expr_context]) -> list[str]:
    """The names among nodes that are read, or are given a value, each time."""
    names = (node for node in nodes if isinstance(node, ast.Name))
    return [node.id for node in names if isinstance(node.ctx, way)]


def _of_function(found: list[_Way], function: str) -> list[_Way]:
    """The differences inside a function; none, if the files differ in what they define."""
    if not function:
        return found
    inside = all(len(way) > 1 for way in found)
    return [way for way in found if inside and _title(way[0]) == function]


def _innermost_statement(way: _Way) -> ast.stmt:
    return next(node for node in reversed(way) if isinstance(node, ast.stmt))


def sole_unlike(source: str, function: str) -> Node | None:
    """The only expression or statement by which a file's own words for `function` part from it.

    Its values are looked for in all other definitions, in whatever variables. At least one is
    there as it is in `function`; what differs is one expression in a definition with such a one, or
    two variables, or else, where that one is, all that a variable of the same name, or a `return`,
    stands for. None if there are several, or none.
    """
    try:
        body = _plain(File(source).tree, joined=False)
    except (RecursionError, ValueError):
        return None
    model = next((node for node in body if _title(node) == function), None)
    others = [node for node in body if isinstance(node, Definition) and node is not model]
    found = _unlike(others, model) if model else []
    return found[0] if len(found) == 1 else None


class _Side(NamedTuple):
    """Where a value stands in a file, and how others are compared with it."""

    definition: ast.stmt
    name: str
    owner: Function
    compare: Callable[[ast.expr, ast.expr], list[_Way]]


def _unlike(others: Sequence[ast.stmt], model: ast.stmt) -> list[Node]:
    """What definitions have in place of values of `model`, some of which they have."""
    left = {
        value: _Side(other, *held, _Comparison(_variables(other), _variables(model)).of_values)
        for other in others
        for value, held in _values(other)
    }
    missing, known = {}, list[_Side]()
    for value, (name, _) in _values(model):
        same = next((one for one, side in left.items() if not side.compare(one, value)), None)
        if same is None:
            missing[value] = name
        else:
            known.append(left.pop(same))
    near = (
        _small(side.compare(one, value))
        for value in missing
        for one, side in left.items()
        if side.definition in [other.definition for other in known]
    )
    called, owners = missing.values(), [side.owner for side in known]
    own = {node.name for other in others for node in ast.walk(other) if isinstance(node, Function)}
    named = (
        one
        for one, side in left.items()
        if side.name in called and side.owner in owners
        if side.name == "return" or not _is_call_of(one, own)
    )
    return list(filter(None, near)) or list(named)


def _is_call_of(value: ast.expr, names: set[str]) -> bool:
    """Whether a value is made by a function of the file, so that it says nothing by itself."""
    return isinstance(value, ast.Call) and text_of(value.func) in names


def _values(definition: ast.stmt) -> Iterator[tuple[ast.expr, tuple[str, Function]]]:
    """What a definition computes, with the variable that gets it, or "return", and its function."""
    functions = [node for node in ast.walk(definition) if isinstance(node, Function)]
    for owner, node in ((one, node) for one in functions for node in own_nodes(one.body)):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=parts)):
                pairs = [
                    (_base(text_of(one)), part) for one, part in zip(targets, parts, strict=False)
                ]
            case ast.Assign(targets=[target], value=value):
                pairs = [(_base(text_of(target)), value)]
            case ast.Return(value=ast.Tuple(elts=parts)):
                pairs = [("return", part) for part in parts]
            case ast.Return(value=ast.expr() as value):
                pairs = [("return", value)]
            case _:
                continue
        yield from ((part, (name, owner)) for name, part in pairs if not isinstance(part, ast.Name))


def _base(name: str) -> str:
    """A variable's name, as it is written."""
    return name.partition("#")[0]


def _small(ways: list[_Way]) -> Node | None:
    """The part of a value that differs, if that is one expression inside, or two variables."""
    inside = len(ways) == 1 and len(ways[0]) > 1
    exchanged = len(ways) == 2 and all(isinstance(way[-1], ast.Name) for way in ways)
    return _held_by_all(ways) if inside or exchanged else None


def _held_by_all(found: list[_Way]) -> Node | None:
    """The innermost node that holds all differences, if it is one of them, or no compound one."""
    if not found or not all(found):
        return None
    for node in reversed(found[0]):
        if all(node in way for way in found):
            return None if len(found) > 1 and isinstance(node, _Compound) else node
    return None


def _shown(node: Node, way: _Way) -> Node:
    """A node, or the statement whose value it is where it takes more than a line."""
    statement = _innermost_statement(way)
    is_long = node.lineno != node.end_lineno
    return statement if is_long and getattr(statement, "value", None) is node else node


def _is_all(node: Node, way: _Way) -> bool:
    """Whether a node is all that its function does, put together from several statements."""
    owner = next((one for one in reversed(way) if isinstance(one, Function)), None)
    lines = {getattr(inner, "lineno", node.lineno) for inner in ast.walk(node)}
    together = min(lines) < node.lineno or max(lines) > (node.end_lineno or node.lineno)
    return together and owner is not None and len(owner.body) == 1


def _plain(tree: ast.Module, *, joined: bool) -> list[ast.stmt]:
    """What stands in a file, without what makes no difference."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                whole = alias.name if alias.asname or module else alias.name.partition(".")[0]
                names[alias.asname or whole] = module + whole
    body = list(_Plain(names).visit(tree).body)
    for definition in body if joined else ():
        _join_steps(definition)
    return body


class _Plain(ast.NodeTransformer):
    """Writes imported things with their full names, and other things in one of their forms.

    What is bound in a function inside another, or in a comprehension, gets a name of its own.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._names, self._depth, self._scopes = names, 0, 0

    def visit_Import(self, _: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, _: ast.ImportFrom) -> None:
        return None

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        match node.value:
            case ast.Name(id=whole) if "." in whole or whole in self._names.values():
                return ast.copy_location(ast.Name(f"{whole}.{node.attr}", node.ctx), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if ast.get_docstring(node) is not None:
            del node.body[0]
        self._visit_scope(node)
        return node

    def _visit_scope(self, node: ast.expr | ast.stmt) -> ast.expr | ast.stmt:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        if self._depth:
            self._scopes += 1
            _Renaming(_variables(node), f"#{self._scopes}").visit(node)
        return node

    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = _visit_scope
    visit_GeneratorExp = visit_ClassDef = visit_AsyncFunctionDef = _visit_scope

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        given = {keyword.arg: keyword for keyword in node.keywords}
        for name in _PARAMETERS.get(text_of(node.func), ())[len(node.args) :]:
            if name not in given:
                break
            node.keywords.remove(given[name])
            node.args.append(given[name].value)
        node.keywords.sort(key=lambda keyword: keyword.arg or "")
        return node

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        always = isinstance(node.test, ast.Constant) and node.test.value is True
        return node.body if always else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.Assign:
        self.generic_visit(node)
        changed = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
        return ast.copy_location(ast.Assign([node.target], changed), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class _Renaming(ast.NodeTransformer):
    """Gives variables an ending. Those of inner scopes have one already."""

    def __init__(self, names: set[str], ending: str) -> None:
        self._ending, self._names = ending, {name for name in names if "#" not in name}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id += self._ending * (node.id in self._names)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg += self._ending * (node.arg in self._names)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.name += self._ending * (node.name in self._names)
        return node


def _join_steps(definition: ast.stmt) -> None:
    """Put what a variable stands for in its place, if the next statement alone reads it, once."""
    uses = Counter(node.id for node in ast.walk(definition) if isinstance(node, ast.Name))
    for node in ast.walk(definition):
        bodies = [getattr(node, name, None) for name in _BODIES]
        for body in (body for body in bodies if isinstance(body, list)):
            for place in range(len(body) - 2, -1, -1):
                match body[place]:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value) if uses[name] == 2:
                        joining = Replacing(name, value)
                        joining.visit(body[place + 1])
                        if joining.done:
                            del body[place]


class _Comparison:
    """Two files, side by side. What differs is told by its way; () if the learner's lacks it."""

    def __init__(self, *own: set[str]) -> None:
        self._theirs: dict[str, str] = {}
        """The learner's variables, as met so far, each with the model's that it stands for."""
        self._own = own
        """The variables of the two definitions that are compared."""
        self._loose = False
        """Whether a variable may stand for an expression."""
        self._rebinds = False
        """Whether a variable may stand for a new one from where it gets a new value."""

    def of_files(self, mine: list[ast.stmt], theirs: list[ast.stmt]) -> Iterator[_Way]:
        """What differs in two files, whatever the order of their definitions."""
        left = {_title(node): node for node in theirs}
        for node in mine:
            other = left.pop(_title(node), None)
            if other is None:
                yield (node,)
                continue
            self._theirs, self._own = {}, (_variables(node), _variables(other))
            self._rebinds = not any(isinstance(n, ast.For | ast.While) for n in ast.walk(node))
            yield from self._of(node, other, ())
        yield from (() for _ in left)

    def of_values(self, mine: ast.expr, theirs: ast.expr) -> list[_Way]:
        """What differs in two values.

        Variables of one name stand for each other, and a variable for an expression without it.
        """
        right = names_in(theirs) & self._own[1]
        self._theirs = {name: _base(name) for name in names_in(mine) if _base(name) in right}
        self._loose = True
        return list(self._of(mine, theirs, ()))

    def _of(self, mine: ast.AST, theirs: ast.AST, way: _Way) -> Iterator[_Way]:
        if isinstance(mine, Node):
            way = (*way, mine)
        if type(mine) is not type(theirs):
            if not (self._loose and self._stands_for(mine, theirs)):
                yield way
            return
        # What a comprehension goes over comes before what it makes: it gives the variables. What is
        # assigned comes before what it is assigned to: it is read with the old ones.
        for name in sorted(mine._fields, key=lambda name: name not in ("generators", "value")):
            one, other = getattr(mine, name, None), getattr(theirs, name, None)
            if name in _NO_MATTER:
                continue
            if isinstance(one, list) and isinstance(other, list):
                yield from self._of_lists(one, other, way)
            elif isinstance(one, ast.AST) and isinstance(other, ast.AST):
                yield from self._of(one, other, way)
            elif not self._alike(mine, name, one, other):
                yield way

    def _stands_for(self, mine: ast.AST, theirs: ast.AST) -> bool:
        """Whether one of two nodes is a variable that the other does not hold."""
        for node, other, own in ((mine, theirs, self._own[0]), (theirs, mine, self._own[1])):
            if isinstance(node, ast.Name) and node.id in own:
                return _base(node.id) not in map(_base, names_in(other))
        return False

    def _alike(self, node: ast.AST, field: str, one: Any, other: Any) -> bool:
        """Whether two values are alike; of two variables, whether one stands for the other."""
        is_name = field in _NAMES and not isinstance(node, ast.keyword)
        if not is_name or one not in self._own[0] or other not in self._own[1]:
            return repr(one) == repr(other)
        again = self._rebinds and isinstance(getattr(node, "ctx", None), ast.Store)
        if (again or one not in self._theirs) and other not in self._theirs.values():
            self._theirs[one] = other
        return bool(self._theirs.get(one) == other)

    def _of_lists(self, mine: list[Any], theirs: list[Any], way: _Way) -> Iterator[_Way]:
        """What differs in two lists, between the alike beginnings and the alike ends."""
        first = 0
        while first < min(len(mine), len(theirs)) and self._same(mine[first], theirs[first]):
            first += 1
        mine, theirs = mine[first:], theirs[first:]
        while mine and theirs and self._same(mine[-1], theirs[-1]):
            mine, theirs = mine[:-1], theirs[:-1]
        if len(mine) == len(theirs):
            for one, other in zip(mine, theirs, strict=True):
                both = isinstance(one, ast.AST) and isinstance(other, ast.AST)
                yield from self._of(one, other, way) if both else (way,)
        elif len(mine) == 1:
            yield (*way, mine[0]) if isinstance(mine[0], Node) else way
        elif any(isinstance(node, ast.stmt) for node in (*mine, *theirs)):
            yield from ((*way, node) for node in mine)
            yield from [()] * (len(mine) < len(theirs))
        else:
            yield way

    def _same(self, one: Any, other: Any) -> bool:
        """Whether two nodes are alike. If they aren't, they tell nothing about variables."""
        if not (isinstance(one, ast.AST) and isinstance(other, ast.AST)):
            return repr(one) == repr(other)
        before = dict(self._theirs)
        alike = not any(True for _ in self._of(one, other, ()))
        if not alike:
            self._theirs = before
        return alike


def _title(node: ast.AST) -> str:
    """What a statement at the top level defines, or else its text."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return text_of(node)


def _variables(definition: ast.expr | ast.stmt) -> set[str]:
    """The names that a definition, or another scope, binds inside itself."""
    found = set()
    for node in ast.walk(definition):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) if node is not definition:
                found.add(name)
    return found
