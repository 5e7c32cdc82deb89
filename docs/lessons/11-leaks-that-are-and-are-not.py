# %% [markdown]
"""
---
part: 3 GPU memory
description: Who holds an array, what only looks like a leak, and a mean in the room of three.
---
# 11 Leaks that are and are not

After this lesson you can

- see live memory grow, and name the shapes that grow;
- find who holds an array, and let go of it;
- tell a leak from a peak, a pool and a cache;
- average a thousand arrays in the room of a few.

**Why care.** The loop below keeps a history of {{ steps }} losses. In one form it holds
{{ leak_mib:.1f }} MiB at the end, and more with every step; in another {{ flat_mib:.1f }} MiB,
however long it runs. And a document that mends a leak of this kind changes the result from
{{ document_mean:.0f }} to {{ document_sum:.0f }}.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
## When an array is freed { #when-an-array-is-freed }

JAX does not search for arrays that nobody needs. An array is freed when its last reference goes: at
once, on that line, or, if a program that was called with it still runs, when that program ends.

<quiz>
**Predict.** Python's collector is switched off (`gc.disable()`). A loop makes a thousand arrays,
each under the same name. How many are alive at the end?
- [ ] A thousand: nobody collects
> The collector has another task: objects that refer to each other in a circle.
- [x] One
> Right. Each new array takes the name, and with it the last reference to the one before.
- [ ] As many as fit into the pool
> Freeing does not wait for the pool to be full.

</quiz>
"""

# %%
import gc


def alive():
    """Live arrays and their MiB, over all devices."""
    arrays = jax.live_arrays()
    return len(arrays), sum(array.nbytes for array in arrays) / 2**20


gc.collect()
gc.disable()
before, _ = alive()
x = jnp.ones((256, 256))
for _ in range(1000):
    x = x + 1
in_loop = alive()[0] - before

copies = [jnp.copy(x) for _ in range(20)]
held, held_mib = alive()
del copies
freed = held - alive()[0]
print(f"a thousand results under one name: {in_loop} alive")
print(f"a list of 20 copies: {held_mib:.0f} MiB alive; without the list, {freed} are gone")

circle = [jnp.copy(x)]
circle.append(circle)
del circle
in_circle = alive()[0] - before - in_loop
gc.collect()
after_collect = alive()[0] - before - in_loop
gc.enable()
print(f"in a circle of references: {in_circle} alive; after gc.collect() {after_collect}")

# %% [markdown]
"""
!!! quote "Claim S3-28 (dgx): true with conditions"
    The document says that a list of a thousand copies, in a function, *potentially* leads to a
    leak. The condition is that somebody keeps the list. In its own function nobody does: there it
    is a **peak**, and when the function returns, the list goes, and all copies with it.

!!! quote "Claim S3-31 (dgx): true with conditions"
    It says that `gc.collect()` is generally not recommended in JAX, and can be considered where
    memory is used in excess. With the collector off, everything above was freed but one array. The
    condition is that circle: there the collector matters, and nowhere else.

## Who holds it { #who-holds-it }

A leak in JAX is mostly an ordinary Python reference that nobody needs any more. Here is a training
loop that reports. `step` returns a report, with the error of each row.
"""

# %%
from collections import Counter

import numpy as np

steps = 30
numbers = np.random.default_rng(0)
weights = jnp.eye(16) * 0.5


@jax.jit
def step(weights, batch):
    def loss_of(weights):
        errors = jnp.mean((jnp.tanh(batch @ weights) - batch) ** 2, axis=1)
        return jnp.mean(errors), errors

    (loss, errors), gradient = jax.value_and_grad(loss_of, has_aux=True)(weights)
    return weights - 0.1 * gradient, {"loss": loss, "errors": errors}


def batches():
    for _ in range(steps):
        yield jax.device_put(numbers.normal(size=(16384, 16)).astype(np.float32))


def reports_kept(weights, look):
    history = []
    for batch in batches():
        weights, report = step(weights, batch)
        history.append(report)
        look()
    return [float(report["loss"]) for report in history]


