"""Proofs of the claims of *Working on GPUs* (S2).

`proving` says how they run; `test_claims` that every claim of the ledger has one.
"""

import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from proving import fresh

from grader.probes import staging

CPU = jax.devices("cpu")
RATES = """
import time, jax, jax.numpy as jnp
def rate(dtype, device, n):
    a = jax.device_put(jnp.ones((n, n), dtype), device)
    times = jax.jit(lambda a: a @ a)
    def timed():
        start = time.perf_counter(); times(a).block_until_ready()
        return time.perf_counter() - start
    return 2 * n**3 / min(timed() for _ in range(5))
gpu, cpu = jax.devices()[0], jax.devices("cpu")[0]
"""


def network() -> tuple[Any, Any, Any]:
    """Flax model, parameters and input of the document, with its keys."""
    net = nn.Sequential([nn.Dense(1)])
    for_input, for_params = jax.random.split(jax.random.PRNGKey(0))
    x = jax.random.normal(for_input, (10,))
    return net, net.init(for_params, x), x


def spread(array: Any) -> jax.Array:
    """The array cut over all devices along its first axis."""
    placed: jax.Array = jax.device_put(array, NamedSharding(jax.make_mesh((8,), ("x",)), P("x")))
    return placed


@pytest.mark.proves("S2-01: true with conditions")
def test_the_figure_is_that_of_the_shader_cores() -> None:
    """Arithmetic on the maker's figures: 16,384 cores, one fused multiply-add a cycle, 2.52 GHz."""
    cores, operations, hertz = 16384, 2, 2.52e9
    assert cores * operations * hertz / 1e12 == pytest.approx(82.6, abs=0.1)


@pytest.mark.gpu
@pytest.mark.proves("S2-01: true with conditions")
def test_on_a_gpu_the_rate_depends_on_the_type_by_which_units_it_uses() -> None:
    program = (
        RATES
        + """
with jax.default_matmul_precision("highest"):
    print(rate(jnp.bfloat16, gpu, 8192) / rate(jnp.float32, gpu, 8192))
"""
    )
    assert float(fresh(program, gpu=True).out) > 4


@pytest.mark.gpu
@pytest.mark.proves("S2-02: true with conditions")
def test_on_a_gpu_the_advantage_depends_on_how_much_cpu_it_is_compared_with() -> None:
    program = "import os\n{pin}\n" + RATES + "print(rate(jnp.float32, {device}, {n}))"
    one = fresh(program.format(pin="os.sched_setaffinity(0, {0})", device="cpu", n=2048), gpu=True)
    many = fresh(program.format(pin="", device="cpu", n=2048), gpu=True)
    gpu = fresh(program.format(pin="", device="gpu", n=8192), gpu=True)
    assert float(gpu.out) > 10 * float(many.out) > 20 * float(one.out)


@pytest.mark.proves("S2-03: true with conditions", "S2-15: true with conditions")
def test_every_array_has_a_sharding_of_one_device_or_many() -> None:
    assert jnp.ones(3).device == CPU[0]
    whole = spread(jnp.ones(8))
    assert whole.device == whole.sharding  # no single device to name
    assert whole.devices() == set(CPU)


@pytest.mark.proves("S2-04: true with conditions", "S2-05: false", "S2-06: not about JAX")
def test_only_two_commitments_clash_and_all_else_is_copied_without_a_word() -> None:
    here, there = (jax.device_put(jnp.ones((2, 3)), device) for device in CPU[:2])
    with pytest.raises(ValueError, match="Received incompatible devices for jitted computation"):
        here + there
    for other in (jnp.ones((2, 3)), np.ones((2, 3)), 1.0):  # uncommitted, NumPy, Python
        assert (there + other).devices() == {CPU[1]}


