"""Unmodified JAX programs on a device next door: the same results, and a true book."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from next_doors import Program, plain_environment

from grader.device.nursery import Nursery
from grader.device.options import Options
from grader.device.start import Device, environment
from grader.records import book
from grader.records.book import Entry, Link

type Entries = Callable[[], list[Entry]]

KNOWN = """
import functools, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
D = jax.devices(); m = Mesh(np.array(D).reshape(2, 2), ("dp", "tp"))
W = jax.device_put(np.zeros((256, 64), np.float32), NamedSharding(m, P(None, "tp")))
sx = NamedSharding(m, P("dp", None))
@functools.partial(jax.jit, donate_argnums=0)
def step(W, X):
    l, g = jax.value_and_grad(lambda W: ((X @ W) ** 2).mean() + W.sum())(W)
    return W - .1 * g, l
for i in range(10):
    X = jax.device_put(np.ones((64, 256), np.float32), sx)
    W, l = step(W, X)
    if i % 5 == 4:
        print(float(l))
np.asarray(W)
z = jax.device_put(l, D[3]); z.block_until_ready()
"""


def test_a_program_whose_transfers_are_known(
    device: Device, program: Program, entries: Entries
) -> None:
    ran = program(device, KNOWN)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    counts = book.count(entries())
    # 4 shards of W, which is half of it each; 10 times 4 shards of X, which is half of it each
    assert (counts["h2d"].number, counts["h2d"].bytes) == (44, 4 * 32768 + 40 * 32768)
    # two losses of 4 bytes, and W by its two different shards
    assert (counts["d2h"].number, counts["d2h"].bytes) == (4, 8 + 2 * 32768)
    assert (counts["launch"].number, counts["compile"].number) == (10, 1)
    compiled = next(each for each in entries() if each.event == "compile")
    assert compiled.program == "jit_step"
    assert {each.op for each in compiled.collectives} == {"all-reduce"}


READS = """
import json, pickle
import jax, jax.numpy as jnp, numpy as np
x = jax.device_put(np.arange(8, dtype=np.float32)); f = jax.jit(lambda x: x + 1)
f(x).block_until_ready()
def ways():
    yield lambda y: np.asarray(y)
    yield lambda y: y.tolist()
    yield lambda y: bytes(memoryview(np.array(y)))
    yield lambda y: repr(y)
    yield lambda y: json.dumps([float(v) for v in np.frombuffer(y.__array__().data)])
    yield lambda y: jax.device_get(y)
    yield lambda y: y._value
    yield lambda y: y.addressable_data(0).__array__()
    yield lambda y: np.add(y, 0)
    yield lambda y: jax.device_put(y, jax.devices("cpu")[0])
    yield lambda y: pickle.dumps(y)
for way in ways():
    way(f(x))
"""


MANY = """
import jax, jax.numpy as jnp
x = jnp.zeros(4)
for _ in range(2500):
    x = x + 1.0
    x = x * 1.0
print(int(x.sum()))
"""


def test_thousands_of_launches_may_be_under_way_with_numbers_of_the_host(
    device: Device, program: Program
) -> None:
    """The client sends each number by a call of its own; if one is refused, its session ends."""
    done = program(device, MANY)
    assert done.stdout.strip() == "10000", done.stderr[:2000]


def test_a_value_is_read_in_eleven_ways_and_counted_eleven_times(
    device: Device, program: Program, entries: Entries
) -> None:
    ran = program(device, READS)
    assert ran.returncode == 0, ran.stderr
    reads = [each for each in entries() if each.event == "d2h"]
    assert [each.bytes for each in reads] == [32] * 11


LARGE_READS = (
    READS.replace("np.arange(8,", "np.arange(1 << 18,")
    + """
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2, 2), ("a", "b"))
host = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
for spec in (P(), P("a"), P("a", "b")):
    started = jax.device_put(host, NamedSharding(mesh, spec))
    started.copy_to_host_async(); started.copy_to_host_async()
    assert (jax.device_get(started) == host).all() and not np.asarray(started).flags.writeable
half = jax.device_put(host.astype(jax.numpy.bfloat16))
assert np.asarray(half).dtype == jax.numpy.bfloat16
fails = jax.jit(lambda x: jax.pure_callback(lambda v: 1 / 0, x, x))(jax.device_put(host))
for _ in range(2):
    try:
        np.asarray(fails)
    except Exception as error:
        print("division by zero" in str(error))
