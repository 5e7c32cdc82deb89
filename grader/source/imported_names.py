"""Follows imported things through the names that a file gives them.

A name may stand for several things: what it was imported as, and what it is assigned, on whatever
way. Scopes come from `grader.source.scopes`. What is refused is for `grader.source.policy`.
"""

import ast
from collections.abc import Container, Iterator

from grader.source.scopes import Binding, Scope, Scopes

MAX_PATHS = 100
"""A name stands for so many imported things at most: more of them take too long to follow."""
Name = tuple[Scope, str]
Step = tuple[Name, tuple[str, ...]]
"""A name, and the attributes that follow it."""


class Imported:
    """What each name of a file may have been imported as; `modules` are followed past a dot."""

    def __init__(self, scopes: Scopes, modules: Container[str]) -> None:
        self._scopes, self._modules = scopes, modules
        self._found: dict[Name, set[str]] = {}
        self._followed: dict[ast.AST, frozenset[str]] = {}
        self.crowded: ast.AST | None = None
        """What gives a name its first value that stands for more than is followed; or None."""
        self._follow()

    def _follow(self) -> None:
        """Carry each imported thing along every assignment, once."""
        onward: dict[Name, list[Step]] = {}
        left: list[tuple[Name, str]] = []
        for key, binding in self._bindings():
            if binding.kind == "import":
                left.append((key, binding.path))
            elif binding.value is not None and binding.kind in ("value", "param"):
                for source, attributes in self._sources(binding.value):
                    onward.setdefault(source, []).append((key, attributes))
        while left:
            key, path = left.pop()
            if path not in (found := self._found.setdefault(key, set())):
                if len(found) == MAX_PATHS:
                    scope, name = key
                    self.crowded = self.crowded or scope.bindings[name][0].node
                    continue
                found.add(path)
                ways = [(name, self._past(path, dots)) for name, dots in onward.get(key, [])]
                left += [way for way in ways if way[1]]

    def _bindings(self) -> Iterator[tuple[Name, Binding]]:
        scopes = {self._scopes.module, *self._scopes.of.values()}
        for scope in scopes:
            for name, bindings in scope.bindings.items():
                yield from (((scope, name), binding) for binding in bindings)

    def _past(self, path: str, attributes: tuple[str, ...]) -> str:
        """The dotted name after more dots; "" once it is inside an object that is no module."""
        for attribute in attributes:
            if path not in self._modules:
                return ""
            path = f"{path}.{attribute}"
        return path

    def _sources(self, node: ast.expr) -> Iterator[Step]:
        """The names whose value an expression may be, each with the attributes after it."""
        left: list[tuple[ast.expr, tuple[str, ...]]] = [(node, ())]
        while left:
            part, attributes = left.pop()
            match part:
                case ast.Name(id=name):
                    if scope := self._scopes.at(part).find(name):
                        yield (scope, name), attributes
                case ast.Attribute(value=value, attr=attr):
                    left.append((value, (attr, *attributes)))
                case ast.IfExp(body=body, orelse=orelse):
                    left += [(body, attributes), (orelse, attributes)]
                case ast.NamedExpr(value=value):
                    left.append((value, attributes))

    def paths(self, node: ast.AST) -> frozenset[str]:
        """The dotted names that an expression may stand for; empty if it is no imported thing."""
        inner = [node]  # a chain of attributes, from its end to what was asked before
        while isinstance(last := inner[-1], ast.Attribute) and last not in self._followed:
            inner.append(last.value)
        for one in reversed(inner):
            if one not in self._followed:
                self._followed[one] = frozenset(self._ways(one))
        return self._followed[node]

    def _ways(self, node: ast.AST) -> Iterator[str]:
        """The dotted names of an expression whose parts are known."""
        match node:
            case ast.Name(id=name):
                if scope := self._scopes.at(node).find(name):
                    yield from self._found.get((scope, name), ())
            case ast.Attribute(value=value, attr=attr):
                ways = (self._past(path, (attr,)) for path in self._followed[value])
                yield from filter(None, ways)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self.paths(body) | self.paths(orelse)
            case ast.NamedExpr(value=value):
                yield from self.paths(value)
