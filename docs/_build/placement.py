"""The figure "Where does my array live?": its places, and its still picture.

Input: the table of `placement_table`. `moving` puts the figure into pages, and
`assets/placement.js` makes it move.
"""

from typing import Any

import moving

_STILL = ("4 x 2", "8 x 8", "data/model")
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#996633")
_CELL = 36


def _still(table: dict[str, Any]) -> str:
    mesh, shape, spec = _STILL
    parts: list[list[int]] = table["places"][mesh][shape][spec]
    nbytes = table["itemsize"] * _size(parts[0])
    said = (
        f"An array of {shape} {table['dtype']} on a mesh of {mesh} devices, split as P('data', "
        f"'model'): each device holds one block of {nbytes} bytes."
    )
    return (
        f'<div class="picture" role="img" aria-label="{said}">{_drawn(parts)}</div><p>{said} With '
        f"JavaScript, you can choose mesh, shape and spec here.</p>"
    )


def _size(part: list[int]) -> int:
    first, end, left, right = part
    return (end - first) * (right - left)


def _drawn(parts: list[list[int]]) -> str:
    """The blocks of an array as SVG, each with the devices that hold it."""
    held: dict[tuple[int, ...], list[int]] = {}
    for device, part in enumerate(parts):
        held.setdefault(tuple(part), []).append(device)
    rows, columns = (max(part[edge] for part in parts) for edge in (1, 3))
    shapes = []
    for (first, end, left, right), devices in held.items():
        place = [left * _CELL, first * _CELL, (right - left) * _CELL, (end - first) * _CELL]
        x, y, width, height = place
        shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" '
            f'fill="{_COLOURS[devices[0]]}" fill-opacity=".35" stroke="currentColor"/>'
            f'<text x="{x + width / 2}" y="{y + height / 2}" text-anchor="middle" '
            f'dominant-baseline="central" fill="currentColor">{" ".join(map(str, devices))}</text>'
        )
    size = f"0 0 {columns * _CELL} {rows * _CELL}"
    width = columns * _CELL
    return f'<svg viewBox="{size}" width="{width}" aria-hidden="true">{"".join(shapes)}</svg>'


FIGURE = moving.Figure(
    name="placement",
    title="Where does my array live?",
    places=(("12", "## The ragged batch { #the-ragged-batch }"),),
    still=_still,
    reads=("docs/lessons/_collectives.py",),
)
