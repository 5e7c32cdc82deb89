"""The trace of a book: what the viewer relies on, and that nothing is lost."""

import itertools
import json
from typing import Any

from books import MIB, book, copy, training

from grader.records.book import Book, Entry
from grader.records.perfetto import trace


def events(read: Book, phase: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(trace(read))["traceEvents"] if event["ph"] == phase]


def named(read: Book, what: str) -> dict[tuple[int, int], str]:
    """(process, row) -> its name."""
    about = [event for event in events(read, "M") if event["name"] == what]
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in about}


def test_every_event_is_drawn_on_its_device_in_microseconds() -> None:
    launches = [event for event in events(training(), "X") if event["cat"] == "launch"]
    assert [(e["pid"], e["ts"], e["dur"], e["name"]) for e in launches] == [
        (0, 2.25e6, 0.75e6, "jit_step"),
        (1, 2.25e6, 0.75e6, "jit_step"),
        (0, 3e6, 1.5e6, "jit_step"),
        (1, 3e6, 1.5e6, "jit_step"),
    ]
    (read,) = [event for event in events(training(), "X") if event["cat"] == "d2h"]
    assert (read["pid"], read["args"]["bytes"], read["args"]["asked"]) == (0, 4, 3.25)
    kinds = [event["cat"] for event in events(training(), "X")]
    assert sorted(set(kinds)) == ["compile", "d2h", "h2d", "launch", "wait"]
    assert len(kinds) == 1 + 2 + 4 + 1 + 1


def test_devices_engines_and_programs_have_names() -> None:
    assert set(named(training(), "process_name").values()) == {"device 0", "device 1", "program 1"}
    rows = named(training(), "thread_name")
    assert {name for (process, _), name in rows.items() if process == 0} == {
        "compute",
        "copy in",
        "copy out",
    }
    assert {(e["pid"], e["tid"]) for e in events(training(), "X")} == set(rows)


def test_memory_is_a_counter_of_its_device() -> None:
    counters = [(e["pid"], e["name"], e["ts"], e["args"]["bytes"]) for e in events(training(), "C")]
    assert counters == [
        (0, "memory in use", 2e6, MIB),
        (0, "memory in use", 5e6, 0),
    ]
    launch = Entry("launch", 1.0, 2.0, devices=[1, 0], program="p", temporaries=64)
    counters = [(e["pid"], e["ts"], e["args"]["bytes"]) for e in events(book(launch), "C")]
    assert counters == [(1, 1e6, 64), (1, 2e6, 0)]


def test_what_overlaps_gets_a_row_of_its_own() -> None:
    read = book(
        *(copy("h2d", start, start + 2.0, 0, 8) for start in (0.0, 1.0, 2.0, 3.0)),
        Entry("wait", 0.0, 9.0, client=2),
        Entry("wait", 1.0, 2.0, client=2),
    )
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in events(read, "X"):
        rows.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    assert sorted(map(len, rows.values())) == [1, 1, 2, 2]
    for slices in rows.values():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices))


def test_what_never_ended_says_so() -> None:
    read = book(Entry("launch", 1.0, None, devices=[0], program="p"), copy("h2d", 2.0, 4.0, 0, 8))
    launch, other = events(read, "X")
    assert (launch["dur"], launch["args"]["never ended"]) == (3e6, True)
    assert "never ended" not in other["args"]


def test_a_copy_names_where_it_went() -> None:
    (across,) = events(book(copy("d2d", 0.0, 1.0, 0, 8, to=1)), "X")
    assert (across["pid"], across["name"], across["args"]["to"]) == (0, "copy to device 1", 1)


def test_an_empty_book_is_an_empty_trace() -> None:
    assert events(book(), "X") == []
    assert len(named(book(), "process_name")) == 2
