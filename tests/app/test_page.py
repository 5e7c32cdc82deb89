"""The page at the end of `grader run`, from books written by hand."""

from collections.abc import Callable
from typing import Any

import pytest
from books import MIB, book, copy, training

from grader.app.next_door import page
from grader.app.next_door.page import duration, ranges
from grader.records.book import Book, Compute, Entry, Link
from grader.records.bookkeeping import summary
from grader.records.record import Collective


def shown(read: Book, width: int = 80) -> str:
    return "".join(f"{line}\n" for line in page.lines("train.py", summary(read), read, width))


def busy() -> Book:
    """Everything that a page can say."""
    read = training(
        like="h200x8", device_link=Link(1e9, 1e-5), compute=Compute(1e9), kind="next door"
    )
    sizes = [Collective("all-gather", 1024 * n, n, n - 1) for n in range(1, 6)]
    read.entries += [
        *(Entry("compile", 5.0, 5.1, program=f"jit_{n}") for n in (1, 1, 2, 3, 4, 5)),
        Entry("compile", 5.1, 5.2, program="jit_many", collectives=sizes),
        *(
            Entry("launch", 6 + n / 2, 6.2 + n / 2, devices=[n % 2], program=f"jit_{n}")
            for n in range(1, 6)
        ),
        Entry("launch", 6.0, 8.0, devices=[1], program="jit_many", bytes=8),
        copy("d2d", 6.0, 6.5, 0, 4096, to=1),
        copy("d2d", 6.0, 6.5, 1, 2 * MIB, to_memory="pinned_host"),
        Entry("callback", 7.0, 7.1, program="jit_many", bytes=4, returned=4),
        Entry("oom", 7.2, bytes=1 << 40, device=1),
        Entry("lost", 8.5),
    ]
    read.closing, read.problem = None, "the book was cut off after 33 entries"
    return read


@pytest.mark.parametrize(("name", "made"), [("training", training), ("busy", busy)])
@pytest.mark.parametrize("width", [80, 40])
def test_a_page(
    name: str, made: Callable[[], Book], width: int, golden: Callable[[str, str], None]
) -> None:
    text = shown(made(), width)
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii()
    golden(f"pages/{name}_in_{width}_columns.txt", text)


def test_a_terminal_that_is_too_narrow_gets_lines_of_40_columns() -> None:
    assert shown(training(), 10) == shown(training(), 40)


def test_a_program_that_never_used_the_device_is_told_so(
    golden: Callable[[str, str], None],
) -> None:
    golden("pages/unused.txt", shown(book(Entry("client", 0.0, client=1))))


def test_what_a_program_calls_itself_cannot_steer_the_terminal() -> None:
    name = "jit_\x1b[2J\nx"
    read = book(Entry("launch", 0.0, 1.0, devices=[0], program=name))
    text = shown(read)
    assert "\x1b" not in text
    assert "jit_\\x1b[2J\\nx  launched once, 1 s" in text


def test_rows_that_look_the_same_are_one() -> None:
    def launches(*devices: int) -> Entry:
        return Entry("launch", 0.0, 1.0, devices=list(devices), program="p")

    late = Entry("launch", 1.0, 2.0, devices=[3], program="p")
    rows = [line for line in shown(book(launches(0, 1, 2), late)).splitlines() if "|" in line]
    assert [row.split("|")[0].split() for row in rows] == [["compute", "0-2"], ["compute", "3"]]
    assert rows[0].split("|")[1][:20] == "#" * 20
    assert rows[1].split("|")[1][:20] == " " * 20


def test_too_many_rows_become_their_mean() -> None:
    apart = [
        Entry("launch", float(n), n + 1.0, devices=[n], program="p") for n in range(page.MAX_ROWS)
    ]
    one_more = [*apart, copy("h2d", 0.0, 1.0, 0, 8)]

    def rows(*entries: Entry) -> list[str]:
        return [line for line in shown(book(*entries)).splitlines() if "|" in line]

    assert len(rows(*apart)) == page.MAX_ROWS
    copies, launches = rows(*one_more)
    assert copies.split()[:3] == ["copy", "in", "0"]
    marks = launches.split("|")[1]
    assert set(marks) == {"."}, "each of 16 devices is busy for a sixteenth of the time"


@pytest.mark.parametrize(
    ("share", "mark"), [(0.0, " "), (1e-6, "."), (0.25, "-"), (0.6, "+"), (0.75, "#"), (1.0, "#")]
)
def test_marks_say_how_much_of_a_column_was_busy(share: float, mark: str) -> None:
    assert page.mark(share) == mark


@pytest.mark.parametrize(
    ("numbers", "text"), [([0], "0"), ([0, 1, 2, 5], "0-2,5"), ([3, 5, 7], "3,5,7"), ([], "")]
)
def test_neighbours_are_a_range(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ms"), (0.0003123, "0.312 ms"), (0.25, "250 ms"), (1.0, "1 s"), (12345.6, "12,346 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_peaks_stand_together_and_the_highest_first() -> None:
    def peaks(*counts: int) -> Any:
        text = shown(book(copy("h2d", 0, 1, 0, 8), peaks=counts, devices=len(counts)), 120)
        return next(line for line in text.splitlines() if "peak" in line).split(None, 2)[2]

    assert peaks(MIB, 2 * MIB, MIB) == "2 MiB on device 1, 1 MiB on devices 0,2"
    different = peaks(*(n * MIB for n in range(1, 9)))
    assert (
        different
        == "8 MiB on device 7, 7 MiB on device 6, 6 MiB on device 5, ..., 1 MiB on device 0"
    )


def test_rows_that_look_much_the_same_show_their_mean() -> None:
    def copies(device: int, share: float) -> Entry:
        return copy("h2d", 0.0, share * 55, device, 8)  # 55 columns of a second each

    whole = Entry("compile", 0.0, 55.0, program="p")
    rows = [
        line.split("|")
        for line in shown(book(whole, copies(0, 0.51 / 55), copies(1, 0.45 / 55))).splitlines()
        if "copy in" in line
    ]
    assert [(label.split()[-1], marks[0]) for label, marks, _ in rows] == [("0-1", "-")]
    rows = [
        line.split("|")
        for line in shown(book(whole, copies(0, 0.9 / 55), copies(1, 0.45 / 55))).splitlines()
        if "copy in" in line
    ]
    assert [(label.split()[-1], marks[0]) for label, marks, _ in rows] == [("0", "#"), ("1", "-")]
