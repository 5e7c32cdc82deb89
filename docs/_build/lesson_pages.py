"""The page of a lesson: a notebook with its outputs, figures and GPU recordings in place.

Input: a lesson (`lesson`), its run (`notebooks`) and its recordings (`recordings`). Output: an
`.ipynb` for mkdocs-jupyter, which renders it through `notebook.md.j2` and runs nothing.
"""

import importlib.metadata
import platform
import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

import lesson
import notebooks
import recordings
from lesson import Lesson, LessonError
from recordings import Recording

_GREY = "#808182"


def build(path: Path, recorded: Path, cache: Path) -> tuple[Path, list[str]]:
    """Write the notebook of one lesson under `cache`.

    Returns its path, and one line for each recording with outputs of code that has changed since.
    Raises LessonError as `notebooks.load` does, and for a picture without alternative text.
    """
    this = lesson.read(path)
    run = notebooks.load(path, cache / "runs")
    found = recordings.of_lesson(recorded, this)
    target = page_path(path, cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(assemble(this, run, found), target)
    stale = [(one.path.name, recordings.stale(this, one)) for one in found]
    return target, [f"{name}: {count} stale outputs dropped" for name, count in stale if count]


def page_path(path: Path, cache: Path) -> Path:
    """Where `build` writes the notebook of a lesson."""
    return cache / "pages" / f"{path.stem}.ipynb"


def assemble(this: Lesson, run: notebooks.Run, found: list[Recording]) -> NotebookNode:
    """The lesson's notebook with outputs, figures, recordings and provenance in place."""
    notebook: NotebookNode = nbformat.from_dict(this.notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    hashes = this.hashes()
    for cell, outputs, key in zip(code, run.outputs, hashes, strict=True):
        cell.outputs = [_inline(nbformat.from_dict(output), key[:8]) for output in outputs]
        cell.metadata.recorded = _recorded(found, key)
    for cell, line in zip(notebook.cells, this.lines, strict=True):
        if cell.cell_type == "markdown":
            cell.source = lesson.fill_figures(cell.source, run.figures)
        elif _pictures(cell.outputs) and "alt" not in cell.metadata:
            raise LessonError(f'{this.path}:{line}: a picture needs alt="..." on its # %% line')
    notebook.metadata.kernelspec = {"name": "python3", "language": "python", "display_name": "3"}
    notebook.metadata.provenance = _provenance(this)
    return notebook


def _recorded(found: list[Recording], key: str) -> list[dict[str, Any]]:
    return [
        {
            "label": one.device.label,
            "outputs": [_inline(nbformat.from_dict(o), f"{key[:8]}-{n}") for o in outputs],
        }
        for n, one in enumerate(found)
        if (outputs := one.cells.get(key))
    ]


def _inline(output: NotebookNode, mark: str) -> NotebookNode:
    """The output with its SVG picture, if it has one, made ready to stand inside a page.

    Grey becomes the text colour of the page. `mark` goes into every id of the picture, so that no
    two pictures of a page share one.
    """
    if svg := output.get("data", {}).get("image/svg+xml"):
        drawn = re.sub(r"\s*\n\s*", " ", svg[svg.index("<svg") :])
        drawn = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>p{mark}-", drawn)
        output.data["image/svg+xml"] = drawn.replace(_GREY, "currentColor")
    return output


def _pictures(outputs: list[NotebookNode]) -> bool:
    return any("image/svg+xml" in output.get("data", {}) for output in outputs)


def _provenance(this: Lesson) -> dict[str, str | list[str]]:
    return {
        "file": this.path.name,
        "helpers": [path.name for path in this.helpers()],
        "jax": importlib.metadata.version("jax"),
        "python": platform.python_version(),
    }
