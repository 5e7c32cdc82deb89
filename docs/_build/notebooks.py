"""Run lessons: execute the code cells once, keep the outputs, fail loudly.

Input: `docs/lessons/*.py` through `lesson`. Output: a `Run` (outputs of each code cell, and the
figures that prose asks for), from a fresh kernel or from the cache. Pages are not made here
(`lesson_pages`), and recordings are written and read in `recordings`.

The cache key holds the code cells, the figures, every other module beside the lessons, this
file, the version of every installed package and Python's; for a lesson that runs programs on a
device next door, the grader without its exercises. Prose is not in it, so that a change of words
runs nothing.

    python docs/_build/notebooks.py run                 execute what the cache does not have
    python docs/_build/notebooks.py record --out DIR    execute on the GPU, write recordings

A name after either (`04`, or a lesson's whole name) takes that lesson alone.
"""

import argparse
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

import lesson
import recordings
from lesson import Lesson, LessonError

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "docs" / "lessons"
MACHINES = ROOT / "grader" / "program" / "machines.toml"  # which lessons compile for
GRADER = ROOT / "grader"
CACHE = ROOT / ".cache" / "site" / "runs"
CELL_SECONDS = 120

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_CELL_LINE = re.compile(r"Cell In\[\d+\], line (\d+)")
_CLEAN = ("JAX_", "XLA_", "TF_", "CUDA_VISIBLE_DEVICES", "PYTHON")
_NODES_OWN = ("CUDA_VISIBLE_DEVICES", "PYTHONPATH")  # which GPUs are ours, where packages lie
_KERNEL = ["--log-level=ERROR", "--InlineBackend.figure_formats=svg"]
_PAGE = {"JAX_PLATFORMS": "cpu", "COURSE_PAGE": "1"}  # what runs becomes a page
_NEXT_DOOR, _EXERCISES = "_next_door.py", GRADER / "checks"
_READ_FIGURES = """
import json as _json
def _figure(_text):
    _name, _, _spec = _text.partition(":")
    try:
        return format(globals()[_name], _spec)
    except Exception as _error:
        return {{"error": f"{{type(_error).__name__}}: {{_error}}"}}
print(_json.dumps({{_text: _figure(_text) for _text in {figures!r}}}))
"""


@dataclass(frozen=True)
class Run:
    """What a lesson gave: nbformat outputs of each code cell, and `name:spec` -> text."""

    outputs: list[list[dict[str, Any]]]
    figures: dict[str, str]


def cache_key(this: Lesson, versions: tuple[str, ...], helpers: tuple[Path, ...]) -> str:
    """Hash of all that the outputs of a lesson depend on, 20 hex digits."""
    digest = hashlib.sha256()
    for part in (*this.code(), *this.figures(), *versions):
        digest.update(part.encode() + b"\0")
    for path in (*helpers, Path(__file__)):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


@functools.cache
def installed_versions() -> tuple[str, ...]:
    """Python and every installed distribution, as `name==version`: read once, for it is slow."""
    found = {f"{dist.name}=={dist.version}" for dist in importlib.metadata.distributions()}
    return (sys.version, *sorted(found))


def lesson_paths(folder: Path = LESSONS) -> list[Path]:
    """The lessons of a folder, in order; a module that starts with `_` is a helper."""
    return sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))


def load(path: Path, cache: Path = CACHE, cell_seconds: float = CELL_SECONDS) -> Run:
    """The run of a lesson on CPU, from the cache where nothing has changed.

    Raises LessonError with file, cell and line when a cell raises, runs longer than
    `cell_seconds` or kills its kernel, and when prose names a figure that does not exist.
    """
    this = lesson.read(path)
    helpers = (*sorted(path.parent.glob("_*.py")), MACHINES, *_device(this))
    kept = cache / f"{this.name}-{cache_key(this, installed_versions(), helpers)}.json"
    if kept.exists():
        return Run(**json.loads(kept.read_text(encoding="utf-8")))
    outputs, figures = execute(this, cell_seconds, _PAGE)
    run = Run(outputs, _checked(this, figures))
    keep(kept, this.name, json.dumps(asdict(run)))
    return run


def _device(this: Lesson) -> list[Path]:
    """The sources of what the lesson shows of a device next door; none where it shows nothing."""
    if _NEXT_DOOR not in (path.name for path in this.helpers()):
        return []
    return sorted(path for path in GRADER.rglob("*.py") if _EXERCISES not in path.parents)