"""
)
MIB = 1 << 20


def test_a_large_array_comes_by_a_way_of_its_own_and_is_counted_as_often(
    forked: Nursery, program: Program
) -> None:
    with forked.start(Options(devices=4)) as device:
        ran = program(device, LARGE_READS)
        device.counts()
        found = book.read(device.book).entries
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == "True\nTrue\n"
    reads = [each.bytes for each in found if each.event == "d2h" and each.end is not None]
    sharded = [4 * MIB, 2 * MIB, 2 * MIB, *[MIB] * 4]
    shown = 1  # the repr of a large array has no values
    assert reads == [MIB] * (11 - shown) + sharded + [2 * MIB]


CALLBACKS = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import io_callback
f32 = jax.ShapeDtypeStruct((), np.float32)
print(float(jax.jit(lambda x: jax.pure_callback(lambda v: np.float32(v * 2), f32, x))(3.)))
got = []
jax.jit(lambda x: io_callback(lambda v: got.append(float(v)), None, x, ordered=True))(4.)
jax.effects_barrier(); print(got)
jax.jit(lambda x: jax.debug.print("seen {}", x))(5.); jax.effects_barrier()
def bad(v): raise ValueError("mine")
try:
    jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(bad, f32, x))(1.))
except Exception as error:
    print("ValueError: mine" in str(error))
x = np.arange(24, dtype=np.float32).reshape(4, 6)
for odd in (x.T, x[::-1, ::2], np.broadcast_to(np.float32(2), (3, 2))):
    assert (np.asarray(jax.device_put(odd)) == odd).all()
    assert (np.asarray(jax.jit(lambda x: x)(odd)) == odd).all()
print(jax.devices()[0].device_kind, jax.devices("cpu")[0].device_kind, jax.default_backend())
print([each.kind for each in jax.devices()[0].addressable_memories()])
print(np.linalg.norm(jnp.linalg.eigh(jnp.eye(3))[0]).round(3))
"""


def test_what_the_stock_client_refuses(device: Device, program: Program, entries: Entries) -> None:
    ran = program(device, CALLBACKS)
    assert ran.stdout.splitlines() == [
        "6.0",
        "[4.0]",
        "seen 5.0",
        "True",
        "next door cpu cpu",
        "['device', 'pinned_host']",
        "1.732",
    ], ran.stderr
    calls = [each for each in entries() if each.event == "callback"]
    assert [(each.bytes, each.returned) for each in calls] == [(4, 4), (4, 0), (4, 0), (4, 0)]
    assert 0 not in {each.client for each in calls} != set()
    launches = {each.asked for each in entries() if each.event == "launch"}
    assert {each.asked for each in calls} <= launches, "a callback belongs to its launch"


TRANSFORMER = Path(__file__).with_name("transformer.py")


def losses(more: dict[str, str]) -> str:
    ran = subprocess.run(
        [sys.executable, TRANSFORMER], env={**plain_environment(), **more},
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_sharded_transformer_has_the_losses_of_the_cpu(forked: Nursery) -> None:
    with forked.start(Options(devices=4)) as large:
        here = losses({"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"})
        assert losses(large.environment) == here
    assert re.fullmatch(r"\[[\d.]+(, [\d.]+){4}\]\n", here)


PREFETCH = """
import time
import jax, numpy as np
f = jax.jit(lambda x: (x @ x).sum())
batches = [np.ones((256, 256), np.float32) for _ in range(6)]
f(jax.device_put(batches[0])).block_until_ready()
print("begin", flush=True)
for batch in batches:
    f(jax.device_put(batch)).block_until_ready()
print("then", flush=True)
ahead = jax.device_put(batches[0])
for batch in [*batches[1:], None]:
    now, ahead = ahead, None if batch is None else jax.device_put(batch)
    f(now).block_until_ready()
"""


def test_prefetching_gains_what_it_should(
    tmp_path: Path, program: Program, forked: Nursery
) -> None:
    """A copy takes 0.1 s here, and a step 0.1 s: one after the other, or side by side."""
    path = tmp_path / "book.jsonl"
    flops = 2 * 256**3
    slow = Options(
        devices=1, book=path, host_link=Link(256 * 256 * 4 / 0.1),
        compute=book.Compute(flops=flops / 0.1),
    )  # fmt: skip
    with forked.start(slow) as device:
        assert program(device, PREFETCH).returncode == 0
    entries = [each for each in book.read(path).entries if each.event in ("h2d", "launch")]
    big = [each for each in entries if each.event == "launch" or each.bytes == 256 * 256 * 4]
    plain, ahead = big[2:14], big[14:]
    assert len(ahead) == 12
    took = [_span(each) for each in (plain, ahead)]
    assert 0.45 < took[1] / took[0] < 0.85
    copies = sorted((each for each in ahead if each.event == "h2d"), key=lambda each: each.start)
    steps = sorted((each for each in ahead if each.event == "launch"), key=lambda each: each.start)
    overlaps = [
        copy.start < (step.end or 0) and step.start < (copy.end or 0)
        for copy, step in zip(copies[1:], steps, strict=False)
    ]
    assert all(overlaps)


def _span(entries: list[Entry]) -> float:
    return max(each.end or 0.0 for each in entries) - min(each.start for each in entries)


def test_nothing_is_done_where_no_device_was_asked_for() -> None:
    """The folder on the import path alone changes nothing."""
    path = environment(Path("/nowhere"))["PYTHONPATH"]
    ran = subprocess.run(
        [sys.executable, "-c", "import jax; print(jax.devices()[0].device_kind)"],
        env={**plain_environment(), "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("cpu\n", "")


def test_a_device_that_is_gone_is_said_to_be_gone(program: Program, forked: Nursery) -> None:
    with forked.start(Options(devices=1)) as device:
        pass
    ran = program(device, "import jax; jax.devices()")
    assert ran.returncode == 1
    assert "the device next door is not there" in ran.stderr


@pytest.mark.parametrize("name", ["backend_compile_and_load"])
def test_a_name_that_is_gone_is_loud(device: Device, program: Program, name: str) -> None:
    text = f"import jax\nfrom jax._src import compiler\ndel compiler.{name}\njax.devices()"
    ran = program(device, text)
    assert ran.returncode == 1
    assert f"jax._src.compiler.{name}" in ran.stderr
