"""How the front hears the executor, without one."""

from typing import Any

import pytest

from grader.device.front import machine
from grader.device.messages import wire
from grader.device.messages.errors import INTERNAL, INVALID, Failed


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Failed(INVALID, "a sharding of no use"), INVALID, "a sharding of no use"),
        (KeyError("x"), INTERNAL, "KeyError: 'x'"),
    ],
)
def test_an_answer_that_its_asker_cannot_use_becomes_an_error(
    error: Exception, code: int, message: str
) -> None:
    """It must not end the thread that hears the answers for everybody."""
    heard: list[Any] = []

    def hear(answer: Any, payload: bytearray) -> None:
        heard.append(answer)
        if not isinstance(answer, wire.Done):
            raise error

    machine._hear(hear, wire.TextIs(3, "text"), bytearray())
    assert [type(answer).__name__ for answer in heard] == ["TextIs", "Done"]
    assert (heard[1].op, heard[1].code, heard[1].message) == (3, code, message)
