"""Knows what the names of a file stand for: Python's scopes, read from the syntax tree.

Each scope lists what its names are bound to: an import, a parameter, a value, a loop, a class, a
function. Nothing is evaluated and nothing is refused here; `grader.source.policy` and
`grader.source.inspection` do that.
"""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["import", "param", "value", "loop", "class", "function", "other"]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class Binding:
    """One place that binds a name.

    `path` is the dotted name of what is imported; `value` is the expression that a value, a
    parameter's default or a loop's iterable comes from; `node` is the statement or argument.
    """

    kind: Kind
    node: ast.AST
    path: str = ""
    value: ast.expr | None = None


@dataclass(eq=False)
class Scope:
    """A module, a class, or a function, lambda or comprehension."""

    kind: Literal["module", "class", "function"]
    node: ast.AST
    parent: "Scope | None" = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    shared: dict[str, "Scope"] = field(default_factory=dict)
    """Names declared `global` or `nonlocal`, and the scope that they belong to."""
    deleted: set[str] = field(default_factory=set)

    def bind(self, name: str, binding: Binding) -> None:
        """Note that `name` is bound here, or in the scope that it was declared to belong to."""
        self.shared.get(name, self).bindings.setdefault(name, []).append(binding)

    def find(self, name: str) -> "Scope | None":
        """The scope in which `name` is looked up from here; None if no scope binds it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.shared:
                return scope.shared[name]
            if name in scope.bindings and (scope is self or scope.kind != "class"):
                return scope
            scope = scope.parent
        return None

    def bound(self, name: str) -> list[Binding]:
        """Everything that `name`, seen from here, may be bound to."""
        scope = self.find(name)
        return scope.bindings.get(name, []) if scope else []


class Scopes:
    """The scopes of a file. `of` tells the scope of each node, `parent` its parent."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope("module", tree)
        self.of: dict[ast.AST, Scope] = {}
        self.parent: dict[ast.AST, ast.AST] = {}
        self._declare(tree.body, self.module)
        for statement in tree.body:
            self.parent[statement] = tree
            self._visit(statement, self.module)
        self.first_bound = self._first_bound(set(tree.body))
        """The line from which on a name of the module is bound in any case."""

    def _first_bound(self, body: set[ast.stmt]) -> dict[str, int]:
        found = {}
        for name, bindings in self.module.bindings.items():
            lines = [
                b.node.lineno for b in bindings if isinstance(b.node, ast.stmt) and b.node in body
            ]
            if lines:
                found[name] = min(lines)
        return found

    def at(self, node: ast.AST) -> Scope:
        """The scope that a node is evaluated in; the module's for a node of no file."""
        return self.of.get(node, self.module)

    def may_be_builtin(self, node: ast.Name) -> bool:
        """Whether a name may stand for Python's own, where it is read."""
        scope = self.at(node).find(node.id)
        if scope is None or scope.kind == "class":
            return scope is None or hasattr(builtins, node.id)
        if scope.kind == "function" or not hasattr(builtins, node.id):
            return False
        first = self.first_bound.get(node.id)
        return node.id in scope.deleted or first is None or node.lineno <= first

    def _declare(self, body: list[ast.stmt], scope: Scope) -> None:
        """Find the `global` and `nonlocal` of a scope, which hold for all of it."""
        for node in _of_this_scope(body):
            if isinstance(node, ast.Global):
                scope.shared |= dict.fromkeys(node.names, self.module)
            elif isinstance(node, ast.Nonlocal):
                for name in node.names:
                    found = scope.parent.find(name) if scope.parent else None
                    scope.shared[name] = found or self.module

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        """Note a node and all inside it, in the order of the text."""
        left = [(node, scope)]
        while left:
            node, scope = left.pop()
            self.of[node] = scope
            self._bind(node, scope)
            inside = list(self._children(node, scope))
            self.parent |= dict.fromkeys((child for child, _ in inside), node)
            left += reversed(inside)

    def _children(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        """The parts of a node, each with the scope that it is evaluated in."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                yield from self._definition(node, scope)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = Scope("function", node, scope)
                for child in ast.iter_child_nodes(node):
                    yield child, inner
            case ast.comprehension():
                outer = scope.parent
                first = isinstance(scope.node, Comprehension) and scope.node.generators[0] is node
                assert outer is not None
                for child in ast.iter_child_nodes(node):
                    yield child, outer if first and child is node.iter else scope
            case _:
                for child in ast.iter_child_nodes(node):
                    yield child, scope

    def _definition(
        self, node: Function | ast.ClassDef, scope: Scope
    ) -> Iterator[tuple[ast.AST, Scope]]:
        if kinds := getattr(node, "type_params", []):
            scope = Scope("function", node, scope)
            yield from ((kind, scope) for kind in kinds)
        if isinstance(node, ast.ClassDef):
            inner = Scope("class", node, scope)
            outside: list[ast.AST] = [*node.decorator_list, *node.bases, *node.keywords]
            self._declare(node.body, inner)
        else:
            inner = Scope("function", node, scope)
            outside = [*getattr(node, "decorator_list", []), *_evaluated_outside(node)]
            if not isinstance(node, ast.Lambda):
                self._declare(node.body, inner)
            self._parameters(node, inner)
        yield from ((child, scope) for child in outside)
        body = node.body if isinstance(node.body, list) else [node.body]
        yield from ((child, inner) for child in body)

    def _parameters(self, node: Function, inner: Scope) -> None:
        every = node.args
        plain = [*every.posonlyargs, *every.args]
        defaults = [None] * (len(plain) - len(every.defaults)) + list(every.defaults)
        for arg, default in zip(plain, defaults, strict=True):
            inner.bind(arg.arg, Binding("param", arg, value=default))
        for arg, default in zip(every.kwonlyargs, every.kw_defaults, strict=True):
            inner.bind(arg.arg, Binding("param", arg, value=default))
        for rest in (every.vararg, every.kwarg):
            if rest:
                inner.bind(rest.arg, Binding("param", rest))

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        """Note the names that a node binds."""
        match node:
            case ast.Import() | ast.ImportFrom():
                for name, path in imported(node):
                    scope.bind(name, Binding("import", node, path))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                scope.bind(name, Binding("function", node))
            case ast.ClassDef(name=name):
                scope.bind(name, Binding("class", node))
            case ast.Name(id=name, ctx=ast.Store()):
                self._bind_name(name, node, scope)
            case ast.Name(id=name, ctx=ast.Del()):
                scope.shared.get(name, scope).deleted.add(name)
            case _ if not isinstance(node, ast.Lambda | ast.Global | ast.Nonlocal):
                for name in names_bound(node):
                    scope.bind(name, Binding("other", node))

    def _bind_name(self, name: str, node: ast.Name, scope: Scope) -> None:
        around = self.parent[node]
        match around:
            case ast.Assign(value=value) if node in around.targets:
                binding = Binding("value", around, value=value)
            case ast.AnnAssign(value=value) if around.target is node:
                if value is None:
                    return
                binding = Binding("value", around, value=value)
            case ast.NamedExpr(value=value):
                while isinstance(scope.node, Comprehension) and scope.parent:
                    scope = scope.parent
                binding = Binding("value", around, value=value)
            case ast.For(iter=value) | ast.comprehension(iter=value) if around.target is node:
                binding = Binding("loop", around, value=value)
            case _:
                binding = Binding("other", node)
        scope.bind(name, binding)


def _of_this_scope(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All statements of a body, without those of functions and classes defined in it."""
    left: list[ast.AST] = list(body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            left += [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr)]


def _evaluated_outside(node: Function) -> list[ast.AST]:
    """Defaults and annotations of a function, which its own names do not reach."""
    args = node.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    every += [arg for arg in (args.vararg, args.kwarg) if arg]
    found: list[ast.AST | None] = [*args.defaults, *args.kw_defaults]
    found += [arg.annotation for arg in every]
    found.append(getattr(node, "returns", None))
    return [child for child in found if child is not None]


def names_bound(node: ast.AST) -> Iterator[str]:
    """The names that a node binds or declares, of whatever kind."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            yield from () if isinstance(node, ast.Lambda) else (node.name,)
            args = node.args
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            yield from (arg.arg for arg in every if arg)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                yield from (alias.asname or alias.name.split(".")[0] for alias in names)
        case ast.Global(names=found) | ast.Nonlocal(names=found):
            yield from found
        case ast.MatchMapping(rest=str(name)):
            yield name
        case ast.ClassDef() | ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            yield from filter(None, [node.name])
        case ast.TypeVar() | ast.ParamSpec() | ast.TypeVarTuple():
            yield node.name


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with the dotted name of what it stands for."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            yield alias.asname or alias.name, f"{start}.{alias.name}"
        else:
            first = alias.name.split(".")[0]
            yield alias.asname or first, alias.name if alias.asname else first
