# %% [markdown]
"""
---
part: 1 Working on GPUs
description: Where an array lies, what happens when two places meet, and a copy no guard reports.
---
# 02 Arrays live somewhere

After this lesson you can

- say where an array lies, and whether JAX may move it;
- tell which mixtures of devices raise, and which are copied without a word;
- find a copy that repeats at every call, and that the transfer guard does not report;
- make an array on the device that needs it, with no copy at all.

**Why care.** Below, one call is made with an array in the right place, and once more with the same
array on another device. Both give the same numbers. The second takes
**{{ slowdown:.0f}} times** as long, each time it is called, and that is a copy within one memory:
these devices are simulated.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
## Every array has a place { #every-array-has-a-place }

An array knows where it is. `x.device` names the one device it lies on. `x.committed` says whether
somebody *put* it there. If nobody did, the array is **free**: JAX chose the default device, and may
choose again.

This lesson calls the default device `home`, and the last one `there`. Where there is one GPU and no
more, `there` is the CPU beside it. <!-- gpu: nothing claimed -->
"""

# %%
home = jax.devices()[0]
there = jax.devices()[-1] if jax.device_count() > 1 else jax.devices("cpu")[0]
everywhere = jax.NamedSharding(jax.make_mesh((jax.device_count(),), ("x",)), jax.P("x"))

free = jnp.ones(8)
put = jax.device_put(jnp.ones(8), there)
split = jax.device_put(jnp.ones(4 * jax.device_count()), everywhere)

for name, array in {"free": free, "put": put, "split": split}.items():
    print(f"{name:6} committed: {array.committed!s:6} device: {array.device!s:.34}")
print("repr:", repr(there), "| text:", there)

# %% gpu=false alt="A grid of devices. free: hatched, on the first. put: filled, last. split: all."
import _places

_places.draw({"free": free, "put": put, "split": split})

# %% [markdown]
"""
Filled boxes are committed, hatched ones are free. In each is the shape of what that device holds.

The third array lies on all devices, a part on each. Then there is no *one* device to name, and
`.device` gives its **sharding** instead. Code that has to work for both asks `x.devices()`, which
is always a set, or `x.sharding`.

!!! quote "Claim S2-03 (d2l-gpus): true with conditions"
    The document says that every tensor has a device. In JAX every array has a sharding. Often that
    is one device, and it may be many.

!!! quote "Claim S2-15 (d2l-gpus): true with conditions"
    The document reads `.device` of an array. It works, and gives a device only where there is one
    alone, as the third row shows.

!!! quote "Claim S2-11 (d2l-gpus): true with conditions"
    The document shows devices as `CpuDevice(id=0)` and `CudaDevice(id=0)`. That is their `repr`.
    Printed as text, a device reads like `cpu:0`.

## Two committed places are an error { #two-committed-places-are-an-error }

What happens when arrays of two devices meet in one call?

<quiz>
**Predict.** `put` is committed to `there`. `other` was put on `home`, and `free` was made there.
Which of these raises?
- [x] `put + other`
- [ ] `put + free`
- [ ] `put + numpy_array`
- [ ] `put + 1.0`

Only two *committed* places contradict each other. All else follows the committed array.
</quiz>
"""

# %%
import numpy as np

other = jax.device_put(jnp.ones(8), home)


