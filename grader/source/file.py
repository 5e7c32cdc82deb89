"""A learner's file: what it defines, what does the work of a definition, and where a node stands.

The text may be any text, valid Python or not.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

from grader.records.lines import lines_of
from grader.records.record import EventKind
from grader.records.verdict import Culprit
from grader.source.inlined import inlined
from grader.source.trees import Definition, Function, names_in, outermost, text_of

_NUMBERS = frozenset(("float", "int", "bool", "complex", "item", "tolist"))

_READS = _NUMBERS | {"print", "asarray", "array", "device_get", "str", "repr", "format"}

_CAUSES: dict[EventKind, frozenset[str]] = {
    "d2h": _READS,
    "h2d": frozenset(["asarray", "array", "device_put", "zeros", "ones", "full", "arange"]),
    "d2d": frozenset(("device_put",)),
    "wait": frozenset(("block_until_ready", "effects_barrier", "is_ready")),
}
"""What a call that causes an event is usually named."""


class File:
    """A learner's file."""

    def __init__(self, source: str) -> None:
        self.lines = lines_of(source)
        self._source = source

    @cached_property
    def tree(self) -> ast.Module:
        """What the file holds; nothing if it is not valid Python."""
        try:
            return ast.parse(self._source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.Module([], [])

    def defined(self, name: str) -> ast.stmt | None:
        """The last statement at the top level that gives `name` a value: the one that holds.

        What it leaves to a function inside itself, or to a method, stands in the place of the call.
        """
        return self._definitions.get(name)

    @cached_property
    def _definitions(self) -> dict[str, ast.stmt]:
        """The last statement that gives each name a value."""
        body = self.in_place(self.names)
        return {name: node for node in body for name in names_of(node)}

    def in_place(self, kept: Sequence[str]) -> list[ast.stmt]:
        """The file with its helpers in the place of their calls, but for the top-level `kept`."""
        return _in_place(self._source, frozenset(kept))

    def written(self, name: str) -> list[ast.stmt]:
        """The statements that make what is called `name`, from its own to the one that does it.

        `step = jax.jit(_step)` and a function that does nothing but call another one lead on.
        """
        found: list[ast.stmt] = []
        while (node := self.defined(name)) is not None and node not in found:
            found.append(node)
            functions = sorted(names_in(_called_alone(node)) & set(self.names))
            kinds = [(one, self.defined(one)) for one in functions]
            own = [one for one, kind in kinds if isinstance(kind, Function)]
            name = (own or functions)[0] if len(own or functions) == 1 else ""
        return found

    def doing(self, name: str) -> Function | None:
        """The function at the top level that does what is called `name`."""
        return next((one for one in self.written(name)[::-1] if isinstance(one, Function)), None)

    @property
    def names(self) -> list[str]:
        """All names that are given a value at the top level, also in an `if` there."""
        return [name for node in outermost(self.tree.body) for name in names_of(node)]

    def function_at(self, line: int) -> str:
        """The innermost function that holds a line, `outer.inner`; "" at the top level."""
        return ".".join(node.name for node in self._around(line))

    def top_level_at(self, line: int) -> str:
        """The name of the definition at the top level that holds a line, or ""."""
        held = (node for node in outermost(self.tree.body) if holds(node, line))
        return next((name for node in held for name in names_of(node)), "")

    def calls(self, names: Sequence[str]) -> list[int]:
        """The lines of calls whose function ends in one of `names`: `debug.print`, `print`."""
        found = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        ends = tuple(f".{name}" for name in names)
        lines = {n.lineno for n in found if f".{text_of(n.func)}".endswith(ends)}
        return sorted(lines)

    def gives(self, argument: str, value: object) -> bool:
        """Whether some call gives the argument of this name just this value."""
        given = (node for node in ast.walk(self.tree) if isinstance(node, ast.keyword))
        return any(text_of(one.value) == repr(value) for one in given if one.arg == argument)

    def naming(self, *texts: str) -> int:
        """The only line on which all these texts stand in quotes, 0 if there is none."""
        lines: dict[int, set[object]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant):
                lines.setdefault(node.lineno, set()).add(node.value)
        found = [line for line, held in lines.items() if held >= {*texts}]
        return found[0] if len(found) == 1 else 0

    def _around(self, line: int) -> list[Definition]:
        found: list[Definition] = []
        body: Sequence[ast.AST] = self.tree.body
        while inner := next((node for node in body if holds(node, line)), None):
            if isinstance(inner, Definition):
                found.append(inner)
            body = list(ast.iter_child_nodes(inner))
        return found

    def marked(self, line: int, kinds: Sequence[EventKind] = ()) -> tuple[int, int]:
        """Columns, from 1, at which the expression to mark on a line begins and has ended.

        That is the name that the line defines, the one call that can have caused events of
        `kinds`, or all that stands on the line.
        """
        text = self.lines[line - 1]
        body = text.split("#", 1)[0] if text.count("#") == 1 and '"' not in text else text
        whole = len(text) - len(text.lstrip()) + 1, max(len(body.rstrip()), 1) + 1
        for node in self._on(line):
            if isinstance(node, Definition):
                begin = text.find(node.name, node.col_offset) + 1
                return begin, begin + len(node.name)
        names = {name for kind in kinds for name in _CAUSES.get(kind, ())}
        calls = [n for n in self._on(line) if isinstance(n, ast.Call) and _called(n) in names]
        if len(calls) != 1:
            return whole
        found = self.place(calls[0])
        return found.column, min(found.end, whole[1])

    def place(self, node: ast.AST) -> Culprit:
        """Where a node is, marked from its first column to its last on the line it begins on."""
        line, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        text = self.lines[line - 1]
        begin = _column(text, getattr(node, "col_offset", 0))
        end = _column(text, getattr(node, "end_col_offset", 0)) if line == last else len(text) + 1
        return Culprit(line, text.strip(), 1, begin, end)

    def names_on(self, line: int) -> list[ast.Name]:
        """The names that stand on a line."""
        return [node for node in self._on(line) if isinstance(node, ast.Name)]

    def _on(self, line: int) -> Iterator[ast.AST]:
        """The nodes that begin on a line, outer ones first."""
        return (node for node in ast.walk(self.tree) if getattr(node, "lineno", 0) == line)


@lru_cache(16)
def _in_place(source: str, kept: frozenset[str]) -> list[ast.stmt]:
    return [*outermost(inlined(File(source).tree, kept).body)]


def _column(text: str, offset: int) -> int:
    """A column that counts characters from 1, of an offset in UTF-8."""
    return len(text.encode()[:offset].decode("utf-8", "ignore")) + 1


def names_of(node: ast.stmt) -> list[str]:
    """The names that a statement at the top level defines."""
    if isinstance(node, Definition):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _called_alone(node: ast.stmt) -> ast.AST:
    """What a definition calls with what it gets, and does nothing else; or what it is made of."""
    body = node.body if isinstance(node, Function) else []
    if isinstance(node, Function) and ast.get_docstring(node) is not None:
        body = body[1:]
    match body or node:
        case [ast.Return(value=ast.Call(func=called) as call)]:
            given = (*call.args, *call.keywords)
            works = any(isinstance(one, ast.Call) for arg in given for one in ast.walk(arg))
            return ast.Pass() if works else called
        case ast.Assign(value=ast.Call() as called):
            return called
    return ast.Pass()


def holds(node: ast.AST, line: int) -> bool:
    begin = min([getattr(node, "lineno", 0), *decorated(node)])
    return begin <= line <= (getattr(node, "end_lineno", 0) or 0)


def decorated(node: ast.AST) -> list[int]:
    return [decorator.lineno for decorator in getattr(node, "decorator_list", ())]


def _called(call: ast.Call) -> str:
    function = call.func
    return getattr(function, "attr", getattr(function, "id", ""))


def reached(file: File, name: str) -> list[ast.stmt]:
    """A definition at the top level, and those that it names, directly or not."""
    names, order = [name], {other: n for n, other in enumerate(dict.fromkeys(file.names))}
    known = {name}
    for one in names:  # which grows
        held = names_in(top) if (top := file.defined(one)) else set()
        names += sorted((held & order.keys()) - known, key=order.__getitem__)
        known |= held
    return [node for node in map(file.defined, names) if node is not None]


def given_names(model: str, edits: Sequence[str]) -> list[str]:
    """What the reference solution defines and a learner may not change."""
    names = [name for node in File(model).tree.body for name in names_of(node)]
    return [name for name in names if name not in edits]
