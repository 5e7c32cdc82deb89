# %% [markdown]
"""
---
part: 4 Many GPUs
description: A trainer for eight GPUs, put together part by part, each part with its evidence.
---
# 18 The DGX trainer

After this lesson you can

- split a model over two axes, and say what each axis costs;
- read from a compiled step what it keeps on a device, what on the host, and what it sends;
- donate, share, offload and prefetch in one trainer, and see what each of them brings;
- set the time of the arithmetic beside that of the exchange, on paper, and say which one rules;
- decide from these figures which mesh to take, before you have the machine.

**Why care.** The trainer below starts as most do: it runs on eight devices, and every device keeps
everything. Compiled for eight H200, it needs {{ first_gib:.0f }} GiB on each one; each one has
{{ room_gib:.0f }} GiB. At the end it is the same step, gives the same losses, and needs
{{ last_gib:.0f }} GiB. It has four parts, and on a mesh of 2 x 4 it does not fit without any one of
them.
<!-- gpu: compiled -->
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
!!! note "Two sizes of one program"
    A small model runs here, on simulated devices, and shows that the numbers stay what they were.
    A large one is only compiled, for the target: by the compiler that eight H200 would use, but
    without a GPU. Nothing of it is run, so no time is known. What it holds and what it sends is
    the compiler's decision; small intermediate arrays may differ on a real machine. The compiling
    takes a checkout of the course: alone, the program of this page stops there.
    <!-- gpu: compiled -->

## One trainer { #one-trainer }

The model is a stack of residual blocks, as in a transformer without attention. `up` makes four
times the width, `down` brings it back. Adam keeps two averages for each weight. All of a step is
**one** jitted function, so that one compiler sees all of it.

Where everything lies is said apart, by a `Layout`: a mesh and a spec for each kind of array. That
is what will change. The step uses it twice for each block: it updates a weight where Adam's
averages of it lie, and hands it back where the weights lie. As long as the two are the same place,
nothing moves.
"""

# %%
from functools import partial
from typing import NamedTuple

import numpy as np
import optax

adam = optax.adam(1e-3)
P = jax.P


class Layout(NamedTuple):
    """A mesh, and how each kind of array lies on it."""

    mesh: jax.sharding.Mesh
    weights: dict
    averages: dict
    batch: P

    def place(self, spec, memory="device"):
        return jax.NamedSharding(self.mesh, spec, memory_kind=memory)

    def constrain(self, block, specs):
        places = {name: self.place(spec) for name, spec in specs.items()}
        return jax.lax.with_sharding_constraint(block, places)


def loss_fn(params, batch):
    hidden, targets = batch
    for block in params.values():
        hidden = hidden + jax.nn.gelu(hidden @ block["up"]) @ block["down"]
    return jnp.mean((hidden - targets) ** 2)


def step(params, state, batch, layout):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    new_params, new_state = {}, {}
    for name in reversed(grads):  # the gradient of the last block is there first
        grad = layout.constrain(grads[name], layout.averages)
        updates, new_state[name] = adam.update(grad, state[name])
        params_there = layout.constrain(params[name], layout.averages)
        new = optax.apply_updates(params_there, updates)
        new_params[name] = layout.constrain(new, layout.weights)
    return new_params, new_state, loss


