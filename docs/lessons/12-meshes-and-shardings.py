# %% [markdown]
"""
---
part: 4 Many GPUs
description: Which device holds which part of an array, ragged batches, and reading block by block.
---
# 12 Meshes and shardings

After this lesson you can

- read a sharding: which device holds which part of an array;
- split a batch over a mesh, the ragged last one too, and take a mean that is right;
- make an array of a file that no memory of yours could hold;
- say what an Auto mesh and an Explicit mesh do differently, and notice which one you have.

**Why care.** Below, a table of {{ table_kib:.0f }} KiB is put on {{ count }} devices. One word
between two brackets, `P("data")` against `P()`, decides whether they hold {{ split_kib:.0f }} KiB
in all, or {{ copied_kib:.0f }} KiB. Nothing fails, and every result is the same.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
This lesson needs eight devices. Where there are fewer GPUs, it takes the simulated ones: where a
part lies does not depend on speed. <!-- gpu: nothing claimed -->

## Read a sharding { #read-a-sharding }

Three words, and each is an object that you can print:

- a **mesh** puts devices into a grid and gives its axes names;
- a **spec**, `P(...)`, has an entry for each dimension of the *array*, in order: the axis of the
  mesh that splits it, or several, or `None`, which may be left out at the end;
- a **sharding** is both together: `NamedSharding(mesh, spec)`.
"""

# %%
import numpy as np
from jax import P
from jax.sharding import Mesh, NamedSharding

devices = jax.devices() if jax.device_count() >= 8 else jax.devices("cpu")
grid = np.array(devices[:8]).reshape(4, 2)
mesh = Mesh(grid, ("data", "model"))
table = np.arange(64, dtype=np.float32).reshape(8, 8)

print(mesh)
for row in grid:
    print("  ", [device.id for device in row])

# %% [markdown]
"""
<quiz>
**Predict.** The mesh has 4 x 2 devices, its axes are `"data"` and `"model"`. A table of 8 x 8 is
put there with `P("data")`. What does one device hold?
- [ ] One row: there are eight devices and eight rows
> The spec names one axis of the mesh, and that one is four long.
- [x] Two rows, and another device holds the same two
> Right. An axis that the spec does not name holds copies.
- [ ] Two rows and four columns
> That is `P("data", "model")`: each dimension is split by an axis.

</quiz>
"""

# %%
specs = {
    "P('data')": P("data"),
    "P(None, 'data')": P(None, "data"),
    "P('data', 'model')": P("data", "model"),
    "P(('data', 'model'))": P(("data", "model")),
    "P()": P(),
}
placed = {name: jax.device_put(table, NamedSharding(mesh, spec)) for name, spec in specs.items()}


def held_kib(array):
    return sum(shard.data.nbytes for shard in array.addressable_shards) / 1024


for name, array in placed.items():
    part = array.sharding.shard_shape(array.shape)
    print(f"{name:21} each device: {part!s:7} all of them: {held_kib(array):5.2f} KiB")

# %% gpu=false alt="Five tables. P(data): rows. P(None, data): columns. Both: blocks. P(): one."
import _drawing

_drawing.draw(placed)

# %% [markdown]
"""
In each block stand the devices that hold it. Read it from the spec: the *place* in `P(...)` is a
dimension of the array, the *name* is an axis of the mesh. Two numbers in a block are two copies.

In a terminal, JAX draws the same. And a sharding answers before there is an array:
"""

# %%
jax.debug.visualize_array_sharding(placed["P('data')"])

sharding = NamedSharding(mesh, P("data", "model"))
print("part of one device: ", sharding.shard_shape((8, 8)))
for device, (rows, columns) in list(sharding.devices_indices_map((8, 8)).items())[:3]:
    print(f"{device} holds rows {rows.start}:{rows.stop}, columns {columns.start}:{columns.stop}")

# %%
count = mesh.size
wide = np.zeros((1024, 256), np.float32)
flat = Mesh(grid.ravel(), ("data",))
table_kib = wide.nbytes / 1024
split_kib = held_kib(jax.device_put(wide, NamedSharding(flat, P("data"))))
copied_kib = held_kib(jax.device_put(wide, NamedSharding(flat, P())))
assert copied_kib == count * split_kib
print(f"table {table_kib:.0f} KiB; split {split_kib:.0f} KiB, copied {copied_kib:.0f} KiB")

# %% [markdown]
"""
`device_put` takes NumPy apart on the host and sends each device its part. Give it an array of
`jax.numpy` instead, and the whole has already gone to *one* device, from where it is sent on. With
the guard for copies between devices you see the difference:
"""

