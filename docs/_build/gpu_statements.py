"""Statements about GPUs in prose: what each is bound to, and what experiments would settle them.

A paragraph that speaks of GPUs names a claim of the ledger (S1-01), or holds a mark:

    <!-- gpu: G2 -->                       measured by the experiment G2, or what we expect of it
    <!-- gpu: S1-01 -->                    the claim's proof shows it
    <!-- gpu: compiled -->                 read from a program compiled for GPUs in this page's run
    <!-- gpu: source: JAX docs, ... -->    by somebody else's word
    <!-- gpu: nothing claimed -->          says nothing of what a GPU does

The first two become small links. Questions, code, headings and lists of links are free. A mark of a
number's source (`<!-- source: ... -->`) binds as well. Input: the texts of the pages,
`docs/claims/experiments.toml`, and what `gpu_figures` left in `docs/recorded`. Nothing is run here.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import claims
import gpu_figures
import lesson
import notebooks
import recordings

EXPERIMENTS, PAGE = "{{ experiments }}", "claims/experiments.md"
_MARK = re.compile(r" ?<!-- gpu: (.+?) -->")
_SOURCE = re.compile(r"<!-- source: \S.* -->")
_CLAIM, _EXPERIMENT = re.compile(r"S\d-\d\d"), re.compile(r"G\d+")
_SPEAKS = re.compile(r"\b(?:GPUs?|NVLink|NCCL|PCIe|HBM|CUDA|H200|H100|DGX)\b")
_FREE = re.compile(
    r"(?ms)<quiz>.*?</quiz>|^ *```.*?^ *```|\A---\n.*?^---\n|`[^`\n]*`|\[[^]]*\]\([^)]*\)|^#+ .*?$"
    r"|^!!! example .*?(?=^\S|\Z)|\{\{.*?\}\}"
)


@dataclass(frozen=True)
class Measured:
    """What one device gave: its label, and what was measured -> the figure with its unit."""

    on: str
    figures: dict[str, str]


class UnboundError(Exception):
    """Paragraphs speak of GPUs and say not by what; the message lists them."""


@dataclass(frozen=True)
class Experiment:
    """What only a GPU can settle: what it measures, by which tests, and what we expect, by what."""

    id: str
    measures: str
    tests: tuple[str, ...]
    expected: str
    source: str
    takes: str


def experiments(root: Path) -> list[Experiment]:
    """All experiments, in the order in which they are run; none where there is no list."""
    path = root / "docs" / "claims" / "experiments.toml"
    if not path.is_file():
        return []
    rows = tomllib.loads(path.read_text("utf-8"))["experiment"]
    return [Experiment(**row | {"tests": tuple(row["tests"])}) for row in rows]


def pages(root: Path) -> list[Path]:
    """The pages whose prose is held to it: lessons, documents, symptoms and the home page."""
    docs = root / "docs"
    single = [path for path in (docs / "index.md", docs / "symptoms.md") if path.is_file()]
    documents = sorted((docs / "documents").glob("*.md"))
    return [*notebooks.lesson_paths(docs / "lessons"), *documents, *single]


def check(root: Path, ledger: claims.Ledger) -> None:
    """Raises UnboundError if a paragraph speaks of GPUs and is bound to nothing."""
    known = set(ledger.claims) | {each.id for each in experiments(root)}
    found = [
        f"{path.relative_to(root)}: {' '.join(paragraph.split())[:90]}"
        for path in pages(root)
        for text in _prose(path)
        for paragraph in unbound(text, known)
    ]
    if found:
        lines = "\n  ".join(found)
        raise UnboundError(f"said of GPUs, and bound to no claim, run or source:\n  {lines}")


def _prose(path: Path) -> list[str]:
    if path.suffix == ".md":
        return [path.read_text("utf-8")]
    cells = lesson.read(path).notebook.cells
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


def unbound(text: str, known: set[str]) -> Iterator[str]:
    """The paragraphs of a text that speak of GPUs and are bound to nothing that is known."""
    for paragraph in _FREE.sub("", text).split("\n\n"):
        if _SPEAKS.search(_MARK.sub("", paragraph)) and not _bound(paragraph, known):
            yield paragraph


def _bound(paragraph: str, known: set[str]) -> bool:
    marks = _MARK.findall(paragraph)
    if marks:
        return all(_valid(mark, known) for mark in marks)
    named = set(_CLAIM.findall(paragraph))
    return bool(named & known) or _SOURCE.search(paragraph) is not None


def _valid(mark: str, known: set[str]) -> bool:
    if mark in ("compiled", "nothing claimed") or re.fullmatch(r"source: \S.*", mark):
        return True
    return set(mark.split(", ")) <= known


def fill(markdown: str, root: Path, ledger: claims.Ledger, link: Callable[[str], str]) -> str:
    """A page with its marks as small links, and the list of experiments where it is asked for."""
    known = measured(root)

    def shown(match: re.Match[str]) -> str:
        links = [_link(name, link, known) for name in match[1].split(", ")]
        return f" <small>[{', '.join(links)}]</small>" if all(links) else ""

    if EXPERIMENTS in markdown:
        markdown = markdown.replace(EXPERIMENTS, table(root, ledger))
    return _MARK.sub(shown, markdown)


def _link(name: str, link: Callable[[str], str], known: Mapping[str, object]) -> str:
    if _EXPERIMENT.fullmatch(name):
        word = "measured" if name in known else "expected"
        return f'<a href="{link(PAGE)}#{name.lower()}">{word}: {name}</a>'
    if _CLAIM.fullmatch(name):
        return f'<a href="{link("claims/index.md")}#{name.lower()}">{name}</a>'
    return ""


def measured(root: Path) -> dict[str, list[Measured]]:
    """What was measured of each experiment, by its name: one for each kind of device.

    Figures of code that was changed since are left out. Raises RecordingError as `recordings`.
    """
    found: dict[str, list[Measured]] = {}
    for path in sorted((root / "docs" / "recorded").glob("experiments.*.json")):
        device, data = recordings.checked(path)
        for name, key in gpu_figures.keys().items():
            if figures := data["experiments"].get(key):
                found.setdefault(name, []).append(Measured(device.label, figures))
    return found


def table(root: Path, ledger: claims.Ledger) -> str:
    """The experiments, one section each."""
    known = measured(root)
    return "\n\n".join(_section(one, ledger, known.get(one.id, [])) for one in experiments(root))


def _section(each: Experiment, ledger: claims.Ledger, known: Sequence[Measured]) -> str:
    rows = [row for row in ledger.claims.values() if each.id in row.gpu.split(",")]
    settles = ", ".join(f"[{c.id}](../documents/{c.document}.md#{c.id.lower()})" for c in rows)
    return "\n".join(
        [
            f"## {each.id}: {each.measures} {{ #{each.id.lower()} }}",
            "",
            *(line for one in known for line in _rows(one)),
            f"- **Expected{'' if known else ', not yet recorded'}:** {each.expected}.",
            f"- **By its source:** {each.source}.",
            f"- **Claims that it {'bears on' if known else 'would settle'}:** "
            f"{settles or 'none; it is for the lessons'}.",
            f"- **Takes:** {each.takes} (our estimate).",
            f"- **Programs:** {', '.join(f'`{name}`' for name in each.tests)}.",
        ]
    )


def _rows(one: Measured) -> Iterator[str]:
    """What was measured on one device, as a table."""
    yield '<div class="measured" markdown>'
    yield ""
    yield f"| Measured | on {one.on} |"
    yield "| --- | --- |"
    for what, figure in one.figures.items():
        yield f"| {_cell(what)} | {_cell(figure)} |"
    yield from ("", "</div>", "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
