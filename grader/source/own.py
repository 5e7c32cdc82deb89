"""Knows what a file itself makes: classes, functions, and objects of its classes.

Scopes come from `grader.source.scopes`, imports from `grader.source.imported_names`, the families
of classes from `grader.source.classes`. Whatever may also be something else, on any way through the
file, does not count. What is refused is for `grader.source.policy`.
"""

import ast
from collections.abc import Callable
from typing import NamedTuple

from grader.source.allowed import BINDING, MAKERS, TRACING
from grader.source.classes import Classes
from grader.source.imported_names import Imported
from grader.source.scopes import Binding, Scope, Scopes


class _Shape(NamedTuple):
    """How many arguments a method takes as a plain function, its object included."""

    least: int
    most: int
    takes_more: bool
    is_bound: bool
    """Whether it is a property or a class method: both get their object in any case."""


class Own:
    """What the file itself makes: classes, functions, and objects of its classes."""

    def __init__(self, scopes: Scopes, imported: Imported) -> None:
        self._scopes, self._imported = scopes, imported
        self._classes = Classes(scopes, imported)
        self._hands_on: bool | None = None
        self._known: dict[tuple[Scope, str, str], bool] = {}
        self._parts: dict[str, list[ast.expr | None]] = {}
        self._sets_any_part = False
        self._made_of: dict[object, list[ast.ClassDef]] = {}
        self._own_parts: dict[str, bool] = {}
        self._kinds_of: dict[ast.expr, list[ast.ClassDef] | None] = {}
        self._trusted: dict[ast.FunctionDef, str] = {}
        self._noted: set[Scope] = set()
        self._trusting: dict[str, set[_Shape]] = {}
        self._find_parts()
        self._find_trusting()

    def is_class(self, node: ast.expr) -> bool:
        """Whether a name stands for a class of the file, and for nothing else."""
        return self._is_all(node, "class", self._is_plain_class)

    def is_function(self, node: ast.expr) -> bool:
        """Whether a name stands for a plain function of the file, and for nothing else."""
        return self._is_all(node, "function", self._is_plain_function)

    def _is_plain_function(self, binding: Binding) -> bool:
        node = binding.node
        return isinstance(node, ast.FunctionDef) and all(
            self._imported.paths(decorator) == {"functools.singledispatch"}
            for decorator in node.decorator_list
        )

    def _is_all(self, node: ast.expr, kind: str, fits: Callable[[Binding], bool]) -> bool:
        """Whether everything that a name is bound to is of one kind, and fits."""
        if not isinstance(node, ast.Name):
            return False
        scope = self._scopes.at(node).find(node.id)
        if scope is None:
            return False
        key = (scope, node.id, kind)
        if key not in self._known:
            bindings = scope.bindings.get(node.id, [])
            self._known[key] = bool(bindings) and all(b.kind == kind and fits(b) for b in bindings)
        return self._known[key]

    def _is_plain_class(self, binding: Binding) -> bool:
        """Whether no decorator may put something else in the place of a class."""
        node = binding.node
        return isinstance(node, ast.ClassDef) and all(
            self._classes.leads_to(decorator) & (MAKERS | {"enum.unique"})
            for decorator in node.decorator_list
        )

    def is_mine(self, node: ast.expr) -> bool:
        """Whether an expression is an object of the file's own: `self`, or made by its class."""
        return self._kinds(node) is not None

    def has(self, node: ast.expr, name: str) -> bool:
        """Whether an object is the file's own, and holds under this name what the file gave it.

        Objects with a foreign base hold under other names what the base gave them.
        """
        kinds = self._kinds(node)
        return kinds is not None and self._is_free(kinds, name)

    def is_private_part(self, node: ast.expr, name: str) -> bool:
        """Whether this is a private name of a class of the file."""
        private = name.startswith("_") and not name.startswith("__")
        return private and self.is_class(node) and self._is_free(self._classes.named(node), name)

    def _is_free(self, kinds: list[ast.ClassDef], name: str) -> bool:
        stored = name in self._parts or self._sets_any_part
        return stored or all(map(self._classes.is_plain, kinds))

    def is_plain(self, node: ast.expr) -> bool:
        """Whether an expression is an object of the file's own that builds on nothing foreign."""
        kinds = self._kinds(node)
        return kinds is not None and all(map(self._classes.is_plain, kinds))

    def _kinds(self, node: ast.expr) -> list[ast.ClassDef] | None:
        """The classes that an object of the file's own may be of; None if it may be another."""
        if node not in self._kinds_of:
            self._kinds_of[node] = self._find_kinds(node)
        return self._kinds_of[node]

    def _find_kinds(self, node: ast.expr) -> list[ast.ClassDef] | None:
        match node:
            case ast.Name():
                if self._is_self(node):
                    return self._holder(node)
                return self._kinds_of_name(node) if self._is_instance(node) else None
            case ast.Call(func=ast.Name(id="super") as func, args=[]):
                return self._holder(node) if self._scopes.may_be_builtin(func) else None
            case ast.Call(func=func):
                return self._classes.named(func) if self._makes(func) else None
            case ast.Attribute(value=value, attr=attr) if self._is_own_part(attr):
                kinds = self._kinds(value)
                if kinds and all(map(self._is_whole, kinds)):
                    return self._made(attr, self._parts[attr])
        return None

    def _is_whole(self, kind: ast.ClassDef) -> bool:
        """Whether the attributes of an object are those that the file sets, and no others."""
        return self._classes.is_plain(kind) and not self._classes.is_node(kind)

    def _holder(self, node: ast.expr) -> list[ast.ClassDef]:
        """The class in whose method an expression stands."""
        scope: Scope | None = self._scopes.at(node)
        if isinstance(node, ast.Name):
            scope = self._scopes.at(node).find(node.id)
        while scope and not isinstance(scope.node, ast.ClassDef):
            scope = scope.parent
        return [scope.node] if scope and isinstance(scope.node, ast.ClassDef) else []

    def _kinds_of_name(self, node: ast.Name) -> list[ast.ClassDef]:
        key = self._scopes.at(node).find(node.id), node.id
        if key not in self._made_of:
            bound = self._scopes.at(node).bound(node.id)
            self._made(key, [binding.value for binding in bound])
        return self._made_of[key]

    def _made(self, key: object, values: list[ast.expr | None]) -> list[ast.ClassDef]:
        """The classes of new objects, which are the values of what `key` stands for."""
        if key not in self._made_of:
            calls = [value.func for value in values if isinstance(value, ast.Call)]
            kinds = [kind for called in calls for kind in self._classes.named(called)]
            self._made_of[key] = list(dict.fromkeys(kinds))
        return self._made_of[key]

    def is_of_the_file(self, node: ast.expr) -> bool:
        """Whether an expression is a class, a function or an object that the file makes."""
        return self.is_mine(node) or self.is_class(node) or self.is_function(node)

    def _is_self(self, node: ast.Name) -> bool:
        """Whether a name is the first parameter of a method, which nothing else can be."""
        scope = self._scopes.at(node).find(node.id)
        if scope is None or not isinstance(scope.node, ast.FunctionDef):
            return False
        return self._trusts(scope.node) == node.id and len(scope.bindings[node.id]) == 1

    def _trusts(self, node: ast.FunctionDef) -> str:
        """The name of a method's own object, or "" if it may be called with another."""
        if node not in self._trusted:
            self._trusted[node] = self._own_object(node)
        return self._trusted[node]

    def _own_object(self, node: ast.FunctionDef) -> str:
        args = [*node.args.posonlyargs, *node.args.args]
        holder = self._scopes.parent.get(node)
        if not (args and isinstance(holder, ast.ClassDef)):
            return ""
        name = args[0].arg
        traced = any(self._traces(decorator, name) for decorator in node.decorator_list)
        if traced and self._classes.is_remade(holder):
            return ""
        return name if all(map(self._binds, node.decorator_list)) else ""

    def _traces(self, decorator: ast.expr, name: str) -> bool:
        """Whether JAX may take a method's object apart: it is an argument, and not a static one."""
        given = decorator.keywords if isinstance(decorator, ast.Call) else []
        static = [one.value for one in given if (one.arg or "").startswith("static_arg")]
        parts = [part for one in static for part in getattr(one, "elts", [one])]
        fixed = any(isinstance(one, ast.Constant) and one.value in (0, name) for one in parts)
        return bool(self._classes.leads_to(decorator) & TRACING) and not fixed

    def _binds(self, decorator: ast.expr) -> bool:
        """Whether a decorated method still gets its own object."""
        match decorator:
            case ast.Name(id="property" | "classmethod") as name:
                return self._scopes.may_be_builtin(name)
            case ast.Attribute(value=ast.Name(), attr="setter" | "deleter" | "getter"):
                return not self._imported.paths(decorator)
        leads_to = self._classes.leads_to(decorator)
        return bool(leads_to) and leads_to <= BINDING

    def _is_instance(self, node: ast.Name) -> bool:
        """Whether a name is bound to new objects of the file's classes, and to nothing else."""
        return self._is_all(
            node, "value", lambda b: isinstance(b.value, ast.Call) and self._makes(b.value.func)
        )

    def _makes(self, called: ast.expr) -> bool:
        return self.is_class(called) or self._imported.paths(called) == {"types.SimpleNamespace"}

    def _is_own_part(self, attr: str) -> bool:
        """Whether each attribute of this name that the file sets is an object of its classes."""
        if attr not in self._own_parts:
            values = [] if self._sets_any_part else self._parts.get(attr, [])
            makes = [isinstance(v, ast.Call) and self._makes(v.func) for v in values]
            self._own_parts[attr] = bool(makes) and all(makes)
        return self._own_parts[attr]

    def _find_parts(self) -> None:
        """Note all that the file gives its objects, or its classes, under each name."""
        for node, scope in self._scopes.of.items():
            match node:
                case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                    self._note_part(name, node)
                case ast.Name(id=name, ctx=ast.Store()) if isinstance(scope.node, ast.ClassDef):
                    self._note_part(name, node, holder=scope.node)
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if scope.kind == "class":
                    self._parts.setdefault(name, []).append(None)
                case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=name), _]):
                    self._parts.setdefault(str(name), []).append(None)
                case ast.Name(id="setattr") if not self._is_setattr_of_a_text(node):
                    self._sets_any_part = True

    def _is_setattr_of_a_text(self, node: ast.Name) -> bool:
        match self._scopes.parent[node]:
            case ast.Call(func=func, args=[_, ast.Constant(), _]):
                return func is node
        return False

    def _note_part(self, name: str, node: ast.expr, holder: ast.ClassDef | None = None) -> None:
        """Note one value; None is one that is not known. A number has no attribute to set."""
        around = self._scopes.parent[node]
        value = around.value if isinstance(around, ast.Assign | ast.AnnAssign) else None
        values = self._parts.setdefault(name, [])
        if isinstance(around, ast.AnnAssign) and holder:
            if holder.decorator_list or holder.bases:  # it may be a field, which a call sets
                values.append(None)
                return
            if value is None:
                return
        if not (isinstance(value, ast.Constant) and not isinstance(value.value, str)):
            values.append(value)

    # Methods that trust their first parameter to be their own object.

    def _find_trusting(self) -> None:
        for node, scope in list(self._scopes.of.items()):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            trusted = node.attr.startswith("_") or not isinstance(node.ctx, ast.Load)
            if trusted and self._is_self(node.value):
                self._note(scope.find(node.value.id))
        for node in list(self._scopes.of):
            match node:
                case ast.Call(
                    func=ast.Name(id="setattr" | "getattr" | "delattr" | "hasattr"),
                    args=[ast.Name() as first, *_],
                ) if self._is_self(first):
                    self._note(self._scopes.at(first).find(first.id))

    def _note(self, scope: Scope | None) -> None:
        if scope and isinstance(scope.node, ast.FunctionDef) and scope not in self._noted:
            self._noted.add(scope)
            self._trusting.setdefault(scope.node.name, set()).add(_shape(scope.node))

    def is_unbound_method(self, node: ast.Name) -> bool:
        """Whether a class's body takes a method of its own as a plain function."""
        scope = self._scopes.at(node)
        if scope.kind != "class" or node.id not in self._trusting:
            return False
        around = self._scopes.parent.get(node)
        called = around.func if isinstance(around, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "property":
            return False
        return not (isinstance(around, ast.Attribute) and around.attr in ("setter", "deleter"))

    def may_be_unbound(self, access: ast.Attribute) -> bool:
        """Whether a method of the file may be reached here without its own object."""
        methods = self._trusting.get(access.attr, set())
        if all(method.is_bound for method in methods):
            return False
        if isinstance(access.value, ast.Name) and self.is_class(access.value):
            return not self._passes_self(access)
        if self.is_mine(access.value) or not self._hands_on_classes():
            return False
        if access.attr.startswith("__"):
            return True
        around = self._scopes.parent.get(access)
        if not (isinstance(around, ast.Call) and around.func is access):
            return True
        return any(_fits_unbound(method, around) for method in methods)

    def _hands_on_classes(self) -> bool:
        """Whether a class of the file may stand where the text does not show it."""
        if self._hands_on is None:
            self._hands_on = any(
                self._hands_on_a_class(node)
                if isinstance(node, ast.Name)
                else isinstance(node, ast.Attribute) and node.attr == "type"  # a field's
                for node in self._scopes.of
            )
        return self._hands_on

    def _hands_on_a_class(self, node: ast.Name) -> bool:
        """Whether a name puts a class where it is neither called, nor a base, nor asked about."""
        if not isinstance(node.ctx, ast.Load):
            return False
        is_type = node.id == "type" and self._scopes.may_be_builtin(node)
        if not (is_type or self._may_be_class(node)):
            return False
        whole: ast.AST = node
        around = self._scopes.parent.get(node)
        if is_type and isinstance(around, ast.Call) and around.func is node:
            whole, around = around, self._scopes.parent.get(around)
        match around:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass")):
                return False
            case ast.Call(func=func):
                return func is not whole and not self._imported.paths(func) & MAKERS
            case ast.Attribute(attr=attr):
                return is_type and attr not in ("__name__", "__qualname__")
        return not self._is_about_kinds(whole)

    def _is_about_kinds(self, node: ast.AST) -> bool:
        """Whether an expression is a base, an annotation, a comparison, or caught or raised."""
        around = self._scopes.parent.get(node)
        while isinstance(around, ast.Subscript | ast.BinOp | ast.Tuple):
            node, around = around, self._scopes.parent.get(around)
        match around:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return node not in (*around.args.defaults, *around.args.kw_defaults)
            case ast.AnnAssign(annotation=annotation):
                return annotation is node
        kinds = ast.ClassDef | ast.Compare | ast.Expr | ast.ExceptHandler
        return isinstance(around, kinds | ast.MatchClass | ast.Raise)

    def _may_be_class(self, node: ast.Name) -> bool:
        """Whether a name may stand for a class of the file, `cls` of a class method included."""
        bindings = self._scopes.at(node).bound(node.id)
        return any(b.kind == "class" for b in bindings) or (
            node.id == "cls" and any(b.kind == "param" for b in bindings)
        )

    def _passes_self(self, access: ast.Attribute) -> bool:
        """`Base.__init__(self, ...)`: the method of a class, with the caller's own object."""
        match self._scopes.parent.get(access):
            case ast.Call(func=func, args=[ast.Name() as first, *_]) if func is access:
                return self._is_self(first)
        return False


def _shape(method: ast.FunctionDef) -> _Shape:
    args = method.args
    most = len(args.posonlyargs) + len(args.args) + len(args.kwonlyargs)
    optional = len(args.defaults) + sum(default is not None for default in args.kw_defaults)
    is_bound = any(
        (isinstance(d, ast.Name) and d.id in ("property", "classmethod"))
        or (isinstance(d, ast.Attribute) and d.attr in ("setter", "deleter"))
        for d in method.decorator_list
    )
    return _Shape(most - optional, most, bool(args.vararg or args.kwarg), is_bound)


def _fits_unbound(method: _Shape, call: ast.Call) -> bool:
    """Whether a call has as many arguments as the plain function takes, its object included."""
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        return True
    if any(keyword.arg is None for keyword in call.keywords):
        return True
    given = len(call.args) + len(call.keywords)
    return given >= method.least and (given <= method.most or method.takes_more)