# %%
rows_split = NamedSharding(flat, P("data"))
with jax.transfer_guard_device_to_device("disallow_explicit"):
    print("NumPy:    ", jax.device_put(wide, rows_split).sharding.spec)
    try:
        jax.device_put(jnp.asarray(wide), rows_split)
    except jax.errors.JaxRuntimeError as error:
        print("jax.numpy:", str(error).partition(":")[2].partition(":")[0].strip())

# %% [markdown]
"""
And an array that lies in parts already? To split it in another way, `device_put` reads all of it to
the host, and so waits for it. A jitted function with `out_shardings` leaves that to the devices,
which exchange what they need. This guard is for copies to the host:
"""

# %%
columns_split = NamedSharding(flat, P(None, "data"))
in_rows = jax.jit(jnp.sin, out_shardings=rows_split)(wide)
exchange = jax.jit(lambda x: x, out_shardings=columns_split)
refused = {}
moves = {"device_put": lambda x: jax.device_put(x, columns_split), "jit": exchange}
for name, move in moves.items():
    with jax.transfer_guard_device_to_host("disallow_explicit"):
        try:
            move(in_rows)
            refused[name] = ""
        except jax.errors.JaxRuntimeError as error:
            refused[name] = str(error).partition(":")[2].partition(":")[0].strip()
    print(f"{name:11}", refused[name] or "no copy to the host")
assert refused["device_put"] or jax.device_count() == 1  # one device has it all
assert not refused["jit"]

# %% [markdown]
"""
On a machine with a GPU, the guard says nothing of this copy, if the array lies on CPU devices. It
is made all the same. <!-- gpu: source: the output of this cell, recorded on an H200 -->

!!! quote "Claim S3-26 (dgx): false"
    The document calls `make_array_from_callback` vital for a sharded array. For data that you
    have in memory, `device_put` with a sharding is all, as above. The callback has its use, and
    it is another one: [see below](#read-only-your-block).

!!! quote "Claim S3-27 (dgx): false"
    It heads its example "sharding with pmap". There is no `pmap` in it, and its own comment below
    says so: *instead of* `pmap`. What splits an array is its sharding; `pmap` is an older way to
    *run* on many devices, and [lesson 13](13-pmap-and-after.ipynb) is about it.

## The ragged batch { #the-ragged-batch }

1203 rows in batches of 64: the last batch has 51. A mesh of 8 devices can't share 51 rows fairly,
and JAX doesn't try: a split dimension must be a multiple of the number of parts.
"""

# %%
from contextlib import redirect_stdout

batch = np.random.default_rng(0).normal(2.0, 1.0, (51, 4)).astype(np.float32)
try:
    with redirect_stdout(None):  # JAX also prints the place in the file
        jax.device_put(batch, rows_split)
except ValueError as error:
    print(type(error).__name__ + ":", str(error).partition(" implies ")[2].partition(" (")[0])

# %% [markdown]
"""
Three ways out, and each has its price:

| | do | price |
|---|---|---|
| copy | place this batch with `P()` | every device does all the work |
| drop | leave rows out until it fits | fine for training on shuffled rows, wrong for a score |
| fill up | add rows, and a mask that knows them | up to 7 idle rows, and a mask to respect |

Filling up is the one that is always right. Only as many rows as are missing, and on the host,
before any device has seen them:
"""

# %%
parts = flat.shape["data"]
added = -len(batch) % parts
mask = np.ones(len(batch), np.float32)
filled = np.pad(batch, [(0, added), (0, 0)])
filled_mask = np.pad(mask, (0, added))
print(f"{len(batch)} rows and {added} more are {len(filled)}: {len(filled) // parts} a device")
x, keep = jax.device_put((filled, filled_mask), rows_split)

# %% gpu=false alt="Two columns of eight blocks, a device in each. The last rows are hatched."
_drawing.draw({"batch (56, 4)": x, "mask (56,)": keep}, added=added)

# %% [markdown]
"""
`-n % parts` is the number that is missing, and 0 where nothing is missing. `parts` is the length
of the *axis*, not the number of devices: on the mesh of 4 x 2 above it is 4.

## A mean that leaves rows out { #a-mean-that-leaves-rows-out }

<quiz>
**Predict.** The {{ added }} added rows are zeros. The mean of the batch is about 2. What does
`jnp.mean(x)` give?
- [ ] The right mean: zeros add nothing to the sum
> They add nothing to the *sum*. What does a mean divide by?
- [x] A mean that is too small
> Right: it divides by {{ full }} rows, of which {{ added }} never existed.
- [ ] An error: the mask is missing
> An added row is a row. Only you know better.

</quiz>
"""

