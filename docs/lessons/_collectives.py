"""Reads the collectives of a compiled program, and draws them; for lesson 14."""

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np

NAMES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
INSTRUCTION = re.compile(rf" = (.*?) ({NAMES})(-start)?\(")
HEADER = re.compile(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
LOOP = re.compile(r" while\(.*body=%?([\w.\-]+).*?known_trip_count\D+(\d+)")
PAPERS = ("#cfe0fc", "#fde3c8", "#d3efd5", "#f6d5d9")


class Message(NamedTuple):
    """A collective: `nbytes` of result on each device, and how often a loop runs it."""

    op: str
    nbytes: int
    runs: int


def collectives(text: str) -> list[Message]:
    """The collectives in the text of a compiled program, for CPU or GPU."""
    found, loops, here = [], {}, ""
    for line in text.splitlines():
        if header := HEADER.match(line):
            here = header[1]
        elif loop := LOOP.search(line):
            loops[loop[1]] = int(loop[2])
        elif collective := INSTRUCTION.search(line):
            types, op, start = collective.groups()
            result = types.partition("), ")[2] if start else types  # a start names operands, too
            found.append((op, _nbytes(result), here))
    return [Message(op, size, loops.get(place, 1)) for op, size, place in found]


def _nbytes(types: str) -> int:
    arrays = re.findall(r"[a-z]+(\d+)\[([\d,]*)\]", types)
    return sum(
        int(bits) * prod(int(n) for n in shape.split(",") if n) // 8 for bits, shape in arrays
    )


def lines(text: str) -> list[str]:
    """The program's own lines of its collectives, less what follows the operands."""
    found = (line.strip() for line in text.splitlines() if INSTRUCTION.search(line))
    return [re.sub(r"\{[\d,]*\}", "", line.partition(", channel_id")[0]) for line in found]


def draw_exchange(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """For each collective, the blocks of each device above, and what became of them below.

    A number is 10 * device + part; a larger one is a sum over all devices.
    """
    _, axes = plt.subplots(2, len(before), figsize=(7.4, 4.2), sharex=True)
    for column, name in enumerate(before):
        for row, blocks in enumerate((before[name], after[name])):
            panel = axes[row, column]
            _draw_blocks(panel, np.asarray(blocks))
            panel.set_title(name if row == 0 else "becomes", fontsize=9)
    plt.show()


def _draw_blocks(panel: Any, blocks: Any) -> None:
    devices = len(blocks)
    for (device, part), number in np.ndenumerate(blocks):
        source, index = divmod(int(number), 10)
        summed = number > 10 * devices
        name = (
            f"sum {part if blocks.shape[1] > 1 else device}"
            if summed
            else f"{'ABCD'[source]}{index}"
        )
        colour = "#dedede" if summed else PAPERS[source]
        box = plt.Rectangle((device - 0.46, part), 0.92, 0.9, facecolor=colour, edgecolor="#666666")
        panel.add_patch(box)
        small = {"ha": "center", "va": "center", "fontsize": 6 if summed else 8, "color": "black"}
        panel.text(device, part + 0.45, name, **small)
    panel.set(xlim=(-0.6, devices - 0.4), ylim=(4.1, -0.2), yticks=[])
    panel.set_xticks(range(devices), "ABCD"[:devices])
    panel.tick_params(length=0)
    panel.spines[["left", "bottom"]].set_visible(False)


def draw_bars(sizes: Sequence[int], panels: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """One panel for each quantity: groups of bars over the number of devices."""
    _, axes = plt.subplots(1, len(panels), figsize=(7, 2.6))
    places = np.arange(len(sizes))
    for panel, (quantity, series) in zip(axes, panels.items(), strict=True):
        for index, (name, values) in enumerate(series.items()):
            colour, hatch = [("tab:blue", ""), ("tab:orange", "///"), ("tab:green", "...")][index]
            style = {"color": colour, "hatch": hatch, "edgecolor": "white", "label": name}
            bars = panel.bar(places + 0.27 * (index - 1), values, 0.25, **style)
            panel.bar_label(bars, fmt="%.1f", fontsize=6, color="#808182")
        panel.set_xticks(places, sizes)
        panel.set(xlabel="devices", title=quantity)
        panel.title.set_fontsize(9)
    axes[0].legend(fontsize=8)
    plt.show()
