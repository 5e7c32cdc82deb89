"""The figure "Whose memory?": its places, and the table that stands for it without JavaScript.

Input: the table of `whose_memory_table`, which compiles for 8 x H200. `moving` puts the figure into
pages, and `assets/whose_memory.js` makes it move.
"""

from typing import Any

from figures import moving, still

_HEADS = ("dtype", "data x model", "split over data", "remat", "donated", "compiled, on each GPU")
_STATE = ("layers", "width", "rows", "dtype", "mesh", "sharing", "remat", "donated")
_SHARING = {"copied": "nothing", "moments": "moments", "all": "weights and moments"}
_GIB = 2**30


def _still(table: dict[str, Any]) -> str:
    rows = []
    for point in table["points"]:
        of = dict(zip(_STATE, point["state"], strict=True))
        need = point["arguments"] + point["results"] + point["temporaries"]
        yes = ("yes" if of[name] else "no" for name in ("remat", "donated"))
        split = _SHARING[of["sharing"]]
        rows.append((of["dtype"], of["mesh"], split, *yes, f"{need / _GIB:.1f} GiB"))
    first = dict(zip(_STATE, table["points"][0]["state"], strict=True))
    said = (
        f"A step of {first['layers']} layers of width {first['width']} with Adam, a batch of "
        f"{first['rows']} rows, compiled by jax {table['jax']} for {table['machine']} of "
        f"{table['memory'] / _GIB:.0f} GiB each; nothing was run."
    )
    return still.table(_HEADS, rows, said)


FIGURE = moving.Figure(
    name="whose_memory",
    title="Whose memory? A training step on eight H200",
    places=(
        ("08", "## What moves an array { #what-moves-an-array }"),
        ("09", "## A donation can be refused { #a-donation-can-be-refused }"),
        ("14", "## What the compiler mends { #what-the-compiler-mends }"),
    ),
    still=_still,
    reads=("docs/lessons/_target.py", "grader/program/machines.toml"),
)