# %%
full, rows = len(filled), len(batch)
right = float(batch.mean())
plain = float(jnp.mean(x))
masked = float(jnp.sum(x * keep[:, None]) / (jnp.sum(keep) * x.shape[1]))
mask_only = float(jnp.mean(x * keep[:, None]))
each = [
    np.asarray(s.data)[np.asarray(k.data) > 0]
    for s, k in zip(x.addressable_shards, keep.addressable_shards, strict=True)
]
of_means = float(np.mean([part.mean() for part in each if part.size]))

print(f"on the host, unfilled        {right:.5f}")
print(f"sum of mask * x / sum of mask {masked:.5f}")
print(f"jnp.mean(x)                  {plain:.5f}")
print(f"jnp.mean(mask * x)           {mask_only:.5f}")
print(f"mean of the devices' means   {of_means:.5f}")

# %% [markdown]
"""
The third and fourth are wrong by the same factor, {{ full }} / {{ rows }}: the mask must be in the
*count* too. The last is wrong in a finer way: the last device has fewer rows of its own, and each
of those then weighs more than the others.

## Read only your block { #read-only-your-block }

Now the data is a file that no memory of yours can hold. Each device needs one block of it.
`jax.make_array_from_callback` asks you for these blocks: it calls your function with the index of
each block, a slice for each dimension, and puts what it gets on the right device.

A stand-in for the file, which notes what is read:
"""


# %%
class File:
    """Numbers that are made when somebody reads them."""

    shape, dtype = (8, 8), np.dtype(np.float32)

    def __init__(self):
        self.read = []

    def __getitem__(self, index):
        block = np.arange(64, dtype=np.float32).reshape(8, 8)[index]
        self.read.append((index, block.nbytes))
        return block


def show(title, file):
    total = sum(nbytes for _, nbytes in file.read)
    print(
        f"{title:26} {len(file.read)} reads, {total:4} bytes, largest "
        f"{max(nbytes for _, nbytes in file.read)}"
    )
    return total


file = File()
blocks = jax.make_array_from_callback(file.shape, sharding, lambda block: file[block])
own_bytes = show("own block only:", file)
for index, nbytes in file.read[:2]:
    print("   ", index, nbytes)

# %% [markdown]
"""
<quiz>
**Predict.** Instead of `lambda block: file[block]`, somebody writes
`lambda block: file[:, :][block]`. The array is the same. What is read?
- [ ] The same: the array decides what is read
> JAX sees what the callback *returns*. What it reads to get there is up to you.
- [x] The whole file, once for each device
> Right: eight times everything, and cut afterwards.
- [ ] The whole file, once
> Each device has a call of its own, and nothing keeps what another call has read.

</quiz>
"""

# %%
file = File()
jax.make_array_from_callback(file.shape, sharding, lambda block: file[:, :][block])
whole_bytes = show("everything, then cut:", file)
assert whole_bytes == count * own_bytes

file = File()
data = file[:, :]
jax.make_array_from_callback(file.shape, sharding, lambda block: data[block])
show("everything, once, before:", file)

file = File()
copies = NamedSharding(mesh, P("data"))
jax.make_array_from_callback(file.shape, copies, lambda block: file[block])
copies_bytes = show("P('data') on 4 x 2:", file)

file = File()
jax.make_array_from_callback(file.shape, NamedSharding(mesh, P()), lambda block: file[block])
assert show("P(), nothing split:", file) == own_bytes

# %% [markdown]
"""
"Everything, once, before" is what the document's example does: the data is in memory before
anything is split. No byte is read twice, but all of them must fit into the memory of this host.

The line `P('data')` is worth a thought: each block lies on two devices, and was read twice, which
makes {{ copies_bytes }} bytes. JAX calls your function once for each *device*, not once for each
block. If reading is expensive, keep a block until its second device has received it. Only for an
array that is not split at all does JAX ask once for all devices.

!!! quote "Claim S3-21 (dgx): outdated"
    The document finds the function under `jax.experimental.array`. It is
    `jax.make_array_from_callback`.

!!! quote "Claim S3-22 (dgx): false"
    It gives it a bare `P("x")`. A spec names axes, and without a mesh nobody knows what they are:
"""

# %%
try:
    jax.experimental.array.make_array_from_callback
except AttributeError as error:
    print("AttributeError:", error)
try:
    jax.make_array_from_callback((8, 8), P("data"), lambda block: table[block])
except TypeError as error:
    print("TypeError:", error)

# %% [markdown]
"""
## Auto or Explicit { #auto-or-explicit }

There are two ways to make a mesh, and the meshes are not the same.
"""

