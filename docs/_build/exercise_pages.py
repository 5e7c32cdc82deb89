"""An exercise's page: task, picture, file to edit, first hint, checks, failing report, solution.

Input: the few lines of the page's author, with front matter `exercise: ex07_quiet_loop`, and the
folder `grader/checks/<exercise>/`, read as text with `ast`, never imported. Output: Markdown. Code
is included by path, never pasted; `captures` fills in the grader's output.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import before_after

_PAGE = """{task}

{facts}{why}

{picture}

## Your file

{edits} in `exercises/{exercise}.py`. The marked lines are yours. If you have no `grader` yet,
[set up first](../index.md#start).

```{{ .python title="exercises/{exercise}.py" hl_lines="{marked}" }}
--8<-- "exercises/{exercise}.py"
```

```console
$ grader check {number}    # judge exercises/{exercise}.py
$ grader hint {number}     # a hint; again for a stronger one
$ grader reset {number}    # put the starter back{target}
```
{hint}
## What decides

{more}

| what holds when a check passes | ground |
|---|---|
{checks}

*source*: read from your file. *observed*: seen while your code ran. *program*: read from the
exported program, in a process that never saw your Python. *timing*: measured beside a reference in
the same run. *target*: read from the program, compiled for a machine that is not here.

## A failing report

The starter's:

{{{{ capture: check {number} starter }}}}

## A solution

??? spoiler "Spoiler: a solution, and its report"

    ```{{ .python title="solutions/{exercise}.py" }}
    --8<-- "solutions/{exercise}.py"
    ```

    {{{{ capture: check {number} solution }}}}
"""

_HINT = """
??? tip "A first hint"

    {}

    `grader hint {}` says more, and looks at what failed last.
"""

_TARGET = "\n$ grader check {} --target h200x8    # the target checks too"


class ExerciseError(Exception):
    """The page of an exercise cannot be made. The text starts with file and line."""


@dataclass(frozen=True)
class Check:
    """One check as its source states it; `anchor` names the lesson's paragraph, or is empty."""

    name: str
    title: str
    ground: str
    anchor: str


@dataclass(frozen=True)
class Exercise:
    """What an exercise's package says about it; `lesson` is a path in `docs/` without suffix."""

    lesson: str
    anchor: str
    checks: tuple[Check, ...]
    edits: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Module:
    """A parsed module, and the constants that it may use: name -> text of `NAME = "text"`."""

    source: Path
    tree: ast.Module
    constants: Mapping[str, str]

    def keyword(self, call: ast.Call, name: str) -> str:
        """The text of a keyword argument, or of the constant that it names; empty if not given.

        Raises ExerciseError for any other expression: only running the module gives its value.
        """
        value = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
        if value is None:
            return ""
        if isinstance(value, ast.Constant) or self._text(value):
            return self._text(value)
        raise self.error(value, f"{name} is neither a text nor a constant of the module")

    def texts(self, call: ast.Call, name: str) -> tuple[str, ...]:
        """The texts of a keyword argument that is a tuple; empty if it is not given.

        An element that only running the module gives is left out. Raises ExerciseError where the
        argument is no tuple.
        """
        value = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
        if value is None:
            return ()
        if not isinstance(value, ast.Tuple):
            raise self.error(value, f"{name} is no tuple")
        return tuple(filter(None, map(self._text, value.elts)))

    def _text(self, value: ast.expr) -> str:
        """The text of a constant or of a name for one; empty for any other expression."""
        if isinstance(value, ast.Constant):
            return str(value.value)
        return self.constants.get(value.id, "") if isinstance(value, ast.Name) else ""

    def error(self, node: ast.expr | ast.stmt, text: str) -> ExerciseError:
        return ExerciseError(f"{self.source}:{node.lineno}: {text}")


def read(package: Path) -> Exercise:
    """Read an exercise's package. Raises ExerciseError where metadata or checks are missing."""
    facts = package / "facts.py"
    shared = dict(_constants(_parsed(facts))) if facts.exists() else {}
    metadata = _module(package / "__init__.py", shared)
    judging = _module(package / "checks.py", shared)
    call = next((node for node in ast.walk(metadata.tree) if _called(node) == "Exercise"), None)
    if not isinstance(call, ast.Call):
        raise ExerciseError(f"{metadata.source}:1: no call of Exercise(...)")
    checks = tuple(_checks(judging))
    if not checks:
        raise ExerciseError(f"{judging.source}:1: no function is decorated with a check")
    lesson, anchor = metadata.keyword(call, "lesson"), metadata.keyword(call, "anchor")
    edits, hints = metadata.texts(call, "edits"), metadata.texts(call, "hints")
    return Exercise(lesson, anchor, checks, edits, hints)


def _parsed(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


def _module(source: Path, shared: Mapping[str, str]) -> _Module:
    """A module with its own constants and the shared ones, which it may import."""
    tree = _parsed(source)
    return _Module(source, tree, {**shared, **dict(_constants(tree))})


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
    ground = module.keyword(decorator, "ground")
    anchor = module.keyword(decorator, "anchor")
    return Check(node.name, text.splitlines()[0], ground, anchor)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, str(node.value.value)


def _called(node: ast.AST) -> str:
    """What a call calls, `check` for `exercise.check(...)`; empty for any other node."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def page(
    root: Path,
    exercise: str,
    author: str,
    meta: Mapping[str, Any],
    record: Callable[[str], Mapping[str, Any]],
) -> str:
    """The whole page: `author` is its title and task, `meta` its front matter.

    Front matter may say `minutes`, `level`, `why`, and what the `picture` draws of the record that
    `record` gives for `exNN`. Raises ExerciseError as `read` does, and PictureError as
    `before_after`.
    """
    found = read(root / "grader" / "checks" / exercise)
    number = exercise.partition("_")[0]
    has_target = any(check.ground == "target" for check in found.checks)
    starter = (root / "exercises" / f"{exercise}.py").read_text("utf-8")
    title, task, *more = author.strip().split("\n\n")
    return _PAGE.format(
        task=f"{title}\n\n{task}",
        more="\n\n".join(more),
        facts=_facts(root, found, meta),
        why=f"\n\n**Why it matters.** {meta['why']}" if "why" in meta else "",
        picture=before_after.html(meta["picture"], record(number)) if "picture" in meta else "",
        edits=f"Edit {_listed(found.edits)}",
        marked=" ".join(marked_lines(starter, found.edits)),
        hint=_HINT.format(found.hints[0], number) if found.hints else "",
        checks="\n".join(_row(found, check) for check in found.checks),
        exercise=exercise,
        number=number,
        target=_TARGET.format(number) if has_target else "",
    )


def _listed(names: Iterable[str]) -> str:
    """`a`, `b` and `c`, as code."""
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} and {last}" if others else last


def _facts(root: Path, found: Exercise, meta: Mapping[str, Any]) -> str:
    """Time, difficulty and the lesson, in one line."""
    title = _title(root / "docs" / f"{found.lesson}.py")
    facts = [f"Lesson: [{title}](../{found.lesson}.ipynb#{found.anchor})"]
    if "level" in meta:
        facts.insert(0, f"Difficulty: {escape(str(meta['level']))}")
    if "minutes" in meta:
        facts.insert(0, f"About {int(meta['minutes'])} minutes")
    return " · ".join(facts) + "\n{ .facts }"


def marked_lines(source: str, names: Iterable[str]) -> list[str]:
    """The lines that define these names at the top of a file, as `first-last`."""
    wanted = set(names)
    found = []
    for node in ast.parse(source).body:
        if wanted & _defined(node):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            found.append(f"{first}-{node.end_lineno}")
    return found


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


def _title(lesson: Path) -> str:
    """The title of a lesson: its first heading."""
    found = re.search(r"(?m)^# (?!%%)(.+)$", lesson.read_text("utf-8"))
    return found[1] if found else lesson.stem


def _row(found: Exercise, check: Check) -> str:
    link = f"../{found.lesson}.ipynb#{check.anchor or found.anchor}"
    return f"| `{check.name}`<br>[{check.title}]({link}) | {check.ground} |"
