"""Finds the lines by which `diagnose` came to a wrong answer, for the checks of ex10_diagnose.

A report's answer knows the line of its `return`. The file shows where else a cause is written as a
text: in a `return`, or in a table that a loop goes through. Order is spoken of only where such a
text can only be tried after those above it. No verdict is reached here.
"""

import ast
import re
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from grader.checks.ex10_diagnose.facts import Answer
from grader.records.verdict import Culprit
from grader.source.file import File
from grader.source.slips import always_returns

PASSED_BY = (
    "What does the condition of the marked line look for, and how does this report write it?"
)
TOO_EARLY = "Does the marked condition hold for reports of other faults, too? Those come first."
NEVER = (
    "Try this condition by hand with one row of the table, and with a report that it should fit."
)
LEFT_OVER = (
    "What is answered if no row fits? An `else:` of the loop runs if no `break` has ended it."
)
LAST = "Which row counts if several fit: the first, or the last? What ends a loop at the first one?"
HABITS = {
    "match": "re.match looks for a text at the beginning of the report only. Where does it stand?",
    "fullmatch": "re.fullmatch wants the whole report to be of that form. Which function searches?",
    "startswith": "`startswith` looks at the beginning only. Where in this report does the text "
    "stand?",
    "lower": "In lower case, a report holds no capital. Does the text that is looked for hold one?",
    "upper": "In capitals, a report holds no small letter. Does the text that is looked for?",
    "casefold": "In lower case, a report holds no capital. Does the text that is looked for hold "
    "one?",
}
"""What is called where a condition hardly ever holds, and a hint about it."""
BEGINNING = (
    "In a pattern, `^` stands for the beginning of the whole text, and with re.MULTILINE for that "
    "of each line."
)
SPECIAL = (
    "In a pattern, ( ) [ ] . + * ? and | do not stand for themselves. A backslash before one makes "
    "it plain, and re.escape does so for a whole text."
)
FEWEST = 3
"""A statement that names so many causes is a table."""


class Way(NamedTuple):
    """The lines that led to a wrong answer; a sentence and a hint about them, "" if not known."""

    places: list[Culprit]
    words: str = ""
    hint: str = ""


class _Text(NamedTuple):
    """A cause that is written as a text."""

    line: int
    order: tuple[int, int] | None
    """When it is tried: the line of the `return`, then its own; None if that is not known."""
    loop: ast.For | None = None
    """The loop that goes through the table which holds it."""
    fits: bool = False
    """Whether a row of that table ever led to an answer."""
    looked_up: bool = False
    """Whether it stands in a table that no loop goes through: what it says is not tried."""


def way(
    source: str, causes: Set[str], answers: Sequence[Answer], mine: Answer, truth: str = ""
) -> Way:
    """How `diagnose` came to the answer `mine`, one of `answers`, where `truth` was right.

    Without a `truth`, only the place is asked for. `mine` has a line; `causes` are all there are.
    """
    file = File(source)
    found = _tried(file, mine.cause, causes, answers)
    found = [one for one in found if one.line == mine.line] or found
    if mine.cause in causes:  # else the `return` is wrong, whatever the row
        found = _taken(file, found, mine) or found
    here = found[0] if len(found) == 1 else _Text(mine.line, None)
    answered = [_place(file, here.line)]
    if not truth or not found:
        return Way(answered)
    if here.loop and _may_be_left_over(file, here, causes, mine):
        words = "If no row fits, the names of the loop hold its last row."
        return Way([file.place(here.loop.iter), *answered], words, LEFT_OVER)
    right = _tried(file, truth, causes, answers)
    if not right:
        return Way(answered, f"No line of the file names `{truth}`.")
    if special := [one for one in right if _is_read_otherwise(file, one.line, mine.report)]:
        words = f"{_name(special)} it beside a text of this report, but not as a pattern finds it."
        return Way([_place(file, one.line) for one in special] + answered, words, SPECIAL)
    loops = [one.loop for one in right if one.loop is not None]
    if len(loops) == len(right) and (kept := _kept_in(loops[0])):
        words = "The loop goes on after a row that fits, so the last one that fits counts."
        return Way([file.place(kept), *answered], words, LAST)
    if len(loops) == len(right) and not any(one.fits for one in right):
        words = f"Line {right[0].line} names it, in a table of which no row ever fits a report."
        return Way([_condition(file, loops[0]), *answered], words, NEVER)
    return _by_order(file, here, right, mine)


def _by_order(file: File, here: _Text, right: Sequence[_Text], mine: Answer) -> Way:
    """What is known of the lines that were to be tried, `right`, and of the one that answered."""
    answered, others = [_place(file, here.line)], [_place(file, one.line) for one in right]
    source = "\n".join(file.lines)
    orders = [one.order for one in right if one.order is not None]
    would_fit = any(_would_fit(file, one.line, mine.report) for one in right)
    if here.order is None or len(orders) < len(right):
        return Way(answered + others, "", habit(source) if would_fit else "")
    if max(orders) < here.order:
        words = f"{_name(right)} it, but not for this report; then line {here.line} answers."
        return Way(others + answered, words, habit(source) or PASSED_BY)
    if later := [one for one in right if one.order and one.order > here.order]:
        tried = "are tried" if len(later) > 1 else "is tried"
        words = f"Line {here.line} answers before {_listed(later)} {tried}."
        return Way(answered + others, words, TOO_EARLY)
    return Way(answered + others)


