"""The pictures of exercises: what is drawn is what the record holds, for each kind of picture."""

import pytest
from bs4 import BeautifulSoup

import before_after


def event(kind, step=0, count=1, phase="3 steps"):
    return {"kind": kind, "phase": phase, "step": step, "count": count}


def array(devices, parts=None, kind="jax", memory="device"):
    place = {"devices": devices, "memory_kind": memory, "parts": parts or {}}
    return {"path": "x", "kind": kind, "shape": [4, 2], "shard_shape": [2, 2], **place}


def memory(peak):
    return {"memory": {"peak": peak}}


CALLS = [["ask", 0], ["step", 0], ["ask", 1], ["step", 1]]
AHEAD = [["ask", 0], ["ask", 1], ["step", 0], ["step", 1]]
RECORD = {
    "submission": {
        "events": [
            *(event("d2h", step) for step in (1, 2, 3)),
            event("d2h", 1, phase="1 step"),
            event("h2d", 1, count=5),
        ],
        "values": {"batch": [array([0, 1], {"0": [[0, 4], [0, 2]], "1": [[0, 4], [0, 2]]})]},
        "facts": {"calls of 2 batches": CALLS, "calls of 1 batch": CALLS[:2]},
    },
    "reference": {
        "events": [event("d2h", 3, count=3)],
        "values": {"batch": [array([0, 1], {"0": [[0, 2], [0, 2]], "1": [[2, 4], [0, 2]]})]},
        "facts": {"calls of 2 batches": AHEAD, "calls of 1 batch": AHEAD[:1]},
    },
    "measured": {
        "small": memory(10),
        "large": {**memory(4000), "collectives": [{"count": 2, "runs": 3, "nbytes": 1}]},
    },
    "reference_measured": {
        "small": memory(9),
        "large": {**memory(1000), "collectives": [{"count": 1, "runs": 1, "nbytes": 1}]},
    },
}
CAPTION = {"caption": "A `caption` & more."}


def drawn(record=RECORD, **spec):
    """The words of both sides, and their drawings."""
    page = BeautifulSoup(before_after.html({**spec, **CAPTION}, record), "html.parser")
    assert page.figcaption.get_text().startswith("A `caption` & more.")
    panels = page.select(".picture")
    words = [panel["aria-label"] for panel in panels]
    assert [panel.p.get_text() for panel in panels] == words
    assert [one.partition(". ")[0] for one in words] == ["The starter", "A solution"]
    return [one.partition(". ")[2] for one in words], [panel.svg for panel in panels]


def columns(svg):
    return svg.select_one(".mark")["d"].count("M")


def test_bars_compare_copies_collectives_and_bytes_of_the_program_that_has_the_most():
    words, svgs = drawn(draws="bars", of="peak", says="Peak")
    assert words == ["Peak: 4,000.", "Peak: 1,000."]
    assert [svg.select_one(".mark")["d"] for svg in svgs] == ["M0 10h320", "M0 10h80"]
    assert drawn(draws="bars", of="collectives", says="All")[0] == ["All: 6.", "All: 1."]
    assert drawn(draws="bars", of="copies", says="All")[0] == ["All: 9.", "All: 3."]


def test_steps_are_columns_of_the_run_that_has_the_most_events():
    words, svgs = drawn(draws="steps", of="d2h", says="Reads")
    assert words == ["Reads, in 3 steps: 3.", "Reads, in 3 steps: 3."]
    assert [columns(svg) for svg in svgs] == [3, 1]
    assert drawn(draws="marks", of="d2h", says="Read")[0] == [
        "Read, of 3 steps: 3.",
        "Read, of 3 steps: 1.",
    ]
    words, svgs = drawn(draws="phases", of="d2h", says="Reads")
    assert words == ["Reads: 4.", "Reads: 3."]
    assert [columns(svg) for svg in svgs] == [2, 1]


