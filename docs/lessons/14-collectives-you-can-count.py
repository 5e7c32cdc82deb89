# %% [markdown]
"""
---
part: 4 Many GPUs
description: What each collective sends, how to send less, and what 8 x H200 would send.
---
# 14 Collectives you can count

After this lesson you can

- say who sends what to whom in each collective, and how many bytes;
- find a collective that a loop repeats, and move it out;
- split the weights of a network so that its devices meet once a block;
- spread a training state over all devices, and say what it costs between the steps and inside one;
- read the same from a program compiled for eight H200, without having one.
  <!-- gpu: nothing claimed -->

**Why care.** Two steps below take the same batch in four parts and compute the same new weights.
One sends {{ loop_kib:.0f }} KiB from each device, the other {{ once_kib:.0f }} KiB. They differ in
the place of one line.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
[Lesson 13](13-pmap-and-after.ipynb) counted the collectives that the compiler put in. Here you
write some yourself, and learn to choose. As there, eight devices are simulated where there are
fewer GPUs. <!-- gpu: nothing claimed -->

## Who sends what to whom { #who-sends-what }

In `jax.shard_map` you write the program of *one* device. It sees its own shard of each array. What
it wants from the others it asks for by a function of `jax.lax`. There are five that matter.

<quiz>
**Predict.** Four devices hold four blocks each. After a reduce-scatter, what does device B hold?
- [ ] Four blocks, each a sum over all devices
> That is an all-reduce: everybody gets every sum.
- [x] One block: the sum of all second blocks
> Right. The sums are scattered: one to each device.
- [ ] One block of each device
> That is an all-to-all. Nothing is added there.

</quiz>
"""

# %% gpu=false alt="Blocks on devices A to D before and after five collectives, as listed below."
from functools import partial

import _collectives
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

devices = jax.devices() if jax.device_count() >= 8 else jax.devices("cpu")
devices = np.array(devices[:8])
four = Mesh(devices[:4], ("d",))

