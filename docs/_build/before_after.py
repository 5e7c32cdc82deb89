"""An exercise's picture: what its starter did, and beside it what a solution did.

Input: the record of the starter's check (`captures`), which holds a run of the solution on the same
inputs; and the front matter of the exercise's page, which says what of it is drawn:

    picture:
      {draws: steps, of: d2h, says: Reads by the host, caption: "A column for each step."}

`draws` names a function of `_KINDS`, and all but the caption are its arguments. Every number and
everything drawn is the record's; nothing is run here. Output: HTML.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from figures import placement

_SIDES = {
    "The starter": ("submission", "measured"),
    "A solution": ("reference", "reference_measured"),
}
_WIDE = 320
_COPIES = ("h2d", "d2h", "d2d")
_LOOP, _CALLS = "calls of ", 25
"""The facts that list the calls of a loop, and how many of them are drawn."""


class PictureError(Exception):
    """The record has nothing of what a page's front matter asks for."""


@dataclass(frozen=True)
class Side:
    """What one of the two files did: `Observed`, and programs as `Measured`, of the schema."""

    observed: Mapping[str, Any]
    programs: Mapping[str, Any]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind, in order."""
        return [event for event in self.observed.get("events", []) if event["kind"] == kind]


class Drawn(NamedTuple):
    """A side's drawing: what it shows in words, and shapes in SVG, `_WIDE` units wide."""

    words: str
    height: float
    shapes: str