def outcome(call):
    try:
        result = call()
    except (ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {str(error).split('. ')[0]}"
    return f"on {result.device}"


calls = {
    "put + other": lambda: put + other,
    "put + free": lambda: put + free,
    "put + NumPy": lambda: put + np.ones(8),
    "put + 1.0": lambda: put + 1.0,
    "asarray(other, there)": lambda: jnp.asarray(other, device=there),
    "device_put(other, there)": lambda: put + jax.device_put(other, there),
    "other.to_device(there)": lambda: put + other.to_device(there),
    "other.to(there)": lambda: put + other.to(there),
}
for text, call in calls.items():
    print(f"{text:25} {outcome(call)}")

try:
    put + other
except ValueError as error:
    text = str(error).replace("Got", "\n  Got").replace(" and argument", "\n  and argument")
    print("\nin full:", text)

# %% [markdown]
"""
The error names the operation, both arguments and both devices. Read it to the end: it names *two*
arguments that contradict each other, and there may be more.

The fifth line is a trap. `jnp.asarray(x, device=...)` moves NumPy arrays and free arrays. A
committed one it refuses. `jax.device_put` moves anything.

!!! quote "Claim S2-05 (d2l-gpus): true with conditions"
    The document says that implicit copies between devices are forbidden. Between two committed
    arrays, as in its own listing, they are: JAX refuses to choose between two places. `put + free`
    above made one. (NumPy arrays and numbers are copied without a word too, from the host.)

!!! quote "Claim S2-06 (d2l-gpus): not about JAX"
    The document quotes the error "Expected all tensors to be on the same device". It is another
    library's. JAX says what you see above.

!!! quote "Claim S2-19 (d2l-gpus): not about JAX"
    The document mends it with `.cuda(i)` or `.to(device)`. The last line shows what JAX arrays have
    to say to that. `device_put`, or `x.to_device(device)`, is the way.

!!! quote "Claim S2-35 (d2l-gpus): true"
    Its own JAX listing does it right: `device_put` the one array, then add.

## A free array is copied at every call { #a-free-array-is-copied-at-every-call }

`put + free` ran without a word: JAX copied `free` over. Where does that copy go?

<quiz>
**Predict.** A jitted `look_up(row, table)` gets a committed `row` on `there`, and a free `table` on
`home`. It is called a hundred times. How often is the table copied?
- [ ] Never: the call runs where the table is
> The call runs where its committed argument is.
- [ ] Once: JAX keeps the copy
> The variable `table` still means the old array, and JAX keeps no other.
- [x] A hundred times
> Right.

</quiz>
"""

# %%
from time import perf_counter as now


@jax.jit
def look_up(row, table):
    return row + table[0]


def seconds(row, table, calls=9):
    jax.block_until_ready(look_up(row, table))  # compiles
    times = []
    for _ in range(calls):
        start = now()
        look_up(row, table).block_until_ready()
        times.append(now() - start)
    return min(times)


row = jax.device_put(np.ones(2**10, np.float32), there)
table = jnp.ones((2**14, 2**10))
table_mib = table.nbytes / 2**20
placed = jax.device_put(table, there)

free_ms, placed_ms = seconds(row, table) * 1e3, seconds(row, placed) * 1e3
slowdown = free_ms / placed_ms
assert slowdown > 3
print(f"table of {table_mib:.0f} MiB placed: {placed_ms:8.3f} ms a call")
print(f"table free on {home}:  {free_ms:8.3f} ms a call, {slowdown:.0f} times as long")

# %% [markdown]
"""
The function needs one row of the table. It gets the whole table, copied, on every one of these
calls. What it costs grows with the size of the array (the quickest of nine calls each):
"""

# %% alt="Time of a call over size of the table. Placed: flat. Free: rises with the size."
import matplotlib.pyplot as plt

sizes = 2 ** np.arange(8, 15)
tables = [jnp.ones((n, 2**10)) for n in sizes]
mib = [t.nbytes / 2**20 for t in tables]
costs = {
    "free, on another device": [seconds(row, t) * 1e3 for t in tables],
    "placed": [seconds(row, jax.device_put(t, there)) * 1e3 for t in tables],
}
figure, axes = plt.subplots()
for (name, cost), marker in zip(costs.items(), "os", strict=True):
    axes.loglog(mib, cost, marker=marker, label=name)
axes.xaxis.set_major_formatter("{x:g}")
axes.yaxis.set_major_formatter("{x:g}")
axes.set_xlabel("size of the table, MiB")
axes.set_ylabel("ms a call")
axes.legend(loc="upper left")
plt.show()
del tables
free_costs, placed_costs = costs.values()
assert free_costs[-1] > 3 * free_costs[0]
assert free_costs[-1] > 3 * placed_costs[-1]

# %% [markdown]
"""
Simulated devices share one memory, so this is the cost of a copy in that memory. Between two GPUs
we expect other figures and the same copy; that is not recorded yet. <!-- gpu: G18 -->

`jax.transfer_guard("disallow")` makes a copy that nobody asked for an error. Let us catch this one.

<quiz>
**Predict.** `look_up` has been called before. Now it is called inside the guard, with the free
table. What happens?
- [ ] It raises: nobody asked for the copy
> So one would think.
- [ ] It does not raise, because the copy is kept
> The time of the call below says otherwise.
- [x] It does not raise, and copies
> Right, and that is worth a second look.

</quiz>
"""


# %%
def guarded(call):
    try:
        with jax.transfer_guard("disallow"):
            call()
    except jax.errors.JaxRuntimeError as error:
        return "refused: " + str(error).partition("Disallowed ")[2].partition(":")[0]
    return "passes"


@jax.jit
def look_up_anew(row, table):
    return row + table[0]


print("a function's first call:  ", guarded(lambda: look_up_anew(row, table)))
print("called before:            ", guarded(lambda: look_up(row, table)))
host_row = np.ones(2**10, np.float32)
look_up(host_row, placed)
print("called before, NumPy row: ", guarded(lambda: look_up(host_row, placed)))
again = seconds(row, table) * 1e3 / placed_ms
assert again > 3
print(f"does it still copy? It takes {again:.0f} times the time of a placed call")

# %% [markdown]
"""
From its second call on, a jitted function takes a shorter way into the compiled program. The copy
is made there, as the time shows, and the guard is not asked. This is the rule, as measured:

- a copy **from the host** is refused at every call, also in a function called before;
- a copy **between devices** is refused only if the guard is there at the *first* call with these
  placements. After one such call outside it, it says nothing more.

So put the guard around the **first** call. Better still, ask the arrays: every array that a call
takes should lie where the call runs.
"""


# %%
def elsewhere(tree, device):
    """The names of the arrays in a tree that a call on `device` would have to copy."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [jax.tree_util.keystr(path) for path, x in leaves if x.devices() != {device}]


print("to be copied:", elsewhere({"row": row, "table": table}, there))
print("to be copied:", elsewhere({"row": row, "table": placed}, there))

# %% [markdown]
"""
!!! quote "Claim S2-09 (d2l-gpus): true"
    The document says that copies between devices are slow, and have no place in the inner loop. The
    curve above is that copy: its time grows with the array.

## Copy at the boundary { #copy-at-the-boundary }

So place everything before the loop. Does it cost anything to place an array that is there already?

<quiz>
**Predict.** `z = jax.device_put(placed, there)`, where `placed` is committed to `there`. What is
`z`?
- [ ] A copy
> See the addresses below.
- [x] A new object with the same memory
> Right: it costs next to nothing.
- [ ] The same object
> That is what `device_put(placed)` without a device gives.

</quiz>
"""

# %%
z = jax.device_put(placed, there)
same_memory = z.unsafe_buffer_pointer() == placed.unsafe_buffer_pointer()
print("same object:", z is placed, "| same memory:", same_memory)
print("without a device, same object:", jax.device_put(placed) is placed)

with jax.transfer_guard("disallow_explicit"):  # refuses copies that you did ask for
    jax.device_put(placed, there)
print("and no copy, says the strictest guard")

# %% [markdown]
"""
That makes the rule simple. Before the loop: `jax.device_put((all, of, it), device)`, one call for
the whole tree. What is there stays, and what is elsewhere is copied once. Inside the loop: no
placement.

!!! quote "Claim S2-20 (d2l-gpus): true with conditions"
    The document says that a move to the same device does nothing, and then prints
    `Z2 is Z` as `False`. Both are so: another object, and the same memory. The condition: the array
    is *committed* to that device already. A free one gets its commitment, again without a copy.

!!! quote "Claim S2-21 (d2l-gpus): true with conditions"
    The document warns of a round trip for each move inside the loop. A move of what is already
    there costs no copy. A move of what is not costs one, and not a round trip.

## Make arrays where they are needed { #make-arrays-where-they-are-needed }

The best copy is none. The document makes an array "directly on a device", like this:
`jax.device_put(jnp.ones((2, 3)), device)`.

<quiz>
**Predict.** Which of these makes its array on `there`, and copies nothing to it?
- [ ] `jax.device_put(jnp.ones((2, 3)), there)`
- [ ] `jnp.ones((2, 3), device=there)`
- [ ] `jnp.ones_like(put)`
- [x] `jax.jit(lambda: jnp.ones((2, 3)), out_shardings=...)()`

`device_put(jnp.ones(...), there)` makes its array first, on the default device, and then copies
it. `jnp.ones(device=...)` and `ones_like` do the same out of sight.
</quiz>
"""

# %%
on_there = jax.sharding.SingleDeviceSharding(there)
key_there = jax.device_put(jax.random.key(0), there)
one_jit = jax.jit(lambda: jnp.ones((2, 3)), out_shardings=on_there)


def under_default_device(call):
    with jax.default_device(there):
        return call()


ways = {
    "device_put(jnp.ones, there)": lambda: jax.device_put(jnp.ones((2, 3)), there),
    "jnp.ones(device=there)": lambda: jnp.ones((2, 3), device=there),
    "jnp.ones_like(put)": lambda: jnp.ones_like(put),
    "device_put(np.ones, there)": lambda: jax.device_put(np.ones((2, 3)), there),
    "default_device(there)": lambda: under_default_device(lambda: jnp.ones((2, 3))),
    "  ... and jit": lambda: under_default_device(jax.jit(lambda: jnp.ones((2, 3)))),
    "jit(out_shardings=there)": one_jit,
    "normal(key_there)": lambda: jax.random.normal(key_there, (2, 3)),
}
guards = {
    "device": jax.transfer_guard_device_to_device,
    "host": jax.transfer_guard_host_to_device,
}


def copied(guard, call):
    try:
        with guard("disallow_explicit"):
            call()
    except jax.errors.JaxRuntimeError as error:
        return str(error).partition("ShapedArray(")[2].partition(")")[0] or "a number"
    return "-"


print(f"{'':29}{'copied: from device':21}{'from host':27}committed")
for text, way in ways.items():
    found = [copied(guard, way) for guard in guards.values()]
    print(f"{text:29}{found[0]:21}{found[1]:27}{way().committed}")

# %% [markdown]
"""
On a machine with several devices, the first three lines copy the **whole array** from the default
device. For a moment it exists twice, and the default device must have room for it: an array that is
too large for the default device cannot be made this way at all.

The column for the host shows something smaller: `float32[]` is one number, the fill value. Outside
`jit`, `jnp.ones` is a small program that takes it as an argument. Inside `jit` it is a constant.

What makes an array in place:

- one jitted function for all the arrays, with `out_shardings`. It commits them as well;
- `jax.default_device(there)`. It leaves them free;
- a random key that is committed there. What is drawn from it is made where the key is.

!!! quote "Claim S2-16 (d2l-gpus): false"
    The document calls `device_put(jnp.ones(...), device)` a direct creation that avoids a copy. It
    is a creation on the default device, and a copy. `jnp.ones(..., device=device)` is no better.

!!! quote "Claim S2-30 (d2l-gpus): not about JAX"
    The document warns that zeros made in the forward pass land on the CPU. In JAX they land on the
    default device; inside `jit` they have no place of their own; and `zeros_like` follows its
    argument, by the copy that you see above.

One thing more from the document's listing. It prints the random numbers of key 0:
"""

# %%
print("now:       ", jax.random.uniform(jax.random.PRNGKey(0), (2, 3))[0, 0])
with jax.threefry_partitionable(False):
    print("before 0.5:", jax.random.uniform(jax.random.PRNGKey(0), (2, 3))[0, 0])

# %% [markdown]
"""
!!! quote "Claim S2-18 (d2l-gpus): true with conditions"
    Its first number, 0.947667, is right for jax 0.5 and later. With the setting that older versions
    had by default, the same key gives another.

## Your turn

!!! example "Exercise ex02: arrays on different devices"
    A loop uses four arrays on two devices, and JAX refuses it. Make it run where it is asked to,
    with the fewest copies. The grader looks at what every step is given: also at the array that the
    error does not name. Start on the [page of ex02](../exercises/ex02_mixed_devices.md).

    === "Failing"

        {{ capture: check ex02 starter }}

    === "Passing"

        {{ capture: check ex02 solution }}

!!! example "Exercise ex03: create in place"
    Four arrays are made on the default device and copied to another. Make them where they are
    needed. The grader counts every copy, and one number from the host counts as one. Start on the
    [page of ex03](../exercises/ex03_create_in_place.md).

    === "Failing"

        {{ capture: check ex03 starter }}

    === "Passing"

        {{ capture: check ex03 solution }}

## Three questions

<quiz>
A step takes a committed batch on device 1 and a free look-up table on device 0. The second step is
as slow as the first. What helps?
- [ ] Commit the table to device 0
- [x] Place the table on device 1, before the loop
- [ ] Call the step once before, as a warm-up

A free array is copied at every call. Committed to device 0, it would raise.
</quiz>

<quiz>
A training loop runs 10 steps, and is then put under `jax.transfer_guard("disallow")`. Nothing
raises. Are there no hidden copies between devices?
- [ ] None: the guard would have said so
- [x] There may be: the guard saw no first call

Put the guard around the first step, and look at `x.devices()` of all arguments.
</quiz>

<quiz>
`jnp.zeros(shape, device=d)` runs out of memory on device 0, and `d` is device 3. Why?
- [x] The zeros are made on the default device, and copied
- [ ] Device 3 was full, and JAX took another
- [ ] `device` is ignored

Make them in a jitted function with `out_shardings`: then device 0 is not involved.
</quiz>

## Recap

- Every array has a sharding. It is committed, or it is free.
- Two committed places raise. A free array follows, and is copied at *every* call:
  {{ slowdown:.0f}} times the time, above.
- The transfer guard sees such a copy only in a first call, and one from the host in every call.
  `x.devices()` always tells.
- `device_put` before the loop. What is there already is not copied.
- `jnp.ones(device=d)` and `zeros_like` copy. One `jit` with `out_shardings` does not.

Next: [models and their state](03-models-and-their-state.ipynb).
"""