@pytest.mark.gpu
@pytest.mark.proves("S2-04: true with conditions")
def test_on_a_gpu_the_error_names_both_platforms() -> None:
    program = """
import jax, jax.numpy as jnp
try:
    jax.device_put(jnp.ones(3), jax.devices()[0]) + jax.device_put(1.0, jax.devices("cpu")[0])
except ValueError as error:
    print(error)
"""
    text = fresh(program, gpu=True).out
    assert "on platform GPU" in text
    assert "on platform CPU" in text


@pytest.mark.proves("S2-07: not about JAX", "S2-17: true")
def test_parameters_are_born_on_the_default_device() -> None:
    with jax.default_device(CPU[2]):  # stands for a GPU
        _, params, _ = network()
    assert {d for leaf in jax.tree.leaves(params) for d in leaf.devices()} == {CPU[2]}
    with staging.machine(gpus=1) as stage:
        assert jax.devices() == stage.gpus  # and a GPU is the default, if there is one


@pytest.mark.gpu
@pytest.mark.proves("S2-07: not about JAX", "S2-11: true with conditions", "S2-17: true")
def test_on_a_gpu_parameters_are_born_there() -> None:
    program = """
import flax.linen as nn, jax, jax.numpy as jnp
params = nn.Dense(1).init(jax.random.key(0), jnp.ones(10))
device, = {d for leaf in jax.tree.leaves(params) for d in leaf.devices()}
print(repr(device), device)
"""
    assert fresh(program, gpu=True).out == "CudaDevice(id=0) cuda:0"


@pytest.mark.proves("S2-08: true with conditions", "S2-31: not about JAX")
def test_moments_follow_the_parameters_and_the_order_does_not_matter() -> None:
    adam = optax.adam(1e-3)
    params = {"w": jnp.ones(3)}
    early = adam.init(params)  # before the move
    moved = jax.device_put(params, CPU[1])
    late = adam.init(moved)[0]
    assert {leaf.device for leaf in (late.mu["w"], late.nu["w"])} == {CPU[1]}
    assert late.mu["w"].committed
    assert not late.count.committed  # on the default device, and free to follow

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        updates, state = adam.update(params, state)
        return optax.apply_updates(params, updates), state

    for leaf in jax.tree.leaves(step(moved, early)):
        assert leaf.devices() == {CPU[1]}
    with pytest.raises(ValueError, match="incompatible devices"):
        step(moved, jax.device_put(early, CPU[0]))  # only a commitment elsewhere clashes


@pytest.mark.proves("S2-09: true")
def test_a_guard_that_watches_from_the_first_call_finds_copies_between_devices() -> None:
    step = jax.jit(lambda params, batch: params + batch)
    params, elsewhere = jax.device_put(jnp.ones(3), CPU[1]), jnp.ones(3)
    with (
        jax.transfer_guard_device_to_device("disallow"),
        pytest.raises(RuntimeError, match="Disallowed device-to-device transfer"),
    ):
        step(params, elsewhere)
    late = jax.jit(lambda params, batch: params - batch)
    late(params, elsewhere)  # has passed once:
    with jax.transfer_guard_device_to_device("disallow"):
        late(params, elsewhere)  # copied again, and nothing is said


@pytest.mark.gpu
@pytest.mark.proves("S2-09: true", "S2-21: true with conditions", "S2-24: false")
def test_on_a_gpu_a_loop_over_numpy_batches_works_and_copies_each_and_costs_time() -> None:
    program = """
import time, jax, jax.numpy as jnp, numpy as np
step = jax.jit(lambda total, batch: total + batch.sum())
host = np.ones(20_000_000, np.float32)
def best(batch): return min(timed(batch) for _ in range(5))
def timed(batch):
    start = time.perf_counter()
    total = jnp.zeros(())
    for _ in range(10):
        total = step(total, batch)
    total.block_until_ready()
    return time.perf_counter() - start
print(best(host) > 3 * best(jax.device_put(host)))
"""
    assert fresh(program, gpu=True).out == "True"


