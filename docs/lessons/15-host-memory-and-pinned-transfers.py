# %% [markdown]
"""
---
part: 4 Many GPUs
description: Memory kinds - where an array lies beside its device, and how to stage it on the host.
---
# 15 Host memory and pinned transfers

After this lesson you can

- name the memories of a device, and the memory an array lies in;
- put an array into pinned host memory, bring it back, and see when it is worked on over there;
- write a jitted step that reads from host memory and writes to it;
- say what that saves, and when;
- read and copy the next batch while the device works.

**Why care.** Adam keeps {{ adam_share:.0f }} % of this lesson's training state, and needs it only
once in each step. Below it moves to host memory: {{ device_before:.0f }} MiB in device memory
become {{ device_after:.0f }} MiB. But in a larger model, compiled for eight H200, the peak *inside*
the step falls by {{ moved_saves }} MiB of {{ state_mib:.0f }}, until one more line is written. And
the argument `pinned=True`, which a document recommends, does not exist. <!-- gpu: compiled -->
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
!!! note "What a CPU can show here, and what it cannot"
    A CPU device has the same *kinds* of memory as a GPU, and JAX checks them in the same way. But
    all of them are the same chips. So this page shows which memory an array is in, and what the
    compiled program says. Of the speed of a copy it says nothing: slow reads are slept through.
    <!-- gpu: nothing claimed -->

## There is no pinned argument { #there-is-no-pinned-argument }

For a GPU to copy from host memory by itself, the operating system promises not to move that memory:
it is **pinned**. (There are machines where a GPU reads other host memory, too. We have not looked
at one.) The source document pins an array with an argument of `jnp.array`. Try it.
<!-- gpu: S1-11 -->
"""

# %%
import numpy as np

data = np.ones((1024, 1024), np.float32)
for options in [{"pinned": True}, {"order": "F"}]:
    try:
        jnp.array(data, **options)
    except (TypeError, NotImplementedError) as error:
        print(options, "\n   ", type(error).__name__ + ":", error)

# %% [markdown]
"""
!!! quote "Claim S3-05 (dgx): false"
    The document pins with `jnp.array(..., pinned=True)`. There is no such argument.

!!! quote "Claim S3-06 (dgx): false"
    It also asks for Fortran order. `jnp.array` takes no order but its default, `"K"`. The order of
    a `jax.Array` is its *layout*: `jax.experimental.layout` can choose it, and programs rarely have
    to.

A NumPy array can't be pinned in JAX, and it does not have to be. What you can choose is where a
`jax.Array` lies.

## Memory kinds { #memory-kinds }

Each device has its own memory and can also reach memory of the host. JAX calls these **memory
kinds**. The kind is a part of the array's sharding, like the device.
"""

# %%
device = jax.devices()[0]
print("kinds:  ", [memory.kind for memory in device.addressable_memories()])
print("default:", device.default_memory().kind)

x = jax.device_put(data, device)
pinned = x.sharding.with_memory_kind("pinned_host")
h = jax.device_put(x, pinned)
for name, array in [("x", x), ("h", h)]:
    kind = array.sharding.memory_kind
    print(f"{name}: {array.device}, {kind:11} {jax.typeof(array)}")

# %% [markdown]
"""
`h` is a `jax.Array` like any other. It belongs to the same device, and lies in pinned host memory.
Its type says so: `<host>`.

<quiz>
**Predict.** `x` lies in device memory, `h` in host memory, on the same device. What does `x + h`
do?
- [ ] It copies `h` to the device and adds
> JAX moves free arrays between *devices*. It moves no such array between memories.
- [ ] It adds on the host
> Nothing in the line says where.
- [x] It raises a `ValueError`
> Right. You say where, or JAX refuses.

</quiz>
"""

# %%
try:
    x + h
except ValueError as error:
    text = str(error).replace(". Got", ".\n  Got")
    print("ValueError:", text.replace(" and another", "\n  and another"))

back = jax.device_put(h, x.sharding)
print("brought back:", back.sharding.memory_kind)
print("same numbers:", bool((back == x).all()))
host_again = np.asarray(h)
print("read by NumPy:", type(host_again).__name__, host_again.shape)

