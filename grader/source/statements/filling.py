"""Finds what fills a list or a dict of the learner's file, and what is thrown away."""

import ast

from grader.records.record import Record
from grader.records.verdict import Culprit
from grader.source.file import File
from grader.source.places import of_definitions
from grader.source.statements.search import (
    FILLED,
    _targets,
    calls_among,
    given_by,
    name_of,
    nodes_of,
    only_place,
)
from grader.source.trees import names_in

_EMPTIED = frozenset(("clear", "pop", "popitem", "popleft", "remove"))
"""Methods that take something out again."""


def piled(record: Record, function: str) -> list[Culprit]:
    """The statements in a function that fill the one list or dict it never empties or returns.

    If there are several such lists and dicts, it is the line that defines the function.
    """
    file = File(record.source)
    nodes = list(nodes_of(file, function))
    left = {
        name_of(node.func.value)
        for node in calls_among(nodes, *_EMPTIED)
        if isinstance(node.func, ast.Attribute)
    }
    left |= {
        name
        for node in nodes
        if isinstance(node, ast.Return | ast.Delete)
        for name in names_in(node) - _names_indexed(node)
    }
    found = [(node, _fills(node) - left) for node in nodes if _fills(node) - left]
    if len(set().union(*(names for _, names in found))) != 1:
        return of_definitions(file, [function])
    return [file.place(node) for node, _ in found]


def _names_indexed(node: ast.AST) -> set[str]:
    """The names of which a `return` gives only a part: `found[-1]`."""
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Subscript))
    return set().union(*map(names_in, parts)) if isinstance(node, ast.Return) else set()


def _fills(node: ast.AST) -> set[str]:
    """The lists and dicts into which a statement puts something."""
    match node:
        case ast.Assign(targets=targets):
            return {name for t in targets if isinstance(t, ast.Subscript) for name in _targets(t)}
        case ast.Expr():
            return set(given_by(node))
    return set()


def filled(record: Record, name: str) -> list[Culprit]:
    """The only statement of the file that puts something into what is called `name`.

    `name` is a variable or an attribute. If nothing is put into it, it is the last statement that
    gives it a value.
    """
    file = File(record.source)
    nodes = [node for node in ast.walk(file.tree) if isinstance(node, ast.stmt)]
    found = [node for node in nodes if _puts_into(node, name)]
    if len(found) == 1:
        return [file.place(found[0])]
    made = [node for node in nodes if name in given_by(node)]
    return [file.place(made[-1])] if made and not found else [file.place(node) for node in found]


def _puts_into(node: ast.stmt, name: str) -> bool:
    """Whether a statement puts something into what is called `name`, and keeps what it holds."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=filled, attr=method))):
            return method in FILLED and name_of(filled) == name
        case ast.Assign(targets=[ast.Subscript(value=filled)]) | ast.AugAssign(target=filled):
            return name_of(filled) == name
        case ast.Assign(targets=[target], value=value):
            again = (n for n in ast.walk(value) if isinstance(n, ast.Name | ast.Attribute))
            return name_of(target) == name and name in map(name_of, again)
    return False


def discarding(record: Record, function: str) -> list[Culprit]:
    """The only statement in a function that gives `_` a value, else nothing."""
    file = File(record.source)
    return only_place(file, (node for node in nodes_of(file, function) if "_" in given_by(node)))
