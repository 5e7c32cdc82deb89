"""The figure "A step in time": its places, and the table that stands for it without JavaScript.

Input: the table of `step_in_time_table`, which are recordings. `moving` puts the figure into pages,
and `assets/step_in_time.js` makes it move.
"""

from typing import Any

from figures import moving, still

_SHOWN = {
    "read at each step": "each 0 0",
    "read at each step, next batch loaded before": "each 1 0",
    "read one step late": "late 0 0",
    "not read": "none 0 0",
}
_HEADS = ("the loss is", "all steps took", "Python waited", "the device worked")


def _still(table: dict[str, Any]) -> str:
    rows = []
    for text, key in _SHOWN.items():
        run = table["runs"][key]
        waited = sum(length for name, _, length in run["host"] if name == "wait")
        worked = sum(length for _, length in run["device"])
        rows.append((text, *(f"{ms:.0f} ms" for ms in (run["total"], waited, worked))))
    said = f"{table['steps']} steps of a loop, recorded by jax {table['jax']}."
    return still.table(_HEADS, rows, said)


FIGURE = moving.Figure(
    name="step_in_time",
    title="A step in time: what Python and the device do meanwhile",
    places=(
        ("04", "## One copy for each batch { #one-copy-for-each-batch }"),
        ("15", "## A few ahead { #a-few-ahead }"),
    ),
    still=_still,
    reads=("docs/lessons/_trace.py",),
)
