"""Proofs of the claims of *What are the issues with JAX on an NVIDIA DGX system?* (S3).

`proving` says how they run; `test_claims` that every claim of the ledger has one.
"""

import cProfile
import gc
import importlib
import pstats
import re
import time
import weakref
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from proving import fresh

DEVICES = jax.devices("cpu")
NEEDS_TWO = """
import sys, jax
if jax.device_count() < 2:
    sys.exit("needs 2 GPUs")
"""


def mesh_of(*shape: int) -> Mesh:
    """A mesh over the first devices, axes x and y, for the compiler to decide on."""
    names = ("x", "y")[: len(shape)]
    some = DEVICES[: int(np.prod(shape))]
    return jax.make_mesh(shape, names, (AxisType.Auto,) * len(shape), devices=some)


def placed(array: Any, *spec: Any) -> jax.Array:
    """The array on eight devices, cut as `spec` says."""
    there: jax.Array = jax.device_put(array, NamedSharding(mesh_of(8), P(*spec)))
    return there


def collectives(function: Any, *arguments: Any) -> list[str]:
    """The collectives of the compiled program."""
    text = jax.jit(function).lower(*arguments).compile().as_text()
    names = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    return re.findall(rf" ({names})(?:-start)?\(", text)


def flops_a_byte(function: Any, *arguments: Any) -> float:
    """Arithmetic intensity, from the compiler's own count."""
    cost = jax.jit(function).lower(*arguments).compile().cost_analysis()
    return float(cost["flops"] / cost["bytes accessed"])


@pytest.mark.proves("S3-01: true with conditions")
def test_what_a_program_waits_for_depends_on_its_work_for_each_byte() -> None:
    square = jnp.ones((512, 512))
    assert flops_a_byte(lambda x: x @ x, square) > 100 * flops_a_byte(lambda x: x + 1, square)


@pytest.mark.gpu
@pytest.mark.proves("S3-01: true with conditions", "S3-03: true with conditions", "S3-09: true")
def test_on_several_gpus_the_exchange_costs_time_that_a_better_cut_does_not() -> None:
    program = (
        NEEDS_TWO
        + """
import time, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:2])
host = np.ones((8192, 8192), np.float32)
def put(*spec): return jax.device_put(host, NamedSharding(mesh, P(*spec)))
work = jax.jit(lambda a, b: a @ b)
def best(a, b): return min(timed(a, b) for _ in range(5))
def timed(a, b):
    start = time.perf_counter(); work(a, b).block_until_ready(); return time.perf_counter() - start
print(best(put(None, "x"), put("x")) > best(put("x"), put()))
"""
    )
    assert fresh(program, gpu=True).out == "True"


@pytest.mark.proves("S3-02: true with conditions")
def test_the_compiler_keeps_a_wasteful_order_of_products() -> None:
    """XLA computes what is written: it does not find that A (B v) needs far less than (A B) v."""
    a, v = jnp.ones((256, 256)), jnp.ones(256)

    def flops(function: Any) -> float:
        return float(jax.jit(function).lower(a, a, v).compile().cost_analysis()["flops"])

    assert flops(lambda a, b, v: (a @ b) @ v) > 50 * flops(lambda a, b, v: a @ (b @ v))


@pytest.mark.proves("S3-03: true with conditions")
def test_gpus_exchange_through_nccl_and_no_array_passes_the_host() -> None:
    wanted = [line for line in metadata.requires("jax") or [] if "cuda13" in line]
    assert any("with-cuda" in line for line in wanted)  # the extra that brings NCCL's wheel
    total = jax.jit(jnp.sum)
    spread = placed(np.ones(8, np.float32), "x")
    total(spread)
    with jax.transfer_guard_host_to_device("disallow_explicit"):
        result = total(spread)
    assert result == 8


@pytest.mark.proves("S3-04: false", "S3-31: false", "S3-28: false")
def test_a_buffer_is_freed_with_its_last_reference_and_no_collector_runs() -> None:
    gc.collect()
    gc.disable()
    try:
        before = sum(array.nbytes for array in jax.live_arrays())
        copies = [jnp.copy(jnp.ones((64, 64))) for _ in range(100)]
        held = sum(array.nbytes for array in jax.live_arrays()) - before
        del copies
        after = sum(array.nbytes for array in jax.live_arrays()) - before
    finally:
        gc.enable()
    assert held == 100 * 64 * 64 * 4  # a peak, not a leak:
    assert after == 0