# %% [markdown]
"""
## Two axes { #two-axes }

Eight devices can share the work in two ways.

- **The rows of the batch.** Each device has all weights and some rows. It needs the sum of all
  gradients.
- **The weights.** Each device has some columns of `up` and the matching rows of `down`. From the
  first product to the second it needs nothing of the others; then their results have to be added.

A mesh of 8 x 1 shares the rows alone, one of 1 x 8 the weights alone. One of 2 x 4 does both: two
groups share the rows, and in each group four devices share the weights. In the specs, `"data"`
splits rows, `"model"` splits the dimension that is four times the width: `up` is
`P(None, "model")`, `down` is `P("model", None)`.

<quiz>
**Predict.** Split the batch over all devices, and leave the weights whole. How much does a step
need of one device's memory, compared with everything everywhere?
- [ ] An eighth
> Only the rows are split. Params, gradients and Adam's state are whole on every device.
- [x] Nearly as much
> Right: of the large things it splits the smallest.
- [ ] Half
> Nothing here is split in two.

</quiz>

## Share the state over "data", too { #share-the-state }

The devices of different groups hold the same weights, and so they would keep the same averages. Let
each of them keep its share: `averages` get specs with both axes. Then the compiler can send each
device the sum of *its share* of the gradient, a reduce-scatter, and gather the new weights after
the update. [Lesson 14](14-collectives-you-can-count.ipynb#share-the-state) has the names for it:
ZeRO-1, and ZeRO-2 where a device keeps no more than its share of the gradient, either.

## Donate both { #donate-both }

At its peak, the step holds the old params and state and the new ones. The old ones are never used
again: donate them.

## State on the host { #state-on-the-host }

Adam's state is twice the weights, and needed only for the update. It waits in pinned host memory,
and comes in block by block: each when the gradient of its block is there, and the state before it
has gone back. Lesson 15 shows why this takes a barrier.
"""


# %%
def offloading_step(params, state, batch, layout):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    new_params, new_state, before = {}, {}, loss
    for name in reversed(grads):
        grad = layout.constrain(grads[name], layout.averages)
        grad, waiting, before = jax.lax.optimization_barrier((grad, state[name], before))
        moments = jax.device_put(waiting, jax.memory.Space.Device)
        updates, moments = adam.update(grad, moments)
        params_there = layout.constrain(params[name], layout.averages)
        new = optax.apply_updates(params_there, updates)
        new_params[name] = layout.constrain(new, layout.weights)
        new_state[name] = before = jax.device_put(moments, jax.memory.Space.Host)
    return new_params, new_state, loss


# %% [markdown]
"""
## What it takes on the target { #what-it-takes-on-the-target }

The large model has {{ weights_gib:.0f }} GiB of weights in {{ blocks }} blocks. Below, the parts
are added one after the other, on a mesh of 2 x 4; then each of them is left out of the whole.

<quiz>
**Predict.** Weights split over "model", state shared over "data", both donated, state on the host.
Which of these can be left out, so that the step still fits into {{ room_gib:.0f }} GiB?
- [ ] Sharing: the state is on the host anyway, and takes no room on the device
> Then the gradients are whole in each group. They are as large as the weights.
- [ ] Donation: the state, the largest, is on the host
> Then old and new weights are on the device together.
- [x] None of them
> Right. The second half of the table leaves them out one by one.

</quiz>
"""

# %%
import _target

GIB = 2**30
blocks, LARGE, SMALL = 3, {"width": 57344, "rows": 16384}, {"width": 128, "rows": 512}

# Where there are fewer than eight GPUs, the simulated devices: where a part lies is the same.
devices = jax.devices() if jax.device_count() >= 8 else jax.devices("cpu")


def mesh_of(data, model):
    grid = np.array(devices[: data * model]).reshape(data, model)
    return jax.sharding.Mesh(grid, ("data", "model"))


BY_MODEL = {"up": P(None, "model"), "down": P("model", None)}
BY_BOTH = {"up": P("data", "model"), "down": P("model", "data")}


def split(data, model, shared):
    averages = BY_BOTH if shared else BY_MODEL
    return Layout(mesh_of(data, model), BY_MODEL, averages, P("data"))


EVERYWHERE = Layout(mesh_of(2, 4), {"up": P(), "down": P()}, {"up": P(), "down": P()}, P())


def shapes(layout, host, width, rows):
    """Arguments of the step as shapes: params, state, batch."""

    def shape(*size, place, kind=np.float32):
        return jax.ShapeDtypeStruct(size, kind, sharding=place)

    def block(specs, memory):
        up, down = (layout.place(specs[name], memory) for name in ("up", "down"))
        return {
            "up": shape(width, 4 * width, place=up),
            "down": shape(4 * width, width, place=down),
        }

    memory = "pinned_host" if host else "device"
    count = shape(place=layout.place(P(), memory), kind=np.int32)
    averages = [block(layout.averages, memory) for _ in range(2)]
    state = optax.ScaleByAdamState(count, *averages), optax.EmptyState()
    names = [f"block{i}" for i in range(blocks)]
    batch = shape(rows, width, place=layout.place(layout.batch))
    weights = block(layout.weights, "device")
    return dict.fromkeys(names, weights), dict.fromkeys(names, state), (batch, batch)


