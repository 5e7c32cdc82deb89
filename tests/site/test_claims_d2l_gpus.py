"""Proofs of the claims of *Working on GPUs* (S2).

`proving` says how they run; `test_claims` checks that every claim of the ledger has one.
"""

import inspect
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from proving import (
    FAILS,
    WORKS,
    Machine,
    beside_the_cpu,
    changed,
    fresh,
    guarded,
    on_cpu,
    on_gpu,
    places,
    refused,
    usually,
)

CPU = jax.devices("cpu")
ROWS, ARRAY, SGD = np.ones(3), jnp.ones(3), optax.sgd(0.01)
BATCH_NORM = nn.BatchNorm(use_running_average=False)
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


def num_gpus() -> int:
    """As the document has it."""
    try:
        return jax.device_count("gpu")
    except:  # noqa: E722
        return 0


def try_gpu(i: int = 0) -> Any:
    """As the document has it."""
    if num_gpus() >= i + 1:
        return jax.devices("gpu")[i]
    return jax.devices("cpu")[0]


def try_all_gpus() -> list[Any]:
    """As the document has it."""
    return [jax.devices("gpu")[i] for i in range(num_gpus())]


def where_batches_go(asked: int) -> Any:
    """The rule of the document's patched trainer, without d2l: its device, or None."""
    gpus = [jax.devices("gpu")[i] for i in range(min(asked, num_gpus()))]
    return gpus[0] if gpus else None


def source(*functions: Any) -> str:
    """The functions as the beginning of a program."""
    return "from typing import Any\n" + "\n".join(map(inspect.getsource, functions))


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


@pytest.mark.gpu
@pytest.mark.proves("S2-01: true with conditions")
@pytest.mark.unless(
    "one type measured twice", run=changed(on_cpu, {"jnp.bfloat16": "jnp.float32", "8192": "512"})
)
def test_on_a_gpu_the_rate_depends_on_the_type_by_which_units_it_uses(
    run: Machine = on_gpu,
) -> None:
    program = (
        RATES
        + """
with jax.default_matmul_precision("highest"):
    print(rate(jnp.bfloat16, gpu, 8192) / rate(jnp.float32, gpu, 8192))
"""
    )
    assert float(run(program)) > 4


PRODUCT = 2 * 768**3, jax.jit(lambda a: a @ a), jnp.full((768, 768), 1 / 768)
FORMULA = 2000, jax.jit(lambda x: x * 0.5 + 1), jnp.ones(1000)


@pytest.mark.proves("S2-02: true with conditions")
@pytest.mark.unless("a CPU that is asked for one kind of work alone", other=PRODUCT)
def test_what_a_cpu_does_in_a_second_depends_on_the_work_by_far_more_than_ten(
    some=PRODUCT, other=FORMULA
) -> None:
    """So "a thousand times a CPU" is a factor over something that is not one number."""

    def rate(operations: int, function: Any, x: Any) -> float:
        start = time.perf_counter()
        function(x).block_until_ready()
        return operations / (time.perf_counter() - start)

    rate(*some), rate(*other)  # compiles
    assert usually(lambda: rate(*some) > 10 * rate(*other))


@pytest.mark.gpu
@pytest.mark.proves("S2-02: true with conditions")
@pytest.mark.unless(
    "a CPU in the place of the GPU",
    run=changed(on_cpu, {"device, n):\n": "device, n):\n    n = 512\n"}),
)
def test_on_a_gpu_the_advantage_depends_on_how_much_cpu_it_is_compared_with(
    run: Machine = on_gpu,
) -> None:
    program = "import os\n{pin}\n" + RATES + "print(rate(jnp.float32, {device}, {n}))"
    one = run(
        program.format(
            pin="os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])", device="cpu", n=2048
        )
    )
    many = run(program.format(pin="", device="cpu", n=2048))
    gpu = run(program.format(pin="", device="gpu", n=8192))
    assert float(gpu) > 10 * float(many) > 20 * float(one)


