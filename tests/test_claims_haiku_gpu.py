"""Proofs of the claims of *Why is my JAX + Haiku code not using the GPU?* (S0).

`proving` says how they run; `test_claims` that every claim of the ledger has one.
"""

import re
import warnings
from importlib import metadata
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from proving import bytes_held, fresh

from grader.probes import staging

INPUTS, TARGETS = jnp.ones((32, 32)), jnp.ones((32, 10))


def network(x: jax.Array) -> Any:
    """The model of the document's three programs, repaired: it takes its input."""
    return hk.Sequential([hk.Linear(64), jax.nn.relu, hk.Linear(10)])(x)


def initialised() -> tuple[Any, Any]:
    """Its apply function, and parameters with no placement call anywhere."""
    net = hk.without_apply_rng(hk.transform(network))
    return net.apply, net.init(jax.random.key(0), INPUTS)


@pytest.mark.proves("S0-01: false", "S0-04: false")
def test_the_same_code_is_on_the_cpu_or_the_gpu_by_what_is_installed() -> None:
    with staging.machine(gpus=1):
        assert jax.default_backend() == "gpu"  # no directive in this code
    with staging.machine(gpus=0):
        assert jax.default_backend() == "cpu"
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
def test_a_plugin_outranks_the_cpu_without_a_directive() -> None:
    with staging.machine(gpus=2) as stage:
        assert jax.devices() == stage.gpus  # the default backend's, and nothing was asked for
        assert jax.devices("cpu") == stage.cpus  # the CPU is still there


@pytest.mark.gpu
@pytest.mark.proves("S0-02: false", "S0-04: false", "S0-08: false", "S0-09: false", "S0-15: false")
def test_on_a_gpu_arrays_and_results_are_born_there_without_a_directive() -> None:
    program = """
import jax, jax.numpy as jnp
x = jnp.ones(3)
y = jax.jit(lambda a: a + 1)(x)
print({d.platform for a in (x, y) for d in a.devices()}, x.committed, jax.default_backend())
"""
    assert fresh(program, gpu=True).out == "{'gpu'} False gpu"


@pytest.mark.proves("S0-03: false", "S0-09: false")
def test_jit_runs_where_committed_inputs_are_else_on_the_default_device() -> None:
    other = jax.devices()[5]
    double = jax.jit(lambda x: x * 2)
    assert double(jnp.ones(3)).devices() == {jax.devices()[0]}
    assert double(jax.device_put(jnp.ones(3), other)).devices() == {other}
    with jax.default_device(other):
        assert double(np.ones(3)).devices() == {other}
    assert jnp.from_dlpack(np.ones(3)).committed  # so this one stays where NumPy's memory is


@pytest.mark.gpu
@pytest.mark.proves("S0-03: false")
def test_on_a_gpu_box_only_a_committed_cpu_input_keeps_a_computation_on_the_cpu() -> None:
    program = """
import jax, jax.numpy as jnp, numpy as np
double = jax.jit(lambda x: x * 2)
cpu = jax.devices("cpu")[0]
for x in np.ones(3), jax.device_put(np.ones(3), cpu), jnp.from_dlpack(np.ones(3)):
    print(*{d.platform for d in double(x).devices()})
"""
    assert fresh(program, gpu=True).out.split() == ["gpu", "cpu", "cpu"]


@pytest.mark.proves("S0-05: true with conditions")
def test_devices_lists_the_default_backend_alone() -> None:
    with staging.machine(gpus=1):
        assert {d.platform for d in jax.devices()} == {"gpu"}  # the CPU is not in the list
    with pytest.raises(RuntimeError, match="Unknown backend"):
        jax.devices("gpu")  # a list that is never empty, but an error that can be read
    assert fresh("import jax; jax.devices(); print('started')").out == "started"


@pytest.mark.gpu
@pytest.mark.proves("S0-05: true with conditions")
def test_on_a_gpu_box_devices_hides_the_cpu() -> None:
    program = """
import jax
print(*{d.platform for d in jax.devices()}, *{d.platform for d in jax.devices("cpu")})
"""
    assert fresh(program, gpu=True).out == "gpu cpu"


@pytest.mark.proves("S0-06: true with conditions")
def test_the_list_is_never_empty_and_code_can_make_it_cpu_only() -> None:
    with staging.machine(gpus=0):
        assert jax.devices()
    with staging.machine(broken="no plugin"), pytest.raises(RuntimeError, match="'cuda'"):
        jax.devices()  # an exception, not an empty list
    program = 'import jax; jax.config.update("jax_platforms", "cpu"); print(jax.devices())'
    assert fresh(program, JAX_PLATFORMS="").out == "[CpuDevice(id=0)]"