# %% [markdown]
"""
!!! quote "Claim S1-11 (gpu-memory): true with conditions"
    The document says that pinned memory may help to shorten transfers. The condition is that the
    data lies there: in a `jax.Array` of memory kind `pinned_host`. No public call of JAX pins a
    NumPy array. To an H200, 1.5 GiB in `pinned_host` went with 52.9 GB/s, and from NumPy with
    8.19 GB/s. Back again it was 52.5 GB/s to `pinned_host`, and 0.982 GB/s to NumPy.
    <!-- gpu: G6 -->

## Host arrays alone raise no error { #host-arrays-alone-raise-no-error }

The error above came of two memories in one operation. What if there is only one?

<quiz>
**Predict.** `h` lies in pinned host memory of a device. What does `h @ h` do?
- [ ] It raises a `ValueError`, as `x + h` did
> Nothing is mixed here.
- [ ] It copies `h` to the device's memory, and leaves the product there
> JAX moves no such array between memories by itself, not even now.
- [x] It multiplies, and the product lies in host memory, too
> Right. No error and no word; only the result's memory kind tells.

</quiz>
"""

# %%
alone = {
    "h * 2": lambda: h * 2,
    "h @ h": lambda: h @ h,
    "jnp.sin(h)": lambda: jnp.sin(h),
    "jit(lambda h: h + h)(h)": lambda: jax.jit(lambda h: h + h)(h),
}
for text, call in alone.items():
    result = call()
    print(f"{text:25} {result.sharding.memory_kind:12} {jax.typeof(result)}")
    assert result.sharding.memory_kind == "pinned_host"
for text, number in {"h.sum()": h.sum(), "h.mean()": h.mean()}.items():
    print(f"{text:25} {number.sharding.memory_kind:12} {jax.typeof(number)}")
assert [h.sum().sharding.memory_kind, h.mean().sharding.memory_kind] == ["pinned_host", "device"]

# %% [markdown]
"""
On these devices all memories are the same chips, so nothing is lost. Beside a GPU, host memory is
at the other end of a link. Which processor works on it there is XLA's choice, and no promise of
JAX's. [Below](#what-is-saved-and-when) two of these lines are compiled for H200: `h * 2` is marked
for the host, and `h @ h` is a call of cuBLAS, a library of the GPU's, which reads host memory. XLA
warns in its log that such work is slow. So a forgotten `device_put` is an error only where the
array meets another one in device memory. Where it meets none, it only costs time.
<!-- gpu: compiled -->

The last line is an exception. A single number, without a dimension, mixes without a word: with a
number of Python's, with another single number, and with an array of either memory. Here what comes
out lies in device memory: a mean is a sum, divided by a number.

## Inside a jitted step { #inside-a-jitted-step }

In a jitted function the same `device_put` becomes a part of the program. With
`jax.memory.Space.Device` it says only *which memory*, not which device.

The aim: keep Adam's state in host memory between the steps. The step brings it in, computes, and
hands it back.
"""

# %%
import optax

MIB = 2**20
adam = optax.adam(1e-3)
params = {"a": np.eye(1024, dtype=np.float32), "b": np.ones(1024, np.float32)}
params = jax.device_put(params, device)
state = jax.device_put(adam.init(params), device)
batch = jax.device_put(np.ones((64, 1024), np.float32), device)


def kind_of(array):
    return array.sharding.memory_kind


def mib(tree, kind):
    arrays = jax.tree.leaves(tree)
    return sum(a.nbytes for a in arrays if kind_of(a) == kind) / MIB


