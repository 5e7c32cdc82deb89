"""The figure "Under which roof?": its places, and the table that stands for it without JavaScript.

Input: the table of `roofline_figure_table`: JAX's FLOPs and bytes, ceilings of data sheets, and a
launch measured on this machine. `moving` puts the figure into pages, and
`assets/roofline_figure.js` makes it move.
"""

from typing import Any

from figures import moving, still

_SIDE = 4096
_HEADS = ("rows of x", "size of W", "FLOPs per byte", "to move", "to compute")


def _still(table: dict[str, Any]) -> str:
    ceiling = table["ceilings"][0]
    rows = []
    for count in table["rows"]:
        flops, nbytes = table["costs"][ceiling["dtype"]][f"{count} {_SIDE}"]
        times = (nbytes / ceiling["bandwidth"], flops / ceiling["flops"])
        spans = (f"{seconds * 1e6:.1f} µs" for seconds in times)
        rows.append((f"{count}", f"({_SIDE}, {_SIDE})", f"{flops / nbytes:.1f}", *spans))
    said = (
        f"x @ W in {ceiling['dtype']} under the ceilings of a {ceiling['gpu']}'s data sheet; the "
        f"longer of the two decides. FLOPs and bytes by jax {table['jax']}."
    )
    return still.table(_HEADS, rows, said)


FIGURE = moving.Figure(
    name="roofline_figure",
    title="Under which roof? Size, dtype and batch of a matrix product",
    places=(
        ("06", "## Many launches or one { #many-launches-or-one }"),
        ("17", "## How near to the roof { #how-near-to-the-roof }"),
    ),
    still=_still,
    reads=("grader/program/machines.toml",),
)
