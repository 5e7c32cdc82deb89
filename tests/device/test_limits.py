"""What runs out beside a device's memory: the disk that its book is on, and the host's memory."""

import threading
from pathlib import Path
from typing import Any

import pytest

from grader.device.front.arriving import Arriving, Sent
from grader.device.front.holding import Desk
from grader.device.front.ledger import Ledger
from grader.device.front.writing import Writer
from grader.device.messages.errors import Failed
from grader.device.options import Options
from grader.records.book import BOOK_VERSION, Count, Entry, Opening

OPENING = Opening(
    version=BOOK_VERSION, grader="1", jaxlib="2", began=3.0, devices=1, kind="next door", memory=9
)


def test_a_full_disk_ends_nothing() -> None:
    """The entries still count; the book lacks its last line, by which a reader sees it."""
    with Path("/dev/full").open("wb", 0) as full:
        writer = Writer(full.fileno(), OPENING)
        writer.write(Entry("h2d", 0.5, bytes=4))
        assert writer.counts == {"h2d": Count(1, 4)}


def test_pinned_memory_runs_out() -> None:
    nothing: Any = None
    desk = Desk(Options(), nothing, Ledger(1, 1), nothing, 0.0)
    desk.pin(1000)
    with pytest.raises(Failed, match="Out of pinned host memory"):
        desk.pin(1 << 60)
    assert desk.pinned == 1000


def test_host_buffers_that_nobody_uses_do_not_pile_up() -> None:
    waiting = Arriving(threading.RLock(), limit=100)
    waiting.add(1, Sent(bytearray(60), None, 60))
    with pytest.raises(Failed, match="more than 100 bytes"):
        waiting.add(2, Sent(bytearray(60), None, 60))
    with pytest.raises(Failed, match="more than 100 bytes"):
        waiting.check(-1)
    waiting.remove(1)
    waiting.add(2, Sent(bytearray(60), None, 60))
    assert waiting.look(2).size == 60


def test_nobody_waits_for_the_buffers_of_a_client_that_has_gone() -> None:
    waiting = Arriving(threading.RLock(), limit=100)
    failed: list[str] = []

    def look() -> None:
        try:
            waiting.look(7)
        except Failed as error:
            failed.append(error.message)

    thread = threading.Thread(target=look)
    thread.start()
    waiting.close()
    thread.join(30)
    assert failed == ["host buffer 7 did not arrive"]
    with pytest.raises(Failed):
        waiting.add(7, Sent(bytearray(1), None, 1))