# %%
auto = Mesh(grid, ("data", "model"))
explicit = jax.make_mesh((4, 2), ("data", "model"), devices=devices[:8])
kinds = [str(made.axis_types[0]) for made in (auto, explicit)]
print("Mesh(...):          ", auto.axis_types)
print("jax.make_mesh(...): ", explicit.axis_types)

# %% [markdown]
"""
On an **Auto** mesh the compiler decides how results lie: it may do anything that gives the right
numbers. On an **Explicit** mesh the sharding is part of the *type* of an array, as its shape is,
and JAX works it out line by line. Where that is not clear, it refuses.

<quiz>
**Predict.** `a` is split by rows, `b` by columns, both over `"data"`. What is `a + b`?
- [ ] An error on both meshes
> On an Auto mesh the compiler moves one of them to fit the other, without a word.
- [x] An array on the Auto mesh, an error on the Explicit one
> Right. The Auto mesh pays with a message between the devices that nobody asked for.
- [ ] An array on both
> The result can't be split over `"data"` twice. Explicit wants *you* to say which way.

</quiz>
"""

# %%
import re

MESSAGES = "all-gather|all-to-all|collective-permute"

for name, made in {"Auto": auto, "Explicit": explicit}.items():
    a = jax.device_put(table, NamedSharding(made, P("data")))
    b = jax.device_put(table, NamedSharding(made, P(None, "data")))
    print(f"{name + ':':10} a is {jax.typeof(a)}, b is {jax.typeof(b)}")
    try:
        sent = re.findall(
            f" ({MESSAGES})(?:-start)?\\(", jax.jit(jnp.add).lower(a, b).compile().as_text()
        )
        print("           a + b lies as", (a + b).sharding.spec, "after", ", ".join(sent))
    except Exception as error:  # noqa: BLE001 (ShardingTypeError has no public name)
        reason = str(error)[str(error).find("produces") :]
        print("           " + type(error).__name__ + ": ...", reason)
b = jax.reshard(b, NamedSharding(explicit, P("data")))
print(f"resharded: a + b is {jax.typeof(a + b)}")

# %% [markdown]
"""
`float32[8@data,8]`: the first dimension has 8 rows, split over `"data"`. You can print it inside a
jitted function too, while it is traced. `jax.reshard` is the move that Auto made silently.

Which one? Explicit tells you how each result lies, and refuses where that is not clear. What an
operation sends to get there, it does not tell. Auto runs all code that was
written before it, and this course uses it where code should run on one device unchanged. What
hurts is not to know which one you have. `mesh.axis_types` tells; so do two messages:
"""


# %%
def constrained(made):
    """What `with_sharding_constraint` says to an array that lies otherwise."""
    rows = jax.device_put(table, NamedSharding(made, P("data"))) if made else table
    other = NamedSharding(made, P(None, "data")) if made else P(None, "data")
    try:
        done = jax.jit(lambda x: jax.lax.with_sharding_constraint(x, other))(rows)
    except (ValueError, RuntimeError) as error:
        text = str(error).replace("The spec of NamedSharding passed to ", "... ")
        return f"{type(error).__name__}: {text[:62]} ..."
    return f"lies as {done.sharding.spec}"


said = {name: constrained(made) for name, made in [("Auto", auto), ("Explicit", explicit)]}
said["no mesh"] = constrained(None)
for name, words in said.items():
    print(f"{name:9} {words}")
assert "refer to Auto axes" in said["Explicit"]
assert "non-empty mesh" in said["no mesh"]

# %% [markdown]
"""
A `ShardingTypeError` means that the mesh is Explicit. So does "can only refer to Auto axes", unless
you are inside `shard_map`, where axes are Manual: the message names the kind. "Requires a non-empty
mesh" means something else: a bare `P(...)`, and no mesh that it could speak of.

!!! quote "Claim S3-32 (dgx): true"
    The document makes a mesh with `Mesh(devices, ("x",))`. That works and gives Auto axes. What to
    know beside it: the newer `jax.make_mesh` gives Explicit ones, and the same program may run on
    one and not on the other.
"""

# %%
import textwrap
import warnings

from jax.experimental import pjit


def wrapped(problem):
    """Its first words, on lines of their own."""
    text = textwrap.shorten(f"{type(problem).__name__}: {problem}", 130, placeholder=" ...")
    return "\n" + textwrap.indent(textwrap.fill(text, 76), "    ")


def says(work):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            work()
        except (ImportError, RuntimeError) as error:
            return wrapped(error)
    return "; ".join(wrapped(w.message) for w in caught) or "nothing"