@pytest.mark.proves("S2-03: true with conditions", "S2-15: true with conditions")
@pytest.mark.unless("arrays of NumPy, of whose place JAX knows nothing", ones=np.ones)
@pytest.mark.unless("arrays that always lie on one device", cut=jnp.asarray)
def test_every_array_has_a_sharding_of_one_device_or_many(ones=jnp.ones, cut=spread) -> None:
    assert ones(3).device == CPU[0]
    whole = cut(ones(8))
    assert whole.device == whole.sharding  # no single device to name
    assert whole.devices() == set(CPU)


@pytest.mark.proves(
    "S2-04: true with conditions", "S2-05: true with conditions", "S2-06: not about JAX"
)
@pytest.mark.unless("S2-04, S2-05, S2-06: arrays that nothing commits", put=lambda x, device: x)
@pytest.mark.unless("S2-05: a JAX that copies nothing unasked", add=guarded(jnp.add))
def test_only_two_commitments_clash_and_all_else_is_copied_without_a_word(
    put=jax.device_put, add=jnp.add
) -> None:
    here, there = (put(jnp.ones((2, 3)), device) for device in CPU[:2])
    assert "Received incompatible devices for jitted computation" in refused(add, here, there)
    for other in (jnp.ones((2, 3)), np.ones((2, 3)), 1.0):  # uncommitted, NumPy, Python
        assert refused(add, there, other) == ""
        assert (there + other).devices() == {CPU[1]}
    assert (
        refused(jax.jit(lambda used, unused: used * 2), here, there) == ""
    )  # it clashes with none


@pytest.mark.gpu
@pytest.mark.proves("S2-04: true with conditions")
@pytest.mark.unless("a machine with one device, where nothing can clash", gpu=False)
def test_on_a_gpu_the_error_names_both_platforms(gpu=True) -> None:
    program = """
import jax, jax.numpy as jnp
try:
    jax.device_put(jnp.ones(3), jax.devices()[0]) + jax.device_put(1.0, jax.devices("cpu")[0])
except ValueError as error:
    print(error)
"""
    text = fresh(program, gpu=gpu).out
    assert "on platform GPU" in text
    assert "on platform CPU" in text


@pytest.mark.proves("S2-07: not about JAX", "S2-17: true")
@pytest.mark.unless(
    "S2-07: a library that makes its models on the CPU",
    make=lambda: (None, jax.device_put(network()[1], CPU[0]), None),
)
@pytest.mark.unless("S2-17: a plugin that ranks below the CPU", priority=-1)
def test_parameters_are_born_on_the_default_device(make=network, priority=None) -> None:
    with jax.default_device(CPU[2]):  # stands for a GPU
        _, params, _ = make()
    assert places(params) == {CPU[2]}
    # And what the CUDA plugin registers is the default: three devices, where the CPU has one.
    program = "print(jax.device_count(), jnp.ones(3).device in jax.devices('gpu'))"
    assert beside_the_cpu(program, priority=priority).out == "3 True"


@pytest.mark.gpu
@pytest.mark.proves("S2-07: not about JAX", "S2-11: true with conditions", "S2-17: true")
@pytest.mark.unless("a library that makes its models on the CPU", gpu=False)
def test_on_a_gpu_parameters_are_born_there(gpu=True) -> None:
    program = """
import flax.linen as nn, jax, jax.numpy as jnp
params = nn.Dense(1).init(jax.random.key(0), jnp.ones(10))
device, = {d for leaf in jax.tree.leaves(params) for d in leaf.devices()}
print(repr(device), device)
"""
    assert fresh(program, gpu=gpu).out == "CudaDevice(id=0) cuda:0"


ADAM = optax.adam(1e-3)
STAYS = SimpleNamespace(
    init=lambda params: jax.device_put(ADAM.init(params), CPU[0]), update=ADAM.update
)
TRACED = SimpleNamespace(init=jax.jit(ADAM.init), update=ADAM.update)