right = [(0, 1), (1, 2), (2, 3), (3, 0)]
programs = {
    "psum\nall-reduce": lambda x: jax.lax.psum(x, "d"),
    "psum_scatter\nreduce-scatter": lambda x: jax.lax.psum_scatter(x, "d", tiled=True),
    "all_gather\nall-gather": lambda x: jax.lax.all_gather(x, "d", tiled=True),
    "all_to_all\nall-to-all": lambda x: jax.lax.all_to_all(x, "d", 0, 0, tiled=True),
    "ppermute\ncollective-permute": lambda x: jax.lax.ppermute(x, "d", right),
}
blocks = np.array([[10 * device + part for part in range(4)] for device in range(4)])
before = {name: blocks[:, :1] if "gather" in name else blocks for name in programs}
after = {}
for name, program in programs.items():
    each = jax.shard_map(program, mesh=four, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    after[name] = np.asarray(jax.jit(each)(before[name].ravel())).reshape(4, -1)

_collectives.draw_exchange(before, after)

# %% [markdown]
"""
The picture is drawn from what the five programs returned:

- all-reduce: every device gets all sums;
- reduce-scatter: every device gets one of the sums;
- all-gather: every device gets the block of each;
- all-to-all: A gets the first block of each device, B the second, and so on;
- collective-permute: every device gets the blocks of its left neighbour.

Look at the first three: a reduce-scatter, followed by an all-gather of what it left, *is* an
all-reduce.

## What a collective costs { #what-a-collective-costs }

How many bytes must a device send for an all-reduce of `S` bytes? Build one and count. The devices
form a ring, and everybody only ever sends to the right: first, partial sums go round until each
device has one eighth of the whole sum; then the eighths go round until everybody has all.
"""


# %%
mesh = Mesh(devices, ("data",), axis_types=(AxisType.Auto,))
N = mesh.size
to_the_right = [(i, (i + 1) % N) for i in range(N)]


def by_hand(x):
    """An all-reduce of `x` from messages to the right, each an eighth of it."""
    me = jax.lax.axis_index("data")
    eighths = x.reshape(N, -1)
    moving = eighths[me]
    for step in range(1, N):  # a sum on its way picks up one part on each device
        moving = jax.lax.ppermute(moving, "data", to_the_right) + eighths[(me - step) % N]
    total = jnp.zeros_like(eighths).at[(me + 1) % N].set(moving)
    for step in range(N - 1):  # finished sums go round
        moving = jax.lax.ppermute(moving, "data", to_the_right)
        total = total.at[(me - step) % N].set(moving)
    return total.reshape(x.shape)


WHOLE, SPLIT = P(), P("data")


def on_all(function, in_specs=WHOLE, check_vma=False):
    specs = {"in_specs": in_specs, "out_specs": WHOLE, "check_vma": check_vma}
    return jax.jit(jax.shard_map(function, mesh=mesh, **specs))


def messages(function, *arguments):
    """The collectives of `function` as compiled: (op, bytes of the result, runs)."""
    return _collectives.collectives(function.lower(*arguments).compile().as_text())


x = np.random.default_rng(0).normal(size=4096).astype(np.float32)
ring, ready_made = on_all(by_hand), on_all(lambda x: jax.lax.psum(x, "data"))
np.testing.assert_allclose(ring(x), ready_made(x), rtol=1e-5)

ring_bytes = sum(nbytes * runs for _, nbytes, runs in messages(ring, x))
print("ring:", len(messages(ring, x)), "messages,", ring_bytes, "bytes from each device")
print("psum:", messages(ready_made, x))
ring_factor = ring_bytes / x.nbytes
factor_on_2, factor_on_64, factor_on_1000 = (2 * (n - 1) / n for n in (2, 64, 1000))
assert ring_factor == 2 * (N - 1) / N
print(f"the ring sends {ring_factor} x the {x.nbytes} bytes of x")

# %% [markdown]
"""
Twice round, seven messages of an eighth each: 2 (n - 1) / n = {{ ring_factor:.2f }} times `S`. A
reduce-scatter or an all-gather is one of the two rounds, and costs half. The factor is
{{ factor_on_2:.0f }} for two devices, {{ ring_factor:.2f }} for eight and {{ factor_on_1000:.3f }}
for a thousand. So **from two devices to a thousand, what each device sends for an all-reduce grows
from once its bytes to nearly twice, and never beyond.** NVIDIA's own benchmark counts with these
factors ([nccl-tests, "bus
bandwidth"](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)). GPUs may take
other ways than a ring; this is the measure to compare with.
<!-- gpu: source: nccl-tests, "bus bandwidth" -->
"""


# %%
def sent(found, n=N):
    """Bytes that each device sends in a ring; sizes are those of the results."""
    rounds = {"all-reduce": 2 / n, "reduce-scatter": 1, "collective-permute": 1 / (n - 1)}
    return sum((n - 1) * rounds.get(op, 1 / n) * size * runs for op, size, runs in found)


assert sent(messages(ring, x)) == sent(messages(ready_made, x)) == ring_bytes

# %% [markdown]
"""
## One all-reduce { #one-all-reduce }

A batch that is too large for the memory is taken in parts, **micro-batches**: the gradients are
added up, and one step follows. Where do the devices exchange them?
"""

# %%
numbers = np.random.default_rng(0)


def draw(*shape, scale=1.0):
    return (scale * numbers.normal(size=shape)).astype(np.float32)


def loss_of(weights, inputs, targets):
    hidden = jnp.tanh(inputs @ weights["up"])
    return jnp.mean((hidden @ weights["down"] - targets) ** 2)


weights = {"up": draw(64, 256, scale=0.1), "down": draw(256, 64, scale=0.1)}
parts = draw(4, 128, 64), draw(4, 128, 64)
weights_kib = sum(w.nbytes for w in weights.values()) / 1024


def mean(tree):
    return jax.lax.pmean(tree, "data")


def accumulate(weights, parts, after_each=lambda tree: tree):
    def add(total, part):
        gradient = after_each(jax.grad(loss_of)(weights, *part))
        return jax.tree.map(jnp.add, total, gradient), None

    zeros = jax.tree.map(jnp.zeros_like, weights)
    return jax.lax.scan(add, zeros, parts)[0]


def in_the_loop(weights, parts):
    return accumulate(weights, parts, after_each=mean)


def once(weights, parts):
    return mean(accumulate(weights, parts))


rows = (P(), P(None, "data"))  # dimension 0 are the four parts, dimension 1 their rows
variants = {"in the loop": on_all(in_the_loop, rows), "once": on_all(once, rows)}
for name, variant in variants.items():
    print(f"{name:12}", messages(variant, weights, parts))
loop_kib, once_kib = (sent(messages(v, weights, parts)) / 1024 for v in variants.values())
assert loop_kib == 4 * once_kib
one, other = (variant(weights, parts) for variant in variants.values())
jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6), one, other)
print(f"the gradient has {weights_kib:.0f} KiB")

