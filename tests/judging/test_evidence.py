"""What checks find in a record: copies, and bytes."""

import pytest
from made_up import record

from grader.judging.evidence import bytes_of, events, sent_beyond
from grader.judging.words import EVERYWHERE, PARTS
from grader.records.record import Event, EventKind, Leaf, Observed, Outcome


def copies(*found: tuple[EventKind, str, int, int]) -> Observed:
    """What was copied in the phase "batch": kind, place, bytes and line of each copy."""
    placed = [Leaf("", "jax", "jax.Array", (8, 2), "float32", devices=(0, 1), shard_shape=(4, 2))]
    events = [Event(kind, "batch", 0, line, 1, size, to) for kind, to, size, line in found]
    return Observed(Outcome("finished"), {"batch": placed}, events=events)


def test_of_copies_of_one_size_those_that_are_needed_are_not_named() -> None:
    needed = copies(("h2d", EVERYWHERE, 64, 1), ("h2d", EVERYWHERE, 32, 1))
    mine = [("h2d", EVERYWHERE, 64, 5), ("h2d", EVERYWHERE, 32, 5), ("h2d", EVERYWHERE, 64, 7)]
    told = sent_beyond(record(copies(*mine), reference=needed), "batch", ["batch"])
    assert told is not None
    assert [event.line for event in told[1]] == [7]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("h2d", PARTS, 64, 3), "128 bytes went to the devices in parts, and the arrays have 64"),
        (("h2d", EVERYWHERE, 8, 3), f"24 bytes went {EVERYWHERE}, in small pieces"),
    ],
)
def test_what_goes_in_parts_or_in_small_pieces_is_added_up(
    more: tuple[EventKind, str, int, int], words: str
) -> None:
    right = [("h2d", PARTS, 64, 2)] * 2  # one for each device
    once = record(copies(*right), reference=copies(*right))
    assert sent_beyond(once, "batch", ["batch"]) is None
    count = 2 if more[1] == PARTS else 6
    found = record(copies(*right, *[more] * count), reference=copies(*right))
    told = sent_beyond(found, "batch", ["batch"])
    assert told is not None
    assert told[0] == words


@pytest.mark.parametrize(("dtype", "nbytes"), [("float32", 64), ("bfloat16", 32), ("bool", 16)])
def test_bytes_follow_from_shape_and_dtype(dtype: str, nbytes: int) -> None:
    leaf = Leaf("", "jax", "jax.Array", (8, 2), dtype)
    assert bytes_of(leaf) == nbytes
    assert bytes_of(leaf, (4, 2)) == nbytes // 2


@pytest.mark.parametrize(
    ("phase", "found"), [("", 4), ("run", 3), ("run 1", 2), ("run 10", 1), ("ru", 0)]
)
def test_a_phase_is_named_by_whole_words(phase: str, found: int) -> None:
    names = ("run 1", "run 10", "run 1 once more", "other")
    seen = Observed(Outcome("finished"), events=[Event("d2h", name) for name in names])
    assert len(list(events(seen, "d2h", phase=phase))) == found