@pytest.mark.proves("S2-08: true with conditions", "S2-31: not about JAX")
@pytest.mark.unless("an optimizer whose state is committed to the first device", adam=STAYS)
@pytest.mark.unless("S2-08: an optimizer whose state is made under jit", adam=TRACED)
def test_moments_follow_the_parameters_and_the_order_does_not_matter(adam=ADAM) -> None:
    params = {"w": jnp.ones(3)}
    early = adam.init(params)  # before the move
    moved = jax.device_put(params, CPU[1])
    late = adam.init(moved)[0]
    assert {leaf.device for leaf in (late.mu["w"], late.nu["w"])} == {CPU[1]}
    assert late.mu["w"].committed
    assert not late.count.committed  # on the default device, and free to follow
    made_by_jit = jax.tree.leaves(jax.jit(adam.init)(moved))
    assert {leaf.device for leaf in made_by_jit} == {CPU[0]}  # nothing follows: no value is used
    there = jax.sharding.SingleDeviceSharding(CPU[1])
    told = jax.tree.leaves(jax.jit(adam.init, out_shardings=there)(moved))
    assert {leaf.device for leaf in told} == {CPU[1]}

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        updates, state = adam.update(params, state)
        return optax.apply_updates(params, updates), state

    for leaf in jax.tree.leaves(step(moved, early)):
        assert leaf.devices() == {CPU[1]}
    with pytest.raises(ValueError, match="incompatible devices"):
        step(moved, jax.device_put(early, CPU[0]))  # only a commitment elsewhere clashes


@pytest.mark.proves("S2-09: true")
@pytest.mark.unless("a batch that lies beside the parameters", batch_on=CPU[1])
def test_a_guard_that_watches_from_the_first_call_finds_copies_between_devices(
    batch_on=CPU[0],
) -> None:
    step = jax.jit(lambda params, batch: params + batch)
    with jax.default_device(batch_on):
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


@pytest.mark.proves("S2-09: true")
@pytest.mark.unless("a table that lies where it is used", table_on=CPU[1])
def test_an_array_on_another_device_costs_its_copy_at_every_call(table_on=CPU[0]) -> None:
    first_row = jax.jit(lambda row, table: row + table[0])
    with jax.default_device(table_on):
        row, table = jax.device_put(jnp.ones(1024), CPU[1]), jnp.ones((4096, 1024))
    there = jax.device_put(table, CPU[1])

    def seconds(table: Any) -> float:
        start = time.perf_counter()
        first_row(row, table).block_until_ready()
        return time.perf_counter() - start

    seconds(table), seconds(there)  # compiles
    assert usually(lambda: seconds(table) > 3 * seconds(there))


@pytest.mark.gpu
@pytest.mark.gpus
@pytest.mark.proves("S2-09: true")
@pytest.mark.unless(
    "a table that lies where the row is",
    run=changed(
        on_cpu,
        {"here, there = jax.devices()[:2]": "here = there = jax.devices()[0]", "8192": "512"},
    ),
)
def test_between_two_gpus_an_array_costs_its_copy_at_every_call(run: Machine = on_gpu) -> None:
    program = """
import time, jax, jax.numpy as jnp
here, there = jax.devices()[:2]
first_row = jax.jit(lambda row, table: row + table[0])
row, table = jax.device_put(jnp.ones(8192), there), jnp.ones((8192, 8192))
def best(table): return min(timed(table) for _ in range(9))
def timed(table):
    start = time.perf_counter(); first_row(row, table).block_until_ready()
    return time.perf_counter() - start
print(best(table) > 3 * best(jax.device_put(table, there)))
"""
    assert run(program) == "True"


@pytest.mark.gpu
@pytest.mark.proves("S2-21: true with conditions", "S2-24: false")
@pytest.mark.unless(
    "batches that are on the device",
    run=changed(on_cpu, {"best(host)": "best(jax.device_put(host))", "20_000_000": "200_000"}),
)
def test_on_a_gpu_a_loop_over_numpy_batches_works_and_copies_each_and_costs_time(
    run: Machine = on_gpu,
) -> None:
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
    assert run(program) == "True"