@pytest.mark.proves("S3-05: false", "S3-18: false", "S3-06: false")
def test_jnp_array_has_no_pinned_and_no_order() -> None:
    data = np.ones((4, 4))
    with pytest.raises(TypeError, match="unexpected keyword argument 'pinned'"):
        jnp.array(data, pinned=True)
    with pytest.raises(NotImplementedError, match="Only implemented for order='K'"):
        jnp.array(data, order="F")
    pinned = SingleDeviceSharding(DEVICES[0], memory_kind="pinned_host")
    assert jax.device_put(data, pinned).sharding.memory_kind == "pinned_host"


@pytest.mark.gpu
@pytest.mark.proves("S3-07: false", "S3-18: false")
def test_on_a_gpu_the_runtime_itself_pins_what_it_copies(tmp_path: Path) -> None:
    program = f"""
import jax, numpy as np, pathlib
small = np.ones(16_000_000, np.float32)
jax.device_put(small).block_until_ready()
with jax.profiler.trace({str(tmp_path)!r}):
    jax.device_put(small).block_until_ready()
(trace,) = pathlib.Path({str(tmp_path)!r}).rglob("*.xplane.pb")
planes = jax.profiler.ProfileData.from_file(str(trace)).planes
events = [e for p in planes for line in p.lines for e in line.events if "MemcpyH2D" in e.name]
print(*[dict(event.stats).get("memcpy_details") for event in events])
"""
    assert "kind_src:pinned" in fresh(program, gpu=True).out


@pytest.mark.proves("S3-08: outdated", "S3-25: true with conditions")
def test_a_distributed_step_is_jit_with_shardings() -> None:
    weights, batch = placed(np.ones((4, 4), np.float32)), placed(np.ones((16, 4), np.float32), "x")
    gradient = jax.grad(lambda w, x: ((x @ w) ** 2).mean())
    assert collectives(gradient, weights, batch) == ["all-reduce"]
    assert jax.jit(gradient)(weights, batch).sharding.is_fully_replicated
    cut = placed(np.ones((8, 4), np.float32), "x")  # and a model may be cut, as pmap cannot
    assert jax.jit(lambda w: w * 2)(cut).sharding == cut.sharding


@pytest.mark.proves("S3-09: true")
def test_the_cut_decides_how_much_is_exchanged() -> None:
    def product(a: Any, b: Any) -> Any:
        return a @ b

    square = np.ones((64, 64), np.float32)
    assert collectives(product, placed(square, "x"), placed(square)) == []
    assert collectives(product, placed(square, None, "x"), placed(square, "x")) == ["all-reduce"]
    assert "all-gather" in collectives(product, placed(square, "x"), placed(square, "x"))


@pytest.mark.proves("S3-10: true with conditions", "S3-31: false")
def test_what_is_held_stays_and_only_a_cycle_needs_the_collector() -> None:
    class Node:
        """Holds an array, and itself."""

    gc.collect()
    gc.disable()
    try:
        plain, cycle = Node(), Node()
        plain.array, cycle.array = jnp.ones(1000), jnp.ones(1000)
        cycle.me = cycle
        alone, held = weakref.ref(plain.array), weakref.ref(cycle.array)
        del plain, cycle
        assert alone() is None
        assert held() is not None
        gc.collect()
        assert held() is None
    finally:
        gc.enable()
    double = jax.jit(lambda x: x * 2)
    for size in (3, 4, 5):
        double(jnp.ones(size))
    assert double._cache_size() == 3  # one program for each shape, kept