def built(layout, *, donated=True, host=True, **sizes):
    """The jitted step and shapes for it; results lie as arguments do."""
    args = shapes(layout, host, **(sizes or LARGE))
    places = jax.tree.map(lambda shape: shape.sharding, args[:2])
    run = partial(offloading_step if host else step, layout=layout)
    donate = (0, 1) if donated else ()
    return jax.jit(run, donate_argnums=donate, out_shardings=(*places, None)), *args


all_parts = split(2, 4, shared=True)
stages = {
    "everywhere": built(EVERYWHERE, donated=False, host=False),
    "rows and weights split": built(split(2, 4, shared=False), donated=False, host=False),
    "+ donated": built(split(2, 4, shared=False), host=False),
    "+ state over data": built(all_parts, host=False),
    "+ state on the host": built(all_parts),
    "all but donation": built(all_parts, donated=False),
    "all but state over data": built(split(2, 4, shared=False)),
    "all but split weights": built(split(8, 1, shared=True)),
}
programs = dict(zip(stages, _target.compiled_all(list(stages.values())), strict=True))
programs["all but the host"] = programs["+ state over data"]
machine = _target.machine()
room_gib = machine.memory_bytes / GIB


def need(program):
    """GiB of one device at the peak of the step, and of its host memory between steps."""
    m = program.memory
    device = m.arguments + m.outputs + m.temporaries - m.aliased
    return device / GIB, m.host_arguments / GIB


needs = {name: need(program) for name, program in programs.items()}
for name, (device_gib, host_gib) in needs.items():
    fits = "fits" if device_gib < room_gib else ""
    print(f"{name:24} device {device_gib:6.0f} GiB  host {host_gib:4.0f} GiB  {fits}")
print(f"one {machine.device_kind} has {room_gib:.0f} GiB")

# %% alt="Bars of device memory, logarithmic. One of nine is shorter than the line of an H200."
import matplotlib.pyplot as plt

weights_gib = 8 * blocks * LARGE["width"] ** 2 * 4 / GIB
fit = [name for name, (device_gib, _) in needs.items() if device_gib < room_gib]
assert fit == ["+ state on the host"]
falling = [needs[name][0] for name in list(stages)[:5]]
assert falling == sorted(falling, reverse=True)
first_gib, last_gib = falling[0], falling[-1]
undonated_gib, unshared_gib = (
    needs[f"all but {part}"][0] for part in ("donation", "state over data")
)
host_gib = needs["+ state on the host"][1]
unshared_host = 8 * needs["all but state over data"][1]
host_all, host_room = 8 * host_gib, machine.paper["host_memory"] / GIB

figure, axes = plt.subplots(figsize=(7, 3.4))
names, sizes = list(needs), [device_gib for device_gib, _ in needs.values()]
bars = axes.barh(names, sizes, color=["tab:blue"] * 5 + ["tab:gray"] * 4)
axes.bar_label(bars, fmt=" %.0f", color="#808182")
axes.axvline(room_gib, color="tab:red", linestyle="--", label=f"one {machine.device_kind} has")
axes.set_xscale("log")
axes.set_xlim(50, 2.5 * first_gib)
axes.invert_yaxis()
axes.set_xlabel("GiB of each device at the peak, logarithmic; compiled and not run")
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
"""
From top to bottom each part brings something, and the first that fits has all of them. Without
donation it would need {{ undonated_gib:.0f }} GiB, without sharing {{ unshared_gib:.0f }}.

What a device has is more than JAX takes of it: three quarters, unless you set
`XLA_CLIENT_MEM_FRACTION` ([lesson 08](08-who-took-the-memory.ipynb#when-the-settings-are-read)).
With that default, this step does not fit yet. A trainer that fills its GPUs sets the fraction, and
leaves some room for CUDA and for the links. <!-- gpu: G2 -->

What has left the device is on the host, and all eight devices hang on one host: {{ host_all:.0f }}
GiB of state there. With the state not shared over "data", both groups would keep a copy of all of
it, {{ unshared_host:.0f }} GiB. On paper the host of such a machine has {{ host_room:.0f }} GiB.
<!-- source: NVIDIA's user guide of the DGX H100 -->

## Count what travels { #count-what-travels }

The compiled program names each message.
"""