@pytest.mark.proves("S2-10: true")
@pytest.mark.unless("a machine whose plugin does not name its devices", connect=FAILS)
def test_devices_are_asked_for_by_platform(connect=WORKS) -> None:
    assert jax.devices("cpu")[0] == CPU[0]
    with pytest.raises(RuntimeError, match="Unknown backend: 'gpu' requested"):
        jax.devices("gpu")
    program = """
try: print(len(jax.devices("gpu")), jax.devices("gpu")[1] in jax.devices("cpu"))
except RuntimeError as error: print(error)
"""
    assert beside_the_cpu(program, connect=connect).out == "3 False"


@pytest.mark.proves("S2-11: true with conditions")
@pytest.mark.unless("a print that shows a device as repr does", text=repr)
@pytest.mark.unless("a device that is no CPU's", device=SimpleNamespace(id=0))
def test_a_device_has_a_long_and_a_short_name(text=str, device=CPU[0]) -> None:
    assert (repr(device), text(device)) == ("CpuDevice(id=0)", "cpu:0")


@pytest.mark.proves("S2-12: true with conditions")
@pytest.mark.unless("a plugin that works, and devices to count", connect=WORKS)
def test_a_bare_except_counts_a_broken_plugin_as_no_gpu(connect=FAILS) -> None:
    assert num_gpus() == 0  # this machine has none, or shows none
    with pytest.raises(RuntimeError, match="Unknown backend"):
        jax.device_count("gpu")
    # A plugin that fails as it connects: JAX's own code all the way.
    silent = beside_the_cpu(source(num_gpus) + "print(num_gpus())", connect=connect)
    assert silent.out == "0"  # GPUs may be there: nobody will know
    loud = beside_the_cpu("jax.device_count('gpu')", connect=connect, may_fail=True)
    assert "the driver is too old" in loud.err  # this text was thrown away
    assert "the driver is too old" not in silent.err


@pytest.mark.proves("S2-13: true with conditions", "S2-34: true with conditions")
@pytest.mark.unless("S2-13: a try_gpu that falls back on nothing", fallback="None")
@pytest.mark.unless("S2-34: a plugin that ranks below the CPU", priority=-1)
def test_try_gpu_falls_back_as_the_default_device_does(
    fallback='jax.devices("cpu")[0]', priority=None
) -> None:
    program = (
        source(num_gpus, try_gpu).replace('jax.devices("cpu")[0]', fallback)
        + """
print(try_gpu(1) == jax.devices("gpu")[1], try_gpu(9) == jax.devices("cpu")[0])
print(try_gpu() == jax.devices()[0])  # so plain code needs no try_gpu
"""
    )
    assert beside_the_cpu(program, priority=priority).out == "True True\nTrue"  # three GPUs
    assert try_gpu() == jax.devices()[0]  # and none
    with pytest.raises(RuntimeError, match="Unknown backend"):
        try_gpu(-1)  # the condition: no negative index, which passes its test


@pytest.mark.proves("S2-14: false")
@pytest.mark.unless("code that does what its text says", listed=lambda: try_all_gpus() or CPU[:1])
def test_a_list_of_no_gpus_is_an_empty_list(listed=try_all_gpus) -> None:
    assert listed() == []  # on this machine, which has none or shows none: not [cpu()]
    program = source(num_gpus, try_all_gpus) + "print(try_all_gpus() == jax.devices('gpu'))"
    assert beside_the_cpu(program).out == "True"  # where there are some, it lists them


def make_and_move(where: Any) -> None:
    """The document's way."""
    jax.device_put(jnp.ones((2, 3)), where)


def make_there(where: Any) -> None:
    """The way that copies nothing."""
    with jax.default_device(where):
        jnp.ones((2, 3))


