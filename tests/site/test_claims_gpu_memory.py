"""Proofs of the claims of *Why is JAX using GPU memory even with CPU-allocated data?* (S1).

`proving` says how they run; `test_claims` checks that every claim of the ledger has one.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from proving import (
    Ended,
    Machine,
    beside_the_cpu,
    changed,
    compiled,
    fresh,
    next_door,
    on_cpu,
    on_gpu,
    places,
    showing,
    usually,
)

TELL_OPTIONS = """
from jaxlib import xla_client
options = xla_client.generate_pjrt_gpu_plugin_options()
print(options.get("preallocate", "default"), options.get("memory_fraction", "default"))
"""
USED = """
import subprocess
def used():
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(ask, capture_output=True, text=True).stdout.split()[0])
def total():
    ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    return int(subprocess.run(ask, capture_output=True, text=True).stdout.split()[0])
before = used()
import jax, jax.numpy as jnp
"""


ROW = np.ones(4, np.float32)


def pinned(array: Any) -> jax.Array:
    """The array in pinned host memory of device 0."""
    where = SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    placed: jax.Array = jax.device_put(array, where)
    return placed


def on_the_first_device(function: Any) -> Any:
    """A jit that moves all computation to one device, wherever the inputs were committed."""
    return lambda *inputs: jax.jit(function)(*jax.device_put(inputs, jax.devices()[0]))


@pytest.mark.proves("S1-01: false")
@pytest.mark.unless("a way to place data that compiles a program for it", place=jnp.array)
def test_what_the_gpu_client_takes_is_set_by_options_and_jit_is_not_among_them(
    place=jax.device_put,
) -> None:
    """JAX tells the plugin how much memory to take before anything is compiled."""
    jax.clear_caches()
    with compiled() as names:
        jnp.tan(jnp.arange(7.0)) * 3  # this code has no jit,
    assert len(names) >= 2  # and each operation was compiled
    before = sum(array.nbytes for array in jax.live_arrays())
    with compiled() as names:
        placed = place(np.ones(1000, np.float32))
    assert names == []  # nothing was compiled, and room is taken
    assert sum(array.nbytes for array in jax.live_arrays()) - before == placed.nbytes
    assert fresh(TELL_OPTIONS).out == "default default"
    less = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_CLIENT_MEM_FRACTION": ".1"}
    assert fresh(TELL_OPTIONS, **less).out == "False 0.1"


@pytest.mark.gpu
@pytest.mark.proves("S1-01: false", "S1-14: true with conditions")
@pytest.mark.unless(
    "a device that takes memory as it is needed",
    run=changed(showing(next_door, 500, 501, 80_000, 501), {"256, 1024": "4, 1024"}),
)
def test_on_a_gpu_the_pool_is_taken_once_without_any_jit_and_not_at_all_on_request(
    run: Machine = on_gpu,
) -> None:
    program = (
        USED
        + """
jnp.ones(1).block_until_ready()
first = used() - before
big = jnp.ones((256, 1024, 1024)).block_until_ready()  # 1 GiB
print(first / total(), used() - before - first, jax.devices()[0].memory_stats()["bytes_in_use"])
"""
    )
    share, more, in_use = map(float, run(program).split())
    assert 0.6 < share < 0.9  # three quarters, for one number
    assert more < 100  # MiB: the array of 1 GiB lies in the pool,
    assert in_use >= 2**30  # and memory_stats is what tells
    lazy = run(program, XLA_PYTHON_CLIENT_PREALLOCATE="false").split()
    assert float(lazy[0]) < 0.1
    assert float(lazy[1]) >= 1000


@pytest.mark.gpu
@pytest.mark.proves("S1-01: false", "S1-08: false")
@pytest.mark.unless(
    "a GPU whose memory a program for the CPU takes",
    run=changed(showing(on_cpu, 500, 60_500), {"256, 1024": "1, 1024"}),
)
def test_on_a_gpu_box_jit_on_the_cpu_takes_no_gpu_memory(run: Machine = on_gpu) -> None:
    program = (
        USED
        + """
