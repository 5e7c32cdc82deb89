"""A book of a device next door as a trace that ui.perfetto.dev and chrome://tracing open.

The format is Trace Event JSON: times in microseconds. Each device is a process with a row for
each of its engines and a counter for its memory; compiles, waits and callbacks are rows of the
client that caused them. A pure function of a `Book`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from grader.records.book import Book, Entry
from grader.records.bookkeeping import COPIES, span

_ENGINES = ("launch", *COPIES)
_ROWS = {
    "launch": "compute",
    "h2d": "copy in",
    "d2h": "copy out",
    "d2d": "copy to another device",
    "copy": "copy within the device",
    "compile": "compile",
    "wait": "wait",
    "callback": "callback",
}
_WIDTH = 100
"""Rows of one name have so many numbers: what overlaps gets another row of that name."""
_CLIENTS = 1_000_000
"""The first process number of clients; devices begin at 0."""
_DETAILS = ("bytes", "shape", "dtype", "memory", "to", "to_memory", "program", "count", "asked")


def trace(book: Book) -> bytes:
    """The whole trace as JSON."""
    document = {
        "displayTimeUnit": "ms",
        "otherData": msgspec.to_builtins(book.opening),
        "traceEvents": [*_names(book), *_slices(book), *_counters(book.entries)],
    }
    return msgspec.json.encode(document)


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _home(entry: Entry) -> Iterator[tuple[int, str]]:
    """The processes in which an entry is drawn, and the row."""
    if entry.event not in _ROWS:
        return
    if entry.event not in _ENGINES:
        yield _CLIENTS + entry.client, entry.event
    elif entry.event == "launch":
        yield from ((device, entry.event) for device in entry.devices)
    elif entry.device is not None:
        yield entry.device, entry.event


def _names(book: Book) -> Iterator[dict[str, Any]]:
    used = sorted({process for entry in book.entries for process, _ in _home(entry)})
    for process in sorted({*range(book.opening.devices), *used}):
        client = process - _CLIENTS
        name = f"program {client}" if client >= 0 else f"device {process}"
        yield _about(process, 0, "process_name", name=name)
        yield _about(process, 0, "process_sort_index", sort_index=process)


def _about(process: int, thread: int, what: str, **said: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": said}


def _slices(book: Book) -> Iterator[dict[str, Any]]:
    """One slice for each event; in one row no slice overlaps another."""
    last = span(book)[1]
    free: dict[tuple[int, int], float] = {}
    drawn = ((home, entry) for entry in book.entries for home in _home(entry))
    for (process, row), entry in sorted(drawn, key=lambda pair: pair[1].start):
        end = max(entry.start, last if entry.end is None else entry.end)
        first = (list(_ROWS).index(row) + 1) * _WIDTH
        thread = next(t for t in range(first, 1 << 31) if free.get((process, t), -1) <= entry.start)
        if (process, thread) not in free:
            yield _about(process, thread, "thread_name", name=_ROWS[row])
            yield _about(process, thread, "thread_sort_index", sort_index=thread)
        free[process, thread] = end
        yield {
            "ph": "X",
            "pid": process,
            "tid": thread,
            "name": _title(entry),
            "cat": entry.event,
            "ts": _microseconds(entry.start),
            "dur": _microseconds(end - entry.start),
            "args": _details(entry),
        }


def _title(entry: Entry) -> str:
    if entry.event in ("launch", "compile"):
        return f"{entry.event} {entry.program}" if entry.event == "compile" else entry.program
    to = f" to device {entry.to}" if entry.to is not None else ""
    return f"{_ROWS[entry.event] if not to else 'copy'}{to}"


def _details(entry: Entry) -> dict[str, Any]:
    """What an entry says beside its times; what it does not say is left out."""
    told = msgspec.to_builtins(entry)
    found = {name: told[name] for name in _DETAILS if told.get(name) not in (None, "")}
    if entry.end is None:
        found["never ended"] = True
    return found


def _counters(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Memory in use on each device, and the temporaries of the programs that run there."""
    for entry in entries:
        if entry.event in ("alloc", "free") and entry.device is not None:
            yield _counter(entry.device, "memory in use", entry.start, entry.in_use)
        elif entry.event == "launch" and entry.temporaries and entry.devices:
            yield _counter(entry.devices[0], "temporaries", entry.start, entry.temporaries)
            if entry.end is not None:
                yield _counter(entry.devices[0], "temporaries", entry.end, 0)


def _counter(device: int, name: str, at: float, count: int) -> dict[str, Any]:
    when = _microseconds(at)
    return {"ph": "C", "pid": device, "name": name, "ts": when, "args": {"bytes": count}}
