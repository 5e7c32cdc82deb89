"""Judges a submission's file without running it.

The file must be readable Python, define what the exercise asks for, leave everything else that
the starter defines as it is, and keep to `grader.source.policy`. At top level, whatever binds
new names may be added, and calls of what the file or a module defines. A given name may be
written in another way if its value is the same: `from jax import numpy as jnp`, `2 * 2` for 4.

Input is the text of the submission and of the solution, which equals the starter outside the
edits. Output is `Finding`s with lines. What needs a running program is not here.
"""

import ast
import builtins
import copy
import io
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType

from grader.records.record import Finding
from grader.source.allowed import table
from grader.source.imported_names import Imported
from grader.source.policy import violations
from grader.source.scopes import Binding, Scopes
from grader.source.trees import is_main, names_in, text_of

MAX_BYTES = 100_000
"""Far more than an answer needs. To read so much takes no more than a few seconds."""
MUTATORS = frozenset(
    (
        *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"),
        *("reverse", "setdefault", "sort", "update", "__setitem__", "__delitem__", "__iadd__"),
        *("__imul__", "__ior__", "__iand__", "__isub__", "__ixor__"),
    )
)
"""Methods that change the object they belong to."""
CHANGING = frozenset(
    (
        *("operator.setitem", "operator.delitem", "operator.iadd", "operator.iand"),
        *("operator.imul", "operator.ior", "operator.isub", "operator.ixor", "operator.iconcat"),
        *("heapq.heapify", "heapq.heappop", "heapq.heappush", "heapq.heappushpop"),
        *("heapq.heapreplace", "bisect.insort", "bisect.insort_left", "bisect.insort_right"),
        "random.shuffle",
    )
)
"""Functions that change what they are given first."""


