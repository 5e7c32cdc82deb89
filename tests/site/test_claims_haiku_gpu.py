"""Proofs of the claims of *Why is my JAX + Haiku code not using the GPU?* (S0).

`proving` says how they run; `test_claims` checks that every claim of the ledger has one.
"""

import re
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from proving import (
    FAILS,
    WORKS,
    Machine,
    beside_the_cpu,
    bytes_held,
    changed,
    fresh,
    next_door,
    on_cpu,
    on_gpu,
    places,
    usually,
)

INPUTS, TARGETS = jnp.ones((32, 32)), jnp.ones((32, 10))


def network(x: jax.Array) -> Any:
    """The model of the document's three programs, repaired: it takes its input."""
    return hk.Sequential([hk.Linear(64), jax.nn.relu, hk.Linear(10)])(x)


def initialised() -> tuple[Any, Any]:
    """Its apply function, and parameters with no placement call anywhere."""
    net = hk.without_apply_rng(hk.transform(network))
    return net.apply, net.init(jax.random.key(0), INPUTS)


def on_the_last_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """A jit that computes on one device alone, whatever the default and the inputs say."""
    return lambda *inputs: jax.jit(function)(*jax.device_put(inputs, jax.devices()[7]))


WHERE = "print(jax.device_count(), len(jax.jit(jnp.sin)(jnp.ones(3)).devices()))"


@pytest.mark.proves("S0-01: false", "S0-04: false")
@pytest.mark.unless("S0-01: a plugin that works", broken=WORKS)
@pytest.mark.unless("S0-04: a plugin that the code would have to ask for", priority=-1)
def test_the_same_code_is_on_the_cpu_or_not_by_whether_the_plugin_works(
    broken=FAILS, priority=None
) -> None:
    """One program without a directive, beside a backend that fails and beside one that works."""
    try_twice = "try: jax.devices()\nexcept RuntimeError as error: print(error)\n" + WHERE
    failing = beside_the_cpu(try_twice, connect=broken)
    assert "the driver is too old" in failing.out
    assert failing.out.endswith("\n1 1")  # the second question, on the CPU
    stopped = beside_the_cpu(WHERE, connect=broken, may_fail=True)
    assert "the driver is too old" in stopped.err  # a program without a `try` stops at the first
    works = beside_the_cpu(WHERE, priority=priority)
    assert works.out == "3 1"  # on the backend with three devices
    # A GPU is visible, and no plugin that works is installed: JAX says so, and goes on.
    program = """
from unittest import mock
import jax
with mock.patch("jax._src.hardware_utils.has_visible_nvidia_gpu", return_value=True):
    print(jax.devices())
"""
    ended = fresh(program, JAX_PLATFORMS="")
    assert ended.out == "[CpuDevice(id=0)]"
    assert "An NVIDIA GPU may be present on this machine" in ended.err
    assert "Falling back to cpu" in ended.err


@pytest.mark.proves("S0-02: false")
@pytest.mark.unless("a plugin that ranks below the CPU", priority=-1)
def test_a_plugin_of_the_priority_of_cuda_outranks_the_cpu_without_a_directive(
    priority=None,
) -> None:
    program = WHERE + "\nprint(len(jax.devices('cpu')))"
    assert beside_the_cpu(program, priority=priority).out == "3 1\n1"  # the CPU is still there


@pytest.mark.gpu
@pytest.mark.proves("S0-02: false", "S0-04: false", "S0-08: false", "S0-09: false", "S0-15: false")
@pytest.mark.unless("a JAX that computes on the CPU until it is told otherwise", gpu=False)
def test_on_a_gpu_arrays_and_results_are_born_there_without_a_directive(gpu=True) -> None:
    program = """
import jax, jax.numpy as jnp
x = jnp.ones(3)
y = jax.jit(lambda a: a + 1)(x)
print({d.platform for a in (x, y) for d in a.devices()}, x.committed, jax.default_backend())
"""
    assert fresh(program, gpu=gpu).out == "{'gpu'} False gpu"