# %% [markdown]
"""
Both programs *show* one all-reduce. But one stands in the body of a loop, which runs four times;
only the loop's own line says so (`known_trip_count`). A mean of sums is the sum of means: so add
up first, exchange once. It is the same gradient, for a quarter of the bytes.

### A promise nobody checks { #a-promise-nobody-checks }

`out_specs=P()` says: all devices return the same. With `check_vma=False`, JAX takes your word.
"""

# %%
never = on_all(accumulate, rows)  # no exchange at all
result = never(weights, parts)["up"]
print("sharding:", result.sharding.spec, " replicated:", result.is_fully_replicated)
for shard in result.addressable_shards[:3]:
    print(f"device {shard.device.id}: up[0, 0] = {float(shard.data[0, 0]):+.6f}")
assert len({float(shard.data[0, 0]) for shard in result.addressable_shards}) > 1

# %% [markdown]
"""
An array that calls itself replicated, with different numbers on each device. No error, no warning:
a read takes the first device's. Train with it, and eight models drift apart.

### The sum you did not write { #the-sum-you-did-not-write }

By default, `check_vma=True`, JAX keeps track of which values *vary* over the mesh. Such a lie is
then refused. There is another effect.

<quiz>
**Predict.** `check_vma=True`, and `accumulate` alone, with no `pmean` anywhere. The weights are
equal on all devices. What does `jax.grad` return inside?
- [ ] The gradient of this device's rows
> So it is with `check_vma=False`.
- [x] The sum of all devices' gradients
> Right. A value that is equal everywhere has a gradient that is equal everywhere: JAX adds it up.
- [ ] An error
> The result is legal. It is only not what you may think it is.

</quiz>
"""

# %%
unseen = on_all(accumulate, rows, check_vma=True)
mine, averaged = (f(weights, parts)["up"] for f in (unseen, variants["once"]))
ratio = float(jnp.linalg.norm(mine) / jnp.linalg.norm(averaged))
print(f"{ratio:.2f} times the mean")
print(messages(unseen, weights, parts))


def at_home(weights, parts):
    local = jax.lax.pcast(weights, "data", to="varying")  # may differ from device to device
    return mean(accumulate(local, parts))


kept = on_all(at_home, rows, check_vma=True)
print(messages(kept, weights, parts))
unseen_runs = messages(unseen, weights, parts)[0].runs