# %%
messages = {name: programs[name].collectives for name in ("+ donated", "+ state on the host")}
for name, found in messages.items():
    print(name)
    for c in found:
        print(f"  {c.count} x {c.op} of {c.nbytes / GIB:,.2f} GiB")
by_op = {c.op for c in messages["+ state on the host"]}
assert {"reduce-scatter", "all-gather"} <= by_op
activation_bytes = LARGE["rows"] // 2 * LARGE["width"] * 4
activations = sum(c.count for c in messages["+ donated"] if c.nbytes == activation_bytes)
assert activations == 2 * blocks - 1

# %% [markdown]
"""
In both, each block adds up one activation on the way forward, and one on the way back, except the
first, whose input needs no gradient: {{ activations }} of them. The rest are gradients, of the
quarter of the weights that a device has. Unshared, they are summed by all-reduces. Shared, each is
split in two: a reduce-scatter, whose result is the half that a device updates, and an all-gather of
the new weights.

<quiz>
**Predict.** Somebody adds `out_shardings=NamedSharding(mesh, P())` to a step whose weights are
split, "so that every device has the new params". What does it cost?
- [ ] Nothing: it only says where the result goes
> The result is computed in parts. To go everywhere, the parts have to travel.
- [x] An all-gather for each weight and each average
> Right. And the next call gets whole weights, where it was compiled for parts.
- [ ] An error: the weights are split
> Any placement is allowed. Each has a price.

</quiz>
"""

# %%
plain = split(2, 4, shared=False)
whole = jax.jit(partial(step, layout=plain), out_shardings=plain.place(P()))
text = whole.lower(*shapes(plain, False, **SMALL)).compile().as_text()  # the small model, here
gathers = text.count(" all-gather(") + text.count(" all-gather-start(")
print(f"{gathers} all-gathers for {blocks} blocks of two weights, with two averages each")
assert gathers == blocks * 2 * 3

# %% [markdown]
"""
!!! quote "Claim S3-09 (dgx): true"
    The document warns that naive partitioning can lead to excess communication. It can, and you can
    count it before you buy anything.

### Which mesh? { #which-mesh }

Eight is 8 x 1, 4 x 2, 2 x 4 and 1 x 8. Here is the step with all parts on each. In a ring, a device
sends 2 (n - 1) / n times the bytes of an all-reduce over n devices, and half of that for a
reduce-scatter or an all-gather ([lesson 14](14-collectives-you-can-count.ipynb)). Gradients and
weights travel over "data", activations over "model".
"""

# %%
grids = [(8, 1), (4, 2), (2, 4), (1, 8)]
known = {(8, 1): programs["all but split weights"], (2, 4): programs["+ state on the host"]}
more = {grid: built(split(*grid, shared=True)) for grid in grids if grid not in known}
more["1 x 8, no host"] = built(split(1, 8, shared=True), host=False)
many_rows = 4 * LARGE["rows"]
more["2 x 4, more rows"] = built(all_parts, width=LARGE["width"], rows=many_rows)
known |= dict(zip(more, _target.compiled_all(list(more.values())), strict=True))


def sends(data, model, program):
    """GiB that each device sends in a ring: (over "data", over "model")."""
    of_weights = of_rows = 0.0
    for c in program.collectives:
        nbytes = c.count * c.nbytes
        if c.op == "reduce-scatter":
            of_weights += (data - 1) * nbytes
        elif c.op == "all-gather":
            of_weights += (data - 1) / data * nbytes
        elif c.nbytes == LARGE["rows"] // data * LARGE["width"] * 4:
            of_rows += 2 * (model - 1) / model * nbytes
    return of_weights / GIB, of_rows / GIB


print("data x model  device at the peak   sends over data   over model")
sent_by = {}
for grid in grids:
    sent_by[grid] = over_data, over_model = sends(*grid, known[grid])
    device_gib, _ = need(known[grid])
    fits = "fits" if device_gib < room_gib else "    "
    print(f"{grid[0]:4} x {grid[1]} {device_gib:11.0f} GiB {fits}", end="")
    print(f"{over_data:13.1f} GiB {over_model:8.1f} GiB")
