"""Windows of a loop whose results are no numbers: they are told apart, and end no comparison."""

import math

import msgspec

from grader.running.messages import Done
from grader.running.pacing import _same


def test_what_is_no_number_crosses_the_wire_and_differs_from_every_number() -> None:
    sent = msgspec.json.encode(Done([1.0, math.nan, math.inf]))
    got = msgspec.json.decode(sent, type=Done).values
    assert list(got) == [1.0, None, None]
    assert _same(got, got)
    assert not _same(got, [1.0, 2.0, None])
    assert not _same([1.0, 2.0, 3.0], got)
    assert not _same(got, got[:2])
