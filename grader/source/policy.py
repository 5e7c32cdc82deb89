"""The source policy: an answer uses what `grader.source.allowed` lists, and nothing else.

It is a fence against shortcuts, not a proof: observed evidence relies on it and on the isolation
of the process (`grader.fences`). What it holds a file to:

- A module or a name of a module has a row in the table. A module stands before a dot, or gets
  another name; it is never handed on as a value.
- A built-in name, and a name with two underscores at each end, is in the table.
- No attribute is private, or belongs to a frame, a coroutine, a traceback or a code object.
  Private names of the file's own objects and classes are free.
- No attribute is stored on what the file did not make.
- `getattr`, `setattr`, `operator.attrgetter` and the like name the attribute in the text.

What stands under `if __name__ == "__main__":` never runs here, and is not read. The text comes
from `grader.source.inspection`.
"""

import ast
import builtins
import difflib
import itertools
import re
import string
from collections.abc import Iterator, Sequence

from grader.records.record import Finding
from grader.source.allowed import (
    ARRAY_ATTRIBUTES,
    BINDABLE,
    BUILTINS,
    HANDLES,
    INSIDE,
    MAKERS,
    NAMING,
    NO_BASES,
    READABLE,
    RENAMED,
    WATCHERS,
    Row,
    table,
)
from grader.source.imported_names import MAX_PATHS, Imported
from grader.source.own import Own
from grader.source.scopes import Scope, Scopes, names_bound
from grader.source.trees import is_main, text_of

MODELS = "flax.nnx"
"""Where an exercise requests this module, its models are changed in place."""
MAX_FINDINGS = 200
"""So many are enough to read, and a hostile file gets no more of the grader's time."""
NEAR = 0.8
"""How alike a name that is refused must be to one that is listed, for the question whether that
was meant; 1 is the same name."""
MAX_PARTS = 8
"""An expression of more parts is not shown whole."""
MAX_TEXTS = 30
"""Of so many texts at most, one may name an attribute."""
NUMBERS = re.compile("(bool|u?int|b?float|complex)[0-9a-z_]*")
"""Names of the types of numbers."""
MAX_STEPS = 5
"""So often a name is followed to the name that it was assigned."""
NAMED_TUPLE = frozenset(("_asdict", "_field_defaults", "_fields", "_make", "_replace"))
_BY_NAME = ("delattr", "getattr", "hasattr", "setattr")
GETTERS = frozenset(("operator.attrgetter", "operator.methodcaller"))
_UNCHANGED = "attributes are set only on what the file itself makes"
_WATCHED = "transfers and compiles are left to the grader to watch"
_CONFIG = "JAX's configuration stays as it is"
_PUBLIC = "public names: private ones change without notice"
_BY_TEXT = "attributes called by name"
_ON_ITS_OWN = "a method is called on its own object"
_NO_VALUE = "a module is used only before a dot"


def violations(tree: ast.Module, allowed: Sequence[str] = ()) -> Iterator[Finding]:
    """Everything in `tree` that the policy refuses, in order of lines.

    `allowed` names the modules that this exercise has on request.
    """
    tree = ast.Module([node for node in tree.body if not is_main(node)], [])
    policy = _Policy(tree, allowed)
    if crowded := policy.imported.crowded:
        yield _finding(crowded, f"a name for at most {MAX_PATHS} imported things", _code(crowded))
        return
    every = (finding for node in list(policy.scopes.of) for finding in policy.judge(node))
    found: dict[tuple[int, str], Finding] = {}
    for finding in itertools.islice(every, MAX_FINDINGS):
        found.setdefault((finding.line or 0, finding.expected), finding)
    yield from (found[place] for place in sorted(found, key=lambda place: place[0]))