alone_gib, no_host_gib = need(known[1, 8])[0], need(known["1 x 8, no host"])[0]
print(f"1 x 8 with the state on the devices: {no_host_gib:.0f} GiB")
many_gib = need(known["2 x 4, more rows"])[0]
print(f"2 x 4 with {many_rows:,} rows at once: {many_gib:.0f} GiB")
assert [need(known[grid])[0] < room_gib for grid in grids] == [False, False, True, True]
assert min(no_host_gib, many_gib) > room_gib
over_data, over_model = sent_by[2, 4]
alone_model = sent_by[1, 8][1]
turn_rows = LARGE["rows"] * over_data / (alone_model - over_model)

# %% [markdown]
"""
Two meshes have room for this model, 2 x 4 and 1 x 8. On 1 x 8 there is nothing to share over
"data", and it needs the host as well: without it, {{ no_host_gib:.0f }} GiB.

Which of the two? 1 x 8 needs less memory and, for this batch, sends less: {{ alone_model:.0f }} GiB
where 2 x 4 sends {{ over_data:.0f }} and {{ over_model:.0f }}. But what travels over "model" grows
with the rows, and what travels over "data" does not: from about {{ turn_rows:,.0f }} rows on, 2 x 4
sends less (arithmetic, from the same messages). So many do not fit at once: with
{{ many_rows:,}} it needs {{ many_gib:.0f }} GiB. They would come as micro-batches. And not all
bytes are equal. A gradient is needed at the end, and can travel while the rest is computed; for an
activation, the next product waits. 2 x 4 has {{ over_model:.0f }} GiB to wait for, and 1 x 8 has
{{ alone_model:.0f }}.

So no mesh is best for every batch: compile your own step for each, with your own rows, and compare.
This lesson goes on with 2 x 4, where both axes have work.

!!! quote "Claim S3-03 (dgx): true with conditions"
    The document says that efficiency hinges on data movement, from the host and over NVLink. Those
    are two accounts. What the GPUs exchange is in the table above. What the host exchanges with
    them is the batch, and what you put there. (Where two GPUs can't reach each other, NCCL may have
    to go by the host; we have not seen it.) How much either costs is the next question.

## Time on paper { #time-on-paper }

Nothing has run, so no time is known. What can be had is a *bound on paper*, from the figures of
data sheets: FLOPs over the rate of the tensor cores, bytes over the rate of the links, for
exchanges that go round in a ring. Real machines are slower, but for exchanges in which the switches
add up. The sources: [NVIDIA's page on the H200](https://www.nvidia.com/en-us/data-center/h200/) for
the products (TF32 without sparsity; such a GPU may compute products of float32 in it) and for PCIe,
one way; [a description of such a
machine](https://github.com/mlcommons/inference_results_v4.1/blob/main/closed/NVIDIA/systems/H200-SXM-141GBx8_TRT_MaxQ.json)
for NVLink, one way. <!-- gpu: source: the data sheets linked here -->

How near does one come? An H200 made 352 TFLOP/s in TF32, of the 494 on paper, and took 52.9 GB/s
from pinned host memory, of the 64. <!-- gpu: G12, G6 -->

Each weight takes two FLOPs a row forward, two for its gradient, two for the gradient of its input:
six in all, but for the first `up`, whose input needs none. The compiler's own count for the small
model tells whether that is right.
"""


# %%
def flops_on_paper(width, rows):
    """FLOPs of the products of one device."""
    return (6 * 8 * blocks * width**2 - 2 * 4 * width**2) * rows / 8


run, *args = built(all_parts, **SMALL)
counted = run.lower(*args).compile().cost_analysis()["flops"]
print(f"small model: {counted:.3g} FLOPs counted, {flops_on_paper(**SMALL):.3g} on paper")
assert 0.9 < flops_on_paper(**SMALL) / counted < 1.1

paper = machine.paper
print(f"products   {paper['matmul_flops'] / 1e12:6.1f} TFLOP/s   (data sheet)")
print(f"to a GPU   {machine.node_bandwidth / 1e9:6.0f} GB/s      (data sheet)")
print(f"to the host{paper['host_bandwidth'] / 1e9:6.0f} GB/s      (data sheet)")


