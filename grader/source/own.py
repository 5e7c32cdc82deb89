"""Knows what a file itself makes: classes, functions, and objects of its classes.

Scopes come from `grader.source.scopes`, imports from `grader.source.imported_names`. Whatever
may also be something else, on any way through the file, does not count. What is refused is for
`grader.source.policy`.
"""

import ast
from collections.abc import Callable

from grader.source.allowed import BINDING, MAKERS
from grader.source.imported_names import Imported
from grader.source.scopes import Binding, Scope, Scopes


class Own:
    """What the file itself makes: classes, functions, and objects of its classes."""

    def __init__(self, scopes: Scopes, imported: Imported) -> None:
        self._scopes, self._imported = scopes, imported
        self._hands_on: bool | None = None
        self._known: dict[tuple[Scope, str, str], bool] = {}
        self._parts: dict[str, list[ast.expr | None]] = {}
        self._trusting: dict[str, list[ast.FunctionDef]] = {}
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
            self._leads_to(decorator) & (MAKERS | {"enum.unique"})
            for decorator in node.decorator_list
        )

    def _leads_to(self, decorator: ast.expr) -> frozenset[str]:
        """What a decorator is: of `@partial(f, ...)` and `@f(...)`, `f`."""
        if isinstance(decorator, ast.Call):
            called = self._imported.paths(decorator.func)
            if called == {"functools.partial"} and decorator.args:
                return self._imported.paths(decorator.args[0])
            return called
        return self._imported.paths(decorator)

    def is_mine(self, node: ast.expr) -> bool:
        """Whether an expression is an object of the file's own: `self`, or made by its class."""
        match node:
            case ast.Name():
                return self._is_self(node) or self._is_instance(node)
            case ast.Call(func=ast.Name(id="super") as func, args=[]):
                return self._scopes.may_be_builtin(func)
            case ast.Call(func=func):
                return self._makes(func)
            case ast.Attribute(attr=attr):
                return self._is_own_part(attr)
        return False

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
        args = [*node.args.posonlyargs, *node.args.args]
        holder = self._scopes.parent.get(node)
        if not (args and isinstance(holder, ast.ClassDef)):
            return ""
        return args[0].arg if all(map(self._binds, node.decorator_list)) else ""

    def _binds(self, decorator: ast.expr) -> bool:
        """Whether a decorated method still gets its own object."""
        match decorator:
            case ast.Name(id="property" | "classmethod") as name:
                return self._scopes.may_be_builtin(name)
            case ast.Attribute(value=ast.Name(), attr="setter" | "deleter" | "getter"):
                return not self._imported.paths(decorator)
        return bool(self._leads_to(decorator)) and self._leads_to(decorator) <= BINDING

    def _is_instance(self, node: ast.Name) -> bool:
        """Whether a name is bound to new objects of the file's classes, and to nothing else."""
        return self._is_all(
            node, "value", lambda b: isinstance(b.value, ast.Call) and self._makes(b.value.func)
        )

    def _makes(self, called: ast.expr) -> bool:
        return self.is_class(called) or self._imported.paths(called) == {"types.SimpleNamespace"}

    def _is_own_part(self, attr: str) -> bool:
        """Whether each attribute of this name that the file sets is an object of its classes."""
        values = self._parts.get(attr, [])
        return bool(values) and all(isinstance(v, ast.Call) and self._makes(v.func) for v in values)

    def _find_parts(self) -> None:
        for node in self._scopes.of:
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                around = self._scopes.parent[node]
                value = around.value if isinstance(around, ast.Assign) else None
                self._parts.setdefault(node.attr, []).append(value)

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
        if scope and isinstance(scope.node, ast.FunctionDef):
            methods = self._trusting.setdefault(scope.node.name, [])
            if scope.node not in methods:
                methods.append(scope.node)

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
        methods = self._trusting.get(access.attr, [])
        if not methods or all(self._is_bound_by_kind(method) for method in methods):
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

    def _is_bound_by_kind(self, method: ast.FunctionDef) -> bool:
        """Whether a property or a class method: both get their object in any case."""
        return any(
            (isinstance(d, ast.Name) and d.id in ("property", "classmethod"))
            or (isinstance(d, ast.Attribute) and d.attr in ("setter", "deleter"))
            for d in method.decorator_list
        )

    def _passes_self(self, access: ast.Attribute) -> bool:
        """`Base.__init__(self, ...)`: the method of a class, with the caller's own object."""
        match self._scopes.parent.get(access):
            case ast.Call(func=func, args=[ast.Name() as first, *_]) if func is access:
                return self._is_self(first)
        return False


def _fits_unbound(method: ast.FunctionDef, call: ast.Call) -> bool:
    """Whether a call has as many arguments as the plain function takes, its object included."""
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        return True
    if any(keyword.arg is None for keyword in call.keywords):
        return True
    args = method.args
    most = len(args.posonlyargs) + len(args.args) + len(args.kwonlyargs)
    optional = len(args.defaults) + sum(default is not None for default in args.kw_defaults)
    given = len(call.args) + len(call.keywords)
    return given >= most - optional and (given <= most or bool(args.vararg or args.kwarg))