def step(params, state, batch):
    state = jax.device_put(state, jax.memory.Space.Device)

    def loss_of(params):
        return jnp.mean((jnp.tanh(batch @ params["a"]) - params["b"]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, state = adam.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


on_device = jax.tree.map(lambda a: a.sharding, params)
in_host = jax.tree.map(lambda a: a.sharding.with_memory_kind("pinned_host"), state)
offloading = jax.jit(step, out_shardings=(on_device, in_host, None))

host_state = jax.device_put(state, in_host)
device_before = mib((params, state), "device")
device_after = mib((params, host_state), "device")
adam_share = 100 * mib(state, "device") / device_before
print(f"in device memory: {device_before:.1f} MiB")
print(f"state offloaded:  {device_after:.1f} MiB")
print(f"in host memory:   {mib(host_state, 'pinned_host'):.1f} MiB")

# %% [markdown]
"""
<quiz>
**Predict.** After `params, host_state, loss = offloading(params, host_state, batch)`, where is the
new state?
- [ ] In device memory: that is where it was computed
> It was computed there. `out_shardings` says where the result is to lie.
- [x] In pinned host memory
> Right, so the next call gets what this one got.
- [ ] In both
> A result lies in one place.

</quiz>
"""

# %%
plain = jax.jit(step)
new_params, new_state, loss = offloading(params, host_state, batch)
_, _, plain_loss = plain(params, state, batch)

print("params:", {kind_of(a) for a in jax.tree.leaves(new_params)})
print("state: ", {kind_of(a) for a in jax.tree.leaves(new_state)})
print("same loss as without host memory:", float(loss) == float(plain_loss))

compiled = offloading.lower(params, host_state, batch).compile()
header = compiled.as_text().splitlines()[0]
layout = header.partition("entry_computation_layout={")[2]
arguments, _, results = layout.partition("->")
print("by the program, arguments in host memory:", arguments.count("S(5)"))
print("by the program, results in host memory:  ", results.count("S(5)"))

# %% [markdown]
"""
`S(5)` is XLA's mark for host memory. All {{ host_leaves }} arrays of the state have it, as
arguments and as results. So you can check an offloaded step without a GPU: look at the program.
<!-- gpu: nothing claimed -->

Two things can be forgotten: the `device_put` inside the step, and `out_shardings`.
"""

# %%
host_leaves = len(jax.tree.leaves(host_state))
try:
    jax.jit(adam.update).lower(params, host_state, params)
except ValueError as error:
    print("without device_put: ValueError:", str(error)[:32], "...")

_, returned, _ = plain(params, host_state, batch)
kinds = {kind_of(a) for a in jax.tree.leaves(returned)}
print("without out_shardings:", kinds)

# %% [markdown]
"""
The first mistake is an error here, as soon as the step is traced, because Adam mixes its state with
gradients from the device. (`decay = jax.jit(lambda m: 0.9 * m)` mixes nothing, and is no error.)
The second one is the one to test for: the step works, and after it the state is in device memory,
and stays there.

## What is saved, and when { #what-is-saved-and-when }

Between two steps the state is now in host memory. And *during* a step? A small network on a CPU
can't tell, so here is a large one, for eight H200: eight layers, split over the devices. It is only
compiled for them, by the compiler that a machine with eight H200 would use. Nothing is run, and
nothing is allocated. It takes a checkout of the course: alone, the program of this page stops here.
<!-- gpu: compiled -->

Three ways to write the same step:

- `kept`: the state stays in device memory;
- `moved`: `device_put` on the state, then the update, as above;
- `one by one`: the same, but the state of each layer waits: for the gradient of that layer, and
  for the state before it to have left again.
"""

# %%
import _target

# Where there are fewer than eight GPUs, the simulated devices: nothing is run on them.
devices = jax.devices() if jax.device_count() >= 8 else jax.devices("cpu")
mesh = jax.sharding.Mesh(np.array(devices[:8]), ("data",))
rows = jax.NamedSharding(mesh, jax.P("data"))
HOST, DEVICE = jax.memory.Space.Host, jax.memory.Space.Device


def loss_of(params, batch):
    hidden = batch
    for layer in params:
        hidden = jnp.tanh(hidden @ layer)
    return jnp.mean((hidden - batch) ** 2)


def momentum_step(params, state, batch, wait, host):
    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    new_params, new_state, before = [], [], loss
    for param, old, gradient in zip(params, state, gradients, strict=True):
        if wait:  # all three are there, or none is
            old, gradient, before = jax.lax.optimization_barrier((old, gradient, before))
        mean, square = jax.device_put(old, DEVICE)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        new_params.append(param - 1e-3 * mean / (jnp.sqrt(square) + 1e-8))
        before = jax.device_put((mean, square), HOST if host else DEVICE)
        new_state.append(before)
    return new_params, new_state, loss


# %% [markdown]
"""
`optimization_barrier` returns what it is given. It promises one thing to the compiler: nothing that
comes out of it is used before all that goes in is there. So a layer's state is copied in only when
two things are there: the gradient of this layer, and the new state of the previous one, back in
host memory.

<quiz>
**Predict.** The state is {{ state_mib:.0f }} MiB on each device, and `moved` keeps it in host
memory. How much less device memory does the step `moved` need at its peak?
- [ ] {{ state_mib:.0f }} MiB less: the state is not there any more
> It is not there *between* the steps. Inside, the program brings it in.
- [x] Almost nothing
> Right: {{ moved_saves }} MiB, as the table shows.
- [ ] Half of it
> That would be so if one of the two averages stayed away.

</quiz>
"""

# %%
import re
from functools import partial


def large(shape, kind="device"):
    place = rows.with_memory_kind(kind)
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=place)


def arguments(kind):
    layers = [large((8192, 8192)) for _ in range(8)]
    state = [(large((8192, 8192), kind),) * 2 for _ in layers]
    return layers, state, large((8192, 8192))


def variant(name, wait, host):
    step = jax.jit(partial(momentum_step, wait=wait, host=host), donate_argnums=(0, 1))
    return step, *arguments("pinned_host" if host else "device")


names = ["kept", "moved", "one by one"]
settings = [(False, False), (False, True), (True, True)]
calls = [variant(name, *flags) for name, flags in zip(names, settings, strict=True)]
on_host = large((1024, 1024), "pinned_host")
calls += [(jax.jit(lambda h: h * 2), on_host), (jax.jit(lambda h: h @ h), on_host)]
*found, doubled, product = _target.compiled_all(calls)
compiled_for = dict(zip(names, found, strict=True))


def need(program):
    """MiB of device memory at the peak, and of host memory; on one device."""
    m = program.memory
    device = m.arguments + m.outputs + m.temporaries - m.aliased
    return device / MIB, m.host_arguments / MIB


needs = {name: need(program) for name, program in compiled_for.items()}
for name, (device_mib, host_mib) in needs.items():
    copies = compiled_for[name].host_copies
    print(f"{name:11} device {device_mib:5.0f} MiB, host {host_mib:4.0f} MiB, {copies} copies")

print("of host memory alone, as compiled:")
marks = r'ROOT .*(_xla_compute_type="host")', r'(custom_call_target="__cublas[^"]*")'
for text, program, mark in zip(["h * 2", "h @ h"], [doubled, product], marks, strict=True):
    print(f"    {text}  {re.findall(mark, program.text)[-1]}")

# %% alt="Bars of device memory. Kept and moved are equal; one by one is shorter by the state."
import matplotlib.pyplot as plt

state_mib = needs["moved"][1]
moved_saves = round(needs["kept"][0] - needs["moved"][0])  # below half a MiB: 0
saved = needs["kept"][0] - needs["one by one"][0]
assert moved_saves < 0.3 * state_mib < 0.9 * state_mib < saved

figure, axes = plt.subplots()
on_device, on_host = np.array(list(needs.values())).T
bars = axes.barh(names, on_device, color="tab:blue", label="device, at the peak")
axes.bar_label(bars, fmt="%.0f ", label_type="center", color="white")
hatched = {"fill": False, "hatch": "////", "edgecolor": "tab:blue"}
axes.barh(names, on_host, left=on_device, label="host", **hatched)
axes.invert_yaxis()
axes.set_xlabel(f"MiB on one {_target.machine().device_kind}, compiled and not run")
axes.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.25))
plt.show()