@pytest.mark.proves("S2-16: false")
@pytest.mark.unless("a way that makes the array where it shall lie", way=make_there)
def test_device_put_of_a_new_array_copies_and_so_does_ones_with_a_device(
    way=make_and_move,
) -> None:
    for each in (way, lambda where: jnp.ones((2, 3), device=where)):
        with (
            jax.transfer_guard_device_to_device("disallow_explicit"),
            pytest.raises(RuntimeError, match="Disallowed device-to-device transfer"),
        ):
            each(CPU[1])
    with jax.transfer_guard_device_to_device("disallow_explicit"), jax.default_device(CPU[1]):
        assert jnp.ones((2, 3)).devices() == {CPU[1]}  # born there
        way(CPU[1])  # on the default device: the array was born there, too


@pytest.mark.proves("S2-18: true with conditions")
@pytest.mark.unless("jax before 0.5.0", now=partial(jax.threefry_partitionable, False))
def test_the_numbers_on_the_page_are_those_of_jax_since_0_5(now=nullcontext) -> None:
    key = jax.random.PRNGKey(0)
    with now():
        assert jax.random.uniform(key, (2, 3))[0, 0] == pytest.approx(0.947667)
    with jax.threefry_partitionable(False):
        assert jax.random.uniform(key, (2, 3))[0, 0] == pytest.approx(0.57450044)


@pytest.mark.proves("S2-19: not about JAX")
@pytest.mark.unless("a tensor of PyTorch's make", array=SimpleNamespace(to=list, cuda=list))
def test_arrays_have_no_to_and_no_cuda(array=ARRAY) -> None:
    for name in ("to", "cuda"):
        assert not hasattr(array, name)
    assert jax.device_put(jnp.ones(3), CPU[1]).devices() == {CPU[1]}
    assert jnp.ones(3).to_device(CPU[1]).devices() == {CPU[1]}


@pytest.mark.proves("S2-20: true with conditions", "S2-21: true with conditions")
@pytest.mark.unless(
    "S2-20: a move that copies each time", put=lambda x, *to: jax.device_put(jnp.copy(x), *to)
)
@pytest.mark.unless(
    "S2-21: batches that lie on the device already", batch=jax.device_put([1], CPU[1])
)
def test_a_move_to_the_same_device_is_another_object_with_the_same_buffer(
    put=jax.device_put, batch=ROWS
) -> None:
    array = jax.device_put(jnp.ones((2, 3)), CPU[1])
    again = put(array, CPU[1])
    assert again is not array
    assert again.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    assert put(array) is array
    free = jnp.ones((2, 3))  # without the condition, a commitment there: it gets one, and no copy
    held = put(free, CPU[0])
    assert (free.committed, held.committed) == (False, True)
    assert held.unsafe_buffer_pointer() == free.unsafe_buffer_pointer()
    with jax.transfer_guard("disallow_explicit"):
        put(array, CPU[1])  # in a loop: no transfer at all
        with pytest.raises(RuntimeError, match="host-to-device"):
            put(batch, CPU[1])  # NumPy data: one each time


@pytest.mark.proves("S2-22: not about JAX", "S2-25: true")
@pytest.mark.unless(
    "a call that moves one parameter at a time",
    move=lambda params, there: jax.tree.map_with_path(
        lambda path, leaf: jax.device_put(leaf, there) if "bias" in str(path) else leaf, params
    ),
)
def test_a_model_is_a_tree_of_arrays_moved_by_one_call(move=jax.device_put) -> None:
    _, params, _ = network()
    moved = move(params, CPU[3])
    layer = jax.tree.map(lambda leaf: leaf.device, moved)["params"]["layers_0"]
    assert layer == {"bias": CPU[3], "kernel": CPU[3]}


@pytest.mark.proves("S2-23: true")
@pytest.mark.unless(
    "the random numbers of jax before 0.5.0", now=partial(jax.threefry_partitionable, False)
)
def test_the_flax_model_gives_the_number_on_the_page(now=nullcontext) -> None:
    with now():
        net, params, x = network()
    assert net.apply(params, x) == pytest.approx(-0.3464166, abs=1e-6)