def _tried(file: File, cause: str, causes: Set[str], answers: Sequence[Answer]) -> list[_Text]:
    """Where the file writes a cause, but for tables in which only its remedy is looked up."""
    found = _texts(file, cause, causes, answers)
    return [one for one in found if not one.looked_up] or found


def _is_read_otherwise(file: File, line: int, report: str) -> bool:
    """Whether a pattern on a line is a text of a report, and its special characters hide it."""
    texts = [str(text.value) for text in _constants(ast.walk(file.tree)) if text.lineno == line]
    if not _are_patterns(file):
        return False
    return any(
        part in report and not _searched(part, report) and not _searched(text, report)
        for text in texts
        for part in text.split("|")
    )


def _are_patterns(file: File) -> bool:
    """Whether the texts of a table are given to `re`, and none is looked for as it is."""
    nodes = list(ast.walk(file.tree))
    plain = (node for node in nodes if isinstance(node, ast.Compare))
    if any(isinstance(one.left, ast.Name) and isinstance(one.ops[0], ast.In) for one in plain):
        return False
    calls = (node for node in nodes if isinstance(node, ast.Call) and node.args)
    given = (call for call in calls if ast.unparse(call.func).startswith("re."))
    return any(isinstance(call.args[0], ast.Name) for call in given)


def _would_fit(file: File, line: int, report: str) -> bool:
    """Whether a text on a line is a pattern that a search finds in a report."""
    texts = (str(text.value) for text in _constants(ast.walk(file.tree)) if text.lineno == line)
    return any(_searched(text, report) for text in texts)


def _searched(pattern: str, report: str) -> bool:
    try:
        return bool(pattern and re.search(pattern, report))
    except (re.error, OverflowError, RecursionError):
        return False


def _texts(file: File, cause: str, causes: Set[str], answers: Sequence[Answer]) -> list[_Text]:
    """Where the file writes a cause, in the order of its lines, but for the given table."""
    found = []
    for top in file.tree.body:
        if file.top_level_at(top.lineno) == "CAUSES":
            continue
        for statement in _statements(top):
            lines = {
                node.lineno
                for node in _own(statement)
                if isinstance(node, ast.Constant) and node.value == cause
            }
            found += [_text(file, top, statement, line, causes, answers) for line in lines]
    return sorted(found, key=lambda one: one.line)


def _text(
    file: File,
    top: ast.stmt,
    statement: ast.stmt,
    line: int,
    causes: Set[str],
    answers: Sequence[Answer],
) -> _Text:
    loops = [node for node in ast.walk(file.tree) if isinstance(node, ast.For | ast.While)]
    if isinstance(statement, ast.Return):
        straight = not any(_inside(loop, line) for loop in loops)
        return _Text(line, (line, line) if straight else None)
    held = {node.value for node in ast.walk(statement) if isinstance(node, ast.Constant)} & causes
    named = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    if len(held) < FEWEST or not (named or isinstance(statement, ast.For)):
        return _Text(line, None)
    through = [
        loop
        for loop in loops
        if isinstance(loop, ast.For)
        and (
            loop is statement
            or {n.id for n in ast.walk(loop.iter) if isinstance(n, ast.Name)} & {*named[:1]}
        )
    ]
    if len(through) != 1:
        return _Text(line, None, looked_up=not through)
    (loop,) = through
    around = [one for one in loops if one is not loop and _inside(one, loop.lineno)]
    ends = _ends(loop, held, answers)
    goes_on = ends and not around and not always_returns(loop.body)
    order = (min(ends), line) if goes_on and _in_order(loop.iter) else None
    return _Text(line, order, loop, bool(ends))


def _ends(loop: ast.For, held: Set[object], answers: Sequence[Answer]) -> set[int]:
    """The lines that return what a loop found in a table of the causes `held`.

    They are inside it; or after it, if a `break` leads there.
    """
    inside = {answer.line for answer in answers if _inside(loop, answer.line)}
    if inside or not any(isinstance(node, ast.Break) for node in ast.walk(loop)):
        return inside
    last = loop.end_lineno or 0
    return {answer.line for answer in answers if answer.line > last and answer.cause in held}


def _in_order(rows: ast.expr) -> bool:
    """Whether a loop goes through the rows in the order of their lines, as far as is known."""
    turned = [node for node in ast.walk(rows) if isinstance(node, ast.Subscript | ast.Starred)]
    names = {node.id for node in ast.walk(rows) if isinstance(node, ast.Name)}
    return not (turned or names & {"reversed", "sorted"})