jax.jit(lambda x: x * 2)(jnp.ones((256, 1024, 1024))).block_until_ready()
print(used() - before)
"""
    )
    assert int(run(program, JAX_PLATFORMS="cpu")) < 50


@pytest.mark.proves("S1-02: true with conditions")
@pytest.mark.unless("a jit that moves committed data, too", jit=on_the_first_device)
def test_data_moves_to_the_default_device_unless_it_is_committed_elsewhere(jit=jax.jit) -> None:
    accelerator, host = jax.devices()[0], jax.devices()[7]
    double = jit(lambda x: x * 2)
    assert double(np.ones(4)).devices() == {accelerator}
    assert double(jax.device_put(np.ones(4), host)).devices() == {host}


@pytest.mark.gpu
@pytest.mark.proves("S1-02: true with conditions", "S1-09: false", "S1-13: true")
@pytest.mark.unless("a JAX that leaves NumPy's data on the CPU", gpu=False)
def test_on_a_gpu_box_numpy_data_goes_to_the_gpu_and_committed_data_stays(gpu=True) -> None:
    program = """
import jax, jax.numpy as jnp, numpy as np
double = jax.jit(lambda x: x * 2)
on_cpu = jax.device_put(np.ones(4), jax.devices("cpu")[0])
for x in jnp.array(np.ones(4)), double(np.ones(4)), double(on_cpu):
    print(*{d.platform for d in x.devices()})
"""
    assert fresh(program, gpu=gpu).out.split() == ["gpu", "gpu", "cpu"]


@pytest.mark.proves("S1-03: true")
@pytest.mark.unless("NumPy, which compiles nothing", work="np.sin(np.ones(8)) * 2")
def test_jit_makes_stablehlo_and_xla_makes_machine_code_of_it(
    tmp_path: Any, work="jax.jit(lambda x: jnp.sin(x) * 2)(jnp.ones(8))"
) -> None:
    lowered = jax.jit(lambda x: jnp.sin(x) * 2).lower(jnp.ones(8))
    assert "stablehlo.sine" in lowered.as_text()
    assert lowered.compile().as_text().startswith("HloModule")
    dump = f"""
import jax, jax.numpy as jnp, numpy as np, os, pathlib
{work}
print(*[path.suffix for path in pathlib.Path(os.environ["DUMP"]).iterdir()])
"""
    ended = fresh(dump, DUMP=str(tmp_path), XLA_FLAGS=f"--xla_dump_to={tmp_path}")
    assert ".o" in ended.out.split()  # an object file: machine code


@pytest.mark.proves("S1-04: true")
@pytest.mark.unless("a jit that compiles each operation for itself", jit=lambda work: work)
def test_one_jitted_function_is_one_program_and_eager_operations_are_three(jit=jax.jit) -> None:
    def work(x: jax.Array) -> jax.Array:
        return jnp.sin(x) * 2 + 1

    values = jnp.linspace(0, 1, 17)
    jax.clear_caches()
    with compiled() as eager:
        work(values)
    with compiled() as jitted:
        jit(work)(values)
    assert len(eager) == 3
    assert jitted == ["jit(work)"]
    with compiled() as of_a_function_of_jax:
        jnp.var(values)
    assert of_a_function_of_jax == ["jit(_var)"]  # some come jitted
    text = jax.jit(work).lower(values).compile().as_text()
    assert len(re.findall(r" fusion\(", text)) == 1  # all three operations in one loop


@pytest.mark.proves("S1-05: true with conditions")
@pytest.mark.unless("an argument that is in device memory first", place=jax.device_put)
def test_an_argument_may_wait_in_host_memory_and_be_fetched_by_the_program(place=pinned) -> None:
    fetch = jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Device) * 2)
    waiting = place(np.ones(8, np.float32))
    entry = fetch.lower(waiting).compile().input_formats[0][0]
    assert entry.sharding.memory_kind == "pinned_host"
    assert fetch(waiting).sharding.memory_kind == "device"


@pytest.mark.gpu
@pytest.mark.proves("S1-05: true with conditions")
@pytest.mark.unless(
    "layers that are fetched all at once",
    run=changed(
        next_door,
        {
            "run(layers": "run(jax.device_put(layers, host.with_memory_kind('device'))",
            "2048": "256",
        },
    ),
)
def test_on_a_gpu_layers_can_be_fetched_one_at_a_time(run: Machine = on_gpu) -> None:
    program = """
import jax, jax.numpy as jnp, numpy as np
device = jax.devices()[0]
host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
layers = jax.device_put(np.ones((16, 2048, 2048), np.float32) / 2048, host)  # 256 MiB
def layer(x, w):
    return jnp.tanh(x @ jax.device_put(w, jax.memory.Space.Device)), None