@pytest.mark.proves("S2-24: false")
@pytest.mark.unless("a JAX that takes no NumPy batch", jit=lambda f: guarded(jax.jit(f)))
def test_a_batch_in_numpy_works_and_is_transferred(jit=jax.jit) -> None:
    net, params, _ = network()
    apply = jit(net.apply)
    there = jax.device_put(params, CPU[1])
    batch = np.ones((4, 10), np.float32)
    assert refused(apply, there, batch) == ""
    assert apply(there, batch).devices() == {CPU[1]}
    with (
        jax.transfer_guard_host_to_device("disallow"),
        pytest.raises(RuntimeError, match="Disallowed host-to-device transfer"),
    ):
        apply(there, batch)


@pytest.mark.proves("S2-26: not about JAX")
@pytest.mark.unless("a listing that is Python", listing="opt = SGD(params)")
@pytest.mark.unless("a step that gives back the state that it got", sgd=optax.sgd(0))
def test_a_training_loop_in_jax_hands_the_state_from_step_to_step(
    listing="opt = SGD(params, …)", sgd=SGD
) -> None:
    with pytest.raises(SyntaxError, match="invalid character '…'"):
        compile(listing, "as printed", "exec")
    net, params, x = network()

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


@pytest.mark.proves("S2-27: true with conditions")
@pytest.mark.unless("a trainer that uses all GPUs", used="gpus")
def test_the_patched_trainer_uses_one_gpu_or_silently_none(used="gpus[0]") -> None:
    program = (
        source(num_gpus, where_batches_go).replace("gpus[0]", used)
        + """
print(where_batches_go(4) == jax.devices("gpu")[0], where_batches_go(0))
"""
    )
    assert beside_the_cpu(program).out == "True None"  # all were asked for, and then none
    assert where_batches_go(4) is None  # no GPU: nothing happens, and no word


@pytest.mark.proves("S2-28: false")
@pytest.mark.unless(
    "a trainer that prepares the model, too", prepare=lambda params: jax.device_put(params, CPU[1])
)
def test_a_trainer_that_prepares_only_batches_moves_no_parameters(
    prepare=lambda params: params,
) -> None:
    """The listing patches `prepare_batch` alone. So parameters stay, and are copied for a step."""
    net, params, _ = network()
    params = prepare(params)
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
@pytest.mark.unless("a layer that keeps no statistics", norm=nn.LayerNorm())
def test_statistics_are_one_more_tree_beside_the_parameters(norm=BATCH_NORM) -> None:
    variables = norm.init(jax.random.key(0), jnp.ones((4, 3)))
    assert set(variables) == {"params", "batch_stats"}
    moved = jax.device_put(variables, CPU[1])  # nothing to register
    assert {leaf.device for leaf in jax.tree.leaves(moved)} == {CPU[1]}
    _, new = norm.apply(moved, jnp.ones((4, 3)) * 5, mutable=["batch_stats"])
    assert new["batch_stats"]["mean"][0] > 0
    assert moved["batch_stats"]["mean"][0] == 0  # a new tree: nothing was changed in place


@pytest.mark.proves("S2-30: not about JAX")
@pytest.mark.unless(
    "a zeros_like that stays on the CPU, as torch.zeros does",
    zeros_like=lambda x: jnp.zeros(x.shape),
)
def test_new_arrays_are_born_on_the_default_device_or_follow_their_model(
    zeros_like=jnp.zeros_like,
) -> None:
    there = jax.device_put(jnp.ones(3), CPU[1])
    assert zeros_like(there).devices() == {CPU[1]}
    with (
        jax.transfer_guard_device_to_device("disallow_explicit"),
        pytest.raises(RuntimeError, match="device-to-device"),
    ):
        zeros_like(there)  # made on the default device, and copied
    assert jnp.zeros(10).devices() == {CPU[0]}  # the default, which is the GPU where there is one
    inside = jax.jit(lambda x: x + jnp.zeros(3))
    assert inside(there).devices() == {CPU[1]}  # in a program a constant has no device of its own


