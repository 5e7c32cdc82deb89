"""Judges a file without running it: readable, unchanged outside the edits, fair.

Input is the text of a submission and of the solution (which equals the starter outside
the functions an exercise names as `edits`). Output is `Finding`s with lines. What needs
a running program is not here.
"""

import ast
import builtins
import inspect
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from grader.checking import Exercise
from grader.policy import violations
from grader.record import Finding

MAX_BYTES = 1_000_000


class Unreadable(Exception):
    """The file cannot be read as Python source; carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.observed)
        self.finding = finding


def read(path: Path) -> str:
    """Read a submission.

    Raises:
      Unreadable: too large, not UTF-8, empty, or not to be opened.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Unreadable(_file("the file can be read", f"{error.strerror}: {path}")) from error
    if len(raw) > MAX_BYTES:
        raise Unreadable(_file(f"at most {MAX_BYTES:,} bytes", f"{len(raw):,} bytes"))
    if not raw.strip():
        raise Unreadable(_file("Python source", "the file is empty"))
    if b"\0" in raw:
        raise Unreadable(_file("Python source in UTF-8", "the file holds binary data"))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        bad = f"byte 0x{raw[error.start]:02x} is no UTF-8; save the file as UTF-8"
        raise Unreadable(_file("Python source in UTF-8", bad, line)) from error


def _file(expected: str, observed: str, line: int | None = None) -> Finding:
    return Finding("file", line, expected, observed)


def inspect_source(source: str, solution: str, exercise: Exercise) -> list[Finding]:
    """All that is wrong with a submission's text; empty when nothing is."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return [_file("valid Python", f"{type(error).__name__}: {error.msg}", error.lineno)]
    except (RecursionError, MemoryError, ValueError) as error:
        return [_file("valid Python", f"the parser gave up: {type(error).__name__}")]
    original = ast.parse(solution)
    found = [*_names(tree, original, exercise.edits)]
    found = found or [*_outside(tree, original, exercise.edits)]
    return found or [*violations(tree, exercise.allowed_modules)]


def _bound(node: ast.stmt) -> list[str]:
    """The names a top-level statement binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Import(names=names):
            return [(a.asname or a.name).split(".")[0] for a in names]
        case ast.ImportFrom(names=names):
            return [a.asname or a.name for a in names]
    return []


def _definition(tree: ast.Module, name: str) -> ast.stmt | None:
    return next((n for n in reversed(tree.body) if name in _bound(n)), None)


def _names(tree: ast.Module, original: ast.Module, edits: Sequence[str]) -> Iterator[Finding]:
    """Missing functions and wrong signatures."""
    for name in edits:
        mine, theirs = _definition(tree, name), _definition(original, name)
        if mine is None:
            near = _renamed(tree, original)
            observed = f"no `{name}` in the file" + (f"; is `{near}` a new name for it?" if near else "")
            yield Finding("definitions", None, f"the file defines `{name}`", observed)
        elif isinstance(mine, ast.FunctionDef) and isinstance(theirs, ast.FunctionDef):
            yield from _signature(mine, theirs)
        elif isinstance(mine, ast.AsyncFunctionDef):
            yield Finding("definitions", mine.lineno, f"`{name}` is a plain function", "`async def`")


def _renamed(tree: ast.Module, original: ast.Module) -> str:
    known = {name for node in original.body for name in _bound(node)}
    new = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name not in known]
    return new[0] if len(new) == 1 else ""


def _signature(mine: ast.FunctionDef, theirs: ast.FunctionDef) -> Iterator[Finding]:
    """Same parameters in the same order; annotations may differ."""
    got, want = _parameters(mine.args), _parameters(theirs.args)
    if got != want:
        yield Finding(
            "definitions",
            mine.lineno,
            f"`{mine.name}({', '.join(want)})`",
            f"`{mine.name}({', '.join(got)})`",
        )


def _parameters(args: ast.arguments) -> list[str]:
    names = [a.arg for a in args.posonlyargs + args.args]
    names += [f"*{args.vararg.arg}"] if args.vararg else []
    names += [f"{a.arg}=" for a in args.kwonlyargs]
    return names + ([f"**{args.kwarg.arg}"] if args.kwarg else [])


def _outside(tree: ast.Module, original: ast.Module, edits: Sequence[str]) -> Iterator[Finding]:
    """Statements outside the edits: none changed, none lost, nothing given rebound."""
    given = [n for n in original.body if not _edited(n, edits) and not _docstring(n)]
    mine = [n for n in tree.body if not _edited(n, edits) and not _docstring(n)]
    missing = {_text(n) for n in given} - {_text(n) for n in mine}
    kept = {_text(n) for n in given}
    names = {name for node in given for name in _bound(node)} | set(dir(builtins))
    added = [node for node in mine if _text(node) not in kept]
    for node in added:
        yield from _addition(node, names, edits)
    if missing and not any(set(_bound(n)) & names for n in added):
        lost = next(n for n in given if _text(n) in missing)
        first = ast.unparse(lost).splitlines()[0]
        yield Finding("edits", None, f"`{first}` stays as it was", "it is gone")


def _addition(node: ast.stmt, names: Iterable[str], edits: Sequence[str]) -> Iterator[Finding]:
    allowed = isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
    only = f"only {', '.join(f'`{e}`' for e in edits)} changes; imports and helpers may be added"
    bound = sorted(set(_bound(node)) & set(names))
    if bound:
        yield Finding("edits", node.lineno, only, f"`{bound[0]}` is changed or bound again")
    elif not allowed:
        text = ast.unparse(node).splitlines()[0]
        yield Finding("edits", node.lineno, only, f"a new statement at top level: `{text}`")


def _edited(node: ast.stmt, edits: Sequence[str]) -> bool:
    bound = _bound(node)
    return bool(bound) and all(name in edits for name in bound)


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _text(node: ast.stmt) -> str:
    """The statement without its docstrings and layout."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef) and _docstring(inner.body[0]):
            inner.body = inner.body[1:] or [ast.Pass()]
    return inspect.cleandoc(ast.unparse(node))
