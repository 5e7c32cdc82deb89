"""The page of an exercise: what its author did not write is filled in here.

Input: front matter `exercise: ex07_quiet_loop`, and `grader/checks/<exercise>.py` read as text
with `ast`, never imported. Output: Markdown that follows the author's few lines. Code is
included by path, never pasted.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PAGE = """
## What decides

| what holds when a check passes | ground |
|---|---|
{checks}

*source*: read from your file. *observed*: seen while your code ran. *program*: read from the
exported program, in a process that never saw your Python. *timing*: beside a reference in the same
run. *target*: read from the program as compiled for a machine that is not here.
The lesson behind it: [{title}](../{lesson}.ipynb#{anchor}).

## Your file

```console
$ grader check {number}    # judge exercises/{exercise}.py
$ grader hint {number}     # a hint; again for a stronger one
$ grader reset {number}    # put the starter back{target}
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

_TARGET = "\n$ grader check {} --target h200x8    # the target checks too"


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


@dataclass(frozen=True)
class _Module:
    """A module's source, parsed, with its own names for texts (`NAME = "text"`)."""

    source: Path
    tree: ast.Module
    names: Mapping[str, str]

    def keyword(self, call: ast.Call, name: str) -> str:
        """A keyword's text, or that of the constant it names; empty if not given.

        Raises ExerciseError for all else, because then only running the module tells it.
        """
        value = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
        if value is None:
            return ""
        if isinstance(value, ast.Constant):
            return str(value.value)
        if isinstance(value, ast.Name) and value.id in self.names:
            return self.names[value.id]
        raise self.error(value, f"{name} is no text and no constant of the module")

    def error(self, node: ast.expr | ast.stmt, text: str) -> ExerciseError:
        return ExerciseError(f"{self.source}:{node.lineno}: {text}")


def read(source: Path) -> Exercise:
    """Read a checks module. Raises ExerciseError where metadata or checks are missing."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    module = _Module(source, tree, dict(_constants(tree)))
    made = next((node for node in ast.walk(tree) if _called(node) == "Exercise"), None)
    if not isinstance(made, ast.Call):
        raise ExerciseError(f"{source}:1: no call of Exercise(...)")
    checks = tuple(_checks(module))
    if not checks:
        raise ExerciseError(f"{source}:1: no function is decorated with a check")
    return Exercise(module.keyword(made, "lesson"), module.keyword(made, "anchor"), checks)


def _checks(module: _Module) -> Iterator[Check]:
    functions = [node for node in module.tree.body if isinstance(node, ast.FunctionDef)]
    for node in functions:
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _called(decorator) == "check":
                yield _check(module, node, decorator)


def _check(module: _Module, node: ast.FunctionDef, decorator: ast.Call) -> Check:
    text = ast.get_docstring(node)
    if not text:
        raise module.error(node, f"{node.name} has no docstring")
    ground, anchor = (module.keyword(decorator, name) for name in ("ground", "anchor"))
    return Check(node.name, text.splitlines()[0], ground, anchor)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, str(node.value.value)


def _called(node: ast.AST) -> str:
    """The last part of the name a call calls; empty for all else."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def page(root: Path, exercise: str) -> str:
    """The generated part of an exercise's page. Raises ExerciseError as `read` does."""
    found = read(root / "grader" / "checks" / f"{exercise}.py")
    number = exercise.partition("_")[0]
    return _PAGE.format(
        checks="\n".join(_row(found, check) for check in found.checks),
        exercise=exercise,
        number=number,
        lesson=found.lesson,
        anchor=found.anchor,
        title=_title(root / "docs" / f"{found.lesson}.py"),
        target=_TARGET.format(number) if "target" in {c.ground for c in found.checks} else "",
    )


def _title(lesson: Path) -> str:
    """The title of a lesson, as its first heading has it."""
    found = re.search(r"(?m)^# (?!%%)(.+)$", lesson.read_text("utf-8"))
    return found[1] if found else lesson.stem


def _row(found: Exercise, check: Check) -> str:
    link = f"../{found.lesson}.ipynb#{check.anchor or found.anchor}"
    return f"| `{check.name}`<br>[{check.title}]({link}) | {check.ground} |"
