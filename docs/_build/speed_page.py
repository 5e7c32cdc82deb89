"""The table of the grader's speed, from the data file that `make bench` wrote.

Nothing is measured here: `docs/reference/bench.json` says what was measured, when and where.
"""

import json
from pathlib import Path

MARK = "{{ bench }}"
DATA = Path("reference") / "bench.json"


def fill(markdown: str, docs: Path) -> str:
    """Replace `{{ bench }}` by the table; a page without this mark is unchanged."""
    return markdown.replace(MARK, table(docs / DATA)) if MARK in markdown else markdown


def table(path: Path) -> str:
    """The figures as a Markdown table, or a line that says there are none yet."""
    if not path.is_file():
        return "*Not yet measured: `make bench` writes the figures.*"
    found = json.loads(path.read_text("utf-8"))
    low, high = found["load"]
    quick = ", quick: few runs" if found["quick"] else ""
    head = (
        f"{found['machine']}, {found['cores']} cores, load {low:.1f} to {high:.1f}, Python "
        f"{found['python']}, jax {found['jax']}, {found['date']}{quick}."
    )
    rows = [
        f"| {_cell(row['title'])} | {_cell(row['figures'])} | {_cell(row['limit'])} | "
        f"{'yes' if row['holds'] else '**no**'} |"
        for row in found["rows"]
    ]
    return "\n".join([head, "", "| what | measured | limit | holds |", "|---|---|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
