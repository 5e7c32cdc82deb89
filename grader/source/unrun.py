"""What of a file never ran while it was observed: a pass says nothing about it.

Only functions that ran in part are looked at: what another process calls is not seen here. A block
that ends with raise is meant for another day, and is not among it.
"""

import ast
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from grader.records.verdict import Unrun
from grader.source.file import File, given_names
from grader.source.trees import Definition, Function

_SILENT = (
    ast.Pass | ast.Break | ast.Continue | ast.Assert | ast.Global | ast.Nonlocal | ast.TypeAlias
)
"""Statements that leave no instruction of their own, or only check something."""
_WORKING = ast.Call | ast.BinOp | ast.Subscript | ast.Attribute | ast.Await
"""Expressions of which at least one stands in what is worth to be named."""
_Block = Sequence[ast.stmt | ast.expr]
_At = Sequence[tuple[int, int]]
"""Where something ran, in order."""
_APART = Definition | ast.Lambda | ast.ExceptHandler | ast.match_case
"""What has a body of its own, or is looked at with the statement that it stands in."""


def unrun(text: str, ran: Iterable[Sequence[int]], model: str, edits: Sequence[str]) -> list[Unrun]:
    """What never ran of the learner's own functions, in the order of the text.

    `ran` are pairs of a line, from 1, and a column in bytes, from 0: where the pieces of code begin
    whose instructions ran. `model` is the reference solution, and `edits` is what a learner may
    edit of it.
    """
    file, given = File(text), given_names(model, edits)
    at = sorted((line, column) for line, column in ran)
    own = [node for node in file.tree.body if getattr(node, "name", None) not in given]
    functions = [node for one in own for node in ast.walk(one) if isinstance(node, Function)]
    begun = [one for one in functions if any(_ran(node, at) for node in one.body)]
    blocks = [block for one in begun for block in _idle(one, at)]
    blocks.sort(key=lambda block: (block[0].lineno, block[0].col_offset))
    return [_shown(file, block) for block in blocks]


def _idle(function: ast.AST, at: _At) -> Iterator[_Block]:
    """The blocks of a function that did not run, whole or from somewhere on.

    A function inside has a body of its own, and so has a class.
    """
    left = [function]
    while left:
        node, apart = left.pop(), set[int]()
        for block in _branches(node):
            apart |= {id(one) for one in block}
            idle = (n for n, one in enumerate(block) if _works(one) and not _ran(one, at))
            begin = next(idle, len(block))
            if begin < len(block) and not isinstance(block[-1], ast.Raise):
                yield block[begin:]
            left += [one for one in block[:begin] if not isinstance(one, Definition | ast.Lambda)]
        left += [
            child
            for child in ast.iter_child_nodes(node)
            if id(child) not in apart and not isinstance(child, _APART)
        ]


def _branches(node: ast.AST) -> Iterator[_Block]:
    """The pieces of code inside that run together, or not at all."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            yield from ([body], [orelse])
        case ast.BoolOp(values=[_, *later]):
            yield from ([value] for value in later)
    for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(part, name, None), list) and block:
                yield block


def _works(node: ast.AST) -> bool:
    """Whether it does something that would be seen to run."""
    if isinstance(node, ast.expr):
        return any(isinstance(one, _WORKING) for one in ast.walk(node))
    if isinstance(node, ast.AnnAssign):
        return node.value is not None
    said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return not (said or isinstance(node, _SILENT))


def _ran(node: ast.AST, at: _At) -> bool:
    """Whether an instruction of a node ran."""
    first = bisect_left(at, _begin(node))
    return first < len(at) and at[first] < _end(node)


def _begin(node: Any) -> tuple[int, int]:
    """Where a node begins; of a function, where its decorators do."""
    first = next(iter(getattr(node, "decorator_list", ())), node)
    return first.lineno, first.col_offset


def _end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset


def _shown(file: File, block: _Block) -> Unrun:
    first, last = block[0], block[-1].end_lineno or block[-1].lineno
    line = "".join(file.lines[first.lineno - 1 : first.lineno]).encode()
    end = first.end_col_offset if first.end_lineno == first.lineno else None
    before, text = line[: first.col_offset], line[first.col_offset : end]
    column = len(before.decode("utf-8", "ignore")) + 1
    return Unrun(first.lineno, last, column, text.decode("utf-8", "ignore").strip())
