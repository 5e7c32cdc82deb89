"""Every request of the protocol that an array can meet, sent one by one, without JAX."""

import struct
from collections.abc import Callable

import pytest
import raw as raws
from raw import DONATE, FOUR, REUSE, Raw, Refused

from grader.device.start import Device
from grader.records import book
from grader.records.book import Entry

type Entries = Callable[[], list[Entry]]


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def counts(entries: list[Entry]) -> dict[str, tuple[int, int]]:
    return {name: (each.number, each.bytes) for name, each in book.count(entries).items()}


def test_what_goes_in_comes_out_and_is_counted(raw: Raw, entries: Entries) -> None:
    array = raw.put(FOUR, [4])
    assert raw.get(array) == FOUR
    assert raw.get(array) == FOUR
    found = counts(entries())
    assert found["h2d"] == (1, 16)
    assert found["d2h"] == (2, 32)
    assert "d2d" not in found


def test_strides_of_either_sign(raw: Raw) -> None:
    backwards = raw.put(FOUR, [4], strides=[-4])
    assert raw.get(backwards) == floats(4, 3, 2, 1)
    turned = raw.put(FOUR, [2, 2], strides=[4, 8])
    assert raw.get(turned) == floats(1, 3, 2, 4)
    host = raw.handle()
    request = raw.request("copy_to_host_buffer", array_handle=turned, host_buffer_handle=host)
    request.copy_to_host_buffer_request.byte_strides.strides.extend([4, 8])
    raw.tell(request)
    assert b"".join(raw.look_up(host)) == FOUR


@pytest.mark.parametrize("shape", [[0, 3], []])
def test_shapes_without_extent(raw: Raw, shape: list[int]) -> None:
    data = b"" if shape else floats(7)
    assert raw.get(raw.put(data, shape)) == data


def test_one_host_buffer_becomes_four_shards(raw: Raw, entries: Entries) -> None:
    array = raw.put(FOUR, [4], raw.tiled(range(4), [4]))
    parts = raw.shards(array, 4)
    assert [raw.get(part) for part in parts] == [floats(each) for each in (1, 2, 3, 4)]
    puts = [each for each in entries() if each.event == "h2d"]
    assert [(each.device, each.bytes) for each in puts] == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_uneven_shards_are_filled_up(raw: Raw) -> None:
    array = raw.put(floats(1, 2, 3, 4, 5), [5], raw.tiled(range(2), [2]))
    one, two = raw.shards(array, 2)
    assert raw.get(one) == floats(1, 2, 3)
    assert raw.get(two)[:8] == floats(4, 5)


def test_copies_between_devices_and_memories(raw: Raw, entries: Entries) -> None:
    array = raw.put(FOUR, [4])
    there, pinned, back = raw.handle(), raw.handle(), raw.handle()
    raw.ask("copy_arrays", array_handles=[array], device_ids=[2], copy_semantics=1,
            result_handles=[there])  # fmt: skip
    raw.ask("copy_arrays", array_handles=[there], memory_kind="pinned_host", copy_semantics=1,
            result_handles=[pinned])  # fmt: skip
    raw.ask("copy_arrays", array_handles=[pinned], memory_kind="device", copy_semantics=1,
            result_handles=[back])  # fmt: skip
    assert raw.get(there) == raw.get(pinned) == raw.get(back) == FOUR
    moves = [each for each in entries() if each.event in ("h2d", "d2h", "d2d")]
    moves.sort(key=lambda each: each.start)
    within = [each for each in moves if each.event == "d2d" or (each.memory and each.to_memory)]
    assert [(each.event, each.device, each.to, each.memory, each.to_memory) for each in within] == [
        ("d2d", 0, 2, "device", ""),
        ("d2h", 2, None, "device", "pinned_host"),
        ("h2d", 2, None, "pinned_host", "device"),
    ]


def test_resharding_moves_only_what_is_elsewhere(raw: Raw, entries: Entries) -> None:
    array = raw.put(FOUR, [4])
    made = raw.handle()
    request = raw.request(
        "reshard_arrays", array_handles=[array], copy_semantics=REUSE, result_handles=[made]
    )
    spec = request.reshard_arrays_request.array_specs.add()
    spec.dtype.kind = 11
    spec.shape.dims.append(4)
    spec.sharding.CopyFrom(raw.tiled(range(2), [2]))
    raw.tell(request)
    assert [raw.get(part) for part in raw.shards(made, 2)] == [floats(1, 2), floats(3, 4)]
    moved = [(each.device, each.to, each.bytes) for each in entries() if each.event == "d2d"]
    assert moved == [(0, 1, 8)]


def test_a_remapped_shard_is_the_same_buffer(raw: Raw, entries: Entries) -> None:
    one = raw.put(floats(1, 2), [2], raw.tiled(range(2), [2]))
    two = raw.put(floats(3, 4), [2], raw.tiled(range(2), [2]))
    made = raw.handle()
    request = raw.request(
        "remap_arrays", array_handles=[one, two], copy_semantics=REUSE, result_handles=[made]
    )
    plan = request.remap_arrays_request.plan
    spec = plan.output_specs.add()
    spec.dtype.kind = 11
    spec.shape.dims.append(2)
    spec.sharding.CopyFrom(raw.tiled(range(2), [2]))
    for array, shard in ((0, 0), (1, 1)):
        mapping = plan.mappings.add(in_array=array, out_array=0)
        for name, value in (("start", shard), ("end", shard + 1), ("step", 1)):
            getattr(mapping, f"from_{name}").append(value)
            getattr(mapping, f"to_{name}").append(value)
    raw.tell(request)
    assert [raw.get(part) for part in raw.shards(made, 2)] == [floats(1), floats(4)]
    assert "d2d" not in counts(entries())


