"""Draws where arrays lie, for lesson 02; from what each array says of its own shards."""

import jax
import matplotlib.pyplot as plt


def draw(arrays: dict[str, jax.Array]) -> None:
    """A row for each array, a column for each device, a box for each shard with its shape."""
    _, axes = plt.subplots(figsize=(7, 1.8))
    for row, array in enumerate(arrays.values()):
        filled = {"facecolor": "tab:blue"}
        style = filled if array.committed else {"hatch": "////", "fill": False}
        for shard in array.addressable_shards:
            column = shard.device.id
            corner = column - 0.45, row - 0.4
            axes.add_patch(plt.Rectangle(corner, 0.9, 0.8, edgecolor="tab:blue", **style))
            place = {"ha": "center", "va": "center", "fontsize": 9}
            paper = {"facecolor": "#e8eefc", "edgecolor": "none", "pad": 1}
            axes.text(column, row, str(shard.data.shape), color="black", bbox=paper, **place)
    last = jax.devices()[-1].id
    axes.set(xlim=(-0.6, last + 0.6), ylim=(len(arrays) - 0.5, -0.5), xlabel="device")
    axes.set_xticks(range(last + 1))
    axes.set_yticks(range(len(arrays)), arrays)
    plt.show()
