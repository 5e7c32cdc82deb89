"""The figure "Who decides?": its place, and the table that stands for it without JavaScript.

Input: the table of `who_decides_table`. `moving` puts the figure into pages, and
`assets/who_decides.js` makes it move.
"""

from typing import Any

from figures import moving, still

_SHOWN = (
    ("", "", "NumPy", "NumPy"),
    ("gpu 1", "", "NumPy", "NumPy"),
    ("gpu 1", "cpu 0", "NumPy", "NumPy"),
    ("gpu 1", "cpu 0", "free gpu 1", "NumPy"),
    ("gpu 1", "cpu 0", "put gpu 0", "free gpu 1"),
    ("gpu 1", "cpu 0", "put gpu 0", "put cpu 0"),
)
_HEADS = ("default of the process", "default of the block", "a", "b", "the call runs on")


def answer(table: dict[str, Any], environment: str, *state: str) -> dict[str, Any]:
    """JAX's answer to one state: config, block, and the two arguments."""
    place = 0
    for name, value in zip(("configs", "blocks", "arguments", "arguments"), state, strict=True):
        place = place * len(table[name]) + table[name].index(value)
    found: dict[str, Any] = table["answers"][table["states"][environment][place]]
    return found


def _still(table: dict[str, Any]) -> str:
    found = ((state, answer(table, "", *state)) for state in _SHOWN)
    rows = [
        (*(one or "not set" for one in state), one.get("at") or one["refused"])
        for state, one in found
    ]
    return still.table(_HEADS, rows, f"Asked of jax {table['jax']}.")


FIGURE = moving.Figure(
    name="who_decides",
    title="Who decides where a call runs?",
    places=(("05", "## Before the program starts { #before-the-program-starts }"),),
    still=_still,
)
