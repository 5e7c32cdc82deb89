"""Marks: how a worker says, among its requests, to what the requests before belong.

A mark must reach the front in the order of the requests. It is therefore a request itself: a
question for a layout, which the client sends behind all that it has collected, and whose answer
it waits for. The extents of the shape that it asks about hold the mark. A program that asks for
such a layout marks its own requests, and nobody else's. In the same way it asks in which buffer an
array lies, or whether it is filled: the answer's layout has a tile with a number.
Or it asks for the bytes of a large array, and is told the number by which they come.
"""

import re
from collections.abc import Sequence
from typing import Literal, cast

from grader.records.book import Mark

_MAGIC = int.from_bytes(b"grader", "big")
_QUESTIONS = {what: int.from_bytes(what.encode(), "big") for what in ("buffer", "filled", "fetch")}
_HEAD = 6
_PIECE = 7
"""Bytes of a phase's name in one extent, which has 63 bits."""
_LONGEST = 280


def encode(mark: Mark, serial: int) -> tuple[int, ...]:
    """The extents that hold a mark. The client remembers answers: no `serial` may come twice."""
    name = mark.phase.encode("utf-8", "replace")[:_LONGEST]
    pieces = [name[at : at + _PIECE] for at in range(0, len(name), _PIECE)]
    head = (_MAGIC, serial, mark.step, mark.line, int(mark.watched), len(name))
    return head + tuple(int.from_bytes(piece.ljust(_PIECE, b"\0"), "big") for piece in pieces)


def decode(extents: Sequence[int]) -> Mark | None:
    """The mark in these extents, None if they are those of a shape."""
    if len(extents) < _HEAD or extents[0] != _MAGIC:
        return None
    _, _, step, line, watched, size = extents[:_HEAD]
    pieces = extents[_HEAD:]
    if not 0 <= size <= len(pieces) * _PIECE <= _LONGEST + _PIECE:
        return None
    if any(not 0 <= piece < 1 << 8 * _PIECE for piece in pieces):
        return None
    name = b"".join(piece.to_bytes(_PIECE, "big") for piece in pieces)[:size]
    return Mark(name.decode("utf-8", "replace"), max(step, 0), max(line, 0), watched != 0)


Question = Literal["buffer", "filled", "fetch"]
"""The place of an array's buffer, 0 for none; whether the array is there, 1 or 0; the ticket of the
parcel (`wire.Parcel`) that brings its bytes, 0 if they can only come by XLA's protocol."""


def asking(what: Question, handle: int, serial: int) -> tuple[int, ...]:
    """The extents that ask about the array with this handle; `serial` as `encode`."""
    return (_QUESTIONS[what], serial, handle)


def asked(extents: Sequence[int]) -> tuple[Question, int] | None:
    """What these extents ask for, and the array's handle; None if they ask for nothing."""
    for what, code in _QUESTIONS.items():
        if len(extents) == 3 and extents[0] == code:
            return cast(Question, what), extents[2]
    return None


def answering(number: int) -> str:
    """The layout that says a number."""
    return f"{{2,1,0:T({number})}}"


def answered(layout: str) -> int | None:
    """The number that such a layout says, None for none."""
    found = re.search(r"T\((\d+)\)", layout)
    return int(found[1]) or None if found else None