@pytest.mark.proves("S2-10: true")
def test_devices_are_asked_for_by_platform() -> None:
    assert jax.devices("cpu")[0] == CPU[0]
    with pytest.raises(RuntimeError, match="Unknown backend: 'gpu' requested"):
        jax.devices("gpu")
    with staging.machine(gpus=2) as stage:
        assert [jax.devices("gpu")[1], jax.devices("cuda")[1]] == stage.gpus[1:] * 2


@pytest.mark.proves("S2-11: true with conditions")
def test_a_device_has_a_long_and_a_short_name() -> None:
    assert (repr(CPU[0]), str(CPU[0])) == ("CpuDevice(id=0)", "cpu:0")


@pytest.mark.proves("S2-12: true with conditions")
def test_a_bare_except_counts_a_broken_plugin_as_no_gpu() -> None:
    def num_gpus() -> int:
        try:
            return jax.device_count("gpu")
        except:  # noqa: E722 (as the document has it)
            return 0

    with staging.machine(gpus=4):
        assert num_gpus() == 4
    with staging.machine(broken="plugin raises"):
        assert num_gpus() == 0  # GPUs may be there: nobody will know
    with (
        staging.machine(broken="plugin raises"),
        pytest.raises(RuntimeError, match="No visible GPU devices"),
    ):
        jax.device_count("gpu")  # this text was thrown away


@pytest.mark.proves("S2-13: true", "S2-34: true with conditions")
def test_try_gpu_falls_back_as_the_default_device_does() -> None:
    def try_gpu(i: int = 0) -> Any:
        try:
            return jax.devices("gpu")[i]
        except (RuntimeError, IndexError):
            return jax.devices("cpu")[0]

    with staging.machine(gpus=2) as stage:
        assert try_gpu(1) == stage.gpus[1]
        assert try_gpu(9) == stage.cpus[0]
        assert try_gpu() == jax.devices()[0]  # so plain code needs no try_gpu
    with staging.machine(gpus=0):
        assert try_gpu() == jax.devices()[0]


@pytest.mark.proves("S2-14: false")
def test_a_list_of_no_gpus_is_an_empty_list() -> None:
    with staging.machine(gpus=0), pytest.raises(RuntimeError):
        jax.devices("gpu")
    number = 0  # what num_gpus() answers then
    assert [jax.devices("gpu")[i] for i in range(number)] == []  # not [cpu()]


@pytest.mark.proves("S2-16: false")
def test_device_put_of_a_new_array_copies_and_so_does_ones_with_a_device() -> None:
    def make(where: Any) -> None:
        jax.device_put(jnp.ones((2, 3)), where)

    def ask(where: Any) -> None:
        jnp.ones((2, 3), device=where)

    for way in (make, ask):
        with (
            jax.transfer_guard_device_to_device("disallow_explicit"),
            pytest.raises(RuntimeError, match="Disallowed device-to-device transfer"),
        ):
            way(CPU[1])
    with jax.transfer_guard_device_to_device("disallow_explicit"), jax.default_device(CPU[1]):
        assert jnp.ones((2, 3)).devices() == {CPU[1]}  # born there


@pytest.mark.proves("S2-18: true with conditions")
def test_the_numbers_on_the_page_are_those_of_jax_since_0_5() -> None:
    key = jax.random.PRNGKey(0)
    assert jax.random.uniform(key, (2, 3))[0, 0] == pytest.approx(0.947667)
    with jax.threefry_partitionable(False):
        assert jax.random.uniform(key, (2, 3))[0, 0] == pytest.approx(0.57450044)


@pytest.mark.proves("S2-19: not about JAX")
def test_arrays_have_no_to_and_no_cuda() -> None:
    for name in ("to", "cuda"):
        assert not hasattr(jnp.ones(3), name)
    assert jax.device_put(jnp.ones(3), CPU[1]).devices() == {CPU[1]}
    assert jnp.ones(3).to_device(CPU[1]).devices() == {CPU[1]}