def test_a_bitcast_keeps_the_bytes(raw: Raw) -> None:
    array = raw.put(FOUR, [4])
    made = raw.handle()
    request = raw.request(
        "bitcast_arrays", array_handles=[array], copy_semantics=DONATE, result_handles=[made]
    )
    spec = request.bitcast_arrays_request.array_specs.add()
    spec.dtype.kind = 8  # uint32
    spec.shape.dims.extend([2, 2])
    spec.sharding.CopyFrom(raw.sharding(0))
    raw.tell(request)
    assert raw.get(made) == FOUR
    with pytest.raises(Refused, match="deleted or donated"):
        raw.get(array)


def test_parts_and_wholes_share_their_buffers(raw: Raw, device: Device) -> None:
    array = raw.put(FOUR, [4], raw.tiled(range(2), [2]))
    parts = raw.shards(array, 2)
    before = [each.in_use for each in device.counts().memory]
    whole = raw.handle()
    request = raw.request(
        "assemble_array_from_single_device_arrays",
        single_device_array_handles=parts,
        copy_semantics=REUSE,
        result_handle=whole,
    )
    asked = request.assemble_array_from_single_device_arrays_request
    asked.shape.dims.append(4)
    asked.sharding.CopyFrom(raw.tiled(range(2), [2]))
    raw.tell(request)
    raw.destruct(array, *parts)
    assert [each.in_use for each in device.counts().memory] == before
    assert raw.get(raw.shards(whole, 2)[1]) == floats(3, 4)


def test_a_program_runs_and_is_known(raw: Raw, entries: Entries) -> None:
    program = raw.compile()
    (result,) = raw.launch(program, [raw.put(FOUR, [4])])
    raw.wait(result)
    assert raw.get(result) == floats(2, 4, 6, 8)
    launch = next(each for each in entries() if each.event == "launch")
    assert (launch.program, launch.devices, launch.bytes) == ("double", [0], 16)
    assert launch.end is not None
    assert launch.asked is not None
    assert launch.asked <= launch.start <= launch.end
    text = raw.ask(
        "loaded_executable_human_readable_program_text", loaded_executable_handle=program
    )
    found = text.loaded_executable_human_readable_program_text_response
    assert "ENTRY" in found.human_readable_program_text


def test_a_deleted_array_is_deleted(raw: Raw) -> None:
    array = raw.put(FOUR, [4])
    raw.ask("delete_array", array_handle=[array])
    answer = raw.ask("is_array_deleted", array_handle=array)
    assert answer.is_array_deleted_response.deleted
    with pytest.raises(Refused, match="deleted or donated"):
        raw.get(array)


def test_what_is_made_of_an_error_is_an_error(raw: Raw) -> None:
    made = raw.handle()
    program = raw.compile()
    with pytest.raises(Refused, match="no array 999"):
        raw.tell(raw.launch_request(program, [999], [made]))
    with pytest.raises(Refused, match="no array 999"):
        raw.get(made)


def calling(call: str) -> str:
    """A program that makes a custom call."""
    added = "stablehlo.add %a, %a : tensor<4xf32>"
    made = f"stablehlo.custom_call {call} : (tensor<4xf32>) -> tensor<4xf32>"
    return raws.PROGRAM.replace(added, made)


FORGED = (
    "@xla_ffi_python_cpu_callback(%a) {api_version = 4 : i32, backend_config = {index = 7 : ui64}}"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no program", "no program"),
        (raws.PROGRAM.replace("@main", "@other"), "without a function `main`"),
        (calling("@evil(%a)"), "custom call evil is not available"),
        (calling(FORGED), "host callback that no client has registered"),
        (calling("@TopK(%a)"), "a TopK that does not give values and indices"),
        (
            raws.PROGRAM.replace("add", "remainder").replace("f32", "complex<f32>"),
            "a remainder of complex numbers",  # XLA's compiler dies of it
        ),
    ],
)
def test_a_program_that_may_not_run_is_refused(raw: Raw, text: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        raw.compile(text)


def test_a_device_below_all_numbers_ends_nothing(raw: Raw) -> None:
    request = raw.compile_request()
    options = raw.messages.find("XlaCompileOptionsProto")()
    options.ParseFromString(request.compile_request.compile_options.data)
    options.compile_options.executable_build_options.device_ordinal = -257
    request.compile_request.compile_options.data = options.SerializeToString()
    assert raw.tell(request).compile_response.name == "double"
    assert raw.get(raw.put(FOUR, [4])) == FOUR


def test_wrong_requests_are_errors(raw: Raw) -> None:
    host = raw.store(FOUR)
    for shape, sharding, words in (
        ([5], raw.sharding(0), "host buffer of 16 bytes, where 20"),
        ([4], raw.sharding(9), "no device 9"),
        ([4], raw.sharding(0, "moon"), "no memory kind moon"),
        ([1 << 40, 1 << 40], raw.sharding(0), "too large"),
        ([-1], raw.sharding(0), "no array has the shape"),
        ([4], raw.tiled(range(3), [2]), "tiles"),
    ):
        with pytest.raises(Refused, match=words):
            raw.tell(raw.put_request(host, shape, sharding))
    assert raw.get(raw.put(FOUR, [4])) == FOUR