@pytest.mark.proves("S0-07: false")
def test_every_array_lies_on_a_device_from_birth() -> None:
    born = jnp.asarray(np.ones(3))
    assert born.devices() == {jax.devices()[0]}
    assert not born.committed  # what is optional is not the device, but the commitment
    assert jax.device_put(born, jax.devices()[1]).committed


@pytest.mark.proves("S0-08: false")
def test_arrays_are_born_on_the_default_device_not_in_cpu_memory() -> None:
    with jax.default_device(jax.devices()[3]):  # stands for a GPU
        born = (jnp.ones(3), jax.random.normal(jax.random.key(0)), jax.jit(jnp.sin)(1.0))
    assert {d for array in born for d in array.devices()} == {jax.devices()[3]}


@pytest.mark.proves("S0-10: true with conditions")
def test_a_call_has_a_price_that_small_data_cannot_repay() -> None:
    program = """
import time, jax, jax.numpy as jnp, numpy as np
program = jax.jit(lambda x: x + 1)
def best(f, x): return min(timed(f, x) for _ in range(200))
def timed(f, x):
    start = time.perf_counter(); jax.block_until_ready(f(x)); return time.perf_counter() - start
print(best(program, jnp.ones(10)) / best(lambda x: x + 1, np.ones(10, np.float32)))
"""
    assert float(fresh(program).out) > 2  # for ten numbers NumPy beats a compiled program


@pytest.mark.gpu
@pytest.mark.proves("S0-10: true with conditions")
def test_on_a_gpu_ten_numbers_are_slower_than_on_the_cpu_and_ten_million_faster() -> None:
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
    assert fresh(program, gpu=True).out == "True True"


@pytest.mark.proves("S0-11: false")
def test_a_numpy_argument_is_transferred_at_every_call_and_resident_data_never() -> None:
    total = jax.jit(jnp.sum)
    resident = jax.device_put(np.ones(1000, np.float32))
    total(resident)
    with jax.transfer_guard_host_to_device("disallow"):
        for _ in range(3):
            total(resident)  # the benefit is work on data that is already there
        with pytest.raises(RuntimeError, match="Disallowed host-to-device transfer"):
            total(np.ones(1000, np.float32))  # the transfer is pure cost


@pytest.mark.gpu
@pytest.mark.proves("S0-11: false")
def test_on_a_gpu_resident_data_is_faster_than_transferred_data() -> None:
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
    assert fresh(program, gpu=True).out == "True"


@pytest.mark.proves("S0-12: true")
def test_jax_brings_its_own_profiler_and_costs(tmp_path: Any) -> None:
    program = jax.jit(lambda x: x @ x)
    with jax.profiler.trace(str(tmp_path)):
        program(jnp.ones((64, 64))).block_until_ready()
    (trace,) = tmp_path.rglob("*.xplane.pb")
    planes = jax.profiler.ProfileData.from_file(str(trace)).planes
    names = {event.name for plane in planes for line in plane.lines for event in line.events}
    assert any("PjitFunction" in name for name in names)
    compiled = program.lower(jnp.ones((64, 64))).compile()
    assert compiled.cost_analysis()["flops"] >= 2 * 64**3
    assert compiled.memory_analysis().argument_size_in_bytes == 4 * 64**2


@pytest.mark.proves("S0-13: false")
def test_a_transformed_function_is_a_pair_not_a_callable() -> None:
    pair = hk.transform(network)
    with pytest.raises(TypeError, match="'Transformed' object is not callable"):
        pair()
    assert pair._fields == ("init", "apply")
    with pytest.raises(TypeError, match="positional argument"):  # a model that takes no input
        hk.transform(lambda: None).init(jax.random.key(0), INPUTS)


@pytest.mark.proves("S0-14: false")
def test_hk_params_names_a_type_and_makes_nothing() -> None:
    with pytest.raises(TypeError, match="Mapping"):
        hk.Params({})


@pytest.mark.proves("S0-15: false")
def test_without_any_placement_call_all_is_on_the_default_backend() -> None:
    with jax.default_device(jax.devices()[2]):  # stands for a GPU
        apply, params = initialised()
        inputs, targets = jnp.ones((32, 32)), jnp.ones((32, 10))

        def loss(params: Any) -> Any:
            return jnp.mean((apply(params, inputs) - targets) ** 2)

        found = jax.tree.leaves((inputs, params, jax.value_and_grad(loss)(params)))
    assert {d for array in found for d in array.devices()} == {jax.devices()[2]}


@pytest.mark.proves("S0-16: false", "S0-19: false")
def test_the_first_device_is_no_gpu_on_a_cpu_box_and_always_there() -> None:
    with staging.machine(gpus=0):
        first = jax.devices()[0] if len(jax.devices()) > 0 else None
        assert first is not None  # the branch without a GPU is never reached
        assert first.platform == "cpu"
    with staging.machine(broken="plugin raises"), pytest.raises(RuntimeError):
        len(jax.devices())  # or JAX raises before the `if`