class _Policy:
    """The policy, with what it must know of one file."""

    def __init__(self, tree: ast.Module, allowed: Sequence[str]) -> None:
        self.scopes = Scopes(tree)
        self.rows = table(allowed)
        self.models = MODELS in allowed
        self._literals: dict[tuple[Scope, str], list[str] | None] = {}
        self._reached: dict[str, dict[str, None]] = {}
        self.imported = Imported(self.scopes, self.rows)
        self.own = Own(self.scopes, self.imported)

    def judge(self, node: ast.AST) -> Iterator[Finding]:
        """What is refused at this node, apart from the nodes inside it."""
        for name in names_bound(node):
            if _is_dunder(name) and name not in BINDABLE:
                yield _finding(node, f"a solution without `{name}`", f"`{name}`")
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from self._import(node)
            case ast.Name(ctx=ast.Load()):
                yield from self._name(node)
            case ast.Attribute():
                yield from self._attribute(node, node)
                yield from self._value(node)
            case ast.Call():
                yield from self._call(node)
            case ast.Constant(value=str(text)) | ast.keyword(arg=str(text)):
                if _is_dunder(text) and text not in READABLE | BINDABLE | {"__main__"}:
                    yield _finding(node, f"a solution without `{text}`", f"{text!r}")
            case ast.ClassDef() | ast.MatchClass() | ast.Assign():
                yield from self._class(node)

    # Modules and names.

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        text = _code(node)
        if self.scopes.at(node).kind == "class":
            yield _finding(node, "imports stand outside of classes", text)
        for alias in node.names:
            start = (
                "." * node.level + f"{node.module or ''}."
                if isinstance(node, ast.ImportFrom)
                else ""
            )
            path = start + alias.name
            if alias.name == "*":
                yield _finding(node, "every imported name is written out", text)
            elif isinstance(node, ast.Import) and path not in self.rows:
                yield _finding(node, self._expected(path), text)
            elif refused := self.refused(path):
                yield _finding(node, self._expected(refused), text + self._instead(refused))

    def refused(self, path: str) -> str:
        """The part of a dotted name that the table does not allow, or ""."""
        parts = path.split(".")
        if parts[0] not in self.rows:
            return parts[0] or path
        module = parts[0]
        for part in parts[1:]:
            inside = f"{module}.{part}"
            if inside in self.rows:
                module = inside
                continue
            return "" if _lists(self.rows[module], part) else inside
        return ""

    def _expected(self, path: str) -> str:
        """What an answer does without, in words; `path` is refused."""
        parts = path.split(".")
        if parts[0] == "jax" and WATCHERS.intersection(parts):
            return _WATCHED
        if path.startswith("jax.config"):
            return _CONFIG
        if any(part.startswith("_") for part in parts):
            return _PUBLIC
        if parts[0] not in self.rows:
            return f"a solution without the module `{parts[0]}`"
        return f"a solution without `{path}`"

    def _instead(self, path: str) -> str:
        """What may have been meant by a name that is refused, to be said after it; or ""."""
        if path in RENAMED:
            return f": {RENAMED[path]}"
        module, _, name = path.rpartition(".")
        row = self.rows.get(module)
        names = sorted(row.names or ()) if row else []
        near = difflib.get_close_matches(name, names, 1, NEAR)
        return f": did you mean `{module}.{near[0]}`?" if near else ""

    def paths(self, node: ast.AST) -> frozenset[str]:
        """The dotted names that an expression may stand for; empty if it is no imported thing."""
        return self.imported.paths(node)

    def _name(self, node: ast.Name) -> Iterator[Finding]:
        name = node.id
        if name in _BY_NAME and self.scopes.may_be_builtin(node) and not self._is_called(node):
            yield _finding(node, _BY_TEXT, f"`{name}`")
        elif name == "type" and self.scopes.may_be_builtin(node) and not self._asks_for_type(node):
            yield _finding(node, "`type` with one argument", self._around(node))
        elif self.scopes.may_be_builtin(node) and name not in BUILTINS:
            if hasattr(builtins, name) or _is_dunder(name):
                yield _finding(node, f"a solution without `{name}`", f"`{name}`")
        elif self.own.is_unbound_method(node):
            yield _finding(node, _ON_ITS_OWN, f"`{name}`")
        yield from self._value(node)

    def _is_called(self, node: ast.AST) -> bool:
        around = self.scopes.parent.get(node)
        return isinstance(around, ast.Call) and around.func is node

    def _asks_for_type(self, node: ast.Name) -> bool:
        """Whether `type` is called with one argument, or names the kind of all classes."""
        around = self.scopes.parent.get(node)
        match around:
            case ast.Call(func=func, args=[arg], keywords=[]) if func is node:
                return not isinstance(arg, ast.Starred) and not self._is_a_class(arg)
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass")):
                return True
            case ast.Subscript(value=value):
                return value is node
            case ast.Compare() | ast.BinOp():
                return True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return node not in (*around.decorator_list, *around.args.defaults)
            case ast.AnnAssign(annotation=annotation):
                return annotation is node
        return False

    def _is_a_class(self, node: ast.expr, most: int = MAX_STEPS) -> bool:
        """Whether this is a class as far as the text shows: its type makes classes.

        A name is followed to what it was assigned, so many steps at most.
        """
        if isinstance(node, ast.Name):
            if self.scopes.may_be_builtin(node):
                return isinstance(getattr(builtins, node.id, None), type)
            bound = self.scopes.at(node).bound(node.id)[:most]
            values = [binding.value for binding in bound if binding.kind == "value"]
            if any(value and self._is_a_class(value, most - 1) for value in values if most):
                return True
        return self.own.is_class(node) or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "type"
        )

    def _around(self, node: ast.AST) -> str:
        """The text of what a node stands in, if that is a short expression; else its own."""
        around = self.scopes.parent.get(node)
        short = isinstance(around, ast.expr) and len([*ast.iter_child_nodes(around)]) <= MAX_PARTS
        return _code(around if around and short else node)

    def _value(self, node: ast.Name | ast.Attribute) -> Iterator[Finding]:
        """A module, or what changes a class, in a place where the table is left behind."""
        around = self.scopes.parent.get(node)
        if isinstance(around, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return
        found = self.paths(node)
        if any(path in self.rows for path in found) and not self._may_hold_module(node):
            yield _finding(node, _NO_VALUE, self._around(node))
        elif found & GETTERS and not self._is_called(node):
            yield _finding(node, _BY_TEXT, self._around(node))
        elif (makers := found & MAKERS) and not self._makes_own(node, makers):
            yield _finding(node, _UNCHANGED, self._around(node))

    def _may_hold_module(self, node: ast.AST) -> bool:
        """Whether a module gets another name here, or is compared, or is looked into by name."""
        around = self.scopes.parent.get(node)
        if isinstance(around, ast.IfExp | ast.NamedExpr):
            asked = isinstance(around, ast.IfExp) and around.test is node
            return asked or self._may_hold_module(around)
        match around:
            case ast.Assign(targets=targets):
                named = all(isinstance(target, ast.Name) for target in targets)
                return named and self.scopes.at(node).kind != "class"
            case ast.Compare(ops=ops):
                return all(isinstance(op, ast.Is | ast.IsNot) for op in ops)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return node in (*around.args.defaults, *around.args.kw_defaults)
            case ast.Call(func=ast.Name(id=name) as func, args=args):
                return name in _BY_NAME and self.scopes.may_be_builtin(func) and args[0] is node
            case ast.Expr():
                return True
        return False

    def _makes_own(self, node: ast.AST, makers: frozenset[str]) -> bool:
        """Whether a function that changes a class is given one of the file's own."""
        if self._decorates(node, plain="functools.wraps" not in makers):
            return True
        match self.scopes.parent.get(node):
            case ast.Call(func=func, args=[ast.Name() as first, *_]) if func is node:
                return "functools.wraps" not in makers and self.own.is_class(first)
        return False

    def _decorates(self, node: ast.AST, *, plain: bool) -> bool:
        """Whether this decorates: as it is, called without a class, or given to `partial`."""
        around = self.scopes.parent.get(node)
        if isinstance(around, ast.ClassDef | ast.FunctionDef):
            return plain and node in around.decorator_list
        if not isinstance(around, ast.Call):
            return False
        if around.func is node:
            fits = not around.args if plain else len(around.args) == 1 and not around.keywords
        else:
            fits = plain and self.paths(around.func) == {"functools.partial"}
            fits = fits and around.args == [node]
        above = self.scopes.parent.get(around)
        if not fits or not isinstance(above, ast.ClassDef | ast.FunctionDef):
            return False
        return around in above.decorator_list and not _names_class(around)

    # Attributes.

    def _attribute(self, node: ast.AST, access: ast.Attribute) -> Iterator[Finding]:
        modules = sorted(path for path in self.paths(access.value) if path in self.rows)
        if not isinstance(access.ctx, ast.Load):
            yield from self._store(node, access)
        elif modules:
            for refused in filter(None, (self.refused(f"{m}.{access.attr}") for m in modules)):
                text = _code(access) + self._instead(refused)
                yield _finding(node, self._expected(refused), text)
        elif access.attr in ("format", "format_map"):
            yield from self._format(node, access)
        elif expected := self._no_attribute(access):
            yield _finding(node, expected, _code(access))

    def _no_attribute(self, access: ast.Attribute) -> str:
        """What is expected in the place of an attribute that may not be read, or ""."""
        name, base = access.attr, access.value
        if name in INSIDE or (_is_dunder(name) and not self._is_readable(access)):
            return f"a solution without `{name}`"
        if name in NAMING and self._is_a_function(base):
            return f"a solution without `{name}` of an imported function"
        if self.own.has(base, name) or (name == "register" and self.own.is_function(base)):
            return ""
        if name.startswith("_") and not (_is_dunder(name) or self.own.is_private_part(base, name)):
            return "" if name in NAMED_TUPLE else _PUBLIC
        if name in WATCHERS:
            return _WATCHED
        if name in HANDLES:
            return f"a solution without `{name}`"
        return _ON_ITS_OWN if self.own.may_be_unbound(access) else ""

    def _is_readable(self, access: ast.Attribute) -> bool:
        """Whether a name with two underscores at each end may be read here."""
        if access.attr == "__class__":  # its name is that of `type(x)`
            around = self.scopes.parent.get(access)
            return isinstance(around, ast.Attribute) and around.attr in NAMING
        return access.attr in READABLE

    def _is_a_function(self, node: ast.expr) -> bool:
        """Whether this is an imported function; a type of numbers is none."""
        return any(not NUMBERS.fullmatch(path.rpartition(".")[2]) for path in self.paths(node))

    def _store(self, node: ast.AST, access: ast.Attribute) -> Iterator[Finding]:
        if _is_dunder(access.attr) or access.attr in INSIDE:
            yield _finding(node, f"a solution without `{access.attr}`", _code(access))
        elif not (self.own.is_of_the_file(access.value) or self._is_given(access)):
            yield _finding(node, _UNCHANGED, f"{_code(access)} is assigned")

    def _is_given(self, access: ast.Attribute) -> bool:
        """Whether the exercise gives the learner this attribute to set."""
        if self.paths(access) == {"os.environ"}:
            return self._is_merged(access)
        return self.models and self._is_of_a_model(access)

    def _is_merged(self, access: ast.Attribute) -> bool:
        """Whether this is `os.environ |= ...`, which updates that object and assigns no other."""
        around = self.scopes.parent.get(access)
        return isinstance(around, ast.AugAssign) and isinstance(around.op, ast.BitOr)

    def _is_of_a_model(self, access: ast.Attribute) -> bool:
        """Whether this may set an attribute of a model, and replaces none of an array's."""
        base: ast.expr = access.value
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        named = isinstance(base, ast.Name) and not self.paths(base)
        return named and access.attr not in ARRAY_ATTRIBUTES

    def _format(self, node: ast.AST, access: ast.Attribute) -> Iterator[Finding]:
        """`str.format` reaches attributes by their names, so its text must be readable here."""
        texts = self._texts(access.value)
        for text in texts or ():
            yield from self._fields(node, text)
        if not (texts or self.own.is_plain(access.value) or self._is_layout(access)):
            yield _finding(node, "a text is written where it is formatted", _code(access))

    def _fields(self, node: ast.AST, text: str) -> Iterator[Finding]:
        """Attributes that a format text reaches, such as `{0.__class__}`."""
        if text not in self._reached:
            self._reached[text] = dict.fromkeys(_reached(text))
        for part in self._reached[text]:
            if part.startswith("_") or part in INSIDE:
                yield _finding(node, f"a solution without `{part}`", f"{text!r}")

    def _is_layout(self, access: ast.Attribute) -> bool:
        """Whether this is an array's `format`, handed to what places arrays."""
        around = self.scopes.parent.get(access)
        placing = {"jax.device_put", "jax.jit"}
        if isinstance(around, ast.keyword):
            around = self.scopes.parent.get(around)
        if not isinstance(around, ast.Call) or around.func is access:
            return False
        return bool(self.paths(around.func)) and self.paths(around.func) <= placing

    def _call(self, node: ast.Call) -> Iterator[Finding]:
        """`getattr` and the like are judged as the attribute that they name."""
        if isinstance(node.func, ast.Name) and node.func.id in _BY_NAME:
            if self.scopes.may_be_builtin(node.func):
                yield from self._by_name(node, node.func.id)
        elif self.paths(node.func) & GETTERS:
            yield from self._getter(node)
        elif self.paths(node.func) == {"jax.debug.print"}:
            for text in node.args[:1]:
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield from self._fields(node, text.value)

    def _by_name(self, node: ast.Call, called: str) -> Iterator[Finding]:
        target, name = node.args[0] if node.args else None, node.args[1:2]
        names = self._texts(name[0]) if name else None
        starred = any(isinstance(arg, ast.Starred) for arg in node.args)
        if target is None or names is None or starred:
            yield _finding(node, _BY_TEXT, _code(node))
            return
        for text in names:
            context = ast.Store() if called in ("setattr", "delattr") else ast.Load()
            access = ast.Attribute(target, text, context)
            yield from self._attribute(node, access)
            if any(f"{path}.{text}" in self.rows for path in self.paths(target)):
                yield _finding(node, _NO_VALUE, _code(node))

    def _getter(self, node: ast.Call) -> Iterator[Finding]:
        """What reads attributes of things to come is judged as these attributes of anything."""
        plain = "operator.attrgetter" in self.paths(node.func)
        texts = [self._texts(name) for name in (node.args if plain else node.args[:1])]
        if not texts or None in texts:
            yield _finding(node, _BY_TEXT, _code(node))
            return
        for name in ".".join(itertools.chain.from_iterable(filter(None, texts))).split("."):
            yield from self._attribute(node, ast.Attribute(node, name, ast.Load()))

    def _texts(self, node: ast.expr) -> list[str] | None:
        """The texts that an expression may be, if all stand in the file; else None."""
        if not isinstance(node, ast.Name):
            return _literals(node)
        scope = self.scopes.at(node).find(node.id)
        if scope is None:
            return None
        key = (scope, node.id)
        if key not in self._literals:
            found: list[str] | None = []
            for binding in scope.bindings.get(node.id, []):
                value = binding.value if binding.kind in ("loop", "value") else None
                known = value and _literals(value)
                found = None if found is None or not known else [*found, *known]
            self._literals[key] = found or None
        return self._literals[key]

    def _class(self, node: ast.ClassDef | ast.MatchClass | ast.Assign) -> Iterator[Finding]:
        """A class is made by `type`, and a pattern names its attributes in the text."""
        match node:
            case ast.ClassDef(keywords=keywords, name=name, bases=bases):
                made = any(isinstance(base, ast.Call | ast.Starred) for base in bases)
                if made or any(keyword.arg in (None, "metaclass") for keyword in keywords):
                    yield _finding(node, "a class without a metaclass", f"`class {name}`")
                for path in {path for base in bases for path in self.paths(base) & NO_BASES}:
                    expected = f"a class that does not build on `{path}`"
                    yield _finding(node, expected, f"`class {name}`")
            case ast.MatchClass(cls=cls, kwd_attrs=names):
                for name in names:
                    yield from self._attribute(cls, ast.Attribute(cls, name, ast.Load()))
            case ast.Assign(targets=[ast.Name(id="__match_args__")], value=value):
                names = self._texts(value) or [""]
                if any(not name or name.startswith("_") or name in INSIDE for name in names):
                    expected = "`__match_args__` lists public names"
                    yield _finding(value, expected, f"`__match_args__ = {ast.unparse(value)}`")


def _names_class(call: ast.Call) -> bool:
    """Whether a call says by keyword, or not in the text, which class it is about."""
    return any(keyword.arg in (None, "cls", "clz", "nodetype") for keyword in call.keywords)


def _literals(node: ast.expr) -> list[str] | None:
    """The texts of a constant, or of a tuple, list or set of constants; else None."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
    found = [text for text in texts if isinstance(text, str)]
    return found if len(found) == len(parts) <= MAX_TEXTS else None


def _reached(text: str) -> Iterator[str]:
    """The attributes that a format text reaches."""
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError:
        return  # `str.format` says so, when it runs
    for _, name, spec, _ in fields:
        yield from (name or "").replace("[", ".").split(".")[1:]
        if spec and "{" in spec:
            yield from _reached(spec)


def _lists(row: Row, name: str) -> bool:
    """Whether a row allows a name of its module."""
    if row.names is not None:
        return name in row.names
    return not name.startswith("_") and name not in row.but


def _is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def _code(node: ast.AST) -> str:
    return f"`{text_of(node)}`"


def _finding(node: ast.AST, expected: str, observed: str) -> Finding:
    return Finding("policy", getattr(node, "lineno", None), expected, observed)
