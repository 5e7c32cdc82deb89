"""How each exercise is driven, and what is drawn for it: the words of its own drive.

Fills the mark `{{ drives }}` with the docstring of each `grader/checks/exNN_slug/drive.py`, so that
instructors read what maintainers wrote beside the code, and after it the numbers that it names in
capitals. Runs nothing of it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

DRIVES = "{{ drives }}"


def fill(markdown: str, root: Path) -> str:
    """A page with the mark replaced: one folded block for each exercise, in order."""
    if DRIVES not in markdown:
        return markdown
    found = sorted((root / "grader" / "checks").glob("ex*/drive.py"))
    return markdown.replace(DRIVES, "\n".join(_block(path) for path in found))


def _block(drive: Path) -> str:
    stem, tree = drive.parent.name, ast.parse(drive.read_text("utf-8"))
    said = ast.get_docstring(tree) or ""
    first, _, rest = said.removeprefix(f"Drives {stem}: ").partition("\n")
    text = f"The drive {first}\n{rest}\n\n{_values(said, tree)}".rstrip()
    indented = text.replace("\n", "\n    ")
    return f'??? note "{stem}"\n    {indented}\n'.replace("    \n", "\n")


def _values(said: str, tree: ast.Module) -> str:
    """The numbers that a text names in capitals, as a sentence; "" if there are none."""
    values = dict(pair for node in tree.body for pair in _assigned(node))
    named = re.findall(r"[A-Z][A-Z_]+", said)
    if "MOST_" in said or "names numbers" in said:
        named += [name for name in values if name.startswith("MOST_")]
    told = [f"`{name}` is {values[name]}" for name in dict.fromkeys(named) if name in values]
    return f"Here {'; '.join(told)}." if told else ""


def _assigned(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """The names that a statement gives to numbers, with those in digits."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        if isinstance(node.value, ast.Tuple):
            pairs = zip(node.targets[0].elts, node.value.elts, strict=True)
            for target, value in pairs:
                yield from _assigned(ast.Assign([target], value))
    elif isinstance(node, ast.Assign) and _is_literal(node.value):
        value = eval(ast.unparse(node.value))
        numbers = value if isinstance(value, tuple) else (value,)
        if isinstance(node.targets[0], ast.Name) and {*map(type, numbers)} <= {int, float}:
            yield node.targets[0].id, ", ".join(map(_shown, numbers))


def _is_literal(node: ast.expr) -> bool:
    """Whether it holds literals alone, and signs between them."""
    return not any(isinstance(one, ast.Name | ast.Call) for one in ast.walk(node))


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