@pytest.mark.proves("S2-20: true with conditions", "S2-21: true with conditions")
def test_a_move_to_the_same_device_is_another_object_with_the_same_buffer() -> None:
    array = jax.device_put(jnp.ones((2, 3)), CPU[1])
    again = jax.device_put(array, CPU[1])
    assert again is not array
    assert again.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    assert jax.device_put(array) is array
    with jax.transfer_guard("disallow_explicit"):
        jax.device_put(array, CPU[1])  # in a loop: no transfer at all
        with pytest.raises(RuntimeError, match="host-to-device"):
            jax.device_put(np.ones(3), CPU[1])  # NumPy data: one each time


@pytest.mark.proves("S2-22: not about JAX", "S2-25: true")
def test_a_model_is_a_tree_of_arrays_moved_by_one_call() -> None:
    _, params, _ = network()
    moved = jax.device_put(params, CPU[3])
    layer = jax.tree.map(lambda leaf: leaf.device, moved)["params"]["layers_0"]
    assert layer == {"bias": CPU[3], "kernel": CPU[3]}


@pytest.mark.proves("S2-23: true")
def test_the_flax_model_gives_the_number_on_the_page() -> None:
    net, params, x = network()
    assert net.apply(params, x) == pytest.approx(-0.3464166, abs=1e-6)


@pytest.mark.proves("S2-24: false")
def test_a_batch_in_numpy_works_and_is_transferred() -> None:
    net, params, _ = network()
    apply = jax.jit(net.apply)
    there = jax.device_put(params, CPU[1])
    batch = np.ones((4, 10), np.float32)
    assert apply(there, batch).devices() == {CPU[1]}
    with (
        jax.transfer_guard_host_to_device("disallow"),
        pytest.raises(RuntimeError, match="Disallowed host-to-device transfer"),
    ):
        apply(there, batch)


@pytest.mark.proves("S2-26: not about JAX")
def test_a_training_loop_in_jax_hands_the_state_from_step_to_step() -> None:
    with pytest.raises(SyntaxError, match="invalid character '…'"):
        compile("opt = SGD(params, …)", "as printed", "exec")
    net, params, x = network()
    sgd = optax.sgd(0.01)

    def step(state: Any, batch: Any) -> Any:
        params, momentum = state
        loss, gradients = jax.value_and_grad(lambda p: (net.apply(p, batch) ** 2).sum())(params)
        updates, momentum = sgd.update(gradients, momentum)
        return (optax.apply_updates(params, updates), momentum), loss

    jitted = jax.jit(step, donate_argnums=0)
    state, losses = (params, sgd.init(params)), []
    for _ in range(3):
        state, loss = jitted(state, x)
        losses.append(float(loss))
    assert losses[0] > losses[1] > losses[2]


def where_batches_go(num_gpus: int) -> Any:
    """The rule of the document's patched trainer, without d2l: its device, or None."""
    try:
        there = jax.devices("gpu")
    except RuntimeError:
        there = []
    chosen = there[:num_gpus]
    return chosen[0] if chosen else None


@pytest.mark.proves("S2-27: true with conditions")
def test_the_patched_trainer_uses_one_gpu_or_silently_none() -> None:
    with staging.machine(gpus=4) as stage:
        assert where_batches_go(num_gpus=4) == stage.gpus[0]  # four were asked for
        assert where_batches_go(num_gpus=0) is None
    with staging.machine(gpus=0):
        assert where_batches_go(num_gpus=4) is None  # no GPU: nothing happens, and no word


@pytest.mark.proves("S2-28: false")
def test_a_trainer_that_prepares_only_batches_moves_no_parameters() -> None:
    """The listing patches `prepare_batch` alone. So parameters stay, and are copied for a step."""
    net, params, _ = network()
    apply = jax.jit(net.apply)
    batch = jax.device_put(np.ones((4, 10), np.float32), CPU[1])
    with (
        jax.transfer_guard_device_to_device("disallow"),
        pytest.raises(RuntimeError, match="Disallowed device-to-device transfer"),
    ):
        apply(params, batch)
    assert apply(params, batch).devices() == {CPU[1]}
    assert {d for leaf in jax.tree.leaves(params) for d in leaf.devices()} == {CPU[0]}


