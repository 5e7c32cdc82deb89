"""Proofs of the claims of *What are the issues with JAX on an NVIDIA DGX system?* (S3).

`proving` says how they run; `test_claims` checks that every claim of the ledger has one.
"""

import cProfile
import gc
import importlib
import pstats
import re
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT
from jax.experimental import pjit
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from proving import Machine, changed, fresh, next_door, on_cpu, on_gpu, usually

from grader.program import targets

DEVICES = jax.devices("cpu")
DONATING = partial(jax.jit, donate_argnums=0)


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
@pytest.mark.unless("two programs that compute as much for each byte", work=lambda x: x * 2)
def test_what_a_program_waits_for_depends_on_its_work_for_each_byte(work=lambda x: x @ x) -> None:
    square = jnp.ones((512, 512))
    assert flops_a_byte(work, square) > 100 * flops_a_byte(lambda x: x + 1, square)


@pytest.mark.gpu
@pytest.mark.gpus
@pytest.mark.proves("S3-01: true with conditions", "S3-03: true with conditions", "S3-09: true")
@pytest.mark.unless(
    "the better cut, said to be the worse one",
    run=changed(
        on_cpu,
        {
            'print(best(put(None, "x"), put("x")) > best(put("x"), put()))': "print("
            'best(put("x"), put()) > best(put(None, "x"), put("x")))',
            "8192": "64",
            "range(5)": "range(200)",
        },
    ),
)
def test_on_several_gpus_the_exchange_costs_time_that_a_better_cut_does_not(
    run: Machine = on_gpu,
) -> None:
    program = """
import time, jax, jax.numpy as jnp, numpy as np
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
    assert run(program) == "True"


@pytest.mark.proves("S3-02: true with conditions")
@pytest.mark.unless(
    "what a compiler would make that finds the order", made=lambda a, b, v: a @ (b @ v)
)
def test_the_compiler_keeps_a_wasteful_order_of_products(
    made=lambda a, b, v: (a @ b) @ v,
) -> None:
    """XLA computes what is written: it does not find that A (B v) needs far less than (A B) v."""
    a, v = jnp.ones((256, 256)), jnp.ones(256)

    def flops(function: Any) -> float:
        return float(jax.jit(function).lower(a, a, v).compile().cost_analysis()["flops"])

    assert flops(made) > 50 * flops(lambda a, b, v: a @ (b @ v))


@pytest.mark.proves("S3-03: true with conditions")
@pytest.mark.unless("rows that each GPU holds, where none has to ask another", cut="jax.P()")
def test_what_gpus_exchange_is_in_the_program_for_h200_and_so_is_what_the_host_sends(
    cut="jax.P('data')",
) -> None:
    """Compiled for eight H200: a step that only exchanges, one that also fetches from the host."""
    program = """
import jax, jax.numpy as jnp, numpy as np, _target
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
def shape(kind):
    rows = jax.NamedSharding(mesh, CUT, memory_kind=kind)
    return jax.ShapeDtypeStruct((1024, 1024), np.float32, sharding=rows)
def fetch(x):
    return jax.device_put(x, jax.memory.Space.Device).sum()
for done in _target.compiled_all([(jnp.sum, shape("device")), (fetch, shape("pinned_host"))]):
    print(*sorted({c.op for c in done.collectives}), done.host_copies)
"""
    lessons = str(ROOT / "docs" / "lessons")
    ended = fresh(program.replace("CUT", cut), devices=8, PYTHONPATH=lessons)
    assert ended.out.splitlines() == ["all-reduce 0", "all-reduce 1"], ended.err
    (plugin,) = metadata.distributions(name="jax-cuda13-plugin", path=_places())
    assert any("nccl" in line for line in plugin.requires or [])  # what sends it, by the wheels


def _places() -> list[str]:
    return [*targets.import_path(), *sys.path]


def alive() -> int:
    """Bytes of the arrays of 64 x 64 numbers that live."""
    return sum(array.nbytes for array in jax.live_arrays() if array.shape == (64, 64))


def as_printed(x: Any, peaks: list[int]) -> Any:
    """The document's function, with fewer copies."""
    result = [jnp.copy(x) for _ in range(100)]
    peaks.append(alive())
    return jnp.mean(jnp.array(result))


def in_a_circle(x: Any, peaks: list[int]) -> Any:
    """The same, and the list holds itself: only the collector can free it."""
    result: list[Any] = [jnp.copy(x) for _ in range(100)]
    peaks.append(alive())
    mean = jnp.mean(jnp.array(result))
    result.append(result)
    return mean