def losses_kept(weights, look):
    history = []
    for batch in batches():
        weights, report = step(weights, batch)
        history.append(report["loss"])
        look()
    return [float(loss) for loss in history]


def floats_kept(weights, look):
    history = []
    for batch in batches():
        weights, report = step(weights, batch)
        history.append(float(report["loss"]))
        look()
    return history


# %% [markdown]
"""
<quiz>
**Predict.** Which of the three needs more memory with every step?
- [x] `reports_kept`
- [x] `losses_kept`
- [ ] `floats_kept`

`reports_kept` keeps a large array a step. `losses_kept` keeps one of four bytes: little, but it
never ends, and it is a buffer like any other. A float is Python's.
</quiz>
"""

# %% alt="Live MiB over steps. With reports kept, a rising line; with losses or floats kept, flat."
import matplotlib.pyplot as plt


def watched(loop):
    numbers.bit_generator.state = np.random.default_rng(0).bit_generator.state
    count, mib = alive()
    levels = []

    def look():
        now = alive()
        levels.append((now[0] - count, now[1] - mib))

    losses = loop(weights, look)
    return np.array(levels), losses


loops = {"reports kept": reports_kept, "losses kept": losses_kept, "floats kept": floats_kept}
results = {name: watched(loop) for name, loop in loops.items()}
figure, axes = plt.subplots()
for (name, (levels, _)), style in zip(results.items(), ("-", "--", ":"), strict=True):
    axes.plot(range(1, steps + 1), levels[:, 1], style, linewidth=2, label=name)
    print(f"{name:13} arrays {levels[1, 0]:.0f} -> {levels[-1, 0]:.0f},", end=" ")
    print(f"MiB {levels[1, 1]:.2f} -> {levels[-1, 1]:.2f}")
axes.set_ylim(0)
axes.set_xlabel("step")
axes.set_ylabel("live MiB")
axes.legend()
plt.show()

leak_mib, flat_mib = results["reports kept"][0][-1, 1], results["floats kept"][0][-1, 1]
more_losses = results["losses kept"][0][-1, 0] - results["losses kept"][0][1, 0]
assert results["reports kept"][1] == results["floats kept"][1]

# %% [markdown]
"""
The second line looks flat in MiB, and is not flat: {{ more_losses:.0f }} arrays more. Count arrays
as well as bytes.

`float` at each step waits for the device. Where that matters, read
[one step late](04-the-inner-loop.ipynb#read-one-step-late).

!!! quote "Claim S3-10 (dgx): true with conditions"
    The document says that JAX does not prevent leaks. Right: what a list, a cache or a closure
    holds, stays. Mostly it is Python that holds it, and in Python you find it. One holder is
    JAX's own: `jit` keeps its static arguments, a static `self` too, and all arrays in them.

To *find* a leak, you need not read the code. Ask twice what is alive, and compare by shape.
"""

# %%


def shapes():
    return Counter(f"{a.dtype}{list(a.shape)}" for a in jax.live_arrays())


def suspects(loop):
    """Shapes of which there are more at the last step than at the second."""
    looks = []
    loop(weights, lambda: looks.append(shapes()))
    return looks[-1] - looks[1]


for shape, count in suspects(reports_kept).items():
    print(f"{count} more of {shape}")
history = [step(weights, batch)[1] for batch, _ in zip(batches(), range(3), strict=False)]
culprit = next(a for a in jax.live_arrays() if a.shape == (16384,))
report = next(h for h in gc.get_referrers(culprit) if isinstance(h, dict) and "errors" in h)
lists = [h for h in gc.get_referrers(report) if isinstance(h, list)]
print(f"the array is in a dict of {sorted(report)}, that in a list of {len(lists[0])}")

