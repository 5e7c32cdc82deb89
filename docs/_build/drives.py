"""How each exercise is driven, and what is drawn for it: the words of its own drive.

Fills the mark `{{ drives }}` with the docstring of each `grader/checks/exNN_slug/drive.py`, so that
instructors read what maintainers wrote beside the code. Runs nothing.
"""

import ast
from pathlib import Path

DRIVES = "{{ drives }}"


def fill(markdown: str, root: Path) -> str:
    """A page with the mark replaced: one folded block for each exercise, in order."""
    if DRIVES not in markdown:
        return markdown
    found = sorted((root / "grader" / "checks").glob("ex*/drive.py"))
    return markdown.replace(DRIVES, "\n".join(_block(path) for path in found))


def _block(drive: Path) -> str:
    stem = drive.parent.name
    said = ast.get_docstring(ast.parse(drive.read_text("utf-8"))) or ""
    first, _, rest = said.removeprefix(f"Drives {stem}: ").partition("\n")
    text = f"The drive {first}\n{rest}".replace("\n", "\n    ").rstrip()
    return f'??? note "{stem}"\n    {text}\n'.replace("    \n", "\n")