def seconds_of(rows):
    """Seconds of the products, of the links between GPUs, of those to the host; 2 x 4."""
    math = flops_on_paper(LARGE["width"], rows) / paper["matmul_flops"]
    exchange = (over_data + over_model * rows / LARGE["rows"]) * GIB / machine.node_bandwidth
    host = 2 * host_gib * GIB / paper["host_bandwidth"]  # in, and then out
    return math, exchange, host


print("\n  rows    T_math   T_comms    T_host   seconds on paper, mesh 2 x 4")
ROWS = [1024, 4096, 16384, 65536]
times = np.array([seconds_of(rows) for rows in ROWS])
for rows, spans in zip(ROWS, times, strict=True):
    longest = ("math", "comms", "host")[int(np.argmax(spans))]
    print(f"{rows:6}", *(f"{span:9.3f}" for span in spans), f"  {longest} rules")

# %% alt="Seconds over rows, logarithmic. Math rises; the exchange rises late; the host is flat."
across = np.geomspace(ROWS[0] / 2, ROWS[-1] * 2, 200)
curves = np.array([seconds_of(rows) for rows in across]).T
figure, axes = plt.subplots(figsize=(7, 3))
for curve, name, style in zip(
    curves, ("T_math", "T_comms, between GPUs", "T_host, the state"), ("-", "--", ":"), strict=True
):
    axes.loglog(across, curve, style, linewidth=2, label=name)
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.set_xlabel("rows of the batch")
axes.set_ylabel("seconds on paper")
axes.legend()
plt.show()

math, exchange, host = seconds_of(LARGE["rows"])
rows_here = LARGE["rows"]
over_exchange = next(rows for rows in across if seconds_of(rows)[0] > seconds_of(rows)[1])
over_host = next(rows for rows in across if seconds_of(rows)[0] > seconds_of(rows)[2])
assert times[0].argmax() == times[2].argmax() == 2
assert times[3].argmax() == 0
print(f"math is longer than the exchange from about {over_exchange:,.0f} rows on,")
print(f"and longer than the way to the host and back from about {over_host:,.0f}")

# %% [markdown]
"""
On paper, arithmetic is longer than the exchange between the GPUs from about
{{ over_exchange:,.0f }} rows on. The links between GPUs are hardly the trouble of this trainer. Its
host is: for {{ host:.1f }} s the state is on its way, in and out, however few the rows, and only
from about {{ over_host:,.0f }} rows on does the arithmetic take longer. With this lesson's batch of
{{ rows_here:,}} rows the arithmetic takes {{ math:.1f }} s, and the host rules.
<!-- gpu: source: the same data sheets -->

That is the price of the last part. You pay it because without it the model does not fit at all.
With more rows for each update it shrinks beside the rest. The last line of the table shows that,
and its rows have to come as several micro-batches, since they do not fit at once ([lesson
14](14-collectives-you-can-count.ipynb#one-all-reduce)).

## The loop { #the-loop }

The step is done; now the loop around it. It reads a batch, places it, and needs each loss before
the next step. The small model runs here: first all at once as it began, then with all parts.
"""

# %%
import time
from time import perf_counter as now

numbers = np.random.default_rng(0)


def filled(shape):
    if not shape.shape:
        return np.zeros((), shape.dtype)
    return numbers.normal(size=shape.shape).astype(shape.dtype) / shape.shape[0] ** 0.5


def place(tree, like):
    return jax.tree.map(lambda x, shape: jax.device_put(x, shape.sharding), tree, like)


like = shapes(all_parts, True, **SMALL)
params = jax.tree.map(filled, like[0])
fresh = {name: adam.init(block) for name, block in params.items()}
epoch = [jax.tree.map(filled, like[2]) for _ in range(6)]


def read(batches, seconds):
    for batch in batches:
        time.sleep(seconds)  # a disk
        yield batch


def wait_and_go(step, params, state, batches, put):
    losses = []
    for batch in batches:
        params, state, loss = step(params, state, put(batch))
        losses.append(float(loss))
    return losses