# %% [markdown]
"""
The shape names the culprit: `[16384]` is the number of rows, so it is the errors. Where a shape
does not tell, climb: `gc.get_referrers(array)` is who holds it, and so on, up to the list that
grows.

!!! quote "Claim S3-12 (dgx): true"
    The document recommends memory profilers. These are JAX's: `jax.live_arrays()` as here,
    `memory_analysis()` for a program, `device.memory_stats()` for a GPU's pool, and
    `jax.profiler.save_device_memory_profile()`, which writes a file that says who made what; the
    program `pprof` draws it.

## What looks like a leak and is none { #what-looks-like-a-leak-and-is-none }

| you see | it is | how to tell |
|---|---|---|
| `nvidia-smi` never goes down | the pool, which keeps what it took (lesson 08) | `memory_stats()` |
| much memory in a function, then none | a peak | `live_arrays()` after it |
| host memory grows with each new shape | compiled programs (lesson 09) | count compiles |
| each new model stays alive | `jit` keeps it: a static `self` | `jax.clear_caches()` frees it |
| an array is alive that no name leads to | a NumPy view of it | below |

The last one surprises even those who know JAX.
"""

# %%
big = jnp.full((512, 512), 7.0)
piece = np.asarray(big)[:1, :1]
del big
still = [a for a in jax.live_arrays() if a.shape == (512, 512)]
piece_bytes, kept_bytes = piece.nbytes, sum(a.nbytes for a in still)
print(f"a NumPy piece of {piece_bytes} bytes keeps {kept_bytes} bytes of JAX's alive")
del piece, still
gone = not [a for a in jax.live_arrays() if a.shape == (512, 512)]
print("without the piece they are free:", gone)

# %% [markdown]
"""
On a CPU device `np.asarray` copies nothing of an array that lies on that one device: it shows the
array's own buffer, and a piece of the
picture keeps all of it, {{ kept_bytes }} bytes for {{ piece_bytes }}. (From a GPU the numbers have
to be copied to the host first: there the piece kept none of the GPU's memory. That it keeps the
whole copy, in the host's, we expect.) So a history of small pieces may not be small. Keep floats.
<!-- gpu: S2-32, G10 -->

## A mean in constant memory { #a-mean-in-constant-memory }

The document mends its "leak" like this: in place of a list of a thousand copies, a loop that adds.
The idea is right. First the memory, with updates that are worth averaging: each state is made from
the one before, as when the weights of a training run are averaged.
"""

# %% alt="Arrays of room over the number of updates: stacked rises with them; carried is flat."


def update(x, rate):
    return x - rate * (x - jnp.tanh(x @ x.T) @ x / x.shape[0])


def stacked(x, rates):
    _, states = jax.lax.scan(lambda x, rate: (update(x, rate),) * 2, x, rates)
    return jnp.mean(states, axis=0)


def carried(x, rates):
    def add(carry, rate):
        x, total = carry
        x = update(x, rate)
        return (x, total + x), None

    (_, total), _ = jax.lax.scan(add, (x, jnp.zeros_like(x)), rates)
    return total / rates.shape[0]


x = jnp.asarray(numbers.normal(size=(64, 64)), jnp.float32)
many = (10, 500, 1000)


def room(mean, count):
    """Arrays like `x` that the program needs for intermediate results."""
    sizes = jax.jit(mean).lower(x, jnp.full(count, 0.1)).compile().memory_analysis()
    return sizes.temp_size_in_bytes / x.nbytes


rooms = {mean.__name__: [room(mean, count) for count in many] for mean in (stacked, carried)}
figure, axes = plt.subplots()
for (name, found), style in zip(rooms.items(), ("o-", "s--"), strict=True):
    axes.plot(many, found, style, label=name)
    print(f"{name}: " + ", ".join(f"{value:.0f}" for value in found))
axes.set_xlabel("updates")
axes.set_ylabel("arrays of room")
axes.legend()
plt.show()

stacked_room, carried_room = rooms["stacked"][-1], rooms["carried"][-1]
assert stacked_room > 100 * carried_room
rates = jnp.full(1000, 0.1)
np.testing.assert_allclose(jax.jit(stacked)(x, rates), jax.jit(carried)(x, rates), 1e-4, 1e-5)