def test_an_array_is_drawn_part_by_part_with_the_devices_that_hold_each():
    words, svgs = drawn(draws="parts", value="batch", leaf="x")
    assert words[0] == "An array of 4 x 2, of which each device holds 2 x 2."
    held = [[text.get_text() for text in svg.find_all("text")] for svg in svgs]
    assert held == [["0 1"], ["0", "1"]]


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (array([0, 1]), "1 on 2 devices"),
        (array([3]), "1 on device 3"),
        (array([3], memory="pinned_host"), "1 in pinned host"),
        (array([], kind="numpy"), "1 in NumPy"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_boxes_count_the_arrays_of_each_place(leaf, words):
    reference = {**RECORD["reference"], "values": {"batch": [leaf]}}
    found, svgs = drawn(RECORD | {"reference": reference}, draws="where", values=["batch"])
    assert found == ["Arrays: 1 on 2 devices.", f"Arrays: {words}."]
    assert len({len(svg.find_all("rect")) for svg in svgs}) == 1, "both sides have the same boxes"


def test_calls_are_drawn_in_order_with_their_batches():
    words, svgs = drawn(draws="calls", until="step", says="Ahead")
    assert words == ["Ahead: 1.", "Ahead: 2."]
    texts = [[text.get_text() for text in svg.find_all("text")] for svg in svgs]
    assert texts == [["ask", "step", "0", "0", "1", "1"], ["ask", "step", "0", "1", "0", "1"]]


def with_facts(**facts):
    """The record with other facts: for each name, those of the starter and of the solution."""
    sides = ("submission", "reference")
    return RECORD | {
        side: {**RECORD[side], "facts": {name: both[at] for name, both in facts.items()}}
        for at, side in enumerate(sides)
    }


def test_a_timers_figures_stand_beside_what_a_call_costs():
    def timings(*figures):
        return [{"figure": one, "cost": {"work": 2.0}} for one in figures]

    record = with_facts(timings=(timings(0.0, 9.0, 2.0), timings(2.0, 2.08, 1.92)))
    words, svgs = drawn(record, draws="timers", within=0.05)
    assert words == ["Right to 5%: 1 of 3 programs.", "Right to 5%: 3 of 3 programs."]
    heights = [
        [one.split("v-")[1] for one in svg.select_one(".mark")["d"].split("M")[1:]] for svg in svgs
    ]
    assert heights == [["0", "60", "30"], ["30", "31.2", "28.8"]], "the line lies at half"


def test_levels_are_a_line_over_the_steps():
    grows = [{"nbytes": n} for n in (100, 200, 400)]
    flat = [{"nbytes": 100}] * 3
    words, svgs = drawn(with_facts(alive=(grows, flat)), draws="levels", of="alive", says="Bytes")
    assert words == ["Bytes: 400.", "Bytes: 100."]
    points = [svg.select_one("polyline")["points"] for svg in svgs]
    assert points == ["0,45 160,30 320,0", "0,45 160,45 320,45"]


def test_reads_are_blocks_of_the_file_in_the_call_that_shows_most():
    def call(*rows):
        blocks = [{"top": top, "bottom": end, "left": 0, "right": 2} for top, end in rows]
        sizes = [2 * (end - top) for top, end in rows]
        reads = [{"block": b, "size": n} for b, n in zip(blocks, sizes, strict=True)]
        return {"blocks": blocks, "reads": reads, "item": 4}

    halves = call((0, 2), (2, 4))
    record = with_facts(one=(call((0, 4)), halves), other=(halves, halves))
    words, svgs = drawn(record, draws="reads", says="Largest")
    assert words == ["Largest: 32.", "Largest: 16."]
    assert [len(svg.find_all("rect")) for svg in svgs] == [1, 2]


@pytest.mark.parametrize(
    "spec",
    [
        {"draws": "pie"},
        {"draws": "bars", "of": "pea", "says": ""},
        {"draws": "bars"},
        {"draws": "steps", "of": "launch", "says": ""},
        {"draws": "parts", "value": "batch", "leaf": "y"},
        {"draws": "where", "values": ["other"]},
        {"draws": "calls", "until": "stop", "says": ""},
        {"draws": "timers", "within": 0.05},
        {"draws": "levels", "of": "alive", "says": ""},
        {"draws": "reads", "says": ""},
    ],
    ids=str,
)
def test_what_the_record_lacks_stops_the_build(spec):
    with pytest.raises(before_after.PictureError, match="picture"):
        drawn(**spec)