@pytest.mark.proves("S0-03: false", "S0-09: false")
@pytest.mark.unless("a jit that falls back to one device", jit=on_the_last_device)
def test_jit_runs_where_committed_inputs_are_else_on_the_default_device(jit=jax.jit) -> None:
    other = jax.devices()[5]
    double = jit(lambda x: x * 2)
    assert double(jnp.ones(3)).devices() == {jax.devices()[0]}
    assert double(jax.device_put(jnp.ones(3), other)).devices() == {other}
    with jax.default_device(other):
        assert double(np.ones(3)).devices() == {other}
    unused = jax.jit(lambda x: jnp.zeros(3))  # an input that is not used has no say
    assert unused(jax.device_put(jnp.ones(3), other)).devices() == {jax.devices()[0]}
    closed_over = jax.device_put(jnp.ones(3), other)  # nor has an array of the function's own
    assert jit(lambda x: x + closed_over)(jnp.ones(3)).devices() == {jax.devices()[0]}
    told = jax.jit(lambda x: x * 2, out_shardings=SingleDeviceSharding(other))
    assert told(np.ones(3)).devices() == {other}
    assert jnp.from_dlpack(np.ones(3)).committed  # so this one stays where NumPy's memory is


@pytest.mark.gpu
@pytest.mark.proves("S0-03: false")
@pytest.mark.unless("a JAX that computes on the CPU until it is told otherwise", gpu=False)
def test_on_a_gpu_box_only_a_committed_cpu_input_keeps_a_computation_on_the_cpu(gpu=True) -> None:
    program = """
import jax, jax.numpy as jnp, numpy as np
double = jax.jit(lambda x: x * 2)
cpu = jax.devices("cpu")[0]
for x in np.ones(3), jax.device_put(np.ones(3), cpu), jnp.from_dlpack(np.ones(3)):
    print(*{d.platform for d in double(x).devices()})
"""
    assert fresh(program, gpu=gpu).out.split() == ["gpu", "cpu", "cpu"]


@pytest.mark.proves("S0-05: true with conditions")
@pytest.mark.unless("a machine where the CPU comes first", priority=-1)
def test_devices_lists_the_default_backend_alone_and_starts_it(priority=None) -> None:
    program = "print('asked'); print(len(jax.devices()), len(jax.devices('cpu')))"
    connect = f"print('started'); {WORKS}"
    listed = beside_the_cpu(program, priority=priority, connect=connect)
    assert listed.out.split("\n") == ["asked", "started", "3 1"]  # the CPU is not in the list
    with pytest.raises(RuntimeError, match="Unknown backend"):
        jax.devices("gpu")  # a list that is never empty, but an error that can be read


@pytest.mark.gpu
@pytest.mark.proves("S0-05: true with conditions")
@pytest.mark.unless("a machine that has a CPU alone, and hides none", gpu=False)
def test_on_a_gpu_box_devices_hides_the_cpu(gpu=True) -> None:
    program = """
import jax
print(*{d.platform for d in jax.devices()}, *{d.platform for d in jax.devices("cpu")})
"""
    assert fresh(program, gpu=gpu).out == "gpu cpu"


@pytest.mark.proves("S0-06: true with conditions")
@pytest.mark.unless("code that chooses no platform", code="")
@pytest.mark.unless("a machine whose plugin works, so that nothing raises", connect=WORKS)
def test_the_list_is_never_empty_and_code_can_make_it_cpu_only(
    code="jax.config.update('jax_platforms', 'cpu')", connect=FAILS
) -> None:
    program = f"{code}\nprint(jax.devices())"
    assert beside_the_cpu(program).out == "[CpuDevice(id=0)]"
    program = "try: print(jax.devices())\nexcept RuntimeError as error: print('raised:', error)"
    none = beside_the_cpu(program, connect=connect, platforms="rocm")
    assert none.out.startswith("raised: ")  # no backend that it may use: not an empty list


@pytest.mark.proves("S0-07: false")
@pytest.mark.unless("arrays of NumPy, which lie on no device", make=np.asarray)
def test_every_array_lies_on_a_device_from_birth(make=jnp.asarray) -> None:
    born = make(np.ones(3))
    assert places(born) == {jax.devices()[0]}
    assert not born.committed  # what is optional is not the device, but the commitment
    assert jax.device_put(born, jax.devices()[1]).committed


@pytest.mark.proves("S0-08: false")
@pytest.mark.unless("arrays of NumPy, which are born in the CPU's memory", ones=np.ones)
def test_arrays_are_born_on_the_default_device_not_in_cpu_memory(ones=jnp.ones) -> None:
    there = jax.devices()[3]  # stands for a GPU
    with jax.default_device(there):
        born = (ones(3), jax.random.normal(jax.random.key(0)), jax.jit(jnp.sin)(1.0))
    assert [places(array) for array in born] == [{there}] * 3