def html(spec: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The picture that front matter describes. Raises PictureError where the record lacks it."""
    options = {**spec}
    sides = [Side(record[seen], record.get(made, {})) for seen, made in _SIDES.values()]
    try:
        caption, draws = options.pop("caption"), _KINDS[options.pop("draws")]
        drawn = draws(sides, **options)
    except (LookupError, TypeError, ValueError, ArithmeticError, StopIteration) as error:
        raise PictureError(f"picture {spec}: {type(error).__name__}: {error}") from error
    panels = "".join(_panel(who, one) for who, one in zip(_SIDES, drawn, strict=True))
    return (
        f'<figure class="before-after" data-search-exclude><div>{panels}</div><figcaption>'
        f"{escape(caption)} Both ran on the same inputs, when this page was built."
        "</figcaption></figure>"
    )


def _panel(who: str, drawn: Drawn) -> str:
    return (
        f'<div class="picture" role="img" aria-label="{escape(f"{who}. {drawn.words}")}">'
        f"<p><strong>{who}.</strong> {escape(drawn.words)}</p>"
        f'<svg viewBox="0 0 {_WIDE} {drawn.height:g}" aria-hidden="true">{drawn.shapes}</svg></div>'
    )


def _bars(sides: Sequence[Side], of: str, says: str) -> list[Drawn]:
    """One bar a side: copies, collectives of a step, or bytes of the program that has the most."""
    numbers = _copied(sides) if of == "copies" else _sizes(sides, of)
    most = max(numbers)
    frame = f'<rect width="{_WIDE}" height="20" fill="none" stroke="currentColor"/>'
    return [
        Drawn(f"{says}: {number:,}.", 20, _bar(_WIDE * number / most, 20) + frame)
        for number in numbers
    ]


def _copied(sides: Sequence[Side]) -> list[int]:
    return [
        sum(event.get("count", 1) for kind in _COPIES for event in side.events(kind))
        for side in sides
    ]


def _sizes(sides: Sequence[Side], of: str) -> list[int]:
    """Of the program that has the most: how many collectives it runs, or a figure of its memory."""

    def size(program: Mapping[str, Any]) -> int:
        if of == "collectives":
            return sum(one["count"] * one["runs"] for one in program.get("collectives", []))
        return int(program["memory"][of])

    compiled = {name: one for name, one in sides[0].programs.items() if "memory" in one}
    name = max(compiled, key=lambda one: size(compiled[one]))
    return [size(side.programs[name]) for side in sides]


def _steps(sides: Sequence[Side], of: str, says: str) -> list[Drawn]:
    """A column for each step of the longest run, and its events."""
    run, counts = _by_step(sides, of)
    return _columns(
        counts, range(max(step for steps in counts for step in steps) + 1), f"{says}, in {run}"
    )


def _marks(sides: Sequence[Side], of: str, says: str) -> list[Drawn]:
    """A mark for each step of the longest run that has an event."""
    run, counts = _by_step(sides, of)
    marked = [Counter(steps.keys()) for steps in counts]
    return _columns(
        marked, range(max(step for steps in counts for step in steps) + 1), f"{says}, of {run}"
    )


def _by_step(sides: Sequence[Side], of: str) -> tuple[str, list[Counter[int]]]:
    """The phase in which the starter has the most events, and how many each step has."""
    run = _counted(sides[0], of, "phase").most_common(1)[0][0]
    return run, [_counted(side, of, "step", run) for side in sides]


def _phases(sides: Sequence[Side], of: str, says: str) -> list[Drawn]:
    """A column for each phase in which anything was seen, in order, and its events."""
    seen = {event["phase"]: 0 for side in sides for event in side.observed["events"]}
    counts = [_counted(side, of, "phase") for side in sides]
    return _columns(counts, [phase for phase in seen if phase], says)


def _counted(side: Side, of: str, by: str, run: str | None = None) -> Counter[Any]:
    """How many events there are of a kind, by step or by phase; in one phase, if it is named."""
    counted = Counter[Any]()
    for event in side.events(of):
        if run is None or event["phase"] == run:
            counted[event.get(by, 0)] += event.get("count", 1)
    return counted


def _columns(counts: Sequence[Counter[Any]], places: Sequence[Any], says: str) -> list[Drawn]:
    high, wide = 60, _WIDE / len(places)
    most = max(max(one.values(), default=0) for one in counts)
    ground = f'<path d="M0 {high}H{_WIDE}" stroke="currentColor"/>'
    drawn = []
    for one in counts:
        lines = "".join(
            f"M{(at + 0.5) * wide:.4g} {high}v-{high * one[place] / most:.3g}"
            for at, place in enumerate(places)
            if one[place]
        )
        columns = f'<path class="mark" d="{lines}" stroke-width="{wide * 0.7:.3g}"/>'
        drawn.append(Drawn(f"{says}: {one.total():,}.", high + 1, columns + ground))
    return drawn


def _parts(sides: Sequence[Side], value: str, leaf: str) -> list[Drawn]:
    """An array as a rectangle, and in each part of it the devices that hold it."""
    drawn = []
    for side in sides:
        array = next(one for one in side.observed["values"][value] if one["path"] == leaf)
        found = sorted((int(device), parts) for device, parts in array["parts"].items())
        parts = [[edge for axis in part for edge in axis] for _, part in found]
        shape, held = (" x ".join(map(str, array[name])) for name in ("shape", "shard_shape"))
        words = f"An array of {shape}, of which each device holds {held}."
        rows, columns = array["shape"]
        cell = _WIDE / columns, 120 / rows
        blocks = placement.blocks(parts, [one for one, _ in found], *cell)
        drawn.append(Drawn(words, 120, f'<g font-size="11">{blocks}</g>'))
    return drawn


def _where(sides: Sequence[Side], values: Sequence[str]) -> list[Drawn]:
    """A box for each place, and how many arrays lie there."""
    counts = [
        Counter(_place(leaf) for value in values for leaf in side.observed["values"][value])
        for side in sides
    ]
    places = sorted({*counts[0], *counts[1]})
    wide = _WIDE / len(places)
    drawn = []
    for count in counts:
        words = ", ".join(f"{count[place]} {place}" for place in places if count[place])
        boxes = "".join(
            f'<rect x="{at * wide + 1:g}" y="1" width="{wide - 4:g}" height="58" fill="none" '
            f'stroke="currentColor"/>{_text((at + 0.5) * wide - 1, 20, place)}'
            f"{_text((at + 0.5) * wide - 1, 44, str(count[place]), 20)}"
            for at, place in enumerate(places)
        )
        drawn.append(Drawn(f"Arrays: {words}.", 60, boxes))
    return drawn


def _place(leaf: Mapping[str, Any]) -> str:
    if leaf["kind"] != "jax":
        return "in NumPy"
    if leaf["memory_kind"] != "device":
        return "in pinned host"
    devices = leaf["devices"]
    return f"on device {devices[0]}" if len(devices) == 1 else f"on {len(devices)} devices"


def _calls(sides: Sequence[Side], until: str, says: str) -> list[Drawn]:
    """The first calls of the longest run: a row for each function, in each cell the batch."""
    called = [
        max((made for name, made in side.observed["facts"].items() if _LOOP in name), key=len)
        for side in sides
    ]
    rows = list(dict.fromkeys(function for function, _ in called[0]))
    left, high = 36, 15
    wide = (_WIDE - left) / _CALLS
    drawn = []
    for calls in called:
        asked = [function for function, _ in calls[: [one for one, _ in calls].index(until)]]
        shapes = "".join(
            _text(left / 2, row * high + 11, name, 10) for row, name in enumerate(rows)
        )
        for at, (function, batch) in enumerate(calls[:_CALLS]):
            x, y = left + at * wide, rows.index(function) * high + 1
            shapes += (
                f'<rect x="{x:.4g}" y="{y}" width="{wide - 1:.3g}" height="{high - 2}" '
                f'fill="{placement.COLOURS[batch % len(placement.COLOURS)]}" fill-opacity=".35"/>'
            )
            shapes += _text(x + wide / 2, y + 10, str(batch), 9)
        drawn.append(Drawn(f"{says}: {asked.count(rows[0])}.", len(rows) * high, shapes))
    return drawn


def _timers(sides: Sequence[Side], within: float) -> list[Drawn]:
    """A column for each program: what the timer said, beside a line at what one call costs."""
    high, most, drawn = 60, 2.0, []
    for side in sides:
        shares = [_share(timing) for timing in side.observed["facts"]["timings"]]
        wide = _WIDE / len(shares)
        right = sum(abs(share - 1) <= within for share in shares)
        lines = "".join(
            f"M{(at + 0.5) * wide:.4g} {high}v-{high * min(share, most) / most:.3g}"
            for at, share in enumerate(shares)
        )
        columns = f'<path class="mark" d="{lines}" stroke-width="{wide * 0.5:.3g}"/>'
        true = high - high / most
        truth = f'<path d="M0 {true:g}H{_WIDE}" stroke="currentColor" stroke-dasharray="4 3"/>'
        ground = f'<path d="M0 {high}H{_WIDE}" stroke="currentColor"/>'
        words = f"Right to {within:.0%}: {right} of {len(shares)} programs."
        drawn.append(Drawn(words, high + 1, columns + truth + ground))
    return drawn


def _share(timing: Mapping[str, Any]) -> float:
    """How many times the work of a call the timer said."""
    return float(timing["figure"] / timing["cost"]["work"])


def _levels(sides: Sequence[Side], of: str, says: str) -> list[Drawn]:
    """A line over the steps of a run: the bytes that the fact `of` has for each."""
    high = 60
    levels = [[int(one["nbytes"]) for one in side.observed["facts"][of]] for side in sides]
    most = max(map(max, levels))
    drawn = []
    for bytes_ in levels:
        wide = _WIDE / (len(bytes_) - 1)
        points = " ".join(
            f"{at * wide:.4g},{high - high * level / most:.4g}" for at, level in enumerate(bytes_)
        )
        line = f'<polyline class="mark" points="{points}" fill="none" stroke-width="2"/>'
        ground = f'<path d="M0 {high}H{_WIDE}" stroke="currentColor"/>'
        drawn.append(Drawn(f"{says}: {bytes_[-1]:,}.", high + 1, line + ground))
    return drawn


def _reads(sides: Sequence[Side], says: str) -> list[Drawn]:
    """An array in a file, and each block of it that was read at once, for the call in which the
    largest reads of the two differ most."""
    facts = [side.observed["facts"] for side in sides]
    calls = [{n: fact for n, fact in each.items() if isinstance(fact, dict)} for each in facts]
    both = [name for name, call in calls[0].items() if "reads" in call and name in calls[1]]
    name = max(both, key=lambda one: _largest(calls[0][one]) / _largest(calls[1][one]))
    wanted = calls[1][name]["blocks"]
    cell = _WIDE / max(b["right"] for b in wanted), 120 / max(b["bottom"] for b in wanted)
    drawn = []
    for call in (each[name] for each in calls):
        blocks = [read["block"] for read in call["reads"]]
        parts = [[b[edge] for edge in ("top", "bottom", "left", "right")] for b in blocks]
        shapes = placement.blocks(parts, range(1, len(parts) + 1), *cell)
        words = f"{says}: {_largest(call):,}."
        drawn.append(Drawn(words, 120, f'<g font-size="11">{shapes}</g>'))
    return drawn


def _largest(call: Mapping[str, Any]) -> int:
    """Bytes of the largest read of a call."""
    return int(max(read["size"] for read in call["reads"]) * call["item"])


def _bar(wide: float, high: float) -> str:
    return f'<path class="mark" d="M0 {high / 2:g}h{wide:.4g}" stroke-width="{high:g}"/>'


def _text(x: float, y: float, text: str, size: int = 11) -> str:
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle"'
    return f"<text {place}>{escape(text)}</text>"


_KINDS: dict[str, Callable[..., list[Drawn]]] = {
    "bars": _bars,
    "steps": _steps,
    "marks": _marks,
    "phases": _phases,
    "parts": _parts,
    "where": _where,
    "calls": _calls,
    "timers": _timers,
    "levels": _levels,
    "reads": _reads,
}
