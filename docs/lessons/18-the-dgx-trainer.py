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
- donate, offload and prefetch in one trainer;
- decide from these figures which mesh to take, before you have the machine.

**Why care.** The trainer below starts as most do: it runs on eight devices, and every device keeps
everything. Compiled for eight H200, it needs {{ first_gib:.0f }} GiB on each one; each one has
{{ room_gib:.0f }} GiB. At the end it is the same step, gives the same losses, and needs
{{ last_gib:.0f }} GiB.
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
    the compiler's real decision; small intermediate arrays may differ on a real machine. The
    compiling takes a checkout of the course: alone, the program of this page stops there.

## One trainer { #one-trainer }

The model is a stack of residual blocks, as in a transformer without attention. `up` makes four
times the width, `down` brings it back. Adam keeps two averages for each weight. All of a step is
**one** jitted function, so that one compiler sees all of it.
"""

# %%
import numpy as np
import optax

adam = optax.adam(1e-3)


def loss_fn(params, batch):
    hidden, targets = batch
    for block in params.values():
        hidden = hidden + jax.nn.gelu(hidden @ block["up"]) @ block["down"]
    return jnp.mean((hidden - targets) ** 2)


def step(params, state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    new_params, new_state = {}, {}
    for name, grad in grads.items():
        updates, new_state[name] = adam.update(grad, state[name])
        new_params[name] = optax.apply_updates(params[name], updates)
    return new_params, new_state, loss


# %% [markdown]
"""
Where everything lies is not in the step. It is said apart, by a mesh and a spec for each kind of
array; that is what will change.
"""

# %%
import _target

GIB, MIB = 2**30, 2**20
BLOCKS, LARGE, SMALL = 3, {"width": 18432, "rows": 4096}, {"width": 128, "rows": 512}


def mesh_of(data, model):
    devices = np.array(jax.devices()[: data * model]).reshape(data, model)
    return jax.sharding.Mesh(devices, ("data", "model"))


def shapes(mesh, specs, width, rows, memory="device"):
    """Arguments of the step as shapes: params, state, batch."""

    def shape(*size, spec, memory="device"):
        place = jax.NamedSharding(mesh, spec, memory_kind=memory)
        return jax.ShapeDtypeStruct(size, np.float32, sharding=place)

    def block(memory):
        up = shape(width, 4 * width, spec=specs["up"], memory=memory)
        return {"up": up, "down": shape(4 * width, width, spec=specs["down"], memory=memory)}

    place = jax.NamedSharding(mesh, jax.P(), memory_kind=memory)
    count = jax.ShapeDtypeStruct((), np.int32, sharding=place)
    state = optax.ScaleByAdamState(count, block(memory), block(memory)), optax.EmptyState()
    names = [f"block{i}" for i in range(BLOCKS)]
    batch = shape(rows, width, spec=specs["batch"])
    return dict.fromkeys(names, block("device")), dict.fromkeys(names, state), (batch, batch)


P = jax.P
EVERYWHERE = {"batch": P(), "up": P(), "down": P()}
BY_BOTH = {"batch": P("data"), "up": P(None, "model"), "down": P("model", None)}

# %% [markdown]
"""
## Two axes { #two-axes }

Eight devices can share the work in two ways.

- **The rows of the batch.** Each device has all weights and some rows. It needs the sum of all
  gradients.
- **The weights.** Each device has some columns of `up` and the matching rows of `down`. From the
  first product to the second it needs nothing of the others; then their results have to be added.

