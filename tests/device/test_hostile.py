"""Clients that send anything, stop reading, or die: the front lives on, and the book stays true."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import msgspec
import psutil
import pytest
from raw import FOUR, PROGRAM, REUSE, Raw, Refused

from grader.device.messages import marks, protocol, wire
from grader.device.nursery import Nursery
from grader.device.options import Options
from grader.device.start import Device, start
from grader.records import book

MIB = 1 << 20
MUTATIONS = int(os.environ.get("DEVICE_MUTATIONS", "400"))
"""How many mutated messages are sent. All 10,000 of the promise, by hand:

    DEVICE_MUTATIONS=10000 pytest tests/device/test_hostile.py -k mutated
"""


def processes(name: str) -> list[psutil.Process]:
    """The running processes of devices that this test process has started."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if f"grader.device.{name}.process" in child.cmdline():
                found.append(child)
        except psutil.Error:
            continue
    return found


def good(client: Raw) -> None:
    """Everything works for this client."""
    array = client.put(FOUR, [4])
    (result,) = client.launch(client.compile(), [array])
    client.wait(result)
    assert client.get(array) == FOUR
    client.destruct(array, result)


def samples(client: Raw) -> list[bytes]:
    """Valid requests of every kind that a client sends."""
    host = client.store(FOUR)
    array, part = client.put(FOUR, [4]), client.handle()
    reshard = client.request("reshard_arrays", array_handles=[array], copy_semantics=REUSE,
                             result_handles=[client.handle()])  # fmt: skip
    spec = reshard.reshard_arrays_request.array_specs.add()
    spec.dtype.kind = 11
    spec.shape.dims.append(4)
    spec.sharding.CopyFrom(client.tiled(range(4), [4]))
    requests = [
        client.put_request(host, [4], client.tiled(range(4), [4])),
        client.put_request(host, [4], client.sharding(0), [-4]),
        client.request("copy_to_host_buffer", array_handle=array, host_buffer_handle=7),
        client.request("check_value_ready", value_handles=[array]),
        client.request("copy_arrays", array_handles=[array], device_ids=[1], copy_semantics=1,
                       result_handles=[part]),
        client.request("disassemble_into_single_device_arrays", array_handle=array,
                       copy_semantics=REUSE, result_handles=[client.handle()]),
        reshard,
        client.compile_request(PROGRAM),
        client.launch_request(client.compile(), [array], [client.handle()]),
        client.request("get_default_layout", dims=[4, 4]),
        client.request("get_default_device_assignment", num_replicas=2, num_partitions=2),
        client.request("destruct_array", array_handle=[array]),
        client.request("init"),
    ]  # fmt: skip
    return [request.SerializeToString() for request in requests]


def mutated(draw: random.Random, sample: bytes) -> bytes:
    """The sample with some bytes changed, cut out, doubled, or put in."""
    data = bytearray(sample)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(5):
            case 0 if data:
                data[at % len(data)] = draw.randrange(256)
            case 1:
                del data[at : at + draw.randint(1, 8)]
            case 2:
                data[at:at] = draw.randbytes(draw.randint(1, 8))
            case 3:
                data[at:at] = data[: draw.randint(0, 40)]
            case _ if data:
                data[at % len(data)] ^= 1 << draw.randrange(8)
    return bytes(data)


@pytest.fixture(scope="module")
def small(forked: Nursery) -> Iterator[Device]:
    with forked.start(Options(devices=4, memory=1 << 20)) as started:
        yield started


def test_mutated_and_random_messages_are_answered_or_end_one_session(small: Device) -> None:
    draw = random.Random(20)
    sent = 0
    while sent < MUTATIONS:
        client = Raw(small)
        valid = samples(client)
        for _ in range(50):
            wild = draw.random() < 0.1
            client.send(
                draw.randbytes(draw.randrange(200)) if wild else mutated(draw, draw.choice(valid))
            )
            sent += 1
            if client.ended.is_set():
                break
        client.close()
    if not any(each.event == "lost" for each in book.read(small.book).entries):
        fresh = Raw(small)
        good(fresh)
        fresh.close()
    assert book.count(book.read(small.book).entries).keys() >= {"h2d", "client", "launch"}


def test_calls_with_wild_metadata_and_bytes(device: Device, raw: Raw) -> None:
    draw = random.Random(3)
    keys = [
        f"ifrt-proxy-grpc-{name}-metadata-bin" for name in ("ifrt-session", "host-buffer-store")
    ]
    for name in ("GetVersion", "HostBufferLookup", "HostBufferDelete", "HostBufferReadFromDisk"):
        for _ in range(5):
            call = raw.channel.unary_unary(f"/{protocol.SERVICE}/{name}")
            with pytest.raises(grpc.RpcError):
                call(b"\xff" + draw.randbytes(20), timeout=20)
    for name in ("HostBufferStore", "IfrtSession"):
        for _ in range(5):
            wild = [(key, b"\xff" + draw.randbytes(9)) for key in keys]
            call = raw.channel.stream_stream(f"/{protocol.SERVICE}/{name}")
            with pytest.raises(grpc.RpcError):
                list(call(iter([draw.randbytes(30)]), metadata=wild, timeout=20))
    good(raw)