def keep(kept: Path, name: str, text: str) -> None:
    """Write what was run where the next build finds it, and drop older ones of that name."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    for old in kept.parent.glob(f"{name}-*{kept.suffix}"):
        if old != kept:
            old.unlink(missing_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(kept)


def execute(
    this: Lesson, cell_seconds: float, environment: dict[str, str], *, go_on: bool = False
) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    """Run a lesson in a fresh kernel: the outputs of each code cell, and the figures.

    A figure is text, or says why there is none. Raises LessonError when a cell fails, as `load`;
    if it is to `go_on` after a cell that raised, the error is among the outputs of that cell.
    """
    notebook = nbformat.v4.new_notebook(cells=[*this.notebook.cells])
    notebook.cells.append(
        nbformat.v4.new_code_cell(_READ_FIGURES.format(figures=list(this.figures())))
    )
    at = [0]
    client = NotebookClient(
        notebook,
        timeout=cell_seconds,
        allow_errors=go_on,
        kernel_name="python3",
        coalesce_streams=True,
        extra_arguments=_KERNEL,
        resources={"metadata": {"path": str(this.path.parent)}},
    )
    client.on_cell_start = lambda cell, cell_index: at.__setitem__(0, cell_index)
    try:
        client.execute(env=_environment(environment))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise LessonError(_explain(this, at[0], error, cell_seconds)) from None
    *cells, last = [cell for cell in notebook.cells if cell.cell_type == "code"]
    figures = json.loads("".join(output["text"] for output in last.outputs))
    return [cell.outputs for cell in cells], figures


def _environment(extra: dict[str, str]) -> dict[str, str]:
    """The kernel's environment: ours without what steers JAX or Python, plus `extra`."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_CLEAN)}
    shown = {"NO_COLOR": "1", "COLUMNS": "80", "MATPLOTLIBRC": str(Path(__file__).parent)}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "2", **shown, **extra}


def _explain(this: Lesson, cell: int, error: Exception, cell_seconds: float) -> str:
    line, number = this.lines[cell], cell + 1
    if isinstance(error, CellTimeoutError):
        return f"{this.path}:{line}: cell {number} ran longer than {cell_seconds:g} s"
    if isinstance(error, DeadKernelError):
        return f"{this.path}:{line}: cell {number} killed its kernel"
    return _raising(this, cell, str(error))


def _raising(this: Lesson, cell: int, traceback: str) -> str:
    line, text = this.lines[cell], _ANSI.sub("", traceback)
    if found := _CELL_LINE.search(text):
        line += int(found[1]) - 1
    return f"{this.path}:{line}: cell {cell + 1} raised\n{text}"


def _checked(this: Lesson, figures: dict[str, Any]) -> dict[str, str]:
    """The figures, all of them text. Raises LessonError for the first that is not."""
    for text, line in this.figures().items():
        if not isinstance(figures[text], str):
            why = figures[text]["error"]
            raise LessonError(f"{this.path}:{line}: figure {{{{ {text} }}}}: {why}")
    return figures


def chosen(names: list[str]) -> list[Path]:
    """The lessons of these names or numbers; all of them where none is named.

    Raises LessonError for a name that fits no lesson.
    """
    paths = lesson_paths()
    for name in names:
        if not any(_named(path, name) for path in paths):
            raise LessonError(f"no lesson {name} in {LESSONS}")
    return [path for path in paths if not names or any(_named(path, name) for name in names)]


def _named(path: Path, name: str) -> bool:
    return name in (path.stem, path.stem.partition("-")[0])


def _run_all(paths: list[Path]) -> None:
    for path in paths:
        load(path)
        print(f"ok  {path.name}", flush=True)


def _record_all(paths: list[Path], out: Path) -> int:
    """Record each lesson, whatever became of the one before; how many could not be, or not whole.

    A cell that raised is told of and not recorded, and the cells after it are run all the same.
    """
    device = recordings.device()
    own = {name: os.environ[name] for name in _NODES_OWN if name in os.environ}
    failed = 0
    for path in paths:
        this = lesson.read(path)
        try:
            outputs, _ = execute(this, CELL_SECONDS, own, go_on=True)
        except LessonError as error:
            print(error, file=sys.stderr, flush=True)
            failed += 1
            continue
        told = list(_errors(this, outputs))
        for text in told:
            print(text, file=sys.stderr, flush=True)
        failed += bool(told)
        kept = [[] if _raised(shown) else shown for shown in outputs]
        if any(kept):
            print(recordings.write(out, this, kept, device), flush=True)
    return failed


def _raised(outputs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The error among the outputs of a cell."""
    return next((shown for shown in outputs if shown["output_type"] == "error"), None)


def _errors(this: Lesson, outputs: list[list[dict[str, Any]]]) -> Iterator[str]:
    """What each cell that raised has to say, with its file and line, if it is to be recorded."""
    cells = [(at, cell) for at, cell in enumerate(this.notebook.cells) if cell.cell_type == "code"]
    for (at, cell), shown in zip(cells, outputs, strict=True):
        error = _raised(shown)
        if error and cell.metadata.get("gpu", True):
            yield _raising(this, at, "\n".join(error["traceback"]))


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code: 0, or 1 with one message on stderr."""
    parser = argparse.ArgumentParser(description="Run the lessons or record them on a GPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="execute the lessons that the cache does not have")
    record = commands.add_parser("record", help="execute on the GPU and write recordings")
    record.add_argument("--out", type=Path, required=True, help="folder for the recordings")
    for command in (run, record):
        command.add_argument("lessons", nargs="*", metavar="LESSON", help="04; all by default")
    wanted = parser.parse_args(arguments)
    try:
        paths = chosen(wanted.lessons)
        if wanted.command == "record":
            return int(_record_all(paths, wanted.out) > 0)
        _run_all(paths)
    except (LessonError, recordings.NoGpuError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
