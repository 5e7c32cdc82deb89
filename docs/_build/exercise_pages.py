"""The page of an exercise: what its author did not write is filled in here.

Input: front matter `exercise: ex07_quiet_loop`, and `grader/checks/<exercise>.py` read as text
with `ast`, never imported. Output: Markdown that follows the author's few lines. Code is
included by path, never pasted.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PAGE = """
## What decides

| check | what holds when it passes | ground |
|---|---|---|
{checks}

*source*: read from your file. *observed*: seen while your code ran. *program*: read from the
exported program, in a process that never saw your Python. *timing*: beside a reference in the same
run. The lesson behind it: [{title}](../{lesson}.ipynb#{anchor}).

## Your file

```console
$ grader check {number}    # judge exercises/{exercise}.py
$ grader hint {number}     # a hint; again for a stronger one
$ grader reset {number}    # put the starter back
```

??? example "The starter, `exercises/{exercise}.py`"

    ```python
    --8<-- "exercises/{exercise}.py"
    ```

## Failing and passing

=== "The starter fails"

    {{{{ capture: check {number} starter }}}}

=== "The solution passes"

    {{{{ capture: check {number} solution }}}}

??? danger "Spoiler: a solution"

    ```python
    --8<-- "solutions/{exercise}.py"
    ```
"""


class ExerciseError(Exception):
    """The page of an exercise cannot be made. The text starts with file and line."""


@dataclass(frozen=True)
class Check:
    """One check as its source states it; `anchor` is that of a lesson's paragraph."""

    name: str
    title: str
    ground: str
    anchor: str


@dataclass(frozen=True)
class Exercise:
    """What a checks module says about its exercise; `lesson` is a page without suffix."""

    lesson: str
    anchor: str
    checks: tuple[Check, ...]


def read(source: Path) -> Exercise:
    """Read a checks module. Raises ExerciseError where metadata or checks are missing."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    made = next((node for node in ast.walk(tree) if _called(node) == "Exercise"), None)
    if not isinstance(made, ast.Call):
        raise ExerciseError(f"{source}:1: no call of Exercise(...)")
    checks = tuple(_checks(source, tree))
    if not checks:
        raise ExerciseError(f"{source}:1: no function is decorated with a check")
    return Exercise(_keyword(made, "lesson"), _keyword(made, "anchor"), checks)


def _checks(source: Path, tree: ast.Module) -> Iterator[Check]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _called(decorator) == "check":
                text = ast.get_docstring(node)
                if not text:
                    raise ExerciseError(f"{source}:{node.lineno}: {node.name} has no docstring")
                ground, anchor = _keyword(decorator, "ground"), _keyword(decorator, "anchor")
                yield Check(node.name, text.splitlines()[0], ground.lower(), anchor)


def _called(node: ast.AST) -> str:
    """The last part of the name a call calls; empty for all else."""
    if not isinstance(node, ast.Call):
        return ""
    return _last_name(node.func)


def _keyword(call: ast.Call, name: str) -> str:
    """A keyword's text, or the last part of its name (`Ground.PROGRAM`); empty if not given."""
    for keyword in call.keywords:
        if keyword.arg == name:
            value = keyword.value
            return str(value.value) if isinstance(value, ast.Constant) else _last_name(value)
    return ""


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def page(root: Path, exercise: str) -> str:
    """The generated part of an exercise's page. Raises ExerciseError as `read` does."""
    found = read(root / "grader" / "checks" / f"{exercise}.py")
    return _PAGE.format(
        checks="\n".join(_row(found, check) for check in found.checks),
        exercise=exercise,
        number=exercise.partition("_")[0],
        lesson=found.lesson,
        anchor=found.anchor,
        title=found.lesson.rpartition("/")[2].replace("-", " "),
    )


def _row(found: Exercise, check: Check) -> str:
    link = f"../{found.lesson}.ipynb#{check.anchor or found.anchor}"
    return f"| `{check.name}` | [{check.title}]({link}) | {check.ground} |"