@pytest.mark.proves("S0-10: true with conditions")
@pytest.mark.unless("numbers enough to repay it", numbers=3_000_000)
def test_a_call_has_a_price_that_small_data_cannot_repay(numbers=10) -> None:
    program = (
        f"n = {numbers}"
        + """
import time, jax, jax.numpy as jnp, numpy as np
program = jax.jit(lambda x: x + 1)
def best(f, x): return min(timed(f, x) for _ in range(200))
def timed(f, x):
    start = time.perf_counter(); jax.block_until_ready(f(x)); return time.perf_counter() - start
print(best(program, jnp.ones(n)) / best(lambda x: x + 1, np.ones(n, np.float32)))
"""
    )
    assert float(fresh(program).out) > 2  # for ten numbers NumPy beats a compiled program


@pytest.mark.gpu
@pytest.mark.proves("S0-10: true with conditions")
@pytest.mark.unless(
    "a thousand numbers in the place of ten million, on a device that is far",
    run=changed(next_door, {"10**7": "1000"}),
)
def test_on_a_gpu_ten_numbers_are_slower_than_on_the_cpu_and_ten_million_faster(
    run: Machine = on_gpu,
) -> None:
    program = """
import time, jax, jax.numpy as jnp
program = jax.jit(lambda x: jnp.sin(jnp.sin(x)) * 2 + 1)
def best(n, device):
    x = jax.device_put(jnp.ones(n), device)
    return min(timed(x) for _ in range(100))
def timed(x):
    start = time.perf_counter(); jax.block_until_ready(program(x))
    return time.perf_counter() - start
gpu, cpu = jax.devices()[0], jax.devices("cpu")[0]
print(best(10, gpu) > best(10, cpu), best(10**7, gpu) < best(10**7, cpu))
"""
    assert run(program) == "True True"


BATCH = np.ones((1024, 1024), np.float64)  # in a type that has to be converted: never shared


@pytest.mark.proves("S0-11: true with conditions")
@pytest.mark.unless("data that is on the device already", host=jnp.asarray(BATCH))
def test_a_transfer_is_pure_cost_which_enough_work_for_each_byte_hides(host=BATCH) -> None:
    resident = jax.device_put(host)

    def seconds(function: Any, x: Any) -> float:
        start = time.perf_counter()
        function(x).block_until_ready()
        return time.perf_counter() - start

    little, much = jax.jit(lambda x: x[0]), jax.jit(lambda x: x @ x @ x @ x)
    for function in (little, much):
        function(host), function(resident)  # compiles

    def costs(function: Any) -> float:
        return seconds(function, host) / seconds(function, resident)

    assert usually(lambda: costs(little) > 2)
    assert usually(lambda: costs(little) > costs(much))
    with jax.transfer_guard_host_to_device("disallow"):
        little(resident)
        with pytest.raises(RuntimeError, match="Disallowed host-to-device transfer"):
            little(host)  # on each call, also of a program that was called before


@pytest.mark.gpu
@pytest.mark.proves("S0-11: true with conditions")
@pytest.mark.unless(
    "data that is on the device both times",
    run=changed(on_cpu, {"best(host)": "best(jax.device_put(host))", "50_000_000": "500_000"}),
)
def test_on_a_gpu_resident_data_is_faster_than_transferred_data(run: Machine = on_gpu) -> None:
    program = """
import time, jax, jax.numpy as jnp, numpy as np
total = jax.jit(jnp.sum)
host = np.ones(50_000_000, np.float32)
def best(x): return min(timed(x) for _ in range(10))
def timed(x):
    start = time.perf_counter(); jax.block_until_ready(total(x))
    return time.perf_counter() - start
print(best(host) > 3 * best(jax.device_put(host)))
"""
    assert run(program) == "True"


@pytest.mark.proves("S0-12: true")
@pytest.mark.unless("a run that is over before the profiler looks", run=lambda program, x: x)
def test_jax_brings_its_own_profiler_and_costs(
    tmp_path: Any, run=lambda program, x: program(x)
) -> None:
    def square(x: jax.Array) -> jax.Array:
        return x @ x

    program = jax.jit(square)
    with jax.profiler.trace(str(tmp_path)):
        run(program, jnp.ones((64, 64))).block_until_ready()
    (trace,) = tmp_path.rglob("*.xplane.pb")
    planes = jax.profiler.ProfileData.from_file(str(trace)).planes
    names = {event.name for plane in planes for line in plane.lines for event in line.events}
    assert any("PjitFunction(square)" in name for name in names)
    compiled = program.lower(jnp.ones((64, 64))).compile()
    assert compiled.cost_analysis()["flops"] >= 2 * 64**3
    assert compiled.memory_analysis().argument_size_in_bytes == 4 * 64**2