run = jax.jit(lambda layers, x: jax.lax.scan(layer, x, layers)[0])
x = jnp.ones((8, 2048))
before = device.memory_stats()["bytes_in_use"]
run(layers, x).block_until_ready()
print(device.memory_stats()["peak_bytes_in_use"] - before < layers.nbytes / 2)
"""
    assert run(program) == "True"


def by_size(function: Any) -> Any:
    """A jit that moves large inputs to the accelerator ahead of time."""
    moved = on_the_first_device(function)
    return lambda x: (moved if x.size > 1000 else jax.jit(function))(x)


@pytest.mark.proves("S1-06: false")
@pytest.mark.unless("a JAX that weighs the size of its inputs", jit=by_size)
def test_placement_follows_commitment_whatever_the_size(jit=jax.jit) -> None:
    accelerator, host = jax.devices()[0], jax.devices()[3]
    double = jit(lambda x: x * 2)
    for size in (1, 1_000_000):  # nothing is weighed
        values = np.ones(size, np.float32)
        assert double(jax.device_put(values, host)).devices() == {host}
        assert double(jnp.asarray(values)).devices() == {accelerator}


@pytest.mark.proves("S1-07: false", "S1-15: false")
@pytest.mark.unless("S1-07: a transfer that a compiled program makes", put=jnp.array)
@pytest.mark.unless("S1-15: a jnp.array that moves nothing by itself", array=np.array)
def test_a_transfer_needs_no_compilation(put=jax.device_put, array=jnp.array) -> None:
    values = np.ones(13, np.float32)
    jax.clear_caches()
    with compiled() as names:
        put(values)
    assert names == []
    with compiled() as names:
        array(values)
    assert names == ["jit(stage)"]  # jnp.array compiles something, without need
    with (
        jax.transfer_guard_host_to_device("disallow"),
        pytest.raises(RuntimeError, match="Disallowed host-to-device transfer"),
    ):
        array(values)  # a transfer, and nothing is compiled for it now


@pytest.mark.proves("S1-08: false")
@pytest.mark.unless("a jit that moves its inputs to the accelerator", jit=on_the_first_device)
def test_jit_changes_no_placement_and_needs_less_memory(jit=jax.jit) -> None:
    def work(x: jax.Array) -> jax.Array:
        for _ in range(10):
            x = jnp.sin(x) * 2 + 1
        return x

    there = jax.device_put(np.ones((64, 64), np.float32), jax.devices()[2])
    assert work(there).devices() == jit(work)(there).devices() == {jax.devices()[2]}
    memory = jax.jit(work).lower(there).compile().memory_analysis()
    assert memory.temp_size_in_bytes < there.nbytes  # eager makes 30 arrays of that size


@pytest.mark.proves("S1-09: false", "S1-17: false")
@pytest.mark.unless("a jit that decides where it runs", jit=on_the_first_device)
@pytest.mark.unless("S1-09: a machine that was not told to keep to its CPU", platforms="")
def test_jit_runs_on_the_cpu_if_its_input_is_committed_there(jit=jax.jit, platforms="cpu") -> None:
    accelerator, host = jax.devices()[0], jax.devices()[7]
    double = jit(lambda x: x * 2)
    assert double(jax.device_put(np.ones(4), host)).devices() == {host}
    assert double(jax.device_put(np.ones(4), accelerator)).devices() == {accelerator}
    with jax.default_device(host):
        assert double(np.ones(4)).devices() == {host}
    program = "print(len(jax.devices()), jax.jit(jnp.sin)(1.0).device == jax.devices('cpu')[0])"
    assert beside_the_cpu(program, platforms=platforms).out == "1 True"  # or if JAX was told so


@pytest.mark.proves("S1-10: true with conditions")
@pytest.mark.unless("an argument that is there already", values=jnp.ones(4))
def test_a_numpy_argument_is_transferred_at_every_call(values=ROW) -> None:
    double = jax.jit(lambda x: x * 2)
    double(values)
    with jax.transfer_guard_host_to_device("disallow"):
        for _ in range(2):  # compiled and called before: it is transferred again
            with pytest.raises(RuntimeError, match="Disallowed host-to-device transfer"):
                double(values)


@pytest.mark.gpu
@pytest.mark.proves("S1-10: true with conditions")
@pytest.mark.unless("a device that computes in the host's memory, and needs no copy", gpu=False)
def test_on_a_gpu_a_hundred_calls_with_numpy_are_a_hundred_copies(tmp_path: Any, gpu=True) -> None:
    program = f"""