@pytest.mark.proves("S2-29: not about JAX")
def test_statistics_are_one_more_tree_beside_the_parameters() -> None:
    norm = nn.BatchNorm(use_running_average=False)
    variables = norm.init(jax.random.key(0), jnp.ones((4, 3)))
    assert set(variables) == {"params", "batch_stats"}
    moved = jax.device_put(variables, CPU[1])  # nothing to register
    assert {leaf.device for leaf in jax.tree.leaves(moved)} == {CPU[1]}
    _, new = norm.apply(moved, jnp.ones((4, 3)) * 5, mutable=["batch_stats"])
    assert new["batch_stats"]["mean"][0] > 0
    assert moved["batch_stats"]["mean"][0] == 0  # a new tree: nothing was changed in place


@pytest.mark.proves("S2-30: not about JAX")
def test_new_arrays_are_born_on_the_default_device_or_follow_their_model() -> None:
    there = jax.device_put(jnp.ones(3), CPU[1])
    assert jnp.zeros_like(there).devices() == {CPU[1]}
    with (
        jax.transfer_guard_device_to_device("disallow_explicit"),
        pytest.raises(RuntimeError, match="device-to-device"),
    ):
        jnp.zeros_like(there)  # made on the default device, and copied
    assert jnp.zeros(10).devices() == {CPU[0]}  # the default, which is the GPU where there is one
    inside = jax.jit(lambda x: x + jnp.zeros(3))
    assert inside(there).devices() == {CPU[1]}  # in a program a constant has no device of its own


@pytest.mark.proves("S2-32: true with conditions")
def test_reading_an_array_waits_for_it() -> None:
    work = jax.jit(lambda a: (a @ a @ a @ a).sum())
    large = jnp.ones((1500, 1500)) / 1500
    work(large).block_until_ready()
    for read in (np.asarray, float, str):
        start = time.perf_counter()
        result = work(large)
        called = time.perf_counter()
        assert not result.is_ready()  # dispatched, and on its way
        read(result)
        assert time.perf_counter() - called > 3 * (called - start)  # the wait is in the read


@pytest.mark.gpu
@pytest.mark.proves("S2-32: true with conditions")
def test_on_a_gpu_a_read_is_a_transfer_that_a_guard_can_forbid() -> None:
    program = """
import jax, jax.numpy as jnp
x = jax.jit(lambda x: x + 1)(jnp.ones(()))
with jax.transfer_guard("disallow"):
    try:
        float(x)
    except jax.errors.JaxRuntimeError as error:
        print(error)
"""
    assert "Disallowed device-to-host transfer" in fresh(program, gpu=True).out


@pytest.mark.proves("S2-33: true with conditions")
def test_a_read_can_be_started_early_and_taken_late() -> None:
    step = jax.jit(lambda a: (a @ a, a.sum()))
    state, losses, late = jnp.ones((300, 300)) / 300, [], None
    for _ in range(5):
        state, loss = step(state)
        loss.copy_to_host_async()  # starts the copy and does not wait
        if late is not None:
            losses.append(float(late))  # the one before: its copy had a step's time
        late = loss
    losses.append(float(late))
    assert len(losses) == 5
    assert losses[0] == pytest.approx(300)


@pytest.mark.proves("S2-35: true")
def test_arrays_committed_to_one_device_add_there() -> None:
    with jax.default_device(CPU[0]):
        x = jax.device_put(jnp.ones((2, 3)), CPU[0])
    y = jax.device_put(jax.random.uniform(jax.random.PRNGKey(0), (2, 3)), CPU[1])
    z = jax.device_put(x, CPU[1])
    assert (y + z).devices() == {CPU[1]}
    np.testing.assert_allclose(y + z, np.asarray(y) + 1)