@pytest.mark.proves(
    "S3-04: true with conditions", "S3-31: true with conditions", "S3-28: true with conditions"
)
@pytest.mark.unless("a list that holds itself, and waits for the collector", function=in_a_circle)
@pytest.mark.unless("S3-28: a list that nobody keeps", keep=lambda copies: None)
def test_a_list_of_copies_is_freed_with_its_last_reference_and_stays_while_it_is_kept(
    function=as_printed, keep=list
) -> None:
    one = 64 * 64 * 4
    x, peaks = jnp.ones((64, 64)), list[int]()
    gc.collect()
    gc.disable()
    try:
        before = alive()
        function(x, peaks)
        after = alive() - before
        kept = keep([jnp.copy(x) for _ in range(100)])  # the condition: somebody keeps the list
        leaked = alive() - before
        del kept
    finally:
        gc.enable()
    assert peaks[0] - before == 100 * one  # a peak in the function,
    assert after == 0  # and nothing is left of it, with no collector
    assert leaked == 100 * one


@pytest.mark.proves("S3-04: true with conditions")
@pytest.mark.unless("arrays that a step may write over", jit=partial(jax.jit, donate_argnums=0))
@pytest.mark.unless("a donation that is of no use", donating=jax.jit)
def test_a_step_holds_old_and_new_arrays_unless_the_old_are_donated(
    jit=jax.jit, donating=DONATING
) -> None:
    state = jnp.ones((64, 64))

    def arrays_at_once(jitted: Any) -> float:
        sizes = jitted(lambda state: state * 0.9).lower(state).compile().memory_analysis()
        held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
        return float((held + sizes.temp_size_in_bytes - sizes.alias_size_in_bytes) / state.nbytes)

    assert arrays_at_once(jit) == 2
    assert arrays_at_once(donating) == 1


@pytest.mark.proves("S3-05: false", "S3-18: false", "S3-06: false")
@pytest.mark.unless("an array that takes any option", array=lambda data, **options: jnp.array(data))
@pytest.mark.unless(
    "S3-06: an array that takes an order",
    array=lambda data, order="K", **more: jnp.array(data, **more),
)
def test_jnp_array_has_no_pinned_and_no_order(array=jnp.array) -> None:
    data = np.ones((4, 4))
    with pytest.raises(TypeError, match="unexpected keyword argument 'pinned'"):
        array(data, pinned=True)
    with pytest.raises(NotImplementedError, match="Only implemented for order='K'"):
        array(data, order="F")
    pinned = SingleDeviceSharding(DEVICES[0], memory_kind="pinned_host")
    assert jax.device_put(data, pinned).sharding.memory_kind == "pinned_host"


@pytest.mark.gpu
@pytest.mark.proves("S3-07: false", "S3-18: false")
@pytest.mark.unless("a device to which nothing is copied through pinned memory", gpu=False)
def test_on_a_gpu_the_runtime_itself_pins_what_it_copies(tmp_path: Path, gpu=True) -> None:
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
    assert "kind_src:pinned" in fresh(program, gpu=gpu).out


@pytest.mark.proves("S3-08: outdated", "S3-25: true with conditions")
@pytest.mark.unless("S3-08: a batch that nobody cuts, so that each device does all", cut=())
@pytest.mark.unless(
    "S3-25: a jit that holds parameters whole, as pmap does",
    jit=lambda f: jax.jit(f, out_shardings=NamedSharding(mesh_of(8), P())),
)
def test_a_distributed_step_is_jit_with_shardings(cut=("x",), jit=jax.jit) -> None:
    weights = placed(np.ones((4, 4), np.float32))
    batch = placed(np.ones((16, 4), np.float32), *cut)
    gradient = jax.grad(lambda w, x: ((x @ w) ** 2).mean())
    assert collectives(gradient, weights, batch) == ["all-reduce"]
    assert jit(gradient)(weights, batch).sharding.is_fully_replicated
    parts = placed(np.ones((8, 4), np.float32), "x")  # and a model may be cut, as pmap cannot
    assert jit(lambda w: w * 2)(parts).sharding == parts.sharding


