"""Finds where a function of the learner's file says how an array lies: its PartitionSpecs."""

import ast
import re
from collections.abc import Sequence
from itertools import chain

from grader.records.record import Leaf, Record
from grader.records.verdict import Culprit
from grader.source.file import File
from grader.source.places import of_definitions
from grader.source.statements.search import (
    calls_among,
    entry_of,
    first_in,
    nodes_of,
    only_place,
    reached_by,
)
from grader.source.trees import text_of

SPECS = ("P", "PartitionSpec")


def left_whole(record: Record, function: str, key: str) -> list[Culprit]:
    """Where a function gives an array a PartitionSpec that splits nothing, by its name `key`.

    That is the entry of that name, or the only empty spec. Of several, the only one that does not
    hang on a condition.
    """
    file = File(record.source)
    if found := entry_of(file, function, key):
        return found
    parts = reached_by(file, function)
    nodes = next((part for part in parts if any(calls_among(part, *SPECS))), parts[0])
    empty = [node for node in calls_among(nodes, *SPECS) if not (node.args or node.keywords)]
    if len(empty) > 1:
        hang = {
            inner
            for node in nodes
            if isinstance(node, ast.If | ast.IfExp)
            for inner in ast.walk(node)
        }
        empty = [node for node in empty if node not in hang]
    if len(empty) != 1:
        return of_definitions(file, [function])
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if empty[0] in ast.walk(
                value
            ):
                uses = [one for one in nodes if _gives_name(one, name)]
                return [file.place(uses[0] if len(uses) == 1 else node)]
    around = [node for node in calls_among(nodes, "NamedSharding") if empty[0] in ast.walk(node)]
    return [file.place((around or empty)[0])]


def by_size(record: Record, function: str) -> list[Culprit]:
    """The only place in a function, or in what it names, that asks what is larger; else nothing."""
    file, more = File(record.source), (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

    def asking(nodes: list[ast.AST]) -> list[ast.Compare]:
        compared = [node for node in nodes if isinstance(node, ast.Compare)]
        return [node for node in compared if isinstance(node.ops[0], more)]

    return only_place(file, first_in(file, function, asking))


def laid(record: Record, function: str, leaf: Leaf) -> list[Culprit]:
    """Where a function says how an array lies: what it gives the array's name; else nothing.

    Where it goes by no names, or by others than the array's, that is the only PartitionSpec, in it
    or in what it reaches, which prints as the array's; or which splits as that does, or does not.
    """
    file = File(record.source)
    arguments = (leaf.spec or "P()").removeprefix("P").replace(",)", ")")
    every = [list(calls_among(nodes, *SPECS)) for nodes in reached_by(file, function)]
    plain = (node for node in chain(*every) if _is_plain(node))
    others = [file.place(node) for node in plain if _arguments(node) != arguments]
    named = entry_of(file, function, leaf.path.rpartition("['")[2].removesuffix("']"))
    if named and named[0] not in others:
        return named
    alike = [[node for node in specs if _arguments(node) == arguments] for specs in every]
    split = [[node for node in specs if bool(node.args) == (arguments != "()")] for specs in every]
    return next(filter(None, (only_place(file, found) for found in (*alike, *split))), [])


def _is_plain(spec: ast.Call) -> bool:
    """Whether a spec spells out what it gets."""
    return all(isinstance(arg, ast.Constant) for arg in spec.args)


def _arguments(spec: ast.Call) -> str:
    """What a spec gets, as the spec itself prints it."""
    return f"({', '.join(map(text_of, spec.args))})"


def _gives_name(node: ast.AST, name: str) -> bool:
    """Whether a node returns a name, and nothing else."""
    return (
        isinstance(node, ast.Return) and isinstance(node.value, ast.Name) and node.value.id == name
    )


def of_spec(record: Record, functions: Sequence[str], promise: str, message: str) -> list[Culprit]:
    """The only spec with arguments in the function that `promise` names, where that is at fault.

    A drive says so with a message that begins with the spec.
    """
    named = re.match(r"`(\w+)`", promise)
    if not named or named[1] not in functions or not message.startswith("P("):
        return []
    file = File(record.source)
    return only_place(
        file, (node for node in calls_among(nodes_of(file, named[1]), *SPECS) if node.args)
    )