# %% [markdown]
"""
A copy that depends on nothing is started as early as possible, so that nobody waits for it. In
`moved`, all of the state is on its way while the activations still need their room: the peak is as
high as before. The line stood late in your text, but the text is not the schedule. With the
barriers, the device holds the state of one layer at a time, after the activations are gone:
{{ saved:.0f }} MiB less.

So ask what you want to save. Memory between the steps, for an evaluation or a second model: `moved`
will do. A larger model: the peak decides, and you have to look at it. The compiler is free to
schedule as it likes, so look again after each change.

## The order of lines decides { #the-order-of-lines-decides }

Now the other traffic with the host: batches. A batch is read from a disk or a network, and copied
to the device. Both take time in which the device could work.

In lesson 04 the loop never waited for a loss, so Python ran ahead, and reading overlapped by
itself. This loop must wait: it decides after each step whether to go on. `read` sleeps as long as
one step takes; that stands for the disk, or for a slow bus, while the processor is free. A real
copy is nothing here: the CPU device takes NumPy's memory as it is, or copies it in a moment.
"""

# %%
import time
from time import perf_counter as now

import _trace
from jax.profiler import TraceAnnotation as marked


@jax.jit
def work(weights, batch):
    hidden = batch
    for _ in range(8):
        hidden = jnp.tanh(hidden @ weights)
    return jnp.mean(hidden)


weights = jax.device_put(np.eye(512, dtype=np.float32), device)
on_disk = list(np.random.default_rng(0).normal(size=(2, 512, 512)).astype(np.float32))
placed = jax.device_put(on_disk[0], device)
float(work(weights, placed))
start = now()
for _ in range(8):
    float(work(weights, placed))
STEP = (now() - start) / 8
print(f"a step takes {STEP * 1000:.1f} ms")


def read(i, seconds=STEP):
    with marked("read"):
        time.sleep(seconds)
        return on_disk[i % 2]