def test_a_buffer_of_another_length_than_announced(raw: Raw) -> None:
    for announced in (3, 17, 1 << 62, -1):
        with pytest.raises(grpc.RpcError):
            raw.store(FOUR, announced)
    good(raw)


def test_no_client_reaches_another_clients_arrays(device: Device, raw: Raw) -> None:
    mine = raw.put(FOUR, [4])
    other = Raw(device)
    with pytest.raises(Refused, match="no array"):
        other.get(mine)
    other.close()


def test_the_side_channel_takes_anything(device: Device, raw: Raw) -> None:
    draw = random.Random(5)
    path = f"{device.environment['GRADER_DEVICE']}/bridge"
    for _ in range(30):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            end.connect(path)
            end.sendall(draw.randbytes(draw.randrange(1, 200)))
    good(raw)


def test_a_client_that_reads_nothing_holds_up_nobody(device: Device, raw: Raw) -> None:
    slow = Raw(device)
    blocked = threading.Event()
    request = slow.request("get_default_layout", dims=range(30))
    raw_request = request.SerializeToString()

    def flood() -> None:
        for _ in range(30_000):
            slow.send(raw_request)
        blocked.set()

    threading.Thread(target=flood, daemon=True).start()
    good(raw)
    assert blocked.wait(60)
    good(raw)
    slow.close()


def test_a_client_that_takes_no_parcel_holds_up_nobody(forked: Nursery) -> None:
    with forked.start(Options(devices=1)) as mine:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            end.connect(f"{mine.environment['GRADER_DEVICE']}/bridge")
            line, decoder = wire.Line(end), msgspec.msgpack.Decoder(wire.Told)
            line.send(wire.Greeting(os.getpid()))
            welcome, _, _ = line.receive(decoder)
            assert isinstance(welcome, wire.Welcome)
            slow, other = Raw(mine, welcome.bridge), Raw(mine)
            array = slow.put(b"abcd" * (1 << 20), [1 << 20])
            for serial in range(8):
                slow.ask("get_default_layout", dims=marks.asking("fetch", array, serial))
            parcel, _, file = line.receive(decoder)
            assert isinstance(parcel, wire.Parcel)
            assert file is not None
            good(other)
            with socket.socket(fileno=file) as taken:
                got = taken.recv(4 * MIB, socket.MSG_WAITALL)
            assert got == b"abcd" * (1 << 20)
            slow.ask("get_default_layout", dims=marks.asking("fetch", array + 1, 99))
            slow.close()
            good(other)
            other.close()
        deadline = time.monotonic() + 20
        while sum(each.in_use for each in mine.counts().memory) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert [each.in_use for each in mine.counts().memory] == [0]
        found = book.read(mine.book)
    reads = [each for each in found.entries if each.event == "d2h"]
    assert sorted(each.bytes for each in reads) == [16, 16, 4 * MIB]


KILLED = """
import os, sys, jax, numpy as np
x = jax.device_put(np.ones((64, 64), np.float32))
f = jax.jit(lambda x: x @ x)
print("ready", flush=True)
while True:
    x = f(x)
    y = np.asarray(x)
"""


def test_a_client_that_is_killed_at_any_moment_leaves_nothing(device: Device, raw: Raw) -> None:
    draw = random.Random(8)
    environment = {**os.environ, **device.environment}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], env=environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(draw.random() / 5)
        process.send_signal(signal.SIGKILL)
    for _ in range(10):
        client = Raw(device)
        program, array = client.compile(), client.put(FOUR, [4])
        for _ in range(draw.randrange(20)):
            client.later(client.launch_request(program, [array], [client.handle()]))
        client.close()
    good(raw)
    deadline = time.monotonic() + 20
    while sum(each.in_use for each in device.counts().memory) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [each.in_use for each in device.counts().memory] == [0] * 4


def read_on(client: Raw, array: int) -> None:
    """Read until that fails."""
    for _ in range(1000):
        client.get(array)


def test_an_executor_that_dies_is_a_lost_device_and_a_line_in_the_book(tmp_path: Path) -> None:
    path = tmp_path / "book.jsonl"
    before = {each.pid for each in processes("executor")}
    with start(Options(devices=1, book=path)) as mine:
        (executor,) = (each for each in processes("executor") if each.pid not in before)
        client = Raw(mine)
        array = client.put(FOUR, [4])
        executor.kill()
        with pytest.raises(Refused, match=r"14: the device was lost"):
            read_on(client, array)
        with pytest.raises(Refused, match="the device was lost"):
            client.compile()
        client.destruct(array)
        with pytest.raises(Refused, match="the device was lost"):
            Raw(mine)
        client.close()
    found = book.read(path)
    assert [each.detail for each in found.entries if each.event == "lost"] == [
        "the device was lost: its executor died"
    ]
    assert found.problem == ""
