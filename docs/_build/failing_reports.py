"""Wrong submissions and what their reports say first, for the page that shows some of them.

A page says `{{ failure: ex07 numpy_is_not_a_read }}` alone on a line. It gets the lines of
`tests/variants/ex07_*/wrong/numpy_is_not_a_read.py` that differ from the solution's, with the lines
around them, and the message in `tests/golden/messages`, to which a test holds the grader. Nothing
is graded here. Whole reports, of starters and solutions, are in `captures`.
"""

import ast
import difflib
import re
from pathlib import Path

MARKER = re.compile(r"(?m)^\{\{ failure: (ex\d\d) (\w+) \}\}$")
AROUND, MAX_LINES = 2, 16
_COMMENT = re.compile(r"\s*#[^\"']*$")
_IMPORT = re.compile(r"(import|from) ")


class FailureError(Exception):
    """There is no such variant or message, or the variant differs in too many lines to be shown."""


def fill(markdown: str, root: Path) -> str:
    """Markdown with every marker replaced by the wrong lines and what is said of them."""
    return MARKER.sub(lambda found: _block(root, found[1], found[2]), markdown)


def _block(root: Path, number: str, name: str) -> str:
    solution = next(iter(sorted((root / "solutions").glob(f"{number}_*.py"))), None)
    if solution is None:
        raise FailureError(f"no exercise {number}")
    variant = root / "tests" / "variants" / solution.stem / "wrong" / f"{name}.py"
    message = root / "tests" / "golden" / "messages" / solution.stem / f"{name}.txt"
    for path in (variant, message):
        if not path.is_file():
            raise FailureError(f"no {path.relative_to(root)}")
    wrong = variant.read_text("utf-8").split("\n")
    changed = wrong_lines(wrong, solution.read_text("utf-8").split("\n"))
    if not changed:
        raise FailureError(f"{name} only lacks lines of the solution: choose another")
    first, last = max(changed[0] - AROUND, 1), min(changed[-1] + AROUND, len(wrong))
    while first in docstrings(wrong) or not wrong[first - 1].strip():
        first += 1  # half a docstring would be shown as code
    if last - first >= MAX_LINES:
        raise FailureError(f"{name} differs in lines {first} to {last}, more than {MAX_LINES}")
    marked = " ".join(str(line - first + 1) for line in changed)
    lines = "\n".join(wrong[first - 1 : last]).rstrip()
    return (
        f'```{{ .python .no-copy title="{name}.py, from line {first} on" hl_lines="{marked}" }}\n'
        f"{lines}\n```\n\n"
        f"```{{ .text .no-copy .capture }}\n{message.read_text('utf-8').rstrip()}\n```"
    )


def wrong_lines(wrong: list[str], right: list[str]) -> list[int]:
    """The numbers, from 1, of the lines that differ from the right ones.

    Comments, imports and docstrings do not count, nor the first line of a variant, which says what
    must fail.
    """
    said = docstrings(wrong)
    mine, theirs = ([_COMMENT.sub("", line) for line in lines] for lines in (wrong[1:], right))
    matcher = difflib.SequenceMatcher(None, mine, theirs, autojunk=False)
    spans = [(begin, end) for tag, begin, end, _, _ in matcher.get_opcodes() if tag != "equal"]
    lines = (line for begin, end in spans for line in range(begin, end))
    return [
        line + 2
        for line in lines
        if mine[line].strip() and not _IMPORT.match(mine[line]) and line + 2 not in said
    ]


def docstrings(lines: list[str]) -> set[int]:
    """The numbers, from 1, of the lines that hold a docstring."""
    tree = ast.parse("\n".join(lines))
    return {line for node in ast.walk(tree) for line in _docstring(node)}


def _docstring(node: ast.AST) -> range:
    """The lines of the docstring of a function, a class or the module."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            return range(first.lineno, (first.end_lineno or first.lineno) + 1)
    return range(0)