def put(batch):
    with marked("copy"):
        return jax.device_put(batch, device)


def wait(loss):
    with marked("wait for the loss"):
        return float(loss)


def in_turn(count):
    losses = []
    for i in range(count):
        batch = put(read(i))
        losses.append(wait(work(weights, batch)))
    return losses


def next_one_first(count):
    losses, batch = [], put(read(0))
    for i in range(count):
        loss = work(weights, batch)  # returns at once; the device works
        if i + 1 < count:
            batch = put(read(i + 1))  # meanwhile
        losses.append(wait(loss))
    return losses


# %% [markdown]
"""
The two loops hold the same calls. Only the wait has moved below the reading of the next batch. Each
is run once under `jax.profiler`, and what follows is drawn from its trace.
"""

# %% alt="Two traces. In turn: read, then device. Next one first: both at the same time."
waiting = {"facecolor": "none", "hatch": "////", "edgecolor": "tab:red"}
PYTHON = {"read": {"color": "tab:blue"}, "copy": {"color": "tab:orange"}}
PYTHON["wait for the loss"] = waiting


def timeline(axes, loop):
    _, spans = _trace.record(loop, 5)
    for span in spans:
        style = PYTHON.get(span.name, {"color": "tab:green"})
        row = 1 if span.name in PYTHON else 0
        if row or span.device:
            axes.broken_barh([(span.start, span.length)], (row - 0.35, 0.7), **style)
    axes.set_yticks([0, 1], ["device", "Python"])
    axes.set_title(loop.__name__.replace("_", " "), loc="left", fontsize=10)
    return max(span.start + span.length for span in spans if span.name in PYTHON)


figure, axes = plt.subplots(2, 1, figsize=(7, 3.4), sharex=True)
ends = [timeline(axis, loop) for axis, loop in zip(axes, [in_turn, next_one_first], strict=True)]
axes[0].set_xlim(0, 1.02 * max(ends))
axes[1].set_xlabel("milliseconds, five steps")
for name, style in {**PYTHON, "device works": {"color": "tab:green"}}.items():
    axes[0].fill_between([], [], **style, label=name)
axes[0].legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.6))
plt.show()

# %% [markdown]
"""
Above, Python and the device take turns. Below, they work at the same time, and the hatched part,
Python with nothing to do, is short.

!!! quote "Claim S3-16 (dgx): true with conditions"
    The document says that asynchronous operations overlap transfer and computation. They can: the
    lower picture. The upper one is made of the same operations. The condition is that the next
    copy is begun *before* the wait.

Many people put this into a generator, which places a batch ahead of time.

<quiz>
**Predict.** `ahead` below puts a batch and hands it out. The loop waits for each loss before it
asks for the next batch. When does `ahead` read batch 2?
- [ ] While step 1 runs: a generator works in the background
> It has no background. It runs only inside `next()`.
- [x] After the loss of step 1 was read
> Right: the `for` asks for the next batch when its body is done, and the wait is in the body.
- [ ] At the start, all at once
> It reads when it is asked.

</quiz>
"""


# %%
def ahead(count):
    for i in range(count):
        yield put(read(i))


def from_a_generator(count):
    return [wait(work(weights, batch)) for batch in ahead(count)]


def seconds(loop, count=8):
    start = now()
    loop(count)
    return now() - start


loops = [in_turn, from_a_generator, next_one_first]
times = np.array([[seconds(loop) for loop in loops] for _ in range(7)])
best = times.min(axis=0)  # whatever else this machine does only adds time
speedups = best[0] / best
first_speedup, generator_speedup = speedups[2], speedups[1]
assert in_turn(4) == from_a_generator(4) == next_one_first(4)
assert first_speedup > max(1.1, generator_speedup)
for loop, speedup in zip(loops, speedups, strict=True):
    print(f"{loop.__name__:17} {speedup:.2f}x as fast as in turn")

# %% [markdown]
"""
The generator gains next to nothing, and below 1 it even loses. What runs inside `next()` can't
overlap with a step that the loop has waited for already. A generator that keeps two batches, such
as `flax.jax_utils.prefetch_to_device`, starts its *copies* ahead of the step that needs them. They
can then run beside a step. On an H200, a step of 3.24 ms and a copy of 55.6 ms took 54.7 ms
together, with a spread larger than the step, so this copy was too long a one to show it. It does
not overlap the *reading*, which runs in Python. <!-- gpu: G11 -->

## A few ahead { #a-few-ahead }

One read beside one step is enough if a read is as quick as a step. Suppose that it takes three
times as long. A disk or a network serves many requests at the same time, so ask for several
batches early, and keep the promises: futures.
"""