# %% [markdown]
"""
{{ ratio:.0f }} times the mean: a sum over eight devices. And the all-reduce that nobody wrote
stands where `grad` stands: in the loop, {{ unseen_runs }} times. A `pmean` behind it changes
nothing: the mean of eight equal sums is that sum. `pcast(..., to="varying")` says that the weights
may differ from now on; then the gradient stays at home until you send it.

## Split the weights { #split-the-weights }

So far every device held all weights. Now split a block of two matrices over an axis `"model"`: each
device holds a quarter. `hidden = act(x @ up)`, then `hidden @ down`.

Which dimension? A product `a @ b` adds over the columns of `a` and the rows of `b`. Split these,
and each device has a part of every sum: an all-reduce follows. Split the other one, the columns of
`b`, and each device has whole sums, for columns of its own: nothing follows.

<quiz>
**Predict.** Which layout sends least?
- [ ] `up` by rows, `down` by columns
> The sums are incomplete in the *middle*, where an activation waits that must not see half a sum.
- [x] `up` by columns, `down` by rows
> Right. Each device computes hidden units of its own, and these alone are what its rows of
> `down` need.
- [ ] Both by columns
> Then `down` needs all hidden units on every device: an all-gather between the two.

</quiz>
"""

# %%
two = Mesh(devices.reshape(2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
FEATURES, HIDDEN, ROWS = 128, 512, 256
block = {"up": (FEATURES, HIDDEN), "down": (HIDDEN, FEATURES)}


def structs(shapes, mesh, specs):
    """Shapes with a place: enough to compile for."""
    place = {name: NamedSharding(mesh, specs[name]) for name in shapes}
    return {n: jax.ShapeDtypeStruct(s, jnp.float32, sharding=place[n]) for n, s in shapes.items()}


def step(weights, batch, before=lambda weights: weights):
    loss, gradient = jax.value_and_grad(loss_of)(before(weights), *batch)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient), loss


def ready(shapes, mesh, specs, rows, spec_of_rows=SPLIT, step_on=lambda mesh: step):
    """The jitted step, and shapes for its arguments."""
    placed = structs(shapes, mesh, specs)
    data = {"x": (rows, shapes["up"][0])}
    batch = (structs(data, mesh, {"x": spec_of_rows})["x"],) * 2
    out = jax.tree.map(lambda w: w.sharding, placed)
    return jax.jit(step_on(mesh), donate_argnums=0, out_shardings=(out, None)), placed, batch


columns, by_rows = P(None, "model"), P("model", None)
layouts = {
    "rows, columns": {"up": by_rows, "down": columns},
    "columns twice": {"up": columns, "down": columns},
    "columns, rows": {"up": columns, "down": by_rows},
}
totals = {}
for name, specs in layouts.items():
    found = messages(*ready(block, two, specs, ROWS))
    totals[name] = sum(size * runs for _, size, runs in found) / 1024
    print(f"{name}: {totals[name]:6.0f} KiB in messages", *sorted({m.op for m in found}))
assert totals["columns, rows"] == min(totals.values())
worst_ratio = totals["rows, columns"] / totals["columns, rows"]

# %% [markdown]
"""
It is one and the same step. The wrong way round, "rows, columns", its messages hold
{{ worst_ratio:.1f }} times the bytes. (Added up are the results, not what a ring sends: the rings
of the two axes have not the same length.) It is the usual mistake, since PyTorch keeps a layer as
(out, in): there, "column parallel" splits dimension 0.

What the good layout sends is easy to predict: the block's outputs once (forward), and over
`"data"` the gradient of the quarter that a device holds. In a network of many blocks, the gradient
of a block's inputs comes back the same way: one more all-reduce, of the same size.

!!! quote "Claim S3-09 (dgx): true"
    The document says that naive partitioning can cost far too much communication. The table above
    is one case. What it does not say: you can read this from the compiled program, before you run
    it. Its advice to try several strategies costs little then: the table compiled three.

!!! quote "Claim S3-25 (dgx): true with conditions"
    It says that `pjit` gives more control than `pmap`. In place of `pjit` one now writes `jit` with
    shardings, where you choose a layout and the compiler the messages, or `shard_map`, where you
    choose both.

## Share the state { #share-the-state }

An all-reduce is a reduce-scatter and an all-gather. Take the two apart, and put the optimizer
between them: each device adds up **its eighth** of the gradient, updates its eighth of the
weights, and only the weights are gathered again. The bytes on the way are the same. *Between the
steps*, no device holds the whole of what is split. The names for it say how much that is:

| name | split over the axis of the batch |
|---|---|
| ZeRO-1 | the optimizer's state |
| ZeRO-2 | that, and the gradient |
| ZeRO-3, also FSDP | that, and the weights |

In JAX it is a layout: split every array of the state over the same axis as the batch. One line
more tells the compiler to gather the weights; without it, it may find cheaper to send rows around.
Below are the three ways, each compiled for 2, 4 and 8 devices.

- **copied**: every device holds all weights, rows are split ("data parallel");
- **shared**: rows and weights are split over the same axis ("FSDP");
- **split**: weights are split, every device has all rows ("tensor parallel").
"""


# %% gpu=false alt="Two bar charts over 2, 4, 8 devices: bytes sent, and held between steps."
def gather_first(mesh):
    whole = NamedSharding(mesh, P())
    return lambda *args: step(*args, before=lambda w: jax.lax.with_sharding_constraint(w, whole))


shapes = {"up": (512, 2048), "down": (2048, 512)}
ways = {
    "copied": ({"up": P(), "down": P()}, P("data"), lambda mesh: step),
    "shared": ({"up": P("data"), "down": P("data")}, P("data"), gather_first),
    "split": ({"up": P(None, "data"), "down": P("data")}, P(), lambda mesh: step),
}
sizes = [2, 4, 8]
travel, held = ({name: [] for name in ways} for _ in range(2))
found_on_8 = {}
for n in sizes:
    part = Mesh(devices[:n], ("data",), axis_types=(AxisType.Auto,))
    for name, (specs, of_rows, way) in ways.items():
        function, *arguments = ready(shapes, part, specs, 256, of_rows, way)
        done = function.lower(*arguments).compile()
        found_on_8[name] = _collectives.collectives(done.as_text())
        travel[name].append(sent(found_on_8[name], n) / 2**20)
        held[name].append(done.memory_analysis().alias_size_in_bytes / 2**20)

copied_mib, shared_mib = held["copied"][-1], held["shared"][-1]
_collectives.draw_bars(sizes, {"MiB sent by each": travel, "MiB of weights, between steps": held})
for name, found in found_on_8.items():
    print(f"{name}:", ", ".join(f"{m.op} {m.nbytes / 2**20:.1f} MiB" for m in found))

# %% [markdown]
"""
On the left, the bytes that each device sends grow slowly with the number of devices. On the right,
copied weights stay as they are; shared and split ones halve whenever the devices double.

On eight, *shared* holds an eighth between the steps: {{ shared_mib:.0f }} of {{ copied_mib:.0f }}
MiB. Each way has its own price: what *copied* and *shared* send grows with the weights,
however few the rows; what *split* sends grows with the rows, however large the weights.

On simulated devices *shared* sends more than *copied*, though it need not: the CPU's compiler adds
up the whole gradient with an all-reduce, and then drops seven eighths of it. Is that so on a GPU?
<!-- gpu: nothing claimed -->

## On eight H200 { #on-eight-h200 }

You need no GPU to *compile* for one. The cell below hands the steps of this lesson, with larger
sizes, to XLA's compiler for eight NVIDIA H200 with NVLink between them. Nothing is run, so no time
is known, and kernels are not tuned. But the collectives and the memory are the compiler's real
decision. It takes a checkout of the course: alone, the program of this page stops here.
<!-- gpu: compiled -->

<quiz>
**Predict.** For *shared*, the CPU's program held an all-reduce of the gradient. What does the one
for H200 hold?
- [ ] The same: it is the same program
> The same program, but another compiler, with other rules.
- [x] A reduce-scatter of the gradient
> Right: where only an eighth of a sum is used, XLA for GPUs sends only that.
- [ ] Nothing: the GPUs share their memory over NVLink
> Each has its own. NVLink is how the messages travel.

</quiz>
"""

# %%
import _target

large = {"up": (8192, 28672), "down": (28672, 8192)}
calls = [ready(large, mesh, specs, 4096, *other) for specs, *other in ways.values()]

micro = structs({"up": (2048, 8192), "down": (8192, 2048)}, mesh, {"up": P(), "down": P()})
rows_of_4 = structs({"x": (4, 4096, 2048)}, mesh, {"x": P(None, "data")})["x"]
loops = {"pmean in the loop": variants["in the loop"], "sum by grad": unseen}
calls += [(function, micro, (rows_of_4, rows_of_4)) for function in loops.values()]
half = jax.ShapeDtypeStruct((4096,), jnp.bfloat16, sharding=NamedSharding(mesh, P()))
calls += [(ready_made, half)]
results = dict(zip([*ways, *loops, "half"], _target.compiled_all(calls), strict=True))

machine = _target.machine("h200x8")
links = machine.node_bandwidth
print(f"{machine.title}: {links / 1e9:.0f} GB/s out of each GPU")
print("that is:", machine.sources["node_bandwidth"].partition(" (")[2].rstrip(")"))
gibs, peaks = {}, {}
for name in ways:
    found, memory = _collectives.collectives(results[name].text), results[name].memory
    gib, ms = sent(found) / 2**30, sent(found) / links * 1000
    peak = (memory.arguments + memory.outputs + memory.temporaries - memory.aliased) / 2**30
    print(f"{name:7} sends {gib:.2f} GiB, {ms:4.1f} ms on paper;", end=" ")
    print(f"{memory.arguments / 2**30:.2f} GiB between steps, {peak:.2f} GiB at the peak")
    gibs[name], peaks[name] = gib, peak

print("shared, as XLA wrote it for H200:")
for line in _collectives.lines(results["shared"].text):
    print("  ", line)
copied_gib, shared_gib, split_gib = gibs.values()
copied_peak, shared_peak, split_peak = peaks.values()
assert split_peak < shared_peak < copied_peak
assert shared_peak > copied_peak / 4  # an eighth between the steps, and far more than that inside
assert "reduce-scatter" in {m.op for m in _collectives.collectives(results["shared"].text)}

# %% [markdown]
"""
The milliseconds are arithmetic, not a measurement: bytes over the speed of the links on paper, as
[a description of such a
machine](https://github.com/mlcommons/inference_results_v4.1/blob/main/closed/NVIDIA/systems/H200-SXM-141GBx8_TRT_MaxQ.json)
gives it. Most real exchanges take longer. An all-reduce over all eight can be quicker than a ring,
because [the switches of NVLink can add up](https://github.com/NVIDIA/nccl-tests/issues/272) by
themselves.

On H200 *shared* has its reduce-scatter, and sends {{ shared_gib:.2f }} GiB where *copied* sends
{{ copied_gib:.2f }}. **An eighth of the weights between the steps, for the same bytes.** (`-start`
and `-done` are one message: what stands between them runs while it travels.) <!-- gpu: compiled -->

Now look at the last column. Inside the step *shared* needs {{ shared_peak:.2f }} GiB, and *copied*
{{ copied_peak:.2f }}: that is no eighth. To compute with the weights, each device gathers them, and
then it has them all. *split* never does, and needs {{ split_peak:.2f }}.

!!! quote "Claim S3-03 (dgx): true with conditions"
    The document says that efficiency depends on movement between host and GPUs, and on NVLink. The
    program above names messages between GPUs, and none with the host. NCCL sends them, by NVLink or
    by another way: which one is not in the program, and not recorded here. How many bytes they have
    is yours to choose: {{ split_gib:.2f }} GiB a step, or {{ copied_gib:.2f }}.

## What sharing needs at the peak { #what-sharing-needs-at-the-peak }

A step of two matrices has hardly a choice. A deep network has: it can gather its weights all at
once, or those of each layer when their turn comes.

<quiz>
**Predict.** Eight layers, shared by eight devices. Each layer gathers its weights in its own turn,
in the forward pass. What does the step hold when the backward pass begins?
- [ ] The weights of one layer: the others are dropped after their turn
> The backward pass of each layer needs that layer's weights once more.
- [x] All weights, whole
> Right. What was gathered is kept for the backward pass, unless somebody says that it shall be
> gathered again.
- [ ] An eighth of the weights
> So it is between the steps.

</quiz>

To say so is `jax.checkpoint` around the layer, the gathering inside it: what the backward pass
needs is computed, and here gathered, once more.
"""

# %%
DEPTH, SIDE = 8, 8192
entire, in_parts = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))