@pytest.mark.proves("S0-17: outdated")
def test_tree_map_has_moved() -> None:
    with pytest.raises(AttributeError, match="tree_map"):
        jax.tree_map  # noqa: B018
    assert jax.tree.map(lambda x: x + 1, {"a": 1}) == {"a": 2}


@pytest.mark.proves("S0-18: true with conditions")
def test_one_device_put_takes_a_whole_tree() -> None:
    _, params = initialised()
    there = jax.devices()[4]
    each = jax.tree.map(lambda x: jax.device_put(x, there), params)
    whole = jax.device_put(params, there)
    for tree in (each, whole):
        assert {d for x in jax.tree.leaves(tree) for d in x.devices()} == {there}


@pytest.mark.proves("S0-20: outdated")
def test_pmap_still_works_and_is_jit_of_shard_map() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doubled = jax.pmap(lambda x: x * 2)
        assert doubled(jnp.arange(8.0)).tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert "shard_map" in str(jax.make_jaxpr(doubled)(jnp.arange(8.0)))
    spread = NamedSharding(jax.make_mesh((8,), ("x",)), P("x"))
    assert jax.jit(lambda x: x * 2)(jax.device_put(jnp.arange(8.0), spread)).sharding == spread


@pytest.mark.proves("S0-21: false")
def test_pmap_cuts_the_parameters_too_unless_told() -> None:
    apply, params = initialised()
    inputs = jnp.ones((8, 4, 32))
    with pytest.raises(ValueError, match="size"):
        jax.pmap(apply)(params, inputs)
    assert jax.pmap(apply, in_axes=(None, 0))(params, inputs).shape == (8, 4, 10)


@pytest.mark.proves("S0-22: false", "S0-23: outdated")
def test_device_put_sharded_is_gone() -> None:
    with pytest.raises(AttributeError, match="device_put_sharded"):
        jax.device_put_sharded  # noqa: B018
    mesh = jax.make_mesh((8,), ("batch",))
    spread = jax.device_put(np.ones((8, 32)), NamedSharding(mesh, P("batch")))
    assert [shard.data.shape for shard in spread.addressable_shards] == [(1, 32)] * 8


@pytest.mark.proves("S0-24: false")
def test_a_model_in_pmap_lies_whole_on_every_device_and_a_cut_one_does_not() -> None:
    weights = np.ones((64, 64), np.float32)
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    copied = jax.pmap(lambda w, row: w, in_axes=(None, 0))(weights, np.ones(8))
    assert bytes_held(copied) == 8 * weights.nbytes
    assert bytes_held(jax.device_put(weights, NamedSharding(mesh, P("x")))) == weights.nbytes


@pytest.mark.proves("S0-25: false")
def test_in_axes_choose_what_is_cut_and_axis_name_only_names_it() -> None:
    values = jnp.arange(16.0).reshape(8, 2)
    assert jax.pmap(lambda x: x)(values).shape == (8, 2)  # cut without a name
    named = jax.pmap(lambda x: jax.lax.psum(x, "batch"), axis_name="batch", in_axes=0)
    assert named(values)[0].tolist() == values.sum(0).tolist()  # the name is for psum


@pytest.mark.proves("S0-26: true with conditions")
def test_a_gradient_through_pmap_is_right_once_the_program_is_repaired() -> None:
    apply, params = initialised()
    inputs, targets = jnp.ones((8, 32, 32)), jnp.ones((8, 32, 10))

    def loss(model: Any, params: Any) -> Any:
        return jnp.mean(jnp.sum((model(params, inputs) - targets) ** 2, axis=0))

    parallel = jax.value_and_grad(lambda p: loss(jax.pmap(apply, in_axes=(None, 0)), p))(params)
    plain = jax.value_and_grad(lambda p: loss(apply, p))(params)
    for ours, theirs in zip(jax.tree.leaves(parallel), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="axis to squeeze out"):
        jax.pmap(lambda x: x)(jnp.arange(16.0))  # 16 rows for 8 devices


@pytest.mark.proves("S0-27: true with conditions")
def test_old_keys_are_numbers_and_new_keys_are_keys() -> None:
    old, new = jax.random.PRNGKey(0), jax.random.key(0)
    assert old.dtype == jnp.uint32
    assert jnp.issubdtype(new.dtype, jax.dtypes.prng_key)
    assert jax.random.normal(old) == jax.random.normal(new)


@pytest.mark.proves("S0-28: outdated")
def test_haiku_works_and_says_itself_that_it_is_only_maintained() -> None:
    apply, params = initialised()
    assert apply(params, INPUTS).shape == TARGETS.shape
    about = (
        metadata.metadata("dm-haiku").get_payload() or metadata.metadata("dm-haiku")["Description"]
    )
    assert re.search(r"maintenance mode", str(about))
