"""The figure "Where does my array live?": its places, and its still picture.

Input: the table of `placement_table`. `moving` puts the figure into pages, and
`assets/placement.js` makes it move.
"""

from collections.abc import Iterable
from typing import Any

from figures import moving

_STILL = ("4 x 2", "8 x 8", "data/model")
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#996633")
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
    rows, columns = (max(part[edge] for part in parts) * _CELL for edge in (1, 3))
    shapes = blocks(parts, range(len(parts)), _CELL, _CELL)
    return (
        f'<svg viewBox="0 0 {columns} {rows}" width="{columns}" aria-hidden="true">{shapes}</svg>'
    )


def blocks(parts: list[list[int]], devices: Iterable[int], wide: float, high: float) -> str:
    """SVG shapes of an array's parts: first row, end, first column, end; one for each device.

    An element is `wide` by `high` units. A part that several devices hold is drawn once.
    """
    held: dict[tuple[int, ...], list[int]] = {}
    for device, part in zip(devices, parts, strict=True):
        held.setdefault(tuple(part), []).append(device)
    shapes = []
    for (first, end, left, right), numbers in held.items():
        x, y, width, height = left * wide, first * high, (right - left) * wide, (end - first) * high
        shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'fill="{COLOURS[numbers[0] % len(COLOURS)]}" fill-opacity=".35" '
            f'stroke="currentColor"/>'
            f'<text x="{x + width / 2:g}" y="{y + height / 2:g}" text-anchor="middle" '
            f'dominant-baseline="central" fill="currentColor">{" ".join(map(str, numbers))}</text>'
        )
    return "".join(shapes)


FIGURE = moving.Figure(
    name="placement",
    title="Where does my array live?",
    places=(("12", "## The ragged batch { #the-ragged-batch }"),),
    still=_still,
    reads=("docs/lessons/_collectives.py",),
)
