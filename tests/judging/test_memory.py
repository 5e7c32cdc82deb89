"""What `grader.judging.memory` says about a measured program."""

from grader.judging.memory import mib, moved_result, not_in_place, room
from grader.judging.record import Measured, Memory

NAMES = ["params", "state", "loss"]


def test_room_is_what_a_program_needs_on_its_device() -> None:
    memory = Memory(arguments=10, outputs=6, temporaries=5, aliased=4, peak=0, host_arguments=99)
    assert room(memory) == 17
    assert mib(3 << 30) == "3,072 MiB"


def test_a_result_in_another_memory_is_named() -> None:
    theirs = Measured("step", out_memory_kinds=["device", "pinned_host", "device"])
    assert moved_result(NAMES, theirs, theirs) is None
    mine = Measured("step", out_memory_kinds=["device", "device", "pinned_host"])
    expected, observed = moved_result(NAMES, mine, theirs) or ("", "")
    assert expected == "the new `state` is in pinned_host memory"
    assert observed == "it is in device memory; 2 of 3 results are in the wrong memory"


def test_arguments_that_are_not_updated_in_place_are_named() -> None:
    program = Measured("step", aliases={"0": 0})
    assert not_in_place(program, NAMES[:1]) is None
    assert not_in_place(program, NAMES[:2], apart=["state"]) is None
    expected, observed = not_in_place(program, NAMES[:2]) or ("", "")
    assert expected == "all 2 arrays of params and state are written in place"
    assert observed == "not written in place: state"
