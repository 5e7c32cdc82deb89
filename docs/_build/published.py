"""What a reader takes along from a lesson's page: the notebook as executed, the program, Colab.

Input: the notebooks that `lesson_pages` wrote. Output: the links under a lesson's title, and the
files behind them. A published notebook runs alone: it says which jax it needs, and writes the
modules that its lesson imports.
"""

import importlib.metadata
import re
from collections.abc import Callable
from html import escape
from pathlib import Path

import nbformat
from nbformat import NotebookNode

import captures
import lesson
import lesson_pages
import notebooks
from address import Address

_TITLE = re.compile(r"(?m)^# .+$")
_VERSION = re.compile(r'(?m)^__version__ = "(.+)"$')
_QUIZ = re.compile(r"(?m)^</?quiz>\n?")
_ADMONITION = re.compile(r'(?m)^( *)(?:!!!|\?\?\?|===)\+? ?\w* "(.+)"$')


def version(root: Path) -> str:
    """The course's version, which is the package's; empty where there is no package."""
    path = root / "grader" / "__init__.py"
    found = _VERSION.search(path.read_text("utf-8")) if path.is_file() else None
    return found[1] if found else ""


def links(markdown: str, stem: str, link: Callable[[str], str], course: Address) -> str:
    """A lesson's page with "Notebook, Program, Colab" under its title."""
    where = {
        "Notebook": (notebook_link(stem, link), "download"),
        "Program": (f"{link(f'lessons/{stem}.py')}", "download"),
    }
    if colab := course.colab(f"lessons/{stem}.ipynb"):
        where["Colab"] = (colab, 'rel="noopener"')
    items = ", ".join(
        f'<a href="{escape(address)}" {how}>{name}</a>' for name, (address, how) in where.items()
    )
    line = f'\n\n<p class="elsewhere">Run it elsewhere: {items}</p>\n'
    return _TITLE.sub(lambda match: match[0] + line, markdown, count=1)


def notebook_link(stem: str, link: Callable[[str], str]) -> str:
    """The published notebook lies beside the published program."""
    return str(link(f"lessons/{stem}.py")).removesuffix(".py") + ".ipynb"


def write(docs: Path, site: Path, cache: Path) -> None:
    """Write each lesson's notebook into the site."""
    for path in notebooks.lesson_paths(docs / "lessons"):
        notebook = nbformat.read(lesson_pages.page_path(path, cache), 4)
        target = site / "lessons" / f"{path.stem}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(alone(notebook, lesson.read(path)), target)


def alone(notebook: NotebookNode, this: lesson.Lesson) -> NotebookNode:
    """The notebook with what it needs in front, and without marks that only our pages read."""
    jax = importlib.metadata.version("jax")
    needs = [f'%pip install --quiet "jax=={jax}" dm-haiku flax optax matplotlib']
    needs += [f"%%writefile {path.name}\n{path.read_text('utf-8')}" for path in this.helpers()]
    for cell in notebook.cells:
        cell.metadata.pop("recorded", None)
        if cell.cell_type == "markdown":
            text = captures.MARKER.sub(r"\g<indent>`grader \g<command>` shows it.", cell.source)
            cell.source = _ADMONITION.sub(r"\1**\2**\n", _QUIZ.sub("", text))
    front = [nbformat.v4.new_code_cell(source) for source in needs]
    for number, cell in enumerate(front):
        cell.id = f"needs-{number}"  # the same in every build
    notebook.cells = [*front, *notebook.cells]
    return notebook