def double(v):
    return v * 2


def under_mesh():
    with jax.set_mesh(auto):
        return jax.jit(double, in_shardings=P("data"))(table)


def with_mesh():
    with auto:
        pass


def with_mesh_pjit():  # the form of the document
    with auto:
        made = pjit.pjit(double, in_shardings=(P("data"),), out_shardings=P("data"))(table)
    assert made.sharding.spec == P("data")


def with_mesh_jit():
    with auto:
        jax.jit(double, in_shardings=P("data"))(table)


print("import jax.experimental.maps  ", says(lambda: __import__("jax.experimental.maps")))
print("pjit.pjit                     ", says(lambda: pjit.pjit(double)))
print("with mesh:                    ", says(with_mesh))
print("with mesh: pjit(P(...))       ", says(with_mesh_pjit))
print("with mesh: jit(P(...))        ", says(with_mesh_jit))
print("set_mesh:  jit(P(...))        ", says(under_mesh))

# %% [markdown]
"""
!!! quote "Claim S3-19 (dgx): outdated"
    `Mesh` is imported from `jax.experimental.maps`, a module that is gone. Today it is
    `jax.sharding.Mesh`, or use `jax.make_mesh`.

!!! quote "Claim S3-20 (dgx): outdated"
    `pjit.pjit` still works, with a warning to write `jax.jit`. The two are not quite the same:
    under `with mesh:`, `pjit` takes a bare spec, and `jit` does not.

!!! quote "Claim S3-23 (dgx): outdated"
    `with mesh:` is deprecated. Today one writes `with jax.set_mesh(mesh):`.

!!! quote "Claim S3-24 (dgx): true with conditions"
    The document gives `in_shardings` a bare spec, to `pjit` under `with mesh:`. That works, on the
    versions of today too, with warnings. For `jax.jit` the condition is a mesh set with
    `jax.set_mesh`; without one it is an error.

The document's whole example, written today, needs none of them:
"""

# %%
two = Mesh(grid.ravel()[:2], ("x",))
numbers = np.arange(100).reshape(10, 10)
result = jax.jit(double)(jax.device_put(numbers, NamedSharding(two, P("x"))))
print(result.sharding.spec, result.sharding.shard_shape(result.shape))

# %% [markdown]
"""
## Your turn

!!! example "Exercise ex19: shard a batch, the ragged one too"
    Split every batch over a mesh, ragged ones and one of a single row too, and take a mean in
    which each row counts once. The grader looks at where the parts lie, at what was copied on the
    way, and at the mean. Start on the [page of ex19](../exercises/ex19_shard_batch.md).

    === "Failing"

        {{ capture: check ex19 starter }}

    === "Passing"

        {{ capture: check ex19 solution }}

!!! example "Exercise ex20: an array, read piece by piece"
    A file, a sharding, and no memory for the whole. The grader hands your code a file that notes
    every read. Start on the [page of ex20](../exercises/ex20_from_callback.md).

    === "Failing"

        {{ capture: check ex20 starter }}

    === "Passing"

        {{ capture: check ex20 solution }}

## Three questions

<quiz>
On a mesh of 4 x 2 devices with axes `"data"` and `"model"`, an array of 12 rows is placed with
`P("data")`. How many rows in all do the eight devices hold?
- [ ] 12
- [x] 24
- [ ] 96

Three rows on each of eight devices: the axis `"model"` holds copies.
</quiz>

<quiz>
A validation score differs a little between one GPU and eight, always in the same direction. Which
of these is the likely cause?
- [ ] Another order of additions
- [x] The last batch was filled up, and the mean divides by all rows
- [ ] The batch is copied to every device

Another order changes the last digits, in no direction. Copies change nothing but the time.
</quiz>

<quiz>
A callback reads from a remote file. The sharding copies each block to four devices. How often is
each block read?
- [ ] Once
- [x] Four times, unless you keep it
- [ ] Once, and then sent from device to device

JAX asks once for each device of this process.
</quiz>

## Recap

- A spec has a place for each dimension of the array and in it the name of a mesh axis. An axis
  that is not named holds copies: {{ split_kib:.0f }} KiB became {{ copied_kib:.0f }} KiB.
- The parts of an array that you place are equal. Fill a ragged batch up on the host, by
  `-rows % parts` rows, and let the mask into the sum *and* into the count.
- A callback is for data that you don't have yet: {{ own_bytes }} bytes read, instead of
  {{ whole_bytes }}.
- `Mesh` is Auto, `jax.make_mesh` is Explicit. `jax.typeof` tells.

Next: [pmap and after](13-pmap-and-after.ipynb).
"""