def _taken(file: File, found: Sequence[_Text], mine: Answer) -> list[_Text]:
    """The one row of a table whose texts the variables held when `mine` was returned."""
    lines = set()
    for row in ast.walk(file.tree):
        texts = {text.value: text.lineno for text in _constants(ast.iter_child_nodes(row))}
        if line := texts.get(mine.cause):
            beside = {text.value for text in _constants(ast.walk(file.tree)) if text.lineno == line}
            if beside | {text.value for text in _constants(ast.walk(row))} <= {*mine.held}:
                lines.add(line)
    taken = [one for one in found if one.line in lines]
    return taken if len(taken) == 1 else []


def _constants(nodes: Iterable[ast.AST]) -> list[ast.Constant]:
    return [node for node in nodes if isinstance(node, ast.Constant)]


def _may_be_left_over(file: File, here: _Text, causes: Set[str], mine: Answer) -> bool:
    """Whether no row may have fitted: after such a loop, its names hold the last row."""
    loop = here.loop
    if loop is None or loop.orelse or mine.line <= (loop.end_lineno or 0):
        return False
    found = (one for cause in causes for one in _texts(file, cause, causes, [mine]))
    last = max(one.line for one in found if one.loop is loop)
    texts = [text.value for text in _constants(ast.walk(file.tree)) if text.lineno == last]
    return here.line == last and not any(str(text) in mine.report for text in texts)


def _kept_in(loop: ast.For) -> ast.Assign | None:
    """What a loop keeps of a row, if nothing ends it before its last row."""
    inner = [node for node in ast.walk(loop) if node is not loop]
    if any(isinstance(node, ast.Return | ast.Break | ast.Yield | ast.Raise) for node in inner):
        return None
    made = [node for one in inner if isinstance(one, ast.If) for node in one.body]
    kept = [node for node in made if isinstance(node, ast.Assign)]
    return kept[0] if len(kept) == 1 else None


def _statements(top: ast.stmt) -> list[ast.stmt]:
    return [node for node in ast.walk(top) if isinstance(node, ast.stmt)]


def _own(statement: ast.stmt) -> list[ast.AST]:
    """The nodes of a statement without those of the statements in it."""
    left: list[ast.AST] = list(ast.iter_child_nodes(statement))
    found: list[ast.AST] = []
    while left:
        node = left.pop()
        if not isinstance(node, ast.stmt):
            found.append(node)
            left += ast.iter_child_nodes(node)
    return found


def _inside(loop: ast.For | ast.While, line: int) -> bool:
    return loop.body[0].lineno <= line <= (loop.end_lineno or 0)


def _condition(file: File, loop: ast.For) -> Culprit:
    """The first condition in a loop, or the loop."""
    tests = [node.test for node in ast.walk(loop) if isinstance(node, ast.If)]
    return file.place(tests[0] if tests else loop)


def habit(source: str) -> str:
    """The hint about the only call in a file that hardly ever finds what it looks for, or ""."""
    nodes = list(ast.walk(File(source).tree))
    given = {node.arg for node in nodes if isinstance(node, ast.arg)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and not _of_a_part(node, given)]
    named = {one.func.attr for one in calls if isinstance(one.func, ast.Attribute)} & HABITS.keys()
    sought = [text for node in nodes for text in _sought(node)]
    if all(text == text.lower() for text in sought):
        named -= {"lower", "casefold"}
    if not named and any(map(_of_the_beginning, calls)):
        return BEGINNING
    return HABITS[named.pop()] if len(named) == 1 else ""


def _sought(node: ast.AST) -> list[str]:
    """The texts that a call is given, or that are compared."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        parts = node.args
    elif isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    return [part.value for part in _constants(parts) if isinstance(part.value, str)]


def _of_the_beginning(call: ast.Call) -> bool:
    """Whether a call of `re` looks for a pattern that begins with `^`, and names no flags."""
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="re")),
            args=[ast.Constant(value=str(pattern)), _],
            keywords=[],
        ):
            return pattern.startswith("^")
    return False


def _of_a_part(call: ast.Call, given: set[str]) -> bool:
    """Whether a call looks at a variable that no function was given, such as a line of a report."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=[_, ast.Name(id=text), *_]):
            return text not in given
        case ast.Call(func=ast.Attribute(value=ast.Name(id=text), attr="startswith")):
            return text not in given
    return False


def _place(file: File, line: int) -> Culprit:
    return Culprit(line, file.lines[line - 1].strip() if 0 < line <= len(file.lines) else "")


def _name(found: Sequence[_Text]) -> str:
    """`Line 70 names`, `Lines 70, 75 name`."""
    return f"{_listed(found).capitalize()} {'name' if len(found) > 1 else 'names'}"


def _listed(found: Sequence[_Text]) -> str:
    """`line 70`, `lines 70, 75`."""
    return f"line{'s' * (len(found) > 1)} {', '.join(str(one.line) for one in found)}"