@pytest.mark.gpu
@pytest.mark.proves("S3-11: true with conditions")
def test_on_a_gpu_a_pool_that_grows_can_be_full_of_holes() -> None:
    program = """
import jax, jax.numpy as jnp
room = jax.devices()[0].memory_stats()["bytes_limit"]
pieces = [jnp.ones(room // 50 // 4).block_until_ready() for _ in range(48)]
del pieces[::2]
try:
    jnp.ones(room // 4 // 4).block_until_ready()
    print("fits")
except jax.errors.JaxRuntimeError as error:
    print(str(error).split(":")[0])
"""
    lazy = fresh(program, gpu=True, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert lazy.out == "RESOURCE_EXHAUSTED"  # half of the memory is free, in pieces


@pytest.mark.proves("S3-12: true")
def test_jax_tells_what_lives_and_what_a_program_needs(tmp_path: Path) -> None:
    array = jnp.ones((32, 32))
    assert any(live is array for live in jax.live_arrays())
    memory = jax.jit(lambda x: x @ x).lower(array).compile().memory_analysis()
    assert memory.argument_size_in_bytes == array.nbytes
    jax.profiler.save_device_memory_profile(str(tmp_path / "memory.prof"))
    assert (tmp_path / "memory.prof").stat().st_size > 0
    assert DEVICES[0].memory_stats() is None  # only a device with a pool of its own has them


@pytest.mark.proves("S3-13: false", "S3-14: true")
def test_every_call_returns_before_its_result_and_a_read_waits() -> None:
    work = jax.jit(lambda a: (a @ a @ a @ a).sum())
    large = jnp.ones((1500, 1500)) / 1500
    work(large).block_until_ready()
    start = time.perf_counter()
    result = work(large)
    called = time.perf_counter()
    assert not result.is_ready()
    float(result)
    assert time.perf_counter() - called > 3 * (called - start)


@pytest.mark.gpu
@pytest.mark.proves("S3-13: false", "S3-14: true", "S3-16: true with conditions")
def test_on_a_gpu_the_next_batch_is_copied_while_a_step_runs_and_a_read_prevents_it() -> None:
    program = """
import time, jax, jax.numpy as jnp, numpy as np
step = jax.jit(lambda w, x: (w @ w / 8192, x.sum()))
host = [np.ones(30_000_000, np.float32) for _ in range(2)]
def run(read):
    w, x = jnp.ones((8192, 8192)), jax.device_put(host[0])
    step(w, x)[0].block_until_ready()
    start = time.perf_counter()
    for i in range(10):
        w, loss = step(w, x)
        if read: float(loss)
        x = jax.device_put(host[i % 2])
    jax.block_until_ready((w, x))
    return time.perf_counter() - start
run(False)
print(min(run(True) for _ in range(5)) / min(run(False) for _ in range(5)))
"""
    assert float(fresh(program, gpu=True).out) > 1.1


@pytest.mark.proves("S3-15: true with conditions")
def test_data_in_another_type_is_converted_on_its_way() -> None:
    assert jnp.asarray(np.ones(4)).dtype == jnp.float32  # float64 in NumPy
    assert jnp.asarray(np.ones(4, np.float32)).dtype == jnp.float32


@pytest.mark.proves("S3-16: true with conditions")
def test_a_batch_can_be_placed_while_a_step_runs() -> None:
    step = jax.jit(lambda a: a @ a @ a @ a)
    large = jnp.ones((1500, 1500)) / 1500
    step(large).block_until_ready()
    running = step(large)
    batch = jax.device_put(np.ones((8, 8), np.float32), DEVICES[0])  # asked for meanwhile
    assert not running.is_ready()
    assert batch.shape == (8, 8)


@pytest.mark.proves("S3-17: false")
def test_the_pair_that_is_timed_differs_in_type_and_in_transfers() -> None:
    """Whatever the clock says of the two, it cannot be about pinning."""
    some_function = jax.jit(lambda x: x * 2)
    unpinned = np.random.default_rng(0).random((100, 10))
    converted = jnp.array(unpinned, dtype=jnp.float32)
    assert unpinned.dtype == np.float64  # twice the bytes of the other
    some_function(converted)
    with jax.transfer_guard_host_to_device("disallow"):
        some_function(converted)  # nothing is moved in the timed call,
        with pytest.raises(RuntimeError, match="host-to-device"):
            some_function(unpinned)  # and here everything is


@pytest.mark.proves("S3-19: outdated")
def test_mesh_has_moved() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("jax.experimental.maps")
    assert jax.make_mesh((2,), ("x",), devices=DEVICES[:2]).shape == {"x": 2}


@pytest.mark.proves("S3-20: outdated")
def test_pjit_is_jit_and_says_so() -> None:
    from jax.experimental import pjit

    with pytest.warns(DeprecationWarning, match="Please use `jax.jit` instead"):
        made = pjit.pjit(lambda x: x * 2)
    assert type(made) is type(jax.jit(len))


@pytest.mark.proves("S3-21: outdated", "S3-22: false")
def test_make_array_from_callback_has_moved_and_needs_a_sharding() -> None:
    with pytest.raises(AttributeError, match="array"):
        jax.experimental.array  # noqa: B018
    data = np.arange(16).reshape(8, 2)
    with pytest.raises(TypeError, match="sharding should be an instance of"):
        jax.make_array_from_callback(data.shape, P("x"), lambda index: data[index])
    sharding = NamedSharding(mesh_of(8), P("x"))
    made = jax.make_array_from_callback(data.shape, sharding, lambda index: data[index])
    np.testing.assert_array_equal(made, data)


@pytest.mark.proves("S3-23: outdated")
def test_a_mesh_is_set_no_longer_entered() -> None:
    mesh = mesh_of(8)
    with pytest.warns(DeprecationWarning, match="set_mesh"), mesh:
        pass
    with jax.set_mesh(mesh):
        assert jax.sharding.get_abstract_mesh().axis_names == ("x",)


@pytest.mark.proves("S3-24: true with conditions")
def test_bare_specs_need_a_mesh_in_context() -> None:
    rows = jnp.ones((8, 2))
    with pytest.raises(RuntimeError, match="non-empty mesh"):
        jax.jit(lambda x: x * 2, in_shardings=P("x"), out_shardings=P("x"))(rows)
    with jax.set_mesh(mesh_of(8)):
        doubled = jax.jit(lambda x: x * 2, in_shardings=P("x"), out_shardings=P("x"))(rows)
    assert doubled.sharding.spec == P("x")


@pytest.mark.proves("S3-26: false")
def test_device_put_makes_the_same_sharded_array() -> None:
    data, sharding = np.arange(16.0, dtype=np.float32), NamedSharding(mesh_of(8), P("x"))
    simple = jax.device_put(data, sharding)
    called = jax.make_array_from_callback(data.shape, sharding, lambda index: data[index])
    assert simple.sharding == called.sharding
    np.testing.assert_array_equal(simple, called)


@pytest.mark.proves("S3-27: false")
def test_what_the_listing_calls_is_no_pmap() -> None:
    """Titled "with pmap", the listing calls pjit, which is jit: its program holds no shard_map."""
    rows = jnp.arange(8.0)
    assert "shard_map" in str(jax.make_jaxpr(jax.pmap(lambda x: x * 2))(rows))
    assert "shard_map" not in str(jax.make_jaxpr(jax.jit(lambda x: x * 2))(rows))


@pytest.mark.proves("S3-29: false")
def test_an_update_makes_a_new_buffer_unless_the_old_one_is_donated() -> None:
    array = jnp.ones((64, 64))
    address = array.unsafe_buffer_pointer()
    added = jnp.add(array, array)
    assert added.unsafe_buffer_pointer() != address
    assert array[0, 0] == 1
    donated = jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    assert donated.unsafe_buffer_pointer() == address
    assert array.is_deleted()


def mean_of_copies(x: Any) -> Any:
    """What the document calls a leak, in other words."""
    return jnp.mean(jnp.stack([jnp.copy(x) for _ in range(1000)]))


def mean_of_sum(x: Any) -> Any:
    """What it calls an improvement: a sum of 1001 arrays, never divided."""
    total = jnp.copy(x)
    for _ in range(1000):
        total = jnp.add(total, x)
    return jnp.mean(total)


@pytest.mark.proves("S3-30: false")
def test_the_improvement_computes_something_else() -> None:
    ones = jnp.ones((4, 4))
    assert mean_of_copies(ones) == 1.0
    assert mean_of_sum(ones) == 1001.0


@pytest.mark.proves("S3-32: true with conditions")
def test_two_ways_to_a_mesh_give_two_kinds_of_axes() -> None:
    by_hand = Mesh(DEVICES[:2], ("x",))
    made = jax.make_mesh((2,), ("x",), devices=DEVICES[:2])
    assert by_hand.axis_types == (AxisType.Auto,)
    assert made.axis_types == (AxisType.Explicit,)
    row, column = (
        jax.device_put(np.ones((2, 2), np.float32), NamedSharding(made, spec))
        for spec in (P("x"), P(None, "x"))
    )
    with pytest.raises(Exception, match="sharding") as refused:
        jax.jit(lambda a, b: a @ b)(column, row)  # explicit axes: say how the result is to lie
    assert type(refused.value).__name__ == "ShardingTypeError"


@pytest.mark.proves("S3-33: true with conditions")
def test_pmap_and_pjit_are_other_names_for_what_the_newer_pages_teach() -> None:
    wanted = " ".join(metadata.requires("jax") or [])
    assert "jax-cuda13-plugin[with-cuda]" in wanted
    assert "Old way of doing parallel map. Use :py:func:`jax.shard_map`" in (jax.pmap.__doc__ or "")


@pytest.mark.proves("S3-34: true with conditions")
def test_a_python_profiler_sees_the_call_and_not_the_work(tmp_path: Path) -> None:
    work = jax.jit(lambda a: (a @ a @ a @ a).sum())
    large = jnp.ones((1500, 1500)) / 1500
    work(large).block_until_ready()
    profiler = cProfile.Profile()
    start = time.perf_counter()
    result = profiler.runcall(work, large)
    result.block_until_ready()
    whole = time.perf_counter() - start
    assert pstats.Stats(profiler).total_tt < whole / 3  # it saw the call alone
    with jax.profiler.trace(str(tmp_path)):
        work(large).block_until_ready()
    (trace,) = tmp_path.rglob("*.xplane.pb")
    planes = jax.profiler.ProfileData.from_file(str(trace)).planes
    lines = [line for plane in planes for line in plane.lines if line.name != "python"]
    longest = max(event.duration_ns for line in lines for event in line.events)
    assert longest > whole / 3 * 1e9  # JAX's own saw the work, on a thread that is not Python's
