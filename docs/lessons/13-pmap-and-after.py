# %% [markdown]
"""
---
part: 4 Many GPUs
description: What pmap does, the same step as jit with shardings, and how to count its messages.
---
# 13 pmap and after

After this lesson you can

- say what `pmap` does to the shapes and to the weights;
- keep the copies of the weights equal in old code, and see when they are not;
- write the same data-parallel step with `jit` and a sharding;
- count the messages between devices that a compiled step holds, and their bytes;
- recognise two placements that give the right numbers at the wrong price.

**Why care.** The program of the step below holds messages of {{ good_kib:.0f }} KiB. With the
weights placed differently, and no other change, it holds {{ sharded_kib:.0f }} KiB. With the batch
placed differently it sends nothing, and each device does {{ extra_work:.1f }} times the work. All
three compute the same loss.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
This lesson needs eight devices. Where there are fewer GPUs, it takes the simulated ones: what is
counted here is in the compiled program, and does not depend on speed. <!-- gpu: nothing claimed -->
"""

# %%
import numpy as np

devices = jax.devices() if jax.device_count() >= 8 else jax.devices("cpu")
devices = devices[:8]


def loss_of(weights, inputs, targets):
    hidden = jnp.tanh(inputs @ weights["in"])
    return jnp.mean((hidden @ weights["out"] - targets) ** 2)


numbers = np.random.default_rng(0)


def draw(*shape):
    return numbers.normal(size=shape).astype(np.float32)


weights = {"in": draw(64, 128) * 0.1, "out": draw(128, 16) * 0.1}
inputs, targets = draw(256, 64), draw(256, 16)
print("batch", inputs.shape, "for", len(devices), "devices")

# %% [markdown]
"""
## What pmap does { #what-pmap-does }

`pmap` runs one function on all devices at once, each with its own slice. *You* cut the batch: the
first axis of each argument is the device. Inside, that axis is gone. What one device must know
of the others, you ask for by name: `pmean` over the axis called `"batch"`.

<quiz>
**Predict.** The batch is cut to shape `(8, 32, 64)`. What does the function inside see, and what
must be done to the weights?
- [ ] It sees `(8, 32, 64)`; the weights need nothing
> Each device gets its own slice, not the whole.
- [ ] It sees `(1, 32, 64)`; the weights need nothing
> `pmap` removes the first axis. And by default it cuts *every* argument, the weights too.
- [x] It sees `(32, 64)`; the weights must be marked as not cut
> Right: `in_axes=(None, 0, 0)` leaves the weights whole, a copy for each device.

</quiz>
"""


# %%
def step_on_one(weights, inputs, targets):
    print("inside: inputs", inputs.shape)
    loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, targets)
    loss, gradients = jax.lax.pmean((loss, gradients), axis_name="batch")
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), loss


def cut(array):
    return array.reshape(8, -1, array.shape[-1])


parallel = jax.pmap(step_on_one, "batch", in_axes=(None, 0, 0), devices=devices)
new, loss = parallel(weights, cut(inputs), cut(targets))
pmap_loss = float(loss[0])
copies_kib = sum(leaf.nbytes for leaf in jax.tree.leaves(new)) / 1024
weights_kib = sum(leaf.nbytes for leaf in jax.tree.leaves(weights)) / 1024

print("result: weights", new["in"].shape, "losses", loss.shape)
print(f"weights {weights_kib:.0f} KiB, after the step {copies_kib:.0f} KiB")

# %% [markdown]
"""
By default every result has the device axis again: eight equal losses, eight copies of the
weights. That is data parallelism: each device holds the **whole** model.

!!! quote "Claim S0-24 (haiku-gpu): false"
    The document calls this way essential for training large models. A model that does not fit
    into one device does not fit into eight copies either. A larger model needs its *weights* cut.

!!! quote "Claim S0-25 (haiku-gpu): false"
    The document says that `axis_name="batch"` makes `pmap` cut the batch. `in_axes` chooses what
    is cut. The name, `"batch"` above, only lets `pmean` say over which devices it takes the mean.

## A copy for each device { #a-copy-for-each-device }

`in_axes=(None, 0, 0)` hands the weights out anew at every call. Old code does it otherwise: it
gives the weights a device axis too, places slice i on device i once, and lets every step return
them there. `jax.device_put_replicated` did that. It is gone, and so is its sister for batches. The
word "deprecated" below is JAX's own:
"""

# %%
for name in ("device_put_replicated", "device_put_sharded"):
    try:
        getattr(jax, name)
    except AttributeError as error:
        print("AttributeError:", str(error).partition(" See")[0])

from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

one_each = NamedSharding(Mesh(np.array(devices), ("device",)), P("device"))
stacked = jax.tree.map(lambda w: np.stack([w] * len(devices)), weights)
copies = jax.device_put(stacked, one_each)
for shard in copies["in"].addressable_shards[:2]:
    print("device", shard.device.id, "holds", shard.data.shape, "of", copies["in"].shape)