A mesh of 8 x 1 shares the rows alone. One of 4 x 2 does both: four groups share the rows, and in
each group two devices share the weights. In the specs, `"data"` splits rows, `"model"` splits the
dimension that is four times the width: `up` is `P(None, "model")`, `down` is `P("model", None)`.

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
"""


# %%
def need(program):
    """GiB of one device at the peak of the step, of its host memory, and in its messages."""
    m = program.memory
    device = m.arguments + m.outputs + m.temporaries - m.aliased
    results = sum(c.nbytes * c.count for c in program.collectives)
    return device / GIB, m.host_arguments / GIB, results / GIB


def show(title, program):
    device, host, results = need(program)
    print(f"{title:17} device {device:5.1f} GiB, host {host:4.1f} GiB, messages {results:4.1f} GiB")


mesh = mesh_of(4, 2)
stages = {"everywhere": (mesh, EVERYWHERE), "rows split": (mesh_of(8, 1), BY_BOTH)}
stages["weights split"] = (mesh, BY_BOTH)
plain = jax.jit(step)
calls = [(plain, *shapes(*places, **LARGE)) for places in stages.values()]
programs = dict(zip(stages, _target.compiled_all(calls), strict=True))
for title, program in programs.items():
    show(title, program)

# %% [markdown]
"""
With the weights split over two devices, everything that has the shape of a weight is half as
large: params, gradients, both averages, and their new versions. `messages` adds up the sums that
the devices make together. What a device *sends* for them depends on how many share each sum; that
comes [below](#which-mesh).

## Count what travels { #count-what-travels }

A step that splits its weights sends less of one thing and more of another. The compiled program
names each message.
"""

# %%
for title in ["rows split", "weights split"]:
    print(title)
    for c in programs[title].collectives:
        print(f"  {c.count} x {c.op} of {c.nbytes / MIB:,.1f} MiB")

weights_mib = 8 * BLOCKS * LARGE["width"] ** 2 * 4 / MIB
activation_mib = LARGE["rows"] / 4 * LARGE["width"] * 4 / MIB
print(f"all weights {weights_mib:,.0f} MiB; one activation of a device {activation_mib:,.0f} MiB")

# %% [markdown]
"""
With `rows split`, the gradients: as many bytes as there are weights. With `weights split`, each
device has the gradients of its own half, and sends those. In addition each block adds up one
activation on the way forward, and one on the way back, except the first, whose input needs no
gradient: {{ activations }} of them. There is no all-gather: nothing is made whole anywhere.

<quiz>
**Predict.** Somebody adds `out_shardings=NamedSharding(mesh, P())` to this step, "so that every
device has the new params". What does it cost?
- [ ] Nothing: it only says where the result goes
> The result is computed in halves. To go everywhere, the halves have to travel.
- [x] An all-gather for each weight and each average
> Right. And the next call gets whole weights, where it was compiled for halves.
- [ ] An error: the weights are split
> Any placement is allowed. Each has a price.

</quiz>
"""

# %%
whole = jax.jit(step, out_shardings=jax.NamedSharding(mesh, P()))
text = whole.lower(*shapes(mesh, BY_BOTH, **SMALL)).compile().as_text()  # the small model, here
gathers = text.count(" all-gather(") + text.count(" all-gather-start(")
print(f"{gathers} all-gathers for {BLOCKS} blocks of two weights, with two averages each")
assert gathers == BLOCKS * 2 * 3

# %% [markdown]
"""
!!! quote "Claim S3-09 (dgx): true"
    The document warns that naive partitioning leads to excess communication. It does, and you
    can count it before you buy anything.

### Which mesh? { #which-mesh }

Eight is also 1 x 8. The same step, three meshes, and what a device sends in a ring: for a sum
over n devices, 2 (n - 1) / n times its bytes ([lesson 14](14-collectives-you-can-count.ipynb)).
Gradients are summed over "data", activations over "model". Only activations grow with the rows, so
the columns for more rows are arithmetic, from the same messages.
"""

# %%
by_mesh = {(8, 1): programs["rows split"], (4, 2): programs["weights split"]}
by_mesh[1, 8] = _target.compiled(plain, *shapes(mesh_of(1, 8), BY_BOTH, **LARGE))
ROWS = [4096, 16384, 65536]


def sends(data, model, program, rows):
    """GiB that each device sends in a ring, for a batch of `rows` rows."""
    activation = LARGE["rows"] // data * LARGE["width"] * 4
    of_rows = sum(c.nbytes * c.count for c in program.collectives if c.nbytes == activation)
    others = sum(c.nbytes * c.count for c in program.collectives) - of_rows
    grown = of_rows * rows / LARGE["rows"]
    return (2 * (data - 1) / data * others + 2 * (model - 1) / model * grown) / GIB


sent_by = {sizes: [sends(*sizes, program, n) for n in ROWS] for sizes, program in by_mesh.items()}
print(f"data x model   device, {ROWS[0]} rows   sends, with", *(f"{n:>6} rows" for n in ROWS))
for (data, model), program in by_mesh.items():
    figures = "".join(f"{gib:8.1f} GiB" for gib in sent_by[data, model])
    print(f"{data:4} x {model}    {need(program)[0]:12.1f} GiB              {figures}")
few, many = ([gibs[column] for gibs in sent_by.values()] for column in (0, -1))
assert min(few) == sent_by[1, 8][0]
assert min(many) == sent_by[4, 2][-1]
assert all(max(column) == sent_by[8, 1][0] for column in zip(*sent_by.values(), strict=True))
whole_gradients = sent_by[8, 1][0]

# %% [markdown]
"""
More "model" means less memory: that is what it is for. With 4,096 rows less travels, too: the
gradients are split, and only activations are added. For such a batch, 1 x 8 sends least. But 65,536
rows are only 16 texts of 4,096 words, and there it has turned: 4 x 2 sends least. 8 x 1 sends most
in every column, {{ whole_gradients:.0f}} GiB: the gradients of all weights. One more point is not
in the table. Gradients are needed at the end, and can travel while the rest is computed; for an
activation, the next product waits.

So no mesh is best for every batch: compile your own step for each, with your own rows, and compare.
For this lesson's batch of 4,096 rows that would be 1 x 8. It goes on with 4 x 2 all the same,
because there both axes have work, and you see what each of them costs.

!!! quote "Claim S3-03 (dgx): true with conditions"
    The document says that efficiency hinges on data movement, from the host and over NVLink. The
    two have little to do with each other. What the GPUs exchange is in the table above; it never
    passes through host memory. What the host exchanges with them is the batch, and what you put
    there, as below.

## Donate both { #donate-both }

At its peak, the step holds the old params and state and the new ones. The old ones are never used
again: donate them.

## State on the host { #state-on-the-host }

Adam's state is twice the weights, and needed only for the update. It waits in pinned host memory,
and comes in block by block: each when the gradient of its block is there, and the state before it
has gone back. Lesson 15 shows why this takes a barrier.
"""


# %%
def offloading_step(params, state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    new_params, new_state, before = {}, {}, loss
    for name, grad in grads.items():
        grad, waiting, before = jax.lax.optimization_barrier((grad, state[name], before))
        moments = jax.device_put(waiting, jax.memory.Space.Device)
        updates, moments = adam.update(grad, moments)
        new_params[name] = optax.apply_updates(params[name], updates)
        new_state[name] = before = jax.device_put(moments, jax.memory.Space.Host)
    return new_params, new_state, loss


donating = jax.jit(step, donate_argnums=(0, 1))
offloading = jax.jit(offloading_step, donate_argnums=(0, 1))
calls = [
    (donating, *shapes(mesh, BY_BOTH, **LARGE)),
    (offloading, *shapes(mesh, BY_BOTH, **LARGE, memory="pinned_host")),
]
found = _target.compiled_all(calls)
programs |= dict(zip(["donated", "state on the host"], found, strict=True))
for title, program in programs.items():
    show(title, program)

# %% [markdown]
"""
<quiz>
**Predict.** Host memory is not free either. All eight devices hang on one host. How much of it do
their states take, if the column `host` is for one device?
- [ ] As much as one line says
> That is one device's part.
- [x] Eight times that
> Right: {{ host_all:.0f }} GiB here. All four groups hold the same state, each its own copy.
- [ ] Nothing: pinned memory belongs to the GPU
> It is the host's memory, only kept in place.

</quiz>

## What it takes on the target { #what-it-takes-on-the-target }

All stages in one picture, with the memory that the target has.
"""

# %% alt="Bars of device memory, falling: two are longer than one H200's line, three shorter."
import matplotlib.pyplot as plt

machine = _target.machine()
room_gib = machine.memory_bytes / GIB
device_gib, host_gib, _ = np.array([need(program) for program in programs.values()]).T
first_gib, last_gib = device_gib[0], device_gib[-1]
host_all = 8 * host_gib[-1]
messages = [c for c in programs["weights split"].collectives if c.nbytes == activation_mib * MIB]
activations = sum(c.count for c in messages)
assert device_gib[2] < room_gib < device_gib[1]
assert activations == 2 * BLOCKS - 1
kinds = {title: {c.op for c in program.collectives} for title, program in programs.items()}
assert kinds["everywhere"] == set()
assert kinds["state on the host"] == {"all-reduce"}

figure, axes = plt.subplots(figsize=(7, 2.8))
bars = axes.barh(list(programs), device_gib, color="tab:blue", label="device, at the peak")
axes.bar_label(bars, fmt="%.0f ", label_type="center", color="white")
hatched = {"fill": False, "hatch": "////", "edgecolor": "tab:blue"}
axes.barh(list(programs), host_gib, left=device_gib, label="host", **hatched)
axes.axvline(room_gib, color="#808182", linestyle="--", label=f"one {machine.device_kind} has")
axes.invert_yaxis()
axes.set_xlabel("GiB for each device, compiled and not run")
axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.4, 1.2))
plt.show()

# %% [markdown]
"""
{{ first_gib:.0f }} GiB became {{ last_gib:.0f }} GiB, and no single part did it alone.

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
        values = np.zeros((), shape.dtype)
    else:
        values = numbers.normal(size=shape.shape).astype(shape.dtype) / shape.shape[0] ** 0.5
    return values


def place(tree, like):
    return jax.tree.map(lambda x, shape: jax.device_put(x, shape.sharding), tree, like)


like = shapes(mesh, BY_BOTH, **SMALL, memory="pinned_host")
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


def trained(loop, step, specs, memory, seconds=0.0):
    like = shapes(mesh, specs, **SMALL, memory=memory)
    start = place(params, like[0]), place(fresh, like[1])
    began = now()
    losses = loop(step, *start, read(epoch, seconds), lambda batch: place(batch, like[2]))
    return losses, (now() - began) / len(epoch)


before, _ = trained(wait_and_go, plain, EVERYWHERE, "device")
after, _ = trained(next_one_first, offloading, BY_BOTH, "pinned_host")
np.testing.assert_allclose(after, before, rtol=1e-4)
for name, losses in {"everywhere": before, "all parts": after}.items():
    print(f"{name:11}", " ".join(f"{loss:.5f}" for loss in losses))

# %% [markdown]
"""
The same losses. Now with a disk that takes as long as a step.
"""

# %%
_, seconds = trained(wait_and_go, offloading, BY_BOTH, "pinned_host")
loops = [wait_and_go, next_one_first]
rounds = np.array(
    [
        [trained(loop, offloading, BY_BOTH, "pinned_host", seconds)[1] for loop in loops]
        for _ in range(5)
    ]
)
loop_speedup = float(np.median(rounds[:, 0] / rounds[:, 1]))
print(f"the next one first: {loop_speedup:.2f}x as fast (median of {len(rounds)})")

# %% [markdown]
"""
!!! quote "Claim S3-14 (dgx): true"
    The document says that too much synchronisation keeps GPUs from working. The two loops differ
    in one line's place: before it or after it the loop waits. The first takes
    {{ loop_speedup:.1f }} times as long.

## Your turn

!!! example "Exercise ex31: the DGX trainer"
    The last exercise is this trainer with all its faults. Seven things are wrong, in four
    functions, and each is judged by itself. Start on the
    [page of ex31](../exercises/ex31_dgx_trainer.md).

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
- [x] The activations that "down" adds up
- [ ] Both

A gradient has the shape of its weight, however many rows there are.
</quiz>

<quiz>
The trainer fits, and its GPUs are idle a third of the time. Where do you look first?
- [ ] At the mesh
- [ ] At donation
- [x] At the order of lines in the loop

Memory and messages belong to the step. An idle device waits for somebody: look at what Python does
while the device has nothing to do.
</quiz>

## Recap

- Rows over "data" divide the work; columns of `up` and rows of `down` over "model" divide the
  memory.
- A compiled step tells what it keeps and what it sends: {{ first_gib:.0f }} GiB became
  {{ last_gib:.0f }} GiB of one device, and all that travels is sums.
- Donate params and state; let the state wait on the host and come block by block.
- In the loop: step, then the next batch, then the wait.
- None of this needed the machine. All of it can be tested without one.

This is the last lesson. Next: [the ledger of all claims](../claims/index.md), or
[the document on the DGX](../documents/dgx.md), read again from its first line.
"""
