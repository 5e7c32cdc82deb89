"""Draws shardings: an array as a grid, and in each block the devices that hold it.

For lessons. What is drawn is what `sharding.devices_indices_map(shape)` says, so a picture
cannot differ from the array. Colour only helps: the device numbers stand in the blocks.
"""

from collections.abc import Iterable

import jax
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#996633"]
type Shown = jax.Array | tuple[tuple[int, ...], jax.sharding.Sharding]


def blocks(shape: tuple[int, ...], sharding: jax.sharding.Sharding) -> dict[tuple[int, ...], list]:
    """The devices of each block; a block is (top, bottom, left, right) in rows and columns."""
    found: dict[tuple[int, ...], list] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        edges = [part.indices(size)[:2] for part, size in zip(index, shape, strict=True)]
        rows, columns = (*edges, (0, 1))[:2]
        found.setdefault((*rows, *columns), []).append(device)
    return found


def draw(cases: dict[str, Shown], added: int = 0) -> None:
    """Draw arrays of one or two dimensions side by side, each under its name.

    A case is an array, or a shape with a sharding. The last `added` rows are hatched.
    """
    _, axes = plt.subplots(1, len(cases), figsize=(1.9 * len(cases), 2.5), squeeze=False)
    for place, (name, case) in zip(axes[0], cases.items(), strict=True):
        shape, sharding = (case.shape, case.sharding) if isinstance(case, jax.Array) else case
        _draw_one(place, shape, sharding, added)
        place.set_title(name, fontsize=9)
    plt.show()


def _draw_one(axes: Axes, shape: tuple[int, ...], sharding: jax.sharding.Sharding, added: int):
    rows, columns = (*shape, 1)[:2]
    for (top, bottom, left, right), devices in blocks(shape, sharding).items():
        size = {"width": right - left, "height": bottom - top}
        colour = COLOURS[min(device.id for device in devices) % len(COLOURS)]
        axes.add_patch(plt.Rectangle((left, top), **size, facecolor=colour, alpha=0.35))
        axes.add_patch(plt.Rectangle((left, top), **size, fill=False, edgecolor="#808182"))
        middle = (left + right) / 2, (top + min(bottom, max(rows - added, top + 1))) / 2
        axes.text(*middle, numbers(device.id for device in devices), ha="center", va="center")
    if added:
        style = {"fill": False, "hatch": "///", "edgecolor": "#808182", "linewidth": 0}
        axes.add_patch(plt.Rectangle((0, rows - added), columns, added, **style))
    axes.set(xlim=(-0.1, columns + 0.1), ylim=(rows + 0.1, -0.1), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def numbers(devices: Iterable[int]) -> str:
    """`3`, `0 4`, or `0-7` where that is shorter."""
    ids = sorted(devices)
    if len(ids) > 2 and ids == list(range(ids[0], ids[-1] + 1)):
        return f"{ids[0]}-{ids[-1]}"
    return " ".join(map(str, ids))