import jax, jax.numpy as jnp, numpy as np, pathlib
total = jax.jit(jnp.sum)
host = np.ones(1_000_000, np.float32)
total(host).block_until_ready()
with jax.profiler.trace({str(tmp_path)!r}):
    for _ in range(100):
        total(host).block_until_ready()
(trace,) = pathlib.Path({str(tmp_path)!r}).rglob("*.xplane.pb")
planes = jax.profiler.ProfileData.from_file(str(trace)).planes
names = [e.name for p in planes for line in p.lines for e in line.events]
print(sum("MemcpyH2D" in name for name in names))
"""
    assert int(fresh(program, gpu=gpu).out) >= 100


@pytest.mark.proves("S1-11: true with conditions")
@pytest.mark.unless("an array that is pinned by a flag", array=lambda data, pinned: jnp.array(data))
def test_pinned_memory_is_a_kind_of_memory_and_no_flag_of_an_array(array=jnp.array) -> None:
    assert pinned(np.ones(8)).sharding.memory_kind == "pinned_host"
    with pytest.raises(TypeError, match="unexpected keyword argument 'pinned'"):
        array(np.ones(8), pinned=True)


@pytest.mark.gpu
@pytest.mark.proves("S1-11: true with conditions")
@pytest.mark.unless(
    "a pinned array that is sixteen times as large",
    run=changed(
        next_door,
        {
            "device_put(host, here.with": "device_put(np.tile(host, 16), here.with",
            "50_000_000": "500_000",
        },
    ),
)
def test_on_a_gpu_a_pinned_array_reaches_the_device_no_slower_than_numpy_data(
    run: Machine = on_gpu,
) -> None:
    program = """
import time, jax, numpy as np
device = jax.devices()[0]
here = jax.sharding.SingleDeviceSharding(device)
host = np.ones(50_000_000, np.float32)
pinned = jax.device_put(host, here.with_memory_kind("pinned_host")).block_until_ready()
def best(x): return min(timed(x) for _ in range(10))
def timed(x):
    start = time.perf_counter()
    jax.device_put(x, here).block_until_ready()
    return time.perf_counter() - start
print(best(host) / best(pinned))
"""
    assert float(run(program)) > 0.95


@pytest.mark.gpu
@pytest.mark.proves("S1-12: true with conditions")
@pytest.mark.unless(
    "an array that fits", run=changed(next_door, {"ones(room, jnp": "ones(room // 64, jnp"})
)
def test_on_a_gpu_an_array_larger_than_the_pool_is_an_error_not_a_dead_process(
    run: Machine = on_gpu,
) -> None:
    program = """
import jax, jax.numpy as jnp
room = jax.devices()[0].memory_stats()["bytes_limit"]
try:
    jnp.ones(room, jnp.float32).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print(str(error).split(":")[0])