@pytest.mark.proves("S0-13: false")
@pytest.mark.unless("a library whose models are functions", transform=lambda f: lambda: None)
def test_a_transformed_function_is_a_pair_not_a_callable(transform=hk.transform) -> None:
    pair = transform(network)
    with pytest.raises(TypeError, match="'Transformed' object is not callable"):
        pair()
    assert pair._fields == ("init", "apply")
    with pytest.raises(TypeError, match="positional argument"):  # a model that takes no input
        hk.transform(lambda: None).init(jax.random.key(0), INPUTS)


@pytest.mark.proves("S0-14: false")
@pytest.mark.unless("a type that makes what it is given", params=dict)
def test_hk_params_names_a_type_and_makes_nothing(params=hk.Params) -> None:
    with pytest.raises(TypeError, match="Mapping"):
        params({})


@pytest.mark.proves("S0-15: false")
@pytest.mark.unless(
    "a jnp.ones that makes its arrays on the CPU",
    ones=lambda shape: jax.device_put(np.ones(shape, np.float32), jax.devices()[0]),
)
def test_without_any_placement_call_all_is_on_the_default_backend(ones=jnp.ones) -> None:
    with jax.default_device(jax.devices()[2]):  # stands for a GPU
        apply, params = initialised()
        inputs, targets = ones((32, 32)), ones((32, 10))

        def loss(params: Any) -> Any:
            return jnp.mean((apply(params, inputs) - targets) ** 2)

        assert places((inputs, params)) == {jax.devices()[2]}
        assert places(jax.value_and_grad(loss)(params)) == {jax.devices()[2]}


@pytest.mark.proves("S0-16: false", "S0-19: false")
@pytest.mark.unless("a list that is empty where there is no GPU", devices=lambda: [])
@pytest.mark.unless("S0-19: a plugin that works, and a list to look into", connect=WORKS)
def test_the_first_device_is_no_gpu_on_a_cpu_box_and_always_there(
    devices=jax.devices, connect=FAILS
) -> None:
    gpu_device = devices()[0] if len(devices()) > 0 else None
    assert gpu_device is not None  # the branch without a GPU is never reached
    assert gpu_device.platform == "cpu"
    told = beside_the_cpu("len(jax.devices())", connect=connect, may_fail=True)
    assert "RuntimeError: Unable to initialize backend" in told.err  # JAX raises before the `if`


@pytest.mark.proves("S0-17: outdated")
@pytest.mark.unless("a version that has it", library=SimpleNamespace(tree_map=jax.tree.map))
def test_tree_map_has_moved(library=jax) -> None:
    with pytest.raises(AttributeError, match="tree_map"):
        library.tree_map  # noqa: B018
    assert jax.tree.map(lambda x: x + 1, {"a": 1}) == {"a": 2}


@pytest.mark.proves("S0-18: true with conditions")
@pytest.mark.unless(
    "a device_put that knows no trees",
    put=lambda x, there: jax.device_put(x, there) if isinstance(x, jax.Array) else x,
)
def test_one_device_put_takes_a_whole_tree(put=jax.device_put) -> None:
    _, params = initialised()
    there = jax.devices()[4]
    each = jax.tree.map(lambda x: put(x, there), params)
    whole = put(params, there)
    assert [places(each), places(whole)] == [{there}, {there}]


@pytest.mark.proves("S0-20: outdated")
@pytest.mark.unless("a pmap that is built on something else", pmap=jax.vmap)
def test_pmap_still_works_and_is_jit_of_shard_map(pmap=jax.pmap) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doubled = pmap(lambda x: x * 2)
        assert doubled(jnp.arange(8.0)).tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert "shard_map" in str(jax.make_jaxpr(doubled)(jnp.arange(8.0)))
    spread = NamedSharding(jax.make_mesh((8,), ("x",)), P("x"))
    assert jax.jit(lambda x: x * 2)(jax.device_put(jnp.arange(8.0), spread)).sharding == spread


@pytest.mark.proves("S0-21: false")
@pytest.mark.unless(
    "a pmap that copies parameters by itself",
    pmap=lambda f, in_axes=(None, 0): jax.pmap(f, in_axes=in_axes),
)
def test_pmap_cuts_the_parameters_too_unless_told(pmap=jax.pmap) -> None:
    apply, params = initialised()
    inputs = jnp.ones((8, 4, 32))
    with pytest.raises(ValueError, match="size"):
        pmap(apply)(params, inputs)
    assert pmap(apply, in_axes=(None, 0))(params, inputs).shape == (8, 4, 10)


