"""Memory that is memory: counted, limited, shared, given back."""

import re
import struct
import time
from collections.abc import Callable

import pytest
from next_doors import Program
from raw import ALWAYS_COPY, REUSE, Raw, Refused

from grader.device.front.ledger import Account, Full, Held, Ledger
from grader.device.start import Device
from grader.records.book import Entry

type Entries = Callable[[], list[Entry]]
QUARTER = struct.pack("<65536f", *range(65536))
"""A quarter of a device's memory."""
IN_PLACE = """
module @grow {
  func.func public @main(%a: tensor<65536xf32> {tf.aliasing_output = 0 : i32})
      -> tensor<65536xf32> {
    %0 = stablehlo.add %a, %a : tensor<65536xf32>
    return %0 : tensor<65536xf32>
  }
}
"""
NOT_IN_PLACE = IN_PLACE.replace(" {tf.aliasing_output = 0 : i32}", "")


def used(device: Device) -> int:
    return device.counts().memory[0].in_use


def test_what_does_not_fit_is_refused_and_what_holds_the_memory_is_named(
    raw: Raw, entries: Entries
) -> None:
    arrays = [raw.put(QUARTER, [65536]) for _ in range(4)]
    with pytest.raises(Refused) as refused:
        raw.put(b"1234", [1])
    words = str(refused.value)
    assert words.startswith("8: Out of memory while trying to allocate 4 bytes for an array")
    assert "1048576 bytes are in use by 4 arrays, and the limit is 1048576 bytes" in words
    assert words.count("262144 bytes  float32[65536]") == 4
    full = [each for each in entries() if each.event == "oom"]
    assert [(each.bytes, each.device, each.in_use) for each in full] == [(4, 0, 1 << 20)]
    raw.destruct(arrays[0])
    assert raw.get(raw.put(b"1234", [1])) == b"1234"


def test_other_devices_have_memory_of_their_own(raw: Raw) -> None:
    for _ in range(4):
        raw.put(QUARTER, [65536])
    assert raw.get(raw.put(QUARTER, [65536], raw.sharding(1))) == QUARTER


def test_a_donated_argument_makes_room_for_what_it_becomes(raw: Raw, device: Device) -> None:
    arrays = [raw.put(QUARTER, [65536]) for _ in range(4)]
    grow = raw.compile(IN_PLACE)
    (result,) = raw.launch(grow, arrays[:1])
    raw.wait(result)
    assert used(device) == 1 << 20
    with pytest.raises(Refused, match="deleted or donated"):
        raw.get(arrays[0])
    with pytest.raises(Refused, match=r"the program grow .262144 bytes of results"):
        raw.launch(raw.compile(NOT_IN_PLACE), [result])


def test_an_array_that_must_live_on_is_not_taken(raw: Raw) -> None:
    array, made = raw.put(QUARTER, [65536]), raw.handle()
    request = raw.launch_request(raw.compile(IN_PLACE), [array], [made])
    options = request.loaded_executable_execute_request.execute_options
    options.non_donatable_input_indices.append(0)
    raw.tell(request)
    raw.wait(made)
    assert raw.get(array) == QUARTER
    assert raw.get(made) == struct.pack("<65536f", *range(0, 131072, 2))


def test_a_buffer_lives_until_the_last_array_that_holds_it_is_gone(
    raw: Raw, device: Device
) -> None:
    array = raw.put(QUARTER, [65536])
    (part,) = raw.shards(array, 1)
    same, copy = raw.handle(), raw.handle()
    for made, semantics in ((same, REUSE), (copy, ALWAYS_COPY)):
        raw.ask("copy_arrays", array_handles=[array], copy_semantics=semantics,
                result_handles=[made])  # fmt: skip
    assert used(device) == 1 << 19
    raw.destruct(array, part)
    assert used(device) == 1 << 19
    raw.destruct(same)
    assert used(device) == 1 << 18
    assert raw.get(copy) == QUARTER


def test_a_client_that_leaves_gives_everything_back(device: Device) -> None:
    client = Raw(device)
    client.put(QUARTER, [65536])
    assert used(device) == 1 << 18
    client.close()
    deadline = time.monotonic() + 20
    while used(device) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert used(device) == 0


def test_the_book_gives_back_all_that_it_has_allocated(raw: Raw, entries: Entries) -> None:
    array = raw.put(QUARTER, [65536])
    (result,) = raw.launch(raw.compile(NOT_IN_PLACE), [array])
    raw.destruct(array, result)
    found = entries()
    taken = [each.array for each in found if each.event == "alloc"]
    freed = [each.array for each in found if each.event == "free"]
    assert sorted(taken) == sorted(freed)
    assert len(taken) == 2
    sums = [each.in_use for each in found if each.event in ("alloc", "free")]
    assert sums == [1 << 18, 1 << 19, 1 << 18, 0]


@pytest.mark.parametrize("name", ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"])
def test_programs_see_their_memory_as_on_a_gpu(device: Device, program: Program, name: str) -> None:
    text = f"""
import os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
os.environ["{name}"] = "0.75"
import jax, numpy as np
x = jax.device_put(np.ones(1000, np.float32))
stats = jax.devices()[0].memory_stats()
print(stats["bytes_in_use"], stats["bytes_limit"], stats["pool_bytes"])
try:
    jax.device_put(np.ones(200_000, np.float32)).block_until_ready()
except Exception as error:
    print(type(error).__name__, str(error).splitlines()[0])
print(jax.devices("cpu")[0].memory_stats())
"""
    ran = program(device, text)
    lines = ran.stdout.splitlines()
    assert lines[0] == "4000 786432 786432", ran.stderr
    assert re.match(r"JaxRuntimeError RESOURCE_EXHAUSTED: .* 800000 bytes", lines[1])
    assert lines[2] == "None"


def test_settings_that_a_gpu_refuses_are_refused_here(device: Device, program: Program) -> None:
    text = """
import os
os.environ["XLA_CLIENT_MEM_FRACTION"] = ".3"
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = ".9"
import jax
jax.devices()
"""
    ran = program(device, text)
    assert ran.returncode == 1
    assert "XLA_CLIENT_MEM_FRACTION is specified together" in ran.stderr


def account(ledger: Ledger, fraction: float = 1.0, preallocate: bool = False) -> Account:
    return ledger.open(fraction, preallocate)


def test_a_fraction_that_is_set_aside_is_nobody_elses() -> None:
    ledger = Ledger(devices=1, memory=1000)
    first, second = account(ledger, 0.75, preallocate=True), account(ledger)
    ledger.check(first, {0: 750}, "all of it")
    ledger.check(second, {0: 250}, "the rest")
    with pytest.raises(Full, match="Other programs hold 750"):
        ledger.check(second, {0: 251}, "one byte more")
    third = account(ledger, 0.75, preallocate=True)
    assert third.limits == [250]
    ledger.close(first)
    ledger.check(second, {0: 750}, "what was given back")


def test_a_peak_is_kept_and_the_largest_are_named_first() -> None:
    ledger = Ledger(devices=1, memory=1000)
    mine = account(ledger)
    for number in range(12):
        ledger.take(mine, 0, number, Held(number, f"int8[{number}]"))
    ledger.momentary(mine, {0: 500})
    ledger.give_back(mine, 0, 11)
    assert (ledger.usage()[0].in_use, ledger.usage()[0].peak) == (55, 566)
    with pytest.raises(Full) as full:
        ledger.check(mine, {0: 2000}, "much")
    named = re.findall(r"(\d+) bytes  int8", str(full.value))
    assert named == [str(number) for number in range(10, 0, -1)]
