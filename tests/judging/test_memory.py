"""What `grader.judging.memory` says about a measured program."""

from grader.judging.memory import (
    AT_ONCE,
    COUNTS_ALONE,
    IN_TURN,
    bringing,
    counts_alone,
    mib,
    moved_result,
    not_in_place,
    room,
)
from grader.records.record import Measured, Memory, Record

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


def test_where_only_counts_are_elsewhere_the_hint_says_so() -> None:
    names = ["state['w'][0].count", "state['w'][0].mu"]
    theirs = Measured("step", out_memory_kinds=["pinned_host", "pinned_host"])
    mine = Measured("step", out_memory_kinds=["device", "pinned_host"])
    assert counts_alone(names, mine, theirs) == COUNTS_ALONE
    assert counts_alone(names[::-1], mine, theirs) == ""


def test_arguments_that_are_not_updated_in_place_are_named() -> None:
    program = Measured("step", aliases={"0": 0})
    assert not_in_place(program, NAMES[:1]) is None
    assert not_in_place(program, NAMES[:2], apart=["state"]) is None
    expected, observed = not_in_place(program, NAMES[:2]) or ("", "")
    assert expected == "all 2 arrays of params and state are written in place"
    assert observed == "not written in place: state"


def test_what_brings_too_much_of_a_state_is_found() -> None:
    def found(*lines: str) -> tuple[list[int], str]:
        text = "def step(params, state, batch):\n" + "".join(f"    {line}\n" for line in lines)
        places, hint = bringing(Record("ex", "", text, 0), "step")
        return [place.line for place in places], hint

    each = "here = jax.device_put(old, jax.memory.Space.Device)"
    assert found("x = 1", "here = jax.device_put(state, jax.memory.Space.Device)") == ([3], AT_ONCE)
    mapped = "here = jax.tree.map(lambda x: jax.device_put(x, Space.Device), state)"
    assert found(mapped, "y = jax.lax.optimization_barrier(here)") == ([2], AT_ONCE)
    assert found("old, g = jax.lax.optimization_barrier((old, g))", each) == ([2], IN_TURN)
    assert found("x = 1", each) == ([3], "")
    assert found("return state") == ([1], "")