@pytest.mark.proves("S0-22: false", "S0-23: outdated")
@pytest.mark.unless("a version that has it", library=SimpleNamespace(device_put_sharded=list))
def test_device_put_sharded_is_gone(library=jax) -> None:
    with pytest.raises(AttributeError, match="device_put_sharded"):
        library.device_put_sharded  # noqa: B018
    mesh = jax.make_mesh((8,), ("batch",))
    spread = jax.device_put(np.ones((8, 32)), NamedSharding(mesh, P("batch")))
    assert [shard.data.shape for shard in spread.addressable_shards] == [(1, 32)] * 8


def cut(weights: Any) -> jax.Array:
    """The weights in eight parts, one on each device."""
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    placed: jax.Array = jax.device_put(weights, NamedSharding(mesh, P("x")))
    return placed


@pytest.mark.proves("S0-24: false")
@pytest.mark.unless(
    "a pmap that cuts the parameters", pmap=lambda f, in_axes: lambda w, row: cut(w)
)
def test_a_model_in_pmap_lies_whole_on_every_device_and_a_cut_one_does_not(pmap=jax.pmap) -> None:
    weights = np.ones((64, 64), np.float32)
    copied = pmap(lambda w, row: w, in_axes=(None, 0))(weights, np.ones(8))
    assert bytes_held(copied) == 8 * weights.nbytes
    assert bytes_held(cut(weights)) == weights.nbytes


@pytest.mark.proves("S0-25: false")
@pytest.mark.unless("a pmap that cuts nothing without a name", pmap=lambda f: f)
def test_in_axes_choose_what_is_cut_and_axis_name_only_names_it(pmap=jax.pmap) -> None:
    values = jnp.arange(16.0).reshape(8, 2)
    assert pmap(jnp.sum)(values).tolist() == values.sum(1).tolist()  # cut without a name
    named = jax.pmap(lambda x: jax.lax.psum(x, "batch"), axis_name="batch", in_axes=0)
    assert named(values)[0].tolist() == values.sum(0).tolist()  # the name is for psum


@pytest.mark.proves("S0-26: true with conditions")
@pytest.mark.unless(
    "a pmap whose devices all get the first piece",
    pmap=lambda f, in_axes: lambda params, x: jnp.stack([f(params, x[0])] * 8),
)
def test_a_gradient_through_pmap_is_right_once_the_program_is_repaired(pmap=jax.pmap) -> None:
    apply, params = initialised()
    inputs = jax.random.normal(jax.random.key(1), (8, 32, 32))
    targets = jnp.ones((8, 32, 10))

    def loss(model: Any, params: Any) -> Any:
        return jnp.mean(jnp.sum((model(params, inputs) - targets) ** 2, axis=0))

    parallel = jax.value_and_grad(lambda p: loss(pmap(apply, in_axes=(None, 0)), p))(params)
    plain = jax.value_and_grad(lambda p: loss(apply, p))(params)
    for ours, theirs in zip(jax.tree.leaves(parallel), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="axis to squeeze out"):
        jax.pmap(lambda x: x)(jnp.arange(16.0))  # 16 rows for 8 devices


@pytest.mark.proves("S0-27: true")
@pytest.mark.unless(
    "a PRNGKey that makes keys of another seed", make=lambda n: jax.random.PRNGKey(n + 1)
)
@pytest.mark.unless("a PRNGKey that makes typed keys", make=jax.random.key)
def test_old_keys_are_numbers_and_new_keys_are_keys(make=jax.random.PRNGKey) -> None:
    old, new = make(0), jax.random.key(0)
    assert old.dtype == jnp.uint32
    assert jnp.issubdtype(new.dtype, jax.dtypes.prng_key)
    assert jax.random.normal(old) == jax.random.normal(new)


@pytest.mark.proves("S0-28: outdated")
@pytest.mark.unless("a library that is being developed", package="flax")
def test_haiku_works_and_says_itself_that_it_is_only_maintained(package="dm-haiku") -> None:
    apply, params = initialised()
    assert apply(params, INPUTS).shape == TARGETS.shape
    about = metadata.metadata(package).get_payload() or metadata.metadata(package)["Description"]
    assert re.search(r"maintenance mode", str(about))
