"""Judges a file without running it: readable, unchanged outside the edits, fair.

Input is the text of a submission and of the solution (which equals the starter outside
the functions an exercise names as `edits`). Output is `Finding`s with lines. What needs
a running program is not here.
"""

import ast
import builtins
import warnings
from collections.abc import Iterator, Sequence
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
    """Read a submission; lines end with a line feed, whatever they end with in the file.

    Raises:
      Unreadable: too large, not UTF-8, empty, or not to be opened.
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
        bad = f"byte 0x{raw[error.start]:02x} is no UTF-8; save the file as UTF-8"
        raise Unreadable(_file("Python source in UTF-8", bad, line)) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _file(expected: str, observed: str, line: int | None = None) -> Finding:
    return Finding("file", line, expected, observed)


def inspect_source(source: str, solution: str, exercise: Exercise) -> list[Finding]:
    """All that is wrong with a submission's text; empty when nothing is."""
    try:
        with warnings.catch_warnings():  # they belong to the run, not to the grader's output
            warnings.simplefilter("ignore", SyntaxWarning)
            return _inspect(ast.parse(source), ast.parse(solution), exercise)
    except SyntaxError as error:
        return [_file("valid Python", f"{type(error).__name__}: {error.msg}", error.lineno)]
    except (RecursionError, MemoryError, ValueError) as error:
        return [_file("code that Python can parse", f"it is nested too deep ({_name_of(error)})")]


def _inspect(tree: ast.Module, original: ast.Module, exercise: Exercise) -> list[Finding]:
    found = [*_names(tree, original, exercise.edits)]
    found = found or [*_outside(tree, original, exercise.edits)]
    return found or [*violations(tree, exercise.allowed_modules)]


def _name_of(error: BaseException) -> str:
    return type(error).__name__


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
            hint = f"; is `{near}` a new name for it?" if near else ""
            observed = f"no `{name}` in the file{hint}"
            yield Finding("definitions", None, f"the file defines `{name}`", observed)
        elif isinstance(mine, ast.FunctionDef) and isinstance(theirs, ast.FunctionDef):
            yield from _signature(mine, theirs)
        elif isinstance(mine, ast.AsyncFunctionDef):
            yield Finding("definitions", mine.lineno, "a plain function", f"`async def {name}`")


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
            f"`def {mine.name}({', '.join(want)})`",
            f"`def {mine.name}({', '.join(got)})`",
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
    texts, kept = [_text(n) for n in mine], [_text(n) for n in given]
    names = {name for node in given for name in _bound(node)}
    added = [node for node, text in zip(mine, texts, strict=True) if text not in kept]
    rule = f"only {' and '.join(f'`{e}`' for e in edits)} changed, imports and helpers added"
    yield from (Finding("edits", line, rule, said) for line, said in _rebound(tree, names))
    for node in added:
        if observed := _addition(node, names):
            yield Finding("edits", node.lineno, rule, observed)
    lost = next((text for text in kept if text not in texts), "")
    if lost and not any(names.intersection(_bound(n)) for n in added):
        line = next(line for line in lost.splitlines() if not line.startswith("@"))
        yield Finding("edits", None, f"`{line}` stays as it was", "it is gone")


def _rebound(tree: ast.Module, names: set[str]) -> Iterator[tuple[int, str]]:
    """Names of the file that a function would bind again from within."""
    for node in ast.walk(tree):
        match node:
            case ast.Global(names=bound):
                for name in sorted(names.intersection(bound)):
                    yield node.lineno, f"`global {name}`"
            case ast.NamedExpr(target=ast.Name(id=name)) if name in names:
                yield node.lineno, f"`{name} :=`"


def _addition(node: ast.stmt, names: set[str]) -> str:
    """What is wrong with a statement that the solution does not have, or nothing."""
    bound = sorted(set(_bound(node)) & (names | set(dir(builtins))))
    text = ast.unparse(node).splitlines()[0]
    if bound:
        return f"`{bound[0]}` is changed or bound again"
    if "*" in _bound(node):
        return f"`{text}` may bind anything again"
    new = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
    allowed = isinstance(node, new) and bool(_bound(node))
    return "" if allowed or _is_main(node) else f"a new statement at top level: `{text}`"


def _is_main(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":` runs when the learner runs the file, never here."""
    main = isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
    return main and isinstance(node, ast.If) and not node.orelse


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
    return ast.unparse(node)
