"""Finds the place in the learner's file that a failure is about, and what to mark there.

Checks and outcomes name lines where they know some. Here every failure gets a line: that of the
function that it names, else of an edited function that can have done it. Each line gets the
lines around it, its function, and the expression to mark. No verdict is reached here.
"""

import ast
import re
from collections.abc import Sequence, Set

import msgspec

from grader.records.record import EventKind, Frame, Record
from grader.records.verdict import Culprit
from grader.source.file import File, decorated, holds, reached
from grader.source.trees import Definition, Function, names_in, own_nodes, stored_in

LINES_BEFORE, LINES_AFTER = 2, 1

FEW = 2
"""So many statements can be looked at, one after the other."""

MAX_NEIGHBOUR = 160
"""Characters of a line around the place; longer ones are cut. The place itself never is."""

_QUOTED = re.compile(r"`([A-Za-z_]\w*)")


def shown(file: File, place: Culprit) -> Culprit:
    """The same place with its function, its marked columns and the lines around it."""
    if not 0 < place.line <= len(file.lines):
        return place
    text = file.lines[place.line - 1]
    column, end = (place.column, place.end) if place.column else file.marked(place.line)
    column, end = min(max(column, 1), len(text) + 1), min(max(end, column + 1), len(text) + 1)
    first = max(place.line - LINES_BEFORE, 1)
    lines = file.lines[first - 1 : place.line + LINES_AFTER]
    while len(lines) > 1 and first < place.line and not lines[0].strip():
        first, lines = first + 1, lines[1:]
    if first + len(lines) - 1 > place.line and not lines[-1].strip():
        lines = lines[:-1]
    return Culprit(
        place.line,
        place.text or text.strip(),
        place.count,
        column,
        end,
        place.function or file.function_at(place.line),
        first,
        [line if first + n == place.line else _short(line) for n, line in enumerate(lines)],
    )


def _short(line: str) -> str:
    return line if len(line) <= MAX_NEIGHBOUR else f"{line[:MAX_NEIGHBOUR]} ..."


def at(record: Record, line: int, count: int = 1, kinds: Sequence[EventKind] = ()) -> Culprit:
    """A line of the learner's file, marked for events of `kinds`."""
    file = File(record.source)
    text = file.lines[line - 1].strip() if 0 < line <= len(file.lines) else ""
    column, end = file.marked(line, kinds) if text and kinds else (0, 0)
    return Culprit(line, text, count, column, end)


def of_definitions(file: File, names: Sequence[str]) -> list[Culprit]:
    """The lines that define these names at the top level, in the order of the names."""
    found = ((name, file.defined(name)) for name in names)
    lines = [node.lineno for _, node in found if node is not None]
    return [Culprit(line, file.lines[line - 1].strip()) for line in dict.fromkeys(lines)]


def of_words(file: File, edits: Sequence[str], *texts: str) -> list[Culprit]:
    """The definition of the first edited function that one of these texts names."""
    for text in texts:
        named = [name for name in _QUOTED.findall(text) if name in edits]
        if places := of_definitions(file, named[:1]):
            return places
    return []


def of_frames(file: File, frames: Sequence[Frame], given: Sequence[str]) -> list[Culprit]:
    """The innermost frame outside given code, else the innermost."""
    own = [frame for frame in frames if file.top_level_at(frame.line) not in given]
    last = (own or frames)[-1]
    return [Culprit(last.line, last.text, 1, last.column, last.end)]


def of_decorators(file: File, edits: Sequence[str], text: str) -> list[Culprit]:
    """The decorator of an edited function: of the one that `text` names, else of the first.

    Where no edited function has one, there is none.
    """
    functions = {name: node for name in edits if (node := file.defined(name)) is not None}
    named = [name for name in functions if re.search(rf"<function {name} at ", text)]
    for name in named or functions:
        if lines := decorated(functions[name]):
            return [Culprit(lines[0], file.lines[lines[0] - 1].strip())]
    return of_definitions(file, named)


def of_return(file: File, place: Culprit) -> list[Culprit]:
    """The `return` of the function that is defined at `place`, if it has only one."""
    found = _held_at(file, place)
    nodes = own_nodes(found.body) if isinstance(found, Function) else ()
    return _only(file, place, {node.lineno for node in nodes if isinstance(node, ast.Return)})


def of_call(file: File, place: Culprit, name: str) -> list[Culprit]:
    """The line that calls `name` in the definition at `place`, if there is only one."""
    calls = (node.func for node in ast.walk(_held_at(file, place)) if isinstance(node, ast.Call))
    return _only(file, place, {f.lineno for f in calls if isinstance(f, ast.Name) and f.id == name})


def of_only_statement(file: File, place: Culprit) -> list[Culprit]:
    """The statement of the function that is defined at `place`, if it has only one.

    A `return` of the name that this statement makes does not count.
    """
    found = _held_at(file, place)
    body = found.body if isinstance(found, Function) else []
    if isinstance(found, Function) and ast.get_docstring(found) is not None:
        body = body[1:]
    match body:
        case [ast.Return() | ast.Assign() as only]:
            return [file.place(only)]
        case [ast.Assign(targets=[ast.Name(id=made)]) as only, ast.Return(value=ast.Name(id=name))]:
            return [file.place(only)] if made == name else [place]
    return [place]