# %% [markdown]
"""
`jax.lax.scan` has two results. The **carry** goes from round to round, in the same buffers. The
second result is **stacked**: room for one array a round. `stacked` needs {{ stacked_room:.0f }}
arrays for a thousand updates, `carried` {{ carried_room:.0f }}.

## One is not 1001 { #one-is-not-1001 }

<quiz>
**Predict.** The document's mended program starts with `result = jnp.copy(x)`, adds `x` a thousand
times, and takes `jnp.mean(result)` over its elements. For ones, what comes out?
- [ ] 1.0, as with the list
> The mean over the *elements* is not the mean over the *copies*.
- [ ] 1000.0
> Count the start.
- [x] 1001.0
> Right. Started with one too many, and never divided.

</quiz>
"""

# %%
ones = jnp.ones((8, 8))


def with_a_list(x):
    return jnp.mean(jnp.stack([jnp.copy(x) for _ in range(1000)]))


def with_a_sum(x):
    total = jnp.copy(x)
    for _ in range(1000):
        total = jnp.add(total, x)
    return jnp.mean(total)


document_mean, document_sum = float(with_a_list(ones)), float(with_a_sum(ones))
assert document_mean != document_sum
print("list of copies:", document_mean)
print("running sum:   ", document_sum)

# %% [markdown]
"""
!!! quote "Claim S3-30 (dgx): false"
    The document presents the two as the same computation, one of them thrifty:
    {{ document_mean:.1f }} and {{ document_sum:.1f }}. A change that saves memory needs a test that
    the numbers stay.

A sum that means a mean starts at zero, and is divided by the number of its terms.

## Your turn

!!! example "Exercise ex17: find the leak"
    A training loop grows with every step. Keep its history, and stop that. The grader looks at what
    is alive each time your loop calls a step. Start on the
    [page of ex17](../exercises/ex17_find_the_leak.md).

    === "Failing"

        {{ capture: check ex17 starter }}

    === "Passing"

        {{ capture: check ex17 solution }}

!!! example "Exercise ex18: a mean in constant memory"
    Average about a thousand updates. The grader compiles your program, reads what it needs, and
    compares the mean; it knows the document's mistake. Start on the
    [page of ex18](../exercises/ex18_running_mean.md).

    === "Failing"

        {{ capture: check ex18 starter }}

    === "Passing"

        {{ capture: check ex18 solution }}

## Three questions

<quiz>
Live bytes are the same at steps 10 and 1000. Is there a leak?
- [ ] No
- [x] Perhaps: count the arrays too, and look at host memory
- [ ] Yes

Losses of 4 bytes do not show in MiB. And what was read from a GPU and kept is host memory, which
`live_arrays` does not count.
</quiz>

<quiz>
A loop keeps its reports in a list, and `jax.clear_caches()` in each step does not help. Why?
- [x] It forgets compiled programs; these arrays are held by your code
- [ ] It must be followed by `gc.collect()`
- [ ] It works on CPUs only

It forgets programs, so that the next call of each function is compiled again, and the static
arguments that they were compiled for. Your list is neither.
</quiz>

<quiz>
What does `jax.lax.scan` need room for, with a body that returns `(carry, None)`?
- [x] A carry or two and what one round needs, for any number of rounds
- [ ] One carry for each round
- [ ] Nothing

`None` is stacked too, but a thousand times nothing is nothing. (For a gradient, each round keeps
something.)
</quiz>

## Recap

- An array is freed with its last reference. `gc.collect()` matters for circles only.
- Compare live shapes at two steps: what grew is the leak, and its shape tells the name.
- Pools, peaks, caches and NumPy's views are no leaks of JAX's, and each shows elsewhere.
- Carry what you sum: for a thousand updates stacking takes {{ stacked_room:.0f }} arrays, carrying
  {{ carried_room:.0f }}.
- A thriftier program has to give the same number.

Next: [meshes and shardings](12-meshes-and-shardings.ipynb).
"""