class Unreadable(Exception):
    """The file cannot be read as Python source; carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.observed)
        self.finding = finding


def read(path: Path) -> str:
    """Read a submission; every line ends with a line feed, whatever it ends with in the file.

    Raises:
      Unreadable: the file is too large, not UTF-8 or empty, or cannot be opened.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(_file("the file can be read", f"{error.strerror}: {path}")) from error
    if len(raw) > MAX_BYTES:
        raise Unreadable(_file(f"at most {MAX_BYTES:,} bytes", f"{path.stat().st_size:,} bytes"))
    if not raw.strip():
        raise Unreadable(_file("Python source", "the file is empty"))
    if b"\0" in raw:
        raise Unreadable(_file("Python source in UTF-8", "the file holds binary data"))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        bad = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise Unreadable(_file("Python source in UTF-8", bad, line)) from error
    if not _declares_what_python_reads(raw):
        line = next(n for n, text in enumerate(raw.split(b"\n"), 1) if b"coding" in text)
        bad = "Python cannot read the file with this encoding; save it as UTF-8, without this line"
        raise Unreadable(_file("Python source in UTF-8", bad, line))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _declares_what_python_reads(raw: bytes) -> bool:
    """Whether Python can read a file with the encoding that its first lines may declare."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return b"#".decode(encoding) == "#"
    except (SyntaxError, UnicodeError, LookupError):
        return False


def _file(expected: str, observed: str, line: int | None = None) -> Finding:
    return Finding("file", line, expected, observed)


def inspect_source(
    source: str, solution: str, edits: Sequence[str], allowed: Sequence[str] = ()
) -> list[Finding]:
    """All that is wrong with a submission's text; empty when nothing is.

    `edits` are the names that a learner may define anew, `allowed` the modules that this exercise
    lets a file use, and others do not.
    """
    try:
        with warnings.catch_warnings():  # they belong to the run, not to the grader's output
            warnings.simplefilter("ignore", SyntaxWarning)
            return _inspect(ast.parse(source), ast.parse(solution), edits, allowed)
    except SyntaxError as error:
        return [_file("valid Python", f"{type(error).__name__}: {error.msg}", error.lineno)]
    except (RecursionError, MemoryError, ValueError) as error:
        observed = f"it is nested too deeply ({type(error).__name__})"
        return [_file("code that Python can parse", observed, _deepest_line(source))]


def _deepest_line(source: str) -> int | None:
    """The line of the piece of code that is nested most deeply; None if Python cannot parse it."""
    try:
        left: list[tuple[ast.AST, int, int]] = [(ast.parse(source), 0, 0)]
    except (RecursionError, MemoryError, ValueError):
        return None
    deepest = line = 0
    while left:
        node, above, depth = left.pop()
        above = getattr(node, "lineno", above)
        if depth > deepest:
            deepest, line = depth, above
        left += [(child, above, depth + 1) for child in ast.iter_child_nodes(node)]
    return line


def _inspect(
    tree: ast.Module, original: ast.Module, edits: Sequence[str], allowed: Sequence[str]
) -> list[Finding]:
    file = _File(tree, original, edits)
    found = list(file.wrong_definitions())
    found = found or list(_other_mains(tree)) or list(file.changes_outside())
    return found or list(violations(tree, allowed))


def _other_mains(tree: ast.Module) -> Iterator[Finding]:
    """What is meant to run when the learner runs the file, and is written in another way."""
    for node in tree.body:
        if not isinstance(node, ast.If) or is_main(node):
            continue
        texts = {one.value for one in ast.walk(node.test) if isinstance(one, ast.Constant)}
        if "__name__" in names_in(node.test) and "__main__" in texts:
            more = " with `else`" if node.orelse else ""
            expected = 'only `if __name__ == "__main__":`, without a second condition or `else`'
            observed = f"`if {text_of(node.test)}:`{more}"
            yield Finding("edits", node.lineno, expected, observed)


class _File:
    """A submission beside the solution, which equals the starter outside `edits`."""

    def __init__(self, tree: ast.Module, original: ast.Module, edits: Sequence[str]) -> None:
        self._edits = edits
        self._mine, self._theirs = Scopes(_without_main(tree)), Scopes(_without_main(original))
        self._imported = Imported(self._mine, table())
        given = self._theirs.module.bindings
        self._given = {name: bound for name, bound in given.items() if name not in edits}
        names = " and ".join(f"`{edit}`" for edit in edits)
        self._rule = f"only {names} changed, imports and helpers added"

    # What the exercise asks for.

    def wrong_definitions(self) -> Iterator[Finding]:
        """Missing functions and wrong signatures."""
        for name in self._edits:
            mine = self._mine.module.bindings.get(name)
            theirs = self._theirs.module.bindings[name][-1].node
            if mine is None:
                near = self._renamed()
                hint = f"; is `{near}` a new name for it?" if near else ""
                observed = f"no `{name}` in the file{hint}"
                yield Finding("definitions", None, f"the file defines `{name}`", observed)
            elif isinstance(last := mine[-1].node, ast.AsyncFunctionDef):
                yield Finding("definitions", last.lineno, "a plain function", f"`async def {name}`")
            elif (
                isinstance(last, ast.FunctionDef)
                and isinstance(theirs, ast.FunctionDef)
                and not self._changed_by_own(last)
            ):
                yield from _signature(last, theirs)

    def _changed_by_own(self, function: ast.FunctionDef) -> bool:
        """Whether a decorator of the file's own may give a function other parameters."""
        nodes = (node for one in function.decorator_list for node in ast.walk(one))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        own = (
            bound[-1].node for name, bound in self._mine.module.bindings.items() if name in names
        )
        return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in own)

    def _renamed(self) -> str:
        """The only function that is new, and so may be a renamed one, or ""."""
        new = [
            name
            for name, bound in self._mine.module.bindings.items()
            if name not in self._theirs.module.bindings
            and isinstance(bound[-1].node, ast.FunctionDef)
        ]
        return new[0] if len(new) == 1 else ""

    # What stays as it is.

    def changes_outside(self) -> Iterator[Finding]:
        """What was changed, lost, bound again or wrongly added outside the edits."""
        module = self._mine.module
        for name, bound in module.bindings.items():
            for binding in bound:
                if problem := self._bound_again(name, binding):
                    yield self._finding(binding.node, problem)
        for name in sorted(module.deleted & (self._given.keys() | module.bindings.keys())):
            if name in self._given:
                yield self._finding(None, f"`del {name}`")
        yield from self._changed_in_place()
        yield from self._calls_at_top()
        yield from self._lost()

    def _finding(self, node: ast.AST | None, observed: str) -> Finding:
        return Finding("edits", getattr(node, "lineno", None), self._rule, observed)

    def _bound_again(self, name: str, binding: Binding) -> str:
        """What is wrong with a name that the file binds at top level, or ""."""
        if name == "*":
            return f"`{ast.unparse(binding.node)}` may bind anything again"
        if name in self._given:
            known = any(_same(binding, given) for given in self._given[name])
            return "" if known else f"`{name}` is changed or bound again"
        if hasattr(builtins, name) and name not in self._edits:
            return f"`{name}` is changed or bound again"
        return ""

    def _changed_in_place(self) -> Iterator[Finding]:
        """Given objects whose parts or attributes are set, or whose changing methods are named."""
        for node in self._mine.of:
            changes = isinstance(node, ast.Attribute | ast.Subscript) and self._changes_given(node)
            if changes or (isinstance(node, ast.Call) and self._hands_given(node)):
                yield self._finding(node, f"`{ast.unparse(node)}` changes what was given")

    def _changes_given(self, node: ast.Attribute | ast.Subscript) -> bool:
        if isinstance(node.ctx, ast.Load):
            changes = isinstance(node, ast.Attribute) and node.attr in MUTATORS
            return changes and self._is_container(node.value)
        return self._is_of_given_object(node)

    def _hands_given(self, call: ast.Call) -> bool:
        """Whether a given object is handed to a function or method that changes it."""
        match call:
            case ast.Call(func=ast.Name(id="setattr" | "delattr") as func, args=[first, *_]):
                return self._mine.may_be_builtin(func) and self._is_of_given_object(first)
            case ast.Call(
                func=ast.Attribute(value=ast.Name() as kind, attr=attr), args=[first, *_]
            ):
                if attr in MUTATORS and self._mine.may_be_builtin(kind):
                    return self._is_container(first)
        changes = bool(self._imported.paths(call.func) & CHANGING)
        return changes and self._is_container(call.args[0] if call.args else call.func)

    def _is_of_given_object(self, node: ast.expr) -> bool:
        """Whether this is a given object, or a part of one."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        return isinstance(node, ast.Name) and self._is_given_object(node)

    def _is_given_object(self, node: ast.Name) -> bool:
        """Whether a name stands for something of the starter's own, and not for a module."""
        if node.id not in self._given or self._mine.at(node).find(node.id) != self._mine.module:
            return False
        return all(binding.kind != "import" for binding in self._given[node.id])

    def _is_container(self, node: ast.expr) -> bool:
        """Whether this is a list, dict or set of the starter's own, or an item of one."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        kinds = ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp
        return self._is_given_object(node) and any(
            isinstance(binding.value, kinds) for binding in self._given[node.id]
        )

    def _calls_at_top(self) -> Iterator[Finding]:
        """Calls at top level of what neither the file nor a module defines."""
        for node in self._mine.of:
            if not isinstance(node, ast.Expr) or self._mine.at(node).kind != "module":
                continue
            match node.value:
                case ast.Call(func=ast.Name() as name) if self._mine.may_be_builtin(name):
                    text = ast.unparse(node).splitlines()[0]
                    yield self._finding(node, f"a new statement at top level: `{text}`")

    def _lost(self) -> Iterator[Finding]:
        """The first given name that is gone; an import that nothing uses may go."""
        for name, bound in self._given.items():
            if name in self._mine.module.bindings:
                continue
            if bound[-1].kind == "import" and not self._is_read(name):
                continue
            text = _text(bound[-1].node)
            line = next(line for line in text.splitlines() if not line.startswith("@"))
            yield Finding("edits", None, f"`{line}` stays as it was", "it is gone")
            return

    def _is_read(self, name: str) -> bool:
        return any(isinstance(node, ast.Name) and node.id == name for node in self._mine.of)


def _without_main(tree: ast.Module) -> ast.Module:
    """The file without what runs only when the learner runs it."""
    return ast.Module([node for node in tree.body if not is_main(node)], [])


def _same(mine: Binding, given: Binding) -> bool:
    """Whether a name gets the value that it has in the starter."""
    if mine.kind != given.kind:
        return False
    if mine.kind == "import":
        return mine.path == given.path
    if mine.kind == "value" and mine.value is not None and given.value is not None:
        plain = all(_names_one(binding.node) for binding in (mine, given))
        if plain:
            texts = ast.unparse(mine.value), ast.unparse(given.value)
            return texts[0] == texts[1] or _constant(mine.value) == _constant(given.value) != ""
    return _text(mine.node) == _text(given.node)


def _names_one(node: ast.AST) -> bool:
    """Whether an assignment gives its whole value to one name."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return all(isinstance(target, ast.Name) for target in targets)