@pytest.mark.proves("S3-09: true")
@pytest.mark.unless(
    "an operation on one array alone, however it is cut", product=lambda a, b: a * 2
)
def test_the_cut_decides_how_much_is_exchanged(product=jnp.matmul) -> None:
    square = np.ones((64, 64), np.float32)
    assert collectives(product, placed(square, "x"), placed(square)) == []
    assert collectives(product, placed(square, None, "x"), placed(square, "x")) == ["all-reduce"]
    assert "all-gather" in collectives(product, placed(square, "x"), placed(square, "x"))


class Node:
    """Holds an array, and what else it is given."""


@pytest.mark.proves("S3-10: true with conditions", "S3-31: true with conditions")
@pytest.mark.unless("a node that does not hold itself", me=lambda node: None)
def test_what_is_held_stays_and_only_a_cycle_needs_the_collector(me=lambda node: node) -> None:
    gc.collect()
    gc.disable()
    try:
        plain, cycle = Node(), Node()
        plain.array, cycle.array = jnp.ones(1000), jnp.ones(1000)
        cycle.me = me(cycle)
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
@pytest.mark.unless("memory that has no holes: it is counted, and lies nowhere", run=next_door)
def test_on_a_gpu_a_pool_that_grows_can_be_full_of_holes(run: Machine = on_gpu) -> None:
    """The same program in both modes: only a pool that was taken at once gives all of it again."""
    program = """
import jax, jax.numpy as jnp
room = jax.devices()[0].memory_stats()["bytes_limit"]
pieces = [jnp.ones(room // 50 // 4).block_until_ready() for _ in range(45)]
del pieces  # nothing is held now
try:
    jnp.ones(room * 8 // 10 // 4).block_until_ready()
    print("fits")
except jax.errors.JaxRuntimeError as error:
    print(str(error).split(":")[0])
"""
    grown = run(program, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert grown == "RESOURCE_EXHAUSTED"  # all of it is free, in pieces
    assert run(program) == "fits"  # taken at once: the pieces are one again


@pytest.mark.proves("S3-12: true")
@pytest.mark.unless("arrays that JAX did not make, and does not know", ones=np.ones)
@pytest.mark.unless("a program that leaves its argument out", work=lambda x: jnp.ones(x.shape))
def test_jax_tells_what_lives_and_what_a_program_needs(
    tmp_path: Path, ones=jnp.ones, work=lambda x: x @ x
) -> None:
    array = ones((32, 32))
    assert any(live is array for live in jax.live_arrays())
    memory = jax.jit(work).lower(array).compile().memory_analysis()
    assert memory.argument_size_in_bytes == array.nbytes
    jax.profiler.save_device_memory_profile(str(tmp_path / "memory.prof"))
    assert (tmp_path / "memory.prof").stat().st_size > 0
    assert DEVICES[0].memory_stats() is None  # only a device with a pool of its own has them


TOTAL = jax.jit(lambda a: (a @ a @ a @ a).sum())
MULTIPLY = jax.jit(lambda a: a @ a @ a @ a)


def waits(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work in a JAX that returns when it is done."""
    return lambda a: work(a).block_until_ready()


@pytest.mark.proves("S3-13: true with conditions", "S3-14: true")
@pytest.mark.unless("a JAX that waits at each call", work=waits(TOTAL))
@pytest.mark.unless("S3-14: a read that does not wait", read=lambda x: x.copy_to_host_async())
def test_every_call_returns_before_its_result_and_a_read_waits(work=TOTAL, read=float) -> None:
    large = jnp.ones((800, 800)) / 800
    work(large).block_until_ready()

    def the_call_returns_before_its_result_and_a_read_does_not() -> bool:
        result = work(large)
        running = not result.is_ready()
        read(result)
        return running and result.is_ready()

    assert usually(the_call_returns_before_its_result_and_a_read_does_not)

    def returns_while_it_runs(call: Callable[[jax.Array], Any]) -> bool:
        result = MULTIPLY(large)
        call(result)
        running = not result.is_ready()
        result.block_until_ready()
        return running

    returns_while_it_runs(lambda x: jnp.where(x > 0, x, 0))  # compiles
    assert usually(partial(returns_while_it_runs, lambda x: jnp.where(x > 0, x, 0)))
    for needs_values in (  # the calls that do wait: for a shape, a size, a count of rounds
        jnp.nonzero,
        lambda x: x[x > 0],
        lambda x: jnp.zeros(x[0, 0].astype(int)),
        lambda x: jax.lax.fori_loop(0, x[0, 0].astype(int), lambda i, total: total, 0),
    ):
        assert not returns_while_it_runs(needs_values)


@pytest.mark.gpu
@pytest.mark.proves("S3-13: true with conditions", "S3-14: true", "S3-16: true with conditions")
@pytest.mark.unless(
    "the loop that does not read, said to be the one that reads",
    run=changed(
        next_door,
        {
            "run(True)": "run(None)",
            "run(False)": "run(True)",
            "8192": "256",
            "30_000_000": "300_000",
        },
    ),
)
def test_on_a_gpu_the_next_batch_is_copied_while_a_step_runs_and_a_read_prevents_it(
    run: Machine = on_gpu,
) -> None:
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
    assert float(run(program)) > 1.1


@pytest.mark.proves("S3-15: true with conditions")
@pytest.mark.unless(
    "a step that sends all batches in one type", sent_as=lambda b: b.astype("float32")
)
def test_the_type_decides_what_is_converted_and_how_many_bytes_are_sent(
    sent_as=lambda batch: batch,
) -> None:
    sent = re.compile(r"aval=ShapedArray\((\w+)\[")
    total = jax.jit(lambda x: x.astype(jnp.float32).sum())

    def sent_by(batch: Any) -> str:
        batch = sent_as(batch)
        total(batch)
        with jax.transfer_guard_host_to_device("disallow"), pytest.raises(RuntimeError) as refused:
            total(batch)  # on this call too
        return sent.search(str(refused.value))[1]  # type: ignore[index]

    pixels = np.arange(4096, dtype=np.uint8)
    assert sent_by(pixels) == "uint8"  # a byte for each number,
    assert sent_by(pixels.astype(np.float32)) == "float32"  # four,
    assert sent_by(pixels.astype(np.float64)) == "float32"  # and eight read, to send four
    wide, narrow = aligned(pixels.astype(np.float64)), aligned(pixels.astype(np.float32))
    assert jax.device_put(narrow, DEVICES[0]).unsafe_buffer_pointer() == narrow.ctypes.data
    assert jax.device_put(wide, DEVICES[0]).unsafe_buffer_pointer() != wide.ctypes.data


def aligned(values: Any) -> Any:
    """The values in NumPy memory that a CPU device can take as it is, if the type allows."""
    room = np.empty(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    array = room[start : start + values.nbytes].view(values.dtype)
    array[:] = values
    return array


@pytest.mark.proves("S3-16: true with conditions")
@pytest.mark.unless("a JAX that waits at each call", step=waits(MULTIPLY))
def test_a_batch_can_be_placed_while_a_step_runs(step=MULTIPLY) -> None:
    large = jnp.ones((800, 800)) / 800
    step(large).block_until_ready()

    def placed_while_it_runs() -> bool:
        running = step(large)
        batch = jax.device_put(np.ones((8, 8), np.float32), DEVICES[0]).block_until_ready()
        still_running = not running.is_ready()
        running.block_until_ready()
        return still_running and batch.shape == (8, 8)

    assert usually(placed_while_it_runs)


TIMED = np.random.default_rng(0).random((100, 10))


@pytest.mark.proves("S3-17: false")
@pytest.mark.unless("a pair that differs in memory alone", unpinned=jnp.asarray(TIMED))
def test_the_pair_that_is_timed_differs_in_type_and_in_transfers(unpinned=TIMED) -> None:
    """So whatever the clock says about the two, it says nothing about pinning."""
    some_function = jax.jit(lambda x: x * 2)
    converted = jnp.array(unpinned, dtype=jnp.float32)
    assert unpinned.dtype == np.float64  # twice the bytes of the other
    some_function(converted)
    with jax.transfer_guard_host_to_device("disallow"):
        some_function(converted)  # this timed call moves nothing,
        with pytest.raises(RuntimeError, match="host-to-device"):
            some_function(unpinned)  # and this one moves everything


@pytest.mark.proves("S3-19: outdated")
@pytest.mark.unless("a module that is there", module="jax.experimental.pjit")
def test_mesh_has_moved(module="jax.experimental.maps") -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(module)
    assert jax.make_mesh((2,), ("x",), devices=DEVICES[:2]).shape == {"x": 2}


def as_listed(f: Any, **options: Any) -> Any:
    """The document's pjit. To name it is what warns."""
    return pjit.pjit(f, **options)


def in_silence(f: Any, **options: Any) -> Any:
    """A pjit that warns of nothing."""
    with warnings.catch_warnings(action="ignore"):
        return pjit.pjit(f, **options)


@pytest.mark.proves("S3-20: outdated", "S3-24: true with conditions")
@pytest.mark.unless("S3-20: a pjit that sends you nowhere", old=in_silence)
@pytest.mark.unless("S3-24: a jit that takes specs as pjit does", jit=in_silence)
def test_pjit_works_under_a_mesh_that_is_entered_and_says_that_jit_takes_its_place(
    old=as_listed, jit=jax.jit
) -> None:
    rows, mesh, spec = np.ones((8, 2), np.float32), mesh_of(8), P("x")
    pjit.__getattr__.cache_clear()  # as in a fresh process: it warns once in each
    with (
        pytest.warns(DeprecationWarning, match="set_mesh"),
        pytest.warns(DeprecationWarning, match="Please use `jax.jit` instead"),
        mesh,
    ):
        made = old(lambda x: x * 2, in_shardings=(spec,), out_shardings=spec)(rows)
    assert made.sharding.spec == spec  # the document's own form
    with (
        pytest.warns(DeprecationWarning, match="set_mesh"),
        mesh,
        pytest.raises(RuntimeError, match="non-empty mesh"),
    ):
        jit(lambda x: x * 2, in_shardings=(spec,), out_shardings=spec)(rows)  # not the same


def from_spec(shape: Any, sharding: Any, callback: Any) -> jax.Array:
    """A make_array_from_callback that finds a mesh for a bare spec."""
    found = NamedSharding(mesh_of(8), sharding) if isinstance(sharding, P) else sharding
    return jax.make_array_from_callback(shape, found, callback)


@pytest.mark.proves("S3-21: outdated", "S3-22: false")
@pytest.mark.unless("S3-21: a version that has it", experimental=SimpleNamespace(array=jnp))
@pytest.mark.unless("S3-22: a function that takes a bare spec", make=from_spec)
def test_make_array_from_callback_has_moved_and_needs_a_sharding(
    experimental=jax.experimental, make=jax.make_array_from_callback
) -> None:
    with pytest.raises(AttributeError, match="array"):
        experimental.array  # noqa: B018
    data = np.arange(16).reshape(8, 2)
    with pytest.raises(TypeError, match="sharding should be an instance of"):
        make(data.shape, P("x"), lambda index: data[index])
    sharding = NamedSharding(mesh_of(8), P("x"))
    made = make(data.shape, sharding, lambda index: data[index])
    np.testing.assert_array_equal(made, data)


@pytest.mark.proves("S3-23: outdated")
@pytest.mark.unless("a way in that is not deprecated", entered=jax.set_mesh)
def test_a_mesh_is_set_no_longer_entered(entered=lambda mesh: mesh) -> None:
    mesh = mesh_of(8)
    with pytest.warns(DeprecationWarning, match="set_mesh"), entered(mesh):
        pass
    with jax.set_mesh(mesh):
        assert jax.sharding.get_abstract_mesh().axis_names == ("x",)


@pytest.mark.proves("S3-24: true with conditions")
@pytest.mark.unless("a jit that needs no mesh for its specs", jit=lambda f, **specs: jax.jit(f))
def test_bare_specs_need_a_mesh_in_context(jit=jax.jit) -> None:
    rows = jnp.ones((8, 2))
    with pytest.raises(RuntimeError, match="non-empty mesh"):
        jit(lambda x: x * 2, in_shardings=P("x"), out_shardings=P("x"))(rows)
    with jax.set_mesh(mesh_of(8)):
        doubled = jit(lambda x: x * 2, in_shardings=P("x"), out_shardings=P("x"))(rows)
    assert doubled.sharding.spec == P("x")


@pytest.mark.proves("S3-26: false")
@pytest.mark.unless(
    "a device_put that cuts nothing", put=lambda data, sharding: jax.device_put(data)
)
def test_device_put_makes_the_same_sharded_array(put=jax.device_put) -> None:
    data, sharding = np.arange(16.0, dtype=np.float32), NamedSharding(mesh_of(8), P("x"))
    simple = put(data, sharding)
    called = jax.make_array_from_callback(data.shape, sharding, lambda index: data[index])
    assert simple.sharding == called.sharding
    np.testing.assert_array_equal(simple, called)


@pytest.mark.proves("S3-27: false")
@pytest.mark.unless("a listing that calls pmap", listed=lambda f, **shardings: jax.pmap(f))
def test_what_the_listing_calls_is_no_pmap(listed=as_listed) -> None:
    """Its heading says pmap, its comment "instead of pmap". It calls pjit, under a mesh."""
    rows, spec = jnp.arange(8.0), P("x")
    assert "shard_map" in str(jax.make_jaxpr(jax.pmap(lambda x: x * 2))(rows))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning), mesh_of(8):
        called = listed(lambda x: x * 2, in_shardings=(spec,), out_shardings=spec)
        traced = str(jax.make_jaxpr(called)(rows))
    assert "shard_map" not in traced


def in_place(x: jax.Array, y: jax.Array) -> jax.Array:
    """An add that writes over its first argument."""
    return jax.jit(jnp.add, donate_argnums=0)(x, jnp.copy(y))


@pytest.mark.proves("S3-29: false")
@pytest.mark.unless("an add that works in place", add=in_place)
def test_an_update_makes_a_new_buffer_unless_the_old_one_is_donated(add=jnp.add) -> None:
    array = jnp.ones((64, 64))
    address = array.unsafe_buffer_pointer()
    added = add(array, array)
    assert added.unsafe_buffer_pointer() != address
    assert array[0, 0] == 1
    gc.collect()
    before, total, most = alive(), jnp.copy(array), 0
    for _ in range(100):  # the document's loop: it drops the old sum at each step
        total = add(total, array)
        most = max(most, alive() - before)
    assert most <= 2 * total.nbytes
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
@pytest.mark.unless("an improvement that computes the same", improved=mean_of_copies)
def test_the_improvement_computes_something_else(improved=mean_of_sum) -> None:
    ones = jnp.ones((4, 4))
    assert improved(ones) == 1001.0
    assert mean_of_copies(ones) == 1.0


@pytest.mark.proves("S3-32: true")
@pytest.mark.unless(
    "a Mesh that makes axes as jax.make_mesh does",
    mesh=lambda devices, names: jax.make_mesh((2,), names, devices=devices),
)
def test_two_ways_to_a_mesh_give_two_kinds_of_axes(mesh=Mesh) -> None:
    by_hand = mesh(DEVICES[:2], ("x",))
    made = jax.make_mesh((2,), ("x",), devices=DEVICES[:2])
    assert by_hand.axis_types == (AxisType.Auto,)
    assert made.axis_types == (AxisType.Explicit,)
    row, column = (
        jax.device_put(np.ones((2, 2), np.float32), NamedSharding(made, spec))
        for spec in (P("x"), P(None, "x"))
    )
    with pytest.raises(Exception, match="sharding") as refused:
        jax.jit(lambda a, b: a @ b)(column, row)  # on explicit axes, you say how the result lies
    assert type(refused.value).__name__ == "ShardingTypeError"


@pytest.mark.proves("S3-33: true with conditions")
@pytest.mark.unless("a function whose page sends you to no other", old=jax.shard_map)
def test_pmap_sends_you_to_shard_map_and_the_cuda_wheels_bring_nccl(old=jax.pmap) -> None:
    assert "Old way of doing parallel map. Use :py:func:`jax.shard_map`" in (old.__doc__ or "")
    (plugin,) = metadata.distributions(name="jax-cuda13-plugin", path=_places())
    assert any("nccl" in line for line in plugin.requires or [])


@pytest.mark.proves("S3-34: true with conditions")
@pytest.mark.unless("work that the call itself waits for", work=waits(TOTAL))
def test_a_python_profiler_sees_the_call_and_not_the_work(tmp_path: Path, work=TOTAL) -> None:
    large = jnp.ones((800, 800)) / 800
    work(large).block_until_ready()

    def it_sees_the_call_alone() -> bool:
        profiler = cProfile.Profile()
        start = time.perf_counter()
        profiler.runcall(work, large).block_until_ready()
        return pstats.Stats(profiler).total_tt < (time.perf_counter() - start) / 3

    assert usually(it_sees_the_call_alone)
    with jax.profiler.trace(str(tmp_path)):
        start = time.perf_counter()
        work(large).block_until_ready()
        whole = time.perf_counter() - start
    (trace,) = tmp_path.rglob("*.xplane.pb")
    planes = jax.profiler.ProfileData.from_file(str(trace)).planes
    lines = [line for plane in planes for line in plane.lines if line.name != "python"]
    longest = max(event.duration_ns for line in lines for event in line.events)
    assert longest > whole / 3 * 1e9  # JAX's profiler saw the work, on a thread outside Python