def next_one_first(step, params, state, batches, put):
    losses, following = [], map(put, batches)  # reads and places one batch for each next()
    batch = next(following)
    while batch is not None:
        params, state, loss = step(params, state, batch)
        batch = next(following, None)
        losses.append(float(loss))
    return losses


def trained(loop, run, like, seconds=0.0):
    start = place(params, like[0]), place(fresh, like[1])
    began = now()
    losses = loop(run, *start, read(epoch, seconds), lambda batch: place(batch, like[2]))
    return losses, (now() - began) / len(epoch)


old_run, *old_like = built(EVERYWHERE, donated=False, host=False, **SMALL)
new_run, *new_like = built(all_parts, **SMALL)
before, _ = trained(wait_and_go, old_run, old_like)
after, _ = trained(next_one_first, new_run, new_like)
np.testing.assert_allclose(after, before, rtol=1e-4)
for name, losses in {"everywhere": before, "all parts": after}.items():
    print(f"{name:11}", " ".join(f"{loss:.5f}" for loss in losses))

# %% [markdown]
"""
The same losses. Now with a disk that takes as long as a step.
"""

# %%
seconds = min(trained(wait_and_go, new_run, new_like)[1] for _ in range(3))
loops = [wait_and_go, next_one_first]
rounds = np.array(
    [[trained(loop, new_run, new_like, seconds)[1] for loop in loops] for _ in range(7)]
)
loop_speedup = float(np.divide(*rounds.min(axis=0)))
assert loop_speedup > 1.1
print(f"the next one first: {loop_speedup:.2f}x as fast (shortest of {len(rounds)} runs each)")

# %% [markdown]
"""
!!! quote "Claim S3-14 (dgx): true"
    The document says that too much synchronisation keeps GPUs from working. The two loops differ
    in one thing: whether the loop waits for a loss before it reads the next batch, or after. The
    first takes {{ loop_speedup:.1f }} times as long.

## Your turn

!!! example "Exercise ex31: the DGX trainer"
    The last exercise is this trainer with its faults, with the weights split and the state on the
    host, and without the share over "data". Seven things are wrong, in four functions, and each is
    judged by itself. Start on the [page of ex31](../exercises/ex31_dgx_trainer.md).

    === "Failing"

        {{ capture: check ex31 starter }}

    === "Passing"

        {{ capture: check ex31 solution }}

## Three questions

<quiz>
A step on a 4 x 2 mesh holds all-reduces of half the weights' bytes, and of some activations. Is
something wrong?
- [x] No: each device adds up the gradients of the weights it has
- [ ] Yes: the gradients must have all weights' bytes
- [ ] Yes: activations never travel

With "model" of size 2, each device has half of the weights, and so half of the gradients.
</quiz>

<quiz>
You double the rows of the batch. What of the traffic between the devices grows?
- [ ] The gradients
- [x] The activations that are added up over "model"
- [ ] Both

A gradient has the shape of its weight, however many rows there are.
</quiz>

<quiz>
The trainer fits, and its GPUs are idle a third of the time. What do you look at first?
- [ ] The mesh
- [ ] Donation
- [x] What each gap waits for: the host, Python, or another GPU

Take a trace. If Python is reading a batch in the gap, the order of lines in the loop is to blame.
If the state is on its way to the host, more rows for each update help.
</quiz>

## Recap

- Rows over "data" divide the work; columns of `up` and rows of `down` over "model" divide the
  memory; the state can be shared over "data", too.
- A compiled step tells what it keeps and what it sends: {{ first_gib:.0f }} GiB became
  {{ last_gib:.0f }} GiB of one device. Leave a part out, and compile again: that shows what it
  brings.
- Set T_math beside T_comms, on paper: here the links between the GPUs matter below
  {{ over_exchange:,.0f }} rows, and those to the host below {{ over_host:,.0f }}.
- In the loop: step, then the next batch, then the wait.
- None of this needed the machine: what a step computes, keeps and sends can be tested without one.
  How long it takes can't. <!-- gpu: compiled -->

This is the last lesson. Next: [the ledger of all claims](../claims/index.md), or
[the document on the DGX](../documents/dgx.md), read again from its first line.
"""