def of_text(file: File, place: Culprit, text: str) -> list[Culprit]:
    """The line that writes a text in the definition at `place`, if there is only one.

    It stands in quotes, or names an argument. Where that definition does not write it, those that
    it names are searched.
    """
    own, *others = reached(file, file.top_level_at(place.line)) or [ast.Pass()]
    lines = _writing([own], text) or _writing(others, text)
    return _only(file, place, lines)


def _writing(tops: Sequence[ast.stmt], text: str) -> set[int]:
    """The lines that write a text in quotes, or as the name of an argument."""
    lines = set()
    for node in (node for top in tops for node in ast.walk(top)):
        match node:
            case ast.Constant(value=value) | ast.keyword(arg=value) if value == text:
                lines.add(node.lineno)
    return lines


def _held_at(file: File, place: Culprit) -> ast.AST:
    """The definition at the top level that holds a place, or that does what this one calls."""
    name = file.top_level_at(place.line)
    return file.doing(name) or file.defined(name) or ast.Pass()


def _only(file: File, place: Culprit, lines: Set[int]) -> list[Culprit]:
    """The one line of these, else `place`: of several, any may be the wrong one."""
    if len(lines) != 1:
        return [place]
    (line,) = lines
    return [Culprit(line, file.lines[line - 1].strip())]


def led_to(file: File, place: Culprit, edits: Sequence[str], given: Sequence[str]) -> list[Culprit]:
    """The learner's line that leads to a place in given code, and that place; else that place.

    It is where an edited function names the given one, or what the file makes of that, or what an
    edited function returns that the given one calls.
    """
    name = file.top_level_at(place.line)
    if name not in given:
        return [place]
    edited = [node for edit in edits if (node := file.defined(edit)) is not None]
    leading = {name}
    for one in (one for one in file.names if one not in edits and one not in given):
        leading |= {one} if (made := file.defined(one)) and leading & names_in(made) else set()
    for node in edited:
        lines = [n.lineno for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in leading]
        if lines:
            return [Culprit(lines[0], file.lines[lines[0] - 1].strip()), place]
    holder = file.defined(name)
    called = names_in(holder) if holder else set()
    own = of_definitions(file, [edit for edit in edits if edit in called][:1])
    return [*of_return(file, own[0]), place] if own else [place]


def of_cause(file: File, places: Sequence[Culprit], cause: ast.AST) -> list[Culprit]:
    """The places of a failure, that of its cause first.

    A place that lies inside a cause of several lines says more. A definition or a `return` says
    less, unless something happened there several times: failures stand there that have no better
    place.
    """
    found, last = file.place(cause), getattr(cause, "end_lineno", 0)
    if places and isinstance(cause, Definition):
        return list(places)
    held = {getattr(node, "lineno", 0) for node in ast.walk(cause)}  # steps may be joined to it
    for place in places:
        if found.line <= place.line <= last or place.line in held:
            if place.line != found.line:
                return list(places)
            column, end = (place.column, place.end) if place.column else file.marked(place.line)
            if found.column <= column and end <= found.end:
                return list(places)
    others = [place for place in places if place.line != found.line]
    count = next((place.count for place in places if place.line == found.line), 1)
    return [msgspec.structs.replace(found, count=count), *_evidence(file, others)]


def own_first(
    file: File,
    places: Sequence[Culprit],
    own: Sequence[ast.stmt],
    *,
    complete: bool,
    reading: Sequence[ast.stmt] = (),
) -> list[Culprit]:
    """The places of a failure, those in statements of the file's `own` first, or in `reading`.

    Where all are in statements that the reference has too, what few others their function has
    come first, if the file is `complete`: if it lacks no statement of the reference. Of these, the
    first is what gives a name a value that the place reads.
    """
    other = [*own, *reading]
    ordered = sorted(places, key=lambda place: not _in_any(other, place.line))
    if not ordered or _in_any(other, ordered[0].line):
        return ordered
    function = file.top_level_at(ordered[0].line)
    held = [node for node in own if file.top_level_at(node.lineno) == function]
    found = [node for node in held if not isinstance(node, Definition)]
    if not (complete and found and len(held) <= FEW):
        return ordered
    read = {n.id for n in file.names_on(ordered[0].line) if isinstance(n.ctx, ast.Load)}
    found.sort(key=lambda node: read.isdisjoint(stored_in(node)))
    return [*map(file.place, found), *_evidence(file, ordered)]


def _in_any(nodes: Sequence[ast.stmt], line: int) -> bool:
    return any(holds(node, line) for node in nodes)


def _evidence(file: File, places: Sequence[Culprit]) -> list[Culprit]:
    """The places that tell where something happened, not only which function is meant."""
    plain = {n.lineno for n in ast.walk(file.tree) if isinstance(n, Definition | ast.Return)}
    return [place for place in places if place.count > 1 or place.line not in plain]
