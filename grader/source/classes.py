"""Knows the classes of a file by families: classes that build on one another.

What an object of a class holds may come from any class of its family, so what is asked here is
asked of all of it: whether something foreign is among the bases, and whether JAX may take its
objects apart. Scopes come from `grader.source.scopes`, imports from `grader.source.imported_names`.
"""

import ast
import builtins
from dataclasses import dataclass, field

from grader.source.allowed import NODES, PLAIN_BASES, UNFLATTENED
from grader.source.imported_names import Imported
from grader.source.scopes import Scope, Scopes
from grader.source.trees import own_nodes


@dataclass(eq=False)
class _Family:
    members: list[ast.ClassDef]
    is_plain: bool = True
    nodes: list[ast.expr] = field(default_factory=list)
    """The decorators and calls that register a member as a node of trees."""
    is_remade: bool | None = None


class Classes:
    """The classes of a file."""

    def __init__(self, scopes: Scopes, imported: Imported) -> None:
        self._scopes, self._imported = scopes, imported
        found = [node for node in scopes.of if isinstance(node, ast.ClassDef)]
        self._family = {node: _Family([node]) for node in found}
        self._named: dict[tuple[Scope, str], tuple[list[ast.ClassDef], set[str]]] = {}
        for node in found:
            self._join([node, *self._bound(scopes.of[node], node.name)[0]])
        for node in found:
            for base in node.bases:
                self._build_on(node, base)
        for node in found:
            self._family[node].nodes += [one for one in node.decorator_list if self._registers(one)]
        for call in scopes.of:
            if isinstance(call, ast.Call) and call.args and self._registers(call):
                for one in self.named(call.args[0]):
                    self._family[one].nodes.append(call)

    def is_plain(self, kind: ast.ClassDef) -> bool:
        """Whether nothing foreign is among the bases: all that an object holds is the file's."""
        return self._family[kind].is_plain

    def is_node(self, kind: ast.ClassDef) -> bool:
        """Whether JAX may take an object apart, and set attributes of a new one."""
        return bool(self._family[kind].nodes)

    def is_remade(self, kind: ast.ClassDef) -> bool:
        """Whether something else may stand in an object's place once JAX took it apart."""
        family = self._family[kind]
        if family.is_remade is None:
            family.is_remade = not self._makes_all_again(family)
        return family.is_remade

    def named(self, node: ast.expr) -> list[ast.ClassDef]:
        """A class that a name may stand for; all of them are of one family."""
        return self._stands_for(node)[0]

    def _stands_for(self, node: ast.expr) -> tuple[list[ast.ClassDef], set[str]]:
        """A class that a name may stand for, or none, and the kinds of all that it is bound to."""
        if not isinstance(node, ast.Name) or not (scope := self._scopes.at(node).find(node.id)):
            return [], set()
        return self._bound(scope, node.id)

    def _bound(self, scope: Scope, name: str) -> tuple[list[ast.ClassDef], set[str]]:
        if (scope, name) not in self._named:
            bound = scope.bindings.get(name, [])
            kinds = [one.node for one in bound if isinstance(one.node, ast.ClassDef)]
            self._named[scope, name] = kinds[:1], {one.kind for one in bound}
        return self._named[scope, name]

    # Families.

    def _build_on(self, node: ast.ClassDef, base: ast.expr) -> None:
        """Join a class with its base, or note that the base is foreign."""
        base = base.value if isinstance(base, ast.Subscript) else base
        if own := self.named(base):
            self._join([node, *own])
        if not self._is_plain_base(base):
            self._family[node].is_plain = False
            if not self._is_imported(base):  # it may be any class of the file
                self._join([*self._family])

    def _is_plain_base(self, base: ast.expr) -> bool:
        if isinstance(base, ast.Name):
            kinds = self._stands_for(base)[1]
            if not kinds:
                return hasattr(builtins, base.id) and base.id != "str"  # whose `format` reads
            if kinds == {"class"}:
                return True
        return self._is_imported(base) and self._imported.paths(base) <= PLAIN_BASES

    def _is_imported(self, base: ast.expr) -> bool:
        """Whether a base is an imported thing or Python's own, and nothing else."""
        while isinstance(base, ast.Attribute):
            base = base.value
        return isinstance(base, ast.Name) and self._stands_for(base)[1] <= {"import"}

    def _join(self, kinds: list[ast.ClassDef]) -> None:
        families = {id(self._family[kind]): self._family[kind] for kind in kinds}.values()
        whole = max(families, key=lambda family: len(family.members))
        for family in families:
            if family is not whole:
                whole.members += family.members
                whole.is_plain &= family.is_plain
                self._family |= dict.fromkeys(family.members, whole)

    # Nodes of trees.

    def leads_to(self, decorator: ast.expr) -> frozenset[str]:
        """What a decorator is: of `@partial(f, ...)` and `@f(...)`, `f`."""
        if isinstance(decorator, ast.Call):
            called = self._imported.paths(decorator.func)
            if called == {"functools.partial"} and decorator.args:
                return self._imported.paths(decorator.args[0])
            return called
        return self._imported.paths(decorator)

    def _registers(self, node: ast.expr) -> bool:
        return bool(self.leads_to(node) & NODES)

    def _makes_all_again(self, family: _Family) -> bool:
        """Whether objects that were taken apart become objects of their own family again."""
        taken = [node for node in family.nodes if self.leads_to(node) & UNFLATTENED]
        calls = [node for node in taken if isinstance(node, ast.Call) and node.args]
        given = [part for call in calls for part in self._given(call)]
        methods = [] if len(calls) == len(taken) else self._methods(family, "tree_unflatten")
        enough = len(calls) == len(taken) or bool(methods)
        return enough and all(self._returns_one(one, family) for one in (*given, *methods))

    def _methods(self, family: _Family, name: str) -> list[ast.AST]:
        """All that the classes of a family bind to a name."""
        scopes = [self._scopes.at(kind.body[0]) for kind in family.members]
        return [binding.node for scope in scopes for binding in scope.bindings.get(name, [])]

    def _given(self, call: ast.Call) -> list[ast.AST]:
        """What a call registers to put objects together; the call itself if that is not shown."""
        given = [*call.args[2:3], *(k.value for k in call.keywords if k.arg == "unflatten_func")]
        match given:
            case [ast.Name(id=name) as one]:
                found = [binding.node for binding in self._scopes.at(one).bound(name)]
            case [ast.Attribute(value=holder, attr=name)] if kinds := self.named(holder):
                found = self._methods(self._family[kinds[0]], name)
            case [one]:
                found = [one]
            case _:
                found = []
        shown = found and not any(isinstance(one, ast.Starred) for one in call.args)
        return found if shown else [call]

    def _returns_one(self, function: ast.AST, family: _Family) -> bool:
        """Whether a function returns objects of the family, and nothing else."""
        if isinstance(function, ast.Lambda):
            return self._is_one(function.body, family)
        if not isinstance(function, ast.FunctionDef):
            return False
        kinds = [getattr(one, "id", "") for one in function.decorator_list]
        nodes = list(own_nodes(function.body))
        values = [node.value for node in nodes if isinstance(node, ast.Return)]
        yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes)
        return (
            {*kinds} <= {"classmethod", "staticmethod"}
            and bool(values)
            and not yields
            and all(value is not None and self._is_one(value, family) for value in values)
        )

    def _is_one(self, value: ast.expr, family: _Family) -> bool:
        """Whether a value is `A(...)`, or `cls(...)` in a class method."""
        called = value.func if isinstance(value, ast.Call) else None
        if not isinstance(called, ast.Name):
            return False
        own, kinds = self._stands_for(called)
        if kinds == {"class"}:
            return self._family[own[0]] is family
        scope = self._scopes.at(called).find(called.id)
        if not (scope and isinstance(scope.node, ast.FunctionDef)):
            return False
        bound, args = scope.bindings[called.id], scope.node.args
        decorated = [getattr(one, "id", "") for one in scope.node.decorator_list]
        first = [*args.posonlyargs, *args.args][:1]
        return decorated == ["classmethod"] and [one.node for one in bound] == first
