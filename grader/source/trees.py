"""Asks a piece of a syntax tree for its parts."""

import ast
from collections.abc import Iterator, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef

Definition = Function | ast.ClassDef


def own_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of statements in the order of the text, without those of functions inside them."""
    left: list[ast.AST] = list(body)
    while left:
        node = left.pop(0)
        yield node
        if not isinstance(node, Definition | ast.Lambda):
            left[:0] = ast.iter_child_nodes(node)


def names_in(tree: ast.AST) -> set[str]:
    """Every name that stands in a piece of code."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def stored_in(tree: ast.AST) -> set[str]:
    """The names that get a value anywhere in a piece of code."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}
