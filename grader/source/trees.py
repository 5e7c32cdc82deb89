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


def outermost(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a file, and after an `if`, `try` or `with` those that stand in it.

    What runs only when the file is a program of its own is left out.
    """
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With) and not is_main(node):
            for part in (node, *getattr(node, "handlers", ())):
                for name in ("body", "orelse", "finalbody"):
                    yield from outermost(getattr(part, name, ()))


def is_main(node: ast.stmt) -> bool:
    """Whether this is `if __name__ == "__main__":`, which runs when the learner runs the file."""
    match node:
        case ast.If(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]), orelse=[]):
            name, text = (left, right) if isinstance(left, ast.Name) else (right, left)
            return (
                isinstance(name, ast.Name)
                and name.id == "__name__"
                and isinstance(text, ast.Constant)
                and text.value == "__main__"
            )
    return False


def names_in(tree: ast.AST) -> set[str]:
    """Every name that stands in a piece of code."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def stored_in(tree: ast.AST) -> set[str]:
    """The names that get a value anywhere in a piece of code."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def text_of(node: ast.AST) -> str:
    """A piece of code in one form; "..." for what Python cannot write.

    That is a number of very many digits, or an expression of great depth.
    """
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return "..."