# %% alt="Time of a step over reads under way. One read: about three steps. Four: about one."
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(8)  # stands for a disk that serves eight reads at a time


def reads_under_way(depth, count=12):
    def ask(i):
        return pool.submit(read, i, 3 * STEP)

    reads = [ask(i) for i in range(depth)]
    batch, losses = put(reads.pop(0).result()), []
    begin = now()
    for i in range(count):
        loss = work(weights, batch)
        reads.append(ask(i + depth))
        batch = put(reads.pop(0).result())
        losses.append(wait(loss))
    return (now() - begin) / count / STEP


depths = [1, 2, 3, 4, 6]
costs = [min(reads_under_way(depth) for _ in range(2)) for depth in depths]
alone, four = costs[0], costs[3]
assert alone > 1.5 * four
figure, axes = plt.subplots()
axes.bar([str(depth) for depth in depths], costs, color="tab:blue")
axes.axhline(1, color="#808182", linestyle="--")
axes.text(4.5, 1.2, "the step alone", ha="right")
axes.set_xlabel("reads under way")
axes.set_ylabel("time of a step")
plt.show()

# %% [markdown]
"""
With one read under way a step takes {{ alone:.1f }} times as long as the step alone; with four,
{{ four:.1f }} times. More would help nothing, and each holds a batch in memory: a queue needs an
end. This is what a data loader with workers does for you. What no loader knows is your devices: the
`put` is yours.

## Your turn

!!! example "Exercise ex26: stage in pinned host memory"
    Arrays are to wait in pinned host memory and come back for the computation. The grader looks
    at the memory kind of what goes in, what comes out, and what the compiled program says. Start
    on the [page of ex26](../exercises/ex26_pinned_host.md).

    === "Failing"

        {{ capture: check ex26 starter }}

    === "Passing"

        {{ capture: check ex26 solution }}

!!! example "Exercise ex27: have the next batch on its way"
    A loop reads, copies, computes and needs each loss at once. The grader writes down every call
    in order, and times your loop beside a reference. Start on the
    [page of ex27](../exercises/ex27_prefetch.md).

    === "Failing"

        {{ capture: check ex27 starter }}

    === "Passing"

        {{ capture: check ex27 solution }}

!!! example "Exercise ex28: state on the host"
    Adam's state is to live in host memory, and never to be on the device as a whole. The grader
    reads the compiled program; with `--target h200x8`, that of eight H200. Start on the
    [page of ex28](../exercises/ex28_offload_state.md).

    === "Failing"

        {{ capture: check ex28 starter }}

    === "Passing"

        {{ capture: check ex28 solution }}

## Three questions

<quiz>
How do you pin a NumPy array in JAX?
- [ ] `jnp.array(a, pinned=True)`
- [ ] `jax.device_put(a, pinned=True)`
- [x] You don't; you put it into a `jax.Array` with memory kind `pinned_host`

Pinned memory is a property of where a `jax.Array` lies.
</quiz>

<quiz>
After its first call, an offloaded step has left the optimizer's state in device memory. What is
missing?
- [ ] `donate_argnums`
- [x] `out_shardings` with the host memory kind, or a `device_put` to it
- [ ] A larger pinned pool

The first call got the state from host memory and returned it in device memory.
</quiz>

<quiz>
An offloaded step runs out of device memory in its first call, as it did before you offloaded. Why?
- [ ] Host memory is a part of device memory
- [x] All of the state is copied in while the activations are still there
- [ ] The state was not donated

The peak counts. Let each copy wait for the gradient that it meets.
</quiz>

## Recap

- `pinned=True` does not exist. `sharding.with_memory_kind("pinned_host")` does.
- An array's memory kind is a part of its sharding, and of its type.
- JAX does not mix arrays of two memories in one operation (single numbers it does): bring the array
  to the device, or get a `ValueError`. On host arrays alone it computes, slowly, and says nothing.
- `S(5)` in the compiled program proves it, with no GPU at hand.
- Moved at once, the state saves {{ moved_saves }} MiB at the peak; one by one, {{ saved:.0f }}.
- Begin the next read and the next copy before you wait: {{ first_speedup:.1f }} times as fast here.
- A generator runs when it is asked, not before. <!-- gpu: compiled -->

Next: [more than one process](16-more-than-one-process.ipynb).
"""