print(jnp.ones(3).sum())
"""
    assert run(program).split() == ["RESOURCE_EXHAUSTED", "3.0"]


def wide(numbers: Any) -> jax.Array:
    """An array that keeps its type, as under `jax_enable_x64`."""
    with jax.enable_x64(True):
        return jnp.array(numbers)


@pytest.mark.proves("S1-13: true", "S1-20: false")
@pytest.mark.unless("S1-13: a conversion that leaves its data where it was", array=np.array)
@pytest.mark.unless("S1-20: a conversion that keeps the type", array=wide)
def test_jnp_array_transfers_and_narrows_to_32_bits(array=jnp.array) -> None:
    numbers = np.arange(1_000)
    for default in (jax.devices()[0], jax.devices()[3]):  # where the default is, it goes
        with jax.default_device(default):
            assert places(array(numbers)) == {default}
    moved = array(numbers)
    assert not moved.committed
    assert (numbers.dtype, moved.dtype) == (np.int64, np.int32)
    assert jnp.array(np.ones(3)).dtype == np.float32
    program = "import jax.numpy as jnp, numpy as np; print(jnp.array(np.arange(3)).dtype)"
    assert fresh(program) == Ended(0, "int32", "")  # without a word: nothing in the log
    assert fresh(program, JAX_ENABLE_X64="1").out == "int64"


@pytest.mark.proves("S1-14: true with conditions")
@pytest.mark.unless(
    "an operation that runs on the default device", times=lambda x, n: np.array(x) * n
)
@pytest.mark.unless("a device with a pool of its own", stats=lambda device: {"bytes_in_use": 0})
def test_an_operation_runs_where_its_array_lies_and_its_result_takes_room_there(
    times=jnp.multiply, stats=lambda device: device.memory_stats()
) -> None:
    def held(device: Any) -> int:
        return sum(a.nbytes for a in jax.live_arrays() if a.devices() == {device})

    here, there = jax.devices()[0], jax.devices()[6]
    x = jax.device_put(np.ones(1024, np.float32), there)
    before, elsewhere = held(there), held(here)
    result = times(x, 2)
    assert places(result) == {there}
    assert held(there) - before == result.nbytes  # what grows is what arrays hold; of a pool, which
    assert held(here) == elsewhere
    assert stats(here) is None  # a CPU does not have, see the proof for a GPU


@pytest.mark.proves("S1-16: true with conditions")
@pytest.mark.unless(
    "a device_put that always copies",
    put=lambda x, *where, **options: jax.device_put(np.array(x), *where),
)
@pytest.mark.unless("a GPU that is not the default backend", priority=-1)
def test_device_put_commits_to_the_default_backends_device_and_may_share_memory(
    put=jax.device_put, priority=None
) -> None:
    program = """
x = jax.device_put([1], jax.devices()[0])
print(x[0].committed, x[0].device in jax.devices("gpu"))
"""
    assert beside_the_cpu(program, priority=priority).out == "True True"
    room = np.empty(4096 + 64, np.uint8)
    start = -room.__array_interface__["data"][0] % 64
    aligned = room[start : start + 4096].view(np.float32)
    aligned[:] = 1
    for argument in ({}, {"may_alias": False}):
        shared = put(aligned, jax.devices()[0], **argument)
        assert shared[0] == aligned[0]
        aligned[0] += 1  # only NumPy's array is written, and the other follows
        assert shared[0] == aligned[0]


MULTIPLY = jax.jit(lambda a: a @ a @ a @ a)


@pytest.mark.proves("S1-18: true")
@pytest.mark.unless("a JAX that waits at each call", work=lambda a: MULTIPLY(a).block_until_ready())
def test_transfers_do_not_wait_for_work_and_reads_can_be_started_early(work=MULTIPLY) -> None:
    large = jnp.ones((800, 800)) / 800
    work(large).block_until_ready()

    def both_return_while_it_runs() -> bool:
        result = work(large)
        moved = jax.device_put(np.ones(8), jax.devices()[1])
        result.copy_to_host_async()
        running = not result.is_ready()
        assert moved.shape == (8,)
        assert np.asarray(result).shape == (800, 800)
        return running

    assert usually(both_return_while_it_runs)


@pytest.mark.gpu
@pytest.mark.proves("S1-18: true")
@pytest.mark.unless(
    "a copy that is waited for",
    run=changed(
        on_cpu,
        {
            "= jax.device_put(host)": "= jax.device_put(host).block_until_ready()",
            "100_000_000": "1_000_000",
        },
    ),
)
def test_on_a_gpu_device_put_returns_before_the_copy_has_ended(run: Machine = on_gpu) -> None:
    program = """
import time, jax, numpy as np
host = np.ones(100_000_000, np.float32)
jax.device_put(host).block_until_ready()
start = time.perf_counter()
moved = jax.device_put(host)
called = time.perf_counter() - start
moved.block_until_ready()
print(called / (time.perf_counter() - start))
"""
    assert float(run(program)) < 0.5


def spread(array: Any) -> jax.Array:
    """The array in eight parts, one on each device."""
    parts = NamedSharding(jax.make_mesh((8,), ("x",)), P("x"))
    placed: jax.Array = jax.device_put(array, parts)
    return placed


@pytest.mark.proves("S1-19: true with conditions")
@pytest.mark.unless("a JAX that distributes by itself", new=lambda n: spread(jnp.arange(n)))
def test_many_devices_are_one_array_for_those_who_ask(new=jnp.arange) -> None:
    alone = new(16.0)
    assert len(alone.devices()) == 1  # nothing is distributed by itself
    whole = spread(alone)
    assert len(whole.devices()) == 8
    assert jax.jit(jnp.sum)(whole) == alone.sum()