# %% [markdown]
"""
!!! quote "Claim S0-22 (haiku-gpu): false"
    The document calls `jax.device_put_sharded(array, devices)`. While there was such a function,
    it took a list of parts, one for each device, and no whole array.

!!! quote "Claim S0-23 (haiku-gpu): outdated"
    It did distribute data, as the document says. Today `device_put` with a sharding does.

Eight copies, and each device changes its own. What keeps them equal?

<quiz>
**Predict.** Three ways to write the step. In which are the eight copies still equal after it?
- [ ] In all: `pmap` keeps weights equal
> `pmap` keeps nothing equal. It does not even know that these are weights.
- [ ] `pmean` of the loss, then its gradient
> It looks right. But inside `pmap`, each device takes the gradient of what *it* put in.
- [x] The gradient, then `pmean` of the gradient
> Right: all devices subtract the same.

</quiz>
"""


# %%
def own(weights, inputs, targets):
    return jax.grad(loss_of)(weights, inputs, targets)


def loss_first(weights, inputs, targets):
    return jax.grad(lambda w: jax.lax.pmean(loss_of(w, inputs, targets), "batch"))(weights)


def gradient_first(weights, inputs, targets):
    return jax.lax.pmean(own(weights, inputs, targets), "batch")


apart = {}
for gradient in (own, loss_first, gradient_first):
    gradients = jax.pmap(gradient, "batch", devices=devices)(copies, cut(inputs), cut(targets))
    stepped = np.asarray(copies["out"] - 0.1 * gradients["out"])
    apart[gradient.__name__] = float(np.abs(stepped - stepped[0]).max())
    print(f"{gradient.__name__:15} copies differ by up to {apart[gradient.__name__]:.6f}")

try:
    jax.pmap(own, "batch", devices=devices)(weights, cut(inputs), cut(targets))
except ValueError as error:
    print("weights without a device axis:", type(error).__name__)

# %% [markdown]
"""
The second is a known trap: the loss that it returns is the mean, the gradient is not. Nothing
warns, and the copies drift apart.

!!! quote "Claim S0-21 (haiku-gpu): false"
    The document passes weights without a device axis and leaves `in_axes` at its default. Then
    `pmap` cuts them too: the last line above is the error.

!!! example "Exercise ex21: a step in pmap"
    Place a copy of the params on each device, and write the step that keeps them equal. The
    grader compares the copies to the last bit. Start on the
    [page of ex21](../exercises/ex21_pmap_step.md).

    === "Failing"

        {{ capture: check ex21 starter }}

    === "Passing"

        {{ capture: check ex21 solution }}

## pmap as jit { #pmap-as-jit }

Now the same step without `pmap`. Write it as for *one* device, for the whole batch: no cutting,
no axis name, no `pmean`. Then place the data: the batch cut over the devices, the weights whole
on each. `jit` follows the placement.

- a **mesh** gives the devices names: here one axis, `"batch"`;
- a **sharding** says how an array lies on the mesh: `P("batch")` cuts its first axis, `P()` cuts
  nothing and copies.

<quiz>
**Predict.** `step` below takes `jnp.mean` over the whole batch, whose rows lie on eight devices.
Who adds the parts together?
- [ ] Nobody: each device takes the mean of its own rows
> That would be another number. `jit` never changes what a program means.
- [x] The compiler puts the message in
> Right. It sees a mean over a cut axis and adds the exchange.
- [ ] Python, after the step
> Nothing comes back to Python but arrays on devices.

</quiz>
"""

# %%
from jax.sharding import AxisType

# Auto: the compiler decides how results lie on the mesh.
mesh = Mesh(np.array(devices), ("batch",), axis_types=(AxisType.Auto,))
cut_rows, whole = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())


@jax.jit
def step(weights, inputs, targets):
    loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, targets)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), loss


layout = (whole, cut_rows, cut_rows)
placed = jax.device_put((weights, inputs, targets), layout)
new, loss = step(*placed)
jit_loss = float(loss)

print(f"loss with jit {jit_loss:.6f}, with pmap {pmap_loss:.6f}")
print("result: weights", new["in"].shape, "loss", loss.shape)
print("weights lie as", new["in"].sharding.spec)
print("rows lie as   ", placed[1].sharding.spec)

outer = jax.make_jaxpr(parallel)(weights, cut(inputs), cut(targets)).eqns[0]
inner = outer.params["jaxpr"].eqns[0]
print("pmap, as traced:", outer.primitive, "of", inner.primitive, inner.params["in_specs"])

# %% [markdown]
"""
The same loss, and shapes as on one device. The last line shows what `pmap` makes: a `jit` program.
In it, `shard_map` cuts what has the spec `P('batch',)`, the rows, and copies what has `P()`, the
weights.

!!! quote "Claim S0-20 (haiku-gpu): outdated"
    The document says to use `pmap`. It still works, and JAX now builds it on `jit` and
    `shard_map`: the last line above. New code uses `jit` with shardings: it needs no device axis,
    and the same step runs on one device or on eight.

## Count the collectives { #count-the-collectives }

A message in which a whole group of devices takes part, here all eight, is a **collective**. They
stand in the compiled program, so you can count them before you own a single GPU:
<!-- gpu: nothing claimed -->

- `all-reduce`: every device gets the sum of what all had;
- `all-gather`: every device gets all the pieces.
"""