def _constant(node: ast.expr) -> str:
    """The value of an expression of constants, which Python itself works out, or ""."""
    code = compile(ast.Expression(node), "<constant>", "eval")
    plain = not code.co_names and len(code.co_consts) == 1
    value = code.co_consts[0] if plain else None
    is_plain = plain and not isinstance(value, CodeType) and len(code.co_code) <= _CONSTANT_CODE
    return f"{type(value).__name__} {value!r}" if is_plain else ""


_CONSTANT_CODE = len(compile("1", "<constant>", "eval").co_code)


def _signature(mine: ast.FunctionDef, theirs: ast.FunctionDef) -> Iterator[Finding]:
    """Same parameters in the same order; annotations may differ, and more may have defaults."""
    got, want = _parameters(mine.args), _parameters(theirs.args)
    if got != want and _needed(mine.args, len(theirs.args.args)) != want:
        yield Finding(
            "definitions",
            mine.lineno,
            f"`def {mine.name}({', '.join(want)})`",
            f"`def {mine.name}({', '.join(got)})`",
        )


def _parameters(args: ast.arguments) -> list[str]:
    names = [a.arg for a in args.posonlyargs + args.args]
    names += [f"*{args.vararg.arg}"] if args.vararg else []
    names += [f"{a.arg}=" for a in args.kwonlyargs]
    return names + ([f"**{args.kwarg.arg}"] if args.kwarg else [])


def _needed(args: ast.arguments, count: int) -> list[str]:
    """The parameters without those beyond the first `count` that need no argument."""
    optional = min(len(args.defaults), max(len(args.args) - count, 0))
    needed = [
        one for one, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if not value
    ]
    first = args.args[: len(args.args) - optional]
    return _parameters(
        ast.arguments(args.posonlyargs, first, args.vararg, needed, [], args.kwarg, [])
    )


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@lru_cache(64)
def _text(node: ast.AST) -> str:
    """The statement without its docstrings, its functions' annotations and its layout."""
    node = copy.deepcopy(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef) and _docstring(inner.body[0]):
            inner.body = inner.body[1:] or [ast.Pass()]
        if isinstance(inner, ast.FunctionDef):
            inner.returns = None
        elif isinstance(inner, ast.arg):
            inner.annotation = None
    return ast.unparse(node)