@pytest.mark.proves("S2-32: true with conditions")
@pytest.mark.unless("a read that sets out and does not wait", read=lambda x: x.copy_to_host_async())
def test_reading_an_array_waits_for_it(read=np.asarray) -> None:
    work = jax.jit(lambda a: (a @ a @ a @ a).sum())
    large = jnp.ones((800, 800)) / 800
    work(large).block_until_ready()

    def the_wait_is_in_the(read: Callable[[jax.Array], object]) -> bool:
        start = time.perf_counter()
        result = work(large)
        called, running = time.perf_counter(), not result.is_ready()  # dispatched, on its way
        read(result)
        return running and time.perf_counter() - called > 3 * (called - start)

    for waits in (read, float, str):
        assert usually(partial(the_wait_is_in_the, waits))
    matrix = jax.jit(lambda a: a @ a @ a @ a)
    for shaped_by_values in (jnp.nonzero, jnp.unique, lambda x: x[x > 0]):
        result = matrix(large)
        shaped_by_values(result)
        assert result.is_ready()  # waited for: how many there are is not known before


@pytest.mark.gpu
@pytest.mark.proves("S2-32: true with conditions")
@pytest.mark.unless("a device whose memory is the host's: a read moves nothing", gpu=False)
def test_on_a_gpu_a_read_is_a_transfer_that_a_guard_can_forbid(gpu=True) -> None:
    program = """
import jax, jax.numpy as jnp
x = jax.jit(lambda x: x + 1)(jnp.ones(()))
with jax.transfer_guard("disallow"):
    try:
        float(x)
    except jax.errors.JaxRuntimeError as error:
        print(error)
"""
    assert "Disallowed device-to-host transfer" in fresh(program, gpu=gpu).out


@pytest.mark.proves("S2-33: true with conditions")
@pytest.mark.unless("a loop that reads each report at once", keep=np.array)
def test_what_is_put_off_to_the_end_is_held_till_then_and_a_late_read_holds_a_handful(
    keep=lambda report: report,
) -> None:
    step = jax.jit(lambda a: (a @ a, a[:, 0] * 1.0))  # a report of 400 bytes
    start, steps = jnp.ones((100, 100)) / 100, 50

    def reports_alive() -> int:
        return sum(array.shape == (100,) for array in jax.live_arrays())

    def put_off() -> tuple[list[Any], int]:
        state, kept = start, []
        for _ in range(steps):
            state, report = step(state)
            kept.append(keep(report))
            del report
        held = reports_alive()
        return [np.asarray(report)[0] for report in kept], held

    def one_late(steps: int) -> tuple[list[Any], int]:
        state, read, late, held = start, [], None, 0
        for _ in range(steps):
            state, report = step(state)
            report.copy_to_host_async()  # sets out, and nobody waits
            if late is not None:
                read.append(np.asarray(late)[0])
            held = max(held, reports_alive())
            late = report
        return [*read, np.asarray(late)[0]], held

    (all_at_the_end, many), (late_reads, few) = put_off(), one_late(steps)
    assert all_at_the_end == late_reads
    assert many == steps  # an array for each step
    assert few == one_late(2 * steps)[1] < 5  # and a handful, however many steps there are


@pytest.mark.proves("S2-35: true")
@pytest.mark.unless("a Z that is left on the first device", there=CPU[0])
def test_arrays_committed_to_one_device_add_there(there=CPU[1]) -> None:
    with jax.default_device(CPU[0]):
        x = jax.device_put(jnp.ones((2, 3)), CPU[0])
    y = jax.device_put(jax.random.uniform(jax.random.PRNGKey(0), (2, 3)), CPU[1])
    z = jax.device_put(x, there)
    assert refused(jnp.add, y, z) == ""
    assert (y + z).devices() == {CPU[1]}
    np.testing.assert_allclose(y + z, np.asarray(y) + 1)