def gathered(weights):
    return jax.lax.with_sharding_constraint(weights, entire)


def deep_step(weights, batch, prepare=lambda w: w, each=lambda w: w, wrap=lambda layer: layer):
    @wrap
    def layer(hidden, w):
        return jnp.tanh(hidden @ each(w))

    def loss_of(weights):
        hidden = batch[0]
        for w in weights:
            hidden = layer(hidden, w)
        return jnp.mean((hidden - batch[1]) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(prepare(weights))
    return [w - 0.1 * g for w, g in zip(weights, gradient, strict=True)], loss


def deep(place, **how):
    weights = [jax.ShapeDtypeStruct((SIDE, SIDE), jnp.float32, sharding=place)] * DEPTH
    batch = (jax.ShapeDtypeStruct((4096, SIDE), jnp.float32, sharding=in_parts),) * 2
    out = ([place] * DEPTH, None)
    return jax.jit(partial(deep_step, **how), donate_argnums=0, out_shardings=out), weights, batch


deep_ways = {
    "copied": deep(entire),
    "shared, gathered at once": deep(in_parts, prepare=gathered),
    "shared, layer by layer": deep(in_parts, each=gathered),
    "... and gathered again": deep(in_parts, each=gathered, wrap=jax.checkpoint),
}
deep_found = {}
print(f"{'':25} between steps   at the peak   sends")
for name, done in zip(deep_ways, _target.compiled_all(list(deep_ways.values())), strict=True):
    m = done.memory
    peak = (m.arguments + m.outputs + m.temporaries - m.aliased) / 2**30
    gib = sent(_collectives.collectives(done.text)) / 2**30
    deep_found[name] = peak, gib
    print(f"{name:25} {m.arguments / 2**30:9.2f} GiB {peak:9.2f} GiB {gib:7.2f} GiB")
(
    (copied_need, copied_sends),
    (once_need, once_sends),
    (layers_need, _),
    (again_need, again_sends),
) = deep_found.values()
again_ratio = again_sends / copied_sends
assert again_need < min(once_need, layers_need) < copied_need
assert abs(once_sends / copied_sends - 1) < 0.01 < abs(again_ratio - 1.5) + 0.02 < 0.05

# %% [markdown]
"""
Gathered once, for both passes, *shared* sends as much as *copied*, and needs {{ once_need:.2f }}
GiB of {{ copied_need:.2f }} at its peak. Gathered again for the backward pass it needs
{{ again_need:.2f }}, and sends {{ again_ratio:.1f }} times as much: two all-gathers and a
reduce-scatter, where an all-reduce is worth one of each. That is the price of FSDP as people mean
it. ZeRO-1 and ZeRO-2, which leave the weights whole, send no more than data parallelism does.

This network has no optimizer. With Adam, two more arrays of the size of the weights stay split
inside the step as well: they are never gathered. There sharing gains most.

## What the compiler mends { #what-the-compiler-mends }

And the two loops?
"""

# %%
for name in loops:
    print(name)
    for message in _collectives.collectives(results[name].text):
        print("  ", message)
print("psum of 4096 numbers in bfloat16")
print("   here:", messages(ready_made, half))
print("   H200:", _collectives.collectives(results["half"].text))
of_pmean, of_grad = (
    max(message.runs for message in _collectives.collectives(results[name].text)) for name in loops
)

# %% [markdown]
"""
The sum that `grad` put into the loop runs {{ of_grad }} time: XLA moved it *out* of the loop. The
`pmean`, a sum and a division, still runs {{ of_pmean }} times. So the compiler for GPUs mends some
of this, and some not; the one for CPUs, nothing. Write what you mean, and count.
<!-- gpu: compiled -->

The last lines show one more difference. The CPU's compiler widens a bfloat16 sum to float32 before
it sends it; on a GPU it travels as it is, in half the bytes, unless *you* widen it.
<!-- gpu: compiled -->

!!! quote "Claim S3-02 (dgx): true with conditions"
    The document says that JIT and XLA are built for the best use of the hardware. They are built
    for it; the two loops above show how near success and failure lie.

## Your turn

!!! example "Exercise ex23: send the gradient once"
    A step exchanges its gradient after each micro-batch. Exchange it once. The grader reads the
    loop's length from the compiled program. Start on the [page of
    ex23](../exercises/ex23_one_allreduce.md).

    === "Failing"

        {{ capture: check ex23 starter }}

    === "Passing"

        {{ capture: check ex23 solution }}

!!! example "Exercise ex24: split a network over two axes"
    Rows over one axis, weights over the other, within a budget of bytes. Start on the
    [page of ex24](../exercises/ex24_tensor_parallel.md).

    === "Failing"

        {{ capture: check ex24 starter }}

    === "Passing"

        {{ capture: check ex24 solution }}

!!! example "Exercise ex25: a state that no device holds whole"
    Adam, with all its arrays spread over eight devices. Start on the
    [page of ex25](../exercises/ex25_sharded_state.md).

    === "Failing"

        {{ capture: check ex25 starter }}

    === "Passing"

        {{ capture: check ex25 solution }}

## Three questions

<quiz>
A step on eight devices holds one all-reduce of 1 GiB. You go to 64 devices. How much does each
device send now?
- [ ] Eight times as much
- [x] About as much as before
- [ ] An eighth

The factor 2 (n - 1) / n goes from {{ ring_factor:.2f }} to {{ factor_on_64:.2f }}. (Each of the
messages is smaller, and there are more.)
</quiz>

<quiz>
A compiled training step holds `all-reduce` once, of the gradient's bytes. What else do you look at?
- [x] Whether it stands in a loop
- [ ] Whether it stands at the end of the text
- [ ] The name of its operands

A collective in a loop's body is printed once and runs once a turn.
</quiz>

<quiz>
Adam's state does not fit into one GPU, the activations do. What do you try first?
- [ ] Split every matrix by columns and by rows
- [x] Share the state over the axis of the batch
- [ ] Fewer rows

Where only Adam's state is shared, or the gradient too (ZeRO-1 and 2), it costs no more bytes than
data parallelism does. Fewer rows make the activations smaller, which fit already.
</quiz>

## Recap

- All-reduce = reduce-scatter + all-gather. In a ring each device sends 2 (n - 1) / n times its
  bytes.
- A collective in a loop runs once a turn: {{ loop_kib:.0f }} KiB instead of {{ once_kib:.0f }}.
- Inside `shard_map`, the gradient of what is equal on all devices is summed for you, where `grad`
  stands.
- `up` by columns, `down` by rows: one all-reduce a block.
- A shared state takes an eighth of the memory between the steps. Inside, gathered weights count:
  look at the peak. Gathered once it sends no more bytes; gathered again for the backward pass,
  {{ again_ratio:.1f }} times as many.

Next: [host memory and pinned transfers](15-host-memory-and-pinned-transfers.ipynb).
"""