# %%
import re

NAMES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
BYTES = {"f32": 4, "bf16": 2, "s32": 4}


def collectives(function, *arguments):
    text = function.lower(*arguments).compile().as_text()
    found = []
    for results, name in re.findall(rf"= (.*?) ({NAMES})(?:-start)?\(", text):
        size = 0
        for kind, shape in re.findall(r"(\w+)\[([\d,]*)\]", results):
            size += BYTES[kind] * np.prod([int(n) for n in shape.split(",") if n])
        found.append((name, size / 1024))
    return found


def show(title, found):
    print(title)
    for name, kib in found or [("no collective", 0)]:
        print(f"  {name:14} {kib:6.1f} KiB")


show("pmap:", collectives(parallel, weights, cut(inputs), cut(targets)))
show("jit:", collectives(step, *placed))
good_kib = sum(kib for _, kib in collectives(step, *placed))
print(f"the gradient has {weights_kib:.1f} KiB")

# %% [markdown]
"""
Both programs hold one all-reduce, of the gradient's bytes and 4 more for the loss: every device
must learn the gradient of the others' rows. (How many bytes travel for it,
[lesson 14](14-collectives-you-can-count.ipynb) counts.)

<quiz>
**Predict.** Same step, same numbers, but the weights are cut over the devices too. What changes?
- [ ] Fewer messages: each device has fewer weights
> Each device still needs all weights for its rows.
- [x] More messages: the weights must be collected first
> Right: an all-gather, beside the all-reduce. On simulated devices that is more bytes. A GPU's
> compiler may put a reduce-scatter in place of the all-reduce, and then the bytes are the same:
> [lesson 14](14-collectives-you-can-count.ipynb) compiles such a step.
- [ ] JAX refuses
> Any placement gives the right numbers. Only the price differs.

</quiz>
"""

# %%
cut_weights = jax.device_put(weights, cut_rows)
found = collectives(step, cut_weights, *placed[1:])
sharded_kib = sum(kib for _, kib in found)
show("weights cut:", found)

copied = jax.device_put((inputs, targets), whole)
show("batch on every device:", collectives(step, placed[0], *copied))


def flops(*arguments):
    return step.lower(*arguments).compile().cost_analysis()["flops"]


extra_work = flops(placed[0], *copied) / flops(*placed)
assert sharded_kib > good_kib
assert extra_work > 4
print(f"and each device does {extra_work:.1f} times the work")
for arguments in [(cut_weights, *placed[1:]), (placed[0], *copied)]:
    same_loss = float(step(*arguments)[1])
    np.testing.assert_allclose(same_loss, pmap_loss, rtol=1e-5)

# %% [markdown]
"""
The last case is the trap. **No collective does not mean good.** The whole batch lies on every
device, so every device computes everything: eight devices, the speed of one. It happens when a
batch is placed with `P()`, or not cut at all. Count the collectives, and look at the work.

Cutting the weights is not wrong. It is how a model that is too large for one device is trained.
But then look at what it costs.

## Your turn

!!! example "Exercise ex22: from pmap to jit"
    A data-parallel step uses `pmap`. Write it as `jit` with shardings. The grader compares the
    numbers and reads the compiled program: one all-reduce of the gradient, and no other message.
    Start on the [page of ex22](../exercises/ex22_pmap_to_jit.md).

    === "Failing"

        {{ capture: check ex22 starter }}

    === "Passing"

        {{ capture: check ex22 solution }}

## Three questions

<quiz>
After moving from `pmap` to `jit`, the step runs on eight GPUs at the speed of one. The compiled
program holds no collective. What is the likely cause?
- [ ] The GPUs are badly connected
- [x] The batch is not cut
- [ ] `pmean` is missing

Without cut rows there is nothing to exchange, and each device does all the work.
</quiz>

<quiz>
A step holds an all-reduce of 200 MiB. The weights have 100 MiB in float32. Where may the other
100 MiB come from?
- [ ] An all-reduce always counts twice
- [x] A second tree is reduced, for example a second mean over the gradients
- [ ] The loss

One gradient needs one all-reduce of the weights' size. More means that something is summed twice,
or that something else than gradients is summed.
</quiz>

<quiz>
Which line makes `jit` run on eight devices?
- [ ] `@jax.jit` on a machine with eight devices
- [x] `jax.device_put(batch, NamedSharding(mesh, P("batch")))`
- [ ] `mesh = Mesh(devices, ("batch",))`

`jit` follows its inputs. A mesh alone places nothing.
</quiz>

## Recap

- `pmap` cuts the first axis of every argument; with `in_axes=(None, ...)` it copies the weights:
  {{ weights_kib:.0f }} KiB became {{ copies_kib:.0f }} KiB.
- Nothing keeps the copies equal by itself: take the `pmean` of the gradients.
- The same step is `jit` plus `device_put` with shardings, written as for one device.
- A data-parallel step holds one all-reduce: the gradient, here {{ good_kib:.0f }} KiB.
- No collective at all may mean that every device does everything.

Next: [collectives you can count](14-collectives-you-can-count.ipynb).
"""
