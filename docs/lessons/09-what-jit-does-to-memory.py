# %% [markdown]
"""
---
part: 3 GPU memory
description: What a compiled program needs, why an update holds two copies, and how to give one up.
---
# 09 What jit does to memory

After this lesson you can

- ask a compiled program how much memory it needs, before it runs;
- say why a training step holds its state twice, and when;
- let the new state take the place of the old one, and prove that it does;
- recognise a donation that could not be used, also where nothing is said;
- serve batches of any size with a handful of programs.

**Why care.** The training step below needs {{ plain_mib:.0f }} MiB. One more argument of
`jax.jit`, and it needs {{ donated_mib:.0f }} MiB. The numbers it computes are the same.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
## Ask the compiled program { #ask-the-compiled-program }

XLA plans all memory of a program when it compiles it. So the need is known before anything runs:
`jax.jit(f).lower(arguments).compile().memory_analysis()` tells it, in bytes.

<quiz>
**Predict.** `x` has 4 MiB. How much memory does `jnp.sin(x) * 2 + 1` need for intermediate
results, inside **one** `jit`?
- [ ] 8 MiB: the sine and the product
> That is what the same line needs without `jit`, where each operation is a program of its own.
- [ ] 4 MiB: one result at a time
> The compiler does better than that.
- [x] Next to nothing
> Right. The three operations become one loop over the elements, so nothing is stored between.

</quiz>
"""

# %%
MIB = 2**20
x = jnp.ones((1024, 1024), jnp.float32)


def live_mib():
    return sum(array.nbytes for array in jax.live_arrays()) / MIB


before = live_mib()
sine = jnp.sin(x)
double = sine * 2
result = double + 1
eager_mib = live_mib() - before - result.nbytes / MIB
del sine, double, result

fused = jax.jit(lambda x: jnp.sin(x) * 2 + 1).lower(x).compile()
fused_bytes = fused.memory_analysis().temp_size_in_bytes

print(f"line by line: {eager_mib:.0f} MiB of intermediate results")
print(f"in one jit:   {fused_bytes} bytes")

# %% [markdown]
"""
!!! quote "Claim S1-08 (gpu-memory): false"
    The document says that `jit` makes the use of GPU memory worse. Without `jit` each operation
    is compiled too, one program each, and its result has to be stored. With `jit` the compiler
    sees the whole and stores less.

## Two copies at the peak { #two-copies-at-the-peak }

Arrays never change. So a step that "updates" its state makes a *new* state, and the old one
must stay until the new one is complete. Here is the step of lesson 04 with an optimizer: Adam
keeps two more arrays for each weight.
"""

# %%
import optax

adam = optax.adam(1e-3)


def step(state, batch):
    weights, memory = state

    def loss_of(weights):
        hidden = batch
        for layer in weights:
            hidden = jnp.tanh(hidden @ layer)
        return jnp.mean((hidden - batch) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    updates, memory = adam.update(gradients, memory, weights)
    return (optax.apply_updates(weights, updates), memory), loss


def fresh_state():
    weights = [jnp.eye(512) * 0.5 for _ in range(4)]
    return weights, adam.init(weights)


def mib(tree):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree)) / MIB


state = fresh_state()
batch = jnp.ones((64, 512))
state_mib = mib(state)
print(f"weights {mib(state[0]):.0f} MiB, and with Adam's memory {state_mib:.0f}")

# %% [markdown]
"""
<quiz>
**Predict.** The state has {{ state_mib:.0f }} MiB. You write `state, loss = step(state, batch)`.
How many MiB of state are alive after the line, and how many *during* it?
- [ ] {{ state_mib:.0f }} after, {{ state_mib:.0f }} during
> During the call the old state is still an argument, and the new one needs a place of its own.
- [x] {{ state_mib:.0f }} after, twice that during
> Right. After the line the name holds the new state, and the old one is freed at once.
- [ ] Twice {{ state_mib:.0f }} after, until the garbage collector runs
> Nobody waits for the collector: a buffer is freed when its last reference goes.

</quiz>
"""


# %%
def needs(compiled):
    sizes = compiled.memory_analysis()
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    return (held + sizes.temp_size_in_bytes - sizes.alias_size_in_bytes) / MIB


plain = jax.jit(step)
plain_mib = needs(plain.lower(state, batch).compile())

before = live_mib()
new_state, loss = plain(state, batch)
jax.block_until_ready(new_state)
both = live_mib() - before
state = new_state
del new_state
after = live_mib() - before

print(f"the program needs {plain_mib:.1f} MiB")
print(f"with old and new state alive: {both:+.1f} MiB")
print(f"when the old one is dropped:  {after:+.1f} MiB")

# %% [markdown]
"""
The program's need is arguments plus results plus intermediates: the state twice. `live_arrays`
before and after the line shows {{ after:.1f }} MiB of difference: **between the steps, the peak is
invisible.** It is why a model that "fits" dies in its first step.

!!! quote "Claim S3-04 (dgx): true with conditions"
    The document says that immutable arrays call for careful management of memory and garbage
    collection. Of memory it is so where a step replaces large arrays: you saw the second copy, and
    next you give it up. Of garbage collection it is not. Nothing was collected above: the old state
    was freed on the line that dropped its last reference. (What the document says immutability is
    good for stands on [its page](../documents/dgx.md#what-immutability-is-good-for).)

## Donate what you replace { #donate-what-you-replace }

After the step you never use the old state again. Say so: `donate_argnums=0` gives the buffers of
argument 0 to the program. XLA then writes the new weights where the old ones were. For this, a
result must fit into the donated array; what fits comes [below](#a-donation-can-be-refused). As a
decorator it reads `@jax.jit(donate_argnums=0)`.

<quiz>
**Predict.** After `new = donating(old, batch)`, what is `old`?
- [ ] Still the old state: arrays never change
> They don't change. They can be deleted.
- [ ] The new state: both names share the buffers
> Then an array would have changed under its name. JAX does not allow that.
- [x] Deleted: using it raises an error
> Right. The buffers now belong to `new`.

</quiz>
"""

# %%
donating = jax.jit(step, donate_argnums=0)
compiled = donating.lower(state, batch).compile()
donated_mib = needs(compiled)
assert donated_mib < 0.75 * plain_mib
reused_mib = compiled.memory_analysis().alias_size_in_bytes / MIB
scratch_mib = compiled.memory_analysis().temp_size_in_bytes / MIB
print(f"the program needs {donated_mib:.1f} MiB:")
print(f"  {reused_mib:.1f} MiB hold the old state, then the new one")
print(f"  {scratch_mib:.1f} MiB are for intermediate results")

old = fresh_state()
place = old[0][0].unsafe_buffer_pointer()
new, loss = donating(old, batch)
same_place = new[0][0].unsafe_buffer_pointer() == place
print("new weights in the same place:", same_place)
print("old weights deleted:          ", old[0][0].is_deleted())
print("same loss as without donation:", loss == plain(fresh_state(), batch)[1])
try:
    old[0][0] + 1
except RuntimeError as error:
    print("RuntimeError:", error)

# %% [markdown]
"""
The compiled program says the same in its first line: which result takes the place of which
argument.
"""

# %%
header = compiled.as_text().partition("input_output_alias={")[2]
print(header[:70], "...")

# %% [markdown]
"""
`{0}: (0, {}, may-alias)` reads: result 0 lies where argument 0 was. Of {{ plain_mib:.0f }} MiB
{{ donated_mib:.0f }} are left. A little less than the state is saved: this program needs
{{ scratch_mib:.1f }} MiB for intermediate results. So look at the sum, not at the reused bytes
alone.

!!! quote "Claim S3-29 (dgx): false"
    The document calls `result = jnp.add(result, x)` an in-place operation. Every call of it makes
    a new buffer. In place happens inside one compiled program, or by donation, as here. (Its loop
    does spare memory: it drops the old sum each time, so two are alive and not a thousand.)

## A donation can be refused { #a-donation-can-be-refused }

Donation is an offer. When no result fits the donated buffer, it can't be taken, and the old array
stays alive. Sometimes JAX warns.

<quiz>
**Predict.** A step takes 1024 `float32` weights, donated: 4096 bytes. Which of these results makes
JAX warn that the donation is of no use?
- [ ] The weights as 1024 `bfloat16`, which are half the bytes
> It is of no use, and JAX says nothing. It counted elements, and found as many.
- [x] Two copies of them as 2048 `bfloat16`, which are as many bytes
> Right. JAX looks for a result with as many *elements*, finds none, and warns.
- [ ] The weights as 1024 `int32`
> As many elements, as many bytes: this one is used.

</quiz>
"""

# %%
import warnings

import numpy as np


def offer(name, function):
    array = jnp.ones(1024)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jitted = jax.jit(function, donate_argnums=0)
        compiled = jitted.lower(array).compile()
    result = jax.eval_shape(function, array)
    reused = compiled.memory_analysis().alias_size_in_bytes
    size = result.size * result.dtype.itemsize
    print(f"{name:24} {result.size:8} {size:6} {reused:7}   {'yes' if caught else 'no'}")
    return (result.size == array.size, size == array.nbytes), (reused > 0, bool(caught))


results = {
    "same": lambda x: x + 1,
    "reshaped": lambda x: x.reshape(32, 32),
    "as int32": lambda x: x.astype(jnp.int32),
    "as bfloat16": lambda x: x.astype(jnp.bfloat16),
    "two copies as bfloat16": lambda x: jnp.concatenate([x, x]).astype(jnp.bfloat16),
    "its bytes, as int8": lambda x: jax.lax.bitcast_convert_type(x, jnp.int8),
    "a part": lambda x: x[:10] + 1,
    "padded": lambda x: jnp.pad(x, 1),
}
print("1024 elements, 4096 B    elements  bytes  reused   warned")
for name, function in results.items():
    (elements_fit, bytes_fit), (used, warned) = offer(name, function)
    assert used == (elements_fit and bytes_fit)
    assert warned == (not elements_fit)

# %% [markdown]
"""
Two ask, one after the other. **JAX** looks for a result with the same number of *elements*. Where
there is none, it keeps the offer to itself, and warns. **XLA** then wants the same number of
*bytes*, and where they differ it does not take the offer, and says nothing. So a change from
`float32` to `bfloat16` is refused in silence, and two bfloat16 copies with the right number of
bytes are never offered.

That is so on one device, on a mesh whose axes are Explicit, and wherever `jit` is given
`out_shardings`. On an Auto mesh without them JAX offers all that you donate: then bytes alone
count, and no refusal is reported. <!-- source: jax/_src/interpreters/mlir.py -->

The silent case is an ordinary one: weights in float32 on the way in, in bfloat16 on the way out. So
check the bytes in your own tests: `alias_size_in_bytes` must be the size of the state.

One refusal is not in the program at all. On a CPU device, `np.asarray` gives a view of the array's
own buffer. While such a view is alive, the buffer can't be given away:
"""

# %%
give = jax.jit(lambda x: x + 1, donate_argnums=0)
for what, look in {"no view": lambda x: None, "a NumPy view": np.asarray}.items():
    given = jax.device_put(np.ones(1024, np.float32) * 2, jax.devices("cpu")[0]) + 0
    held = look(given)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        give(given).block_until_ready()
    gone = given.is_deleted()
    print(f"{what:13} donated array deleted: {gone!s:6} warnings: {len(caught)}")
    assert gone == (held is None)

# %% [markdown]
"""
The compiled program is the same for both. `x.is_deleted()` after the call tells what became of the
offer; on a GPU `np.asarray` makes a copy, and there we expect no such thing. <!-- gpu: G10 -->

## Each shape is a program { #each-shape-is-a-program }

XLA plans a program's memory for the shapes it was compiled for. So another shape is another
program: traced, compiled and kept, each with a plan of its own. Data is often ragged: sentences,
images, the last batch of an epoch.

JAX reports each compile to whoever listens. Here is a model that gets {{ arrivals }} batches, of
{{ different }} sizes.
"""

# %%
compiled_names = []


def listen(event, seconds, **about):
    if event.endswith("backend_compile_duration"):
        compiled_names.append(about.get("fun_name"))


jax.monitoring.register_event_duration_secs_listener(listen)


@jax.jit
def model(weights, rows, mask):
    """Each row relative to the mean of its batch; a row whose mask is 0 has no part in it."""
    mean = jnp.sum(rows * mask[:, None], axis=0) / jnp.sum(mask)
    return jnp.tanh((rows - mean) @ weights).sum(axis=1)


numbers = np.random.default_rng(0)
arrivals = 16
sizes = numbers.integers(1, 257, arrivals)
batches = [numbers.normal(size=(size, 16)).astype(np.float32) + 2 for size in sizes]
weights = jax.device_put(numbers.normal(size=(16, 8)).astype(np.float32))


def as_it_comes(rows):
    return np.asarray(model(weights, rows, np.ones(len(rows), np.float32)))


def serve(function):
    """What `function` gives for each batch, and the number of compiles so far after each."""
    jax.clear_caches()
    compiled_names.clear()
    found, counts = [], []
    for rows in batches:
        found.append(function(rows))
        counts.append(len(compiled_names))
    return found, counts


right, ragged_counts = serve(as_it_comes)
different = len(set(sizes.tolist()))
print(f"{arrivals} batches of {different} sizes: {ragged_counts[-1]} compiles")

# %% [markdown]
"""
The remedy: **buckets**. Round each size up to one of a few, and fill the rest with rows that don't
count. With sizes that double (16, 32, ... 256) there are five programs, and a batch takes at most
twice its rows, or 16 of them.

## Pad on the host { #pad-on-the-host }

<quiz>
**Predict.** You pad with `jnp.pad(rows, ...)` to one of five sizes, call the model, and cut the
result with `[:n]`. How many compiles for {{ arrivals }} batches?
- [ ] 5
> The model is compiled five times. What else is?
- [ ] About as many as before
> More than that.
- [x] More than before
> Right. `jnp.pad` and `[:n]` are programs too: one for each size that comes.

</quiz>
"""

# %% alt="Compiles over batches. Padded in JAX: steepest. As it comes: rising. In NumPy: soon flat."
import matplotlib.pyplot as plt


def bucket(count):
    return max(16, 1 << (count - 1).bit_length())


def padded_in_jax(rows):
    size = bucket(len(rows))
    padded = jnp.pad(rows, ((0, size - len(rows)), (0, 0)))
    mask = jnp.arange(size) < len(rows)
    return np.asarray(model(weights, padded, mask.astype(jnp.float32))[: len(rows)])


def padded_in_numpy(rows):
    size = bucket(len(rows))
    padded = np.pad(rows, ((0, size - len(rows)), (0, 0)))
    mask = np.arange(size) < len(rows)
    return np.asarray(model(weights, padded, mask.astype(np.float32)))[: len(rows)]


def without_mask(rows):
    size = bucket(len(rows))
    padded = np.pad(rows, ((0, size - len(rows)), (0, 0)))
    return np.asarray(model(weights, padded, np.ones(size, np.float32)))[: len(rows)]


def same(found):
    return all(np.allclose(a, b, atol=1e-4) for a, b in zip(found, right, strict=True))


in_jax, jax_counts = serve(padded_in_jax)
names = dict.fromkeys(compiled_names)
in_numpy, numpy_counts = serve(padded_in_numpy)
unmasked, _ = serve(without_mask)

figure, axes = plt.subplots()
lines = {"padded in JAX": jax_counts, "as it comes": ragged_counts, "padded in NumPy": numpy_counts}
for (name, counts), style in zip(lines.items(), ("-.", "-", "--"), strict=True):
    axes.plot(range(1, arrivals + 1), counts, style, linewidth=2, label=name)
axes.set_xlabel("batches")
axes.set_ylabel("compiles")
axes.legend()
plt.show()

print("compiled for padding in JAX:", ", ".join(names))
print("same numbers, padded in JAX:  ", same(in_jax))
print("same numbers, padded in NumPy:", same(in_numpy))
print("same numbers, without a mask: ", same(unmasked))
jax_compiles, numpy_compiles = jax_counts[-1], numpy_counts[-1]
assert numpy_counts[-1] <= 5 < ragged_counts[-1] < jax_counts[-1]
assert same(in_jax)
assert same(in_numpy)
assert not same(unmasked)

# %% [markdown]
"""
Padded in JAX: {{ jax_compiles }} compiles, more than without any padding. Padded in NumPy:
{{ numpy_compiles }}, and never more than five. What happens before and after the model
belongs to the host, in NumPy: pad before the call, `np.asarray` first and cut then.

The mask is not for looks. The model takes a mean over the batch, and rows of zeros shift it:
without a mask the numbers are others. Whatever mixes rows (a mean, a norm over the batch,
attention) needs to be told which rows count.

## Your turn

!!! example "Exercise ex14: update in place"
    A training step holds its state twice. Make it hold it once. The grader reads the compiled
    program: the alias bytes, the peak, and which buffer is where. Start on the
    [page of ex14](../exercises/ex14_donate.md).

    === "Failing"

        {{ capture: check ex14 starter }}

    === "Passing"

        {{ capture: check ex14 solution }}

!!! example "Exercise ex15: few compiles"
    Batches come in every size. Serve them with five programs. The grader counts all that was
    compiled, with the lines that caused it, and the rows that were computed for nothing. Start on
    the [page of ex15](../exercises/ex15_few_compiles.md).

    === "Failing"

        {{ capture: check ex15 starter }}

    === "Passing"

        {{ capture: check ex15 solution }}

## Three questions

<quiz>
A model needs 6 GiB for weights and optimizer state, and its device has 10 GiB. It loads, and dies
in the first step. What is the first thing to try?
- [ ] `gc.collect()` before each step
- [x] Donate the state
- [ ] Take `jit` away

Old and new state together are 12 GiB. With donation the new one takes the place of the old one.
</quiz>

<quiz>
`step` donates its weights. You write `new, loss = step(weights, batch)`, and then
`evaluate(weights, batch)`. What happens?
- [x] A RuntimeError: the array has been deleted
- [ ] The old loss, from a cached copy
- [ ] The new loss

Rebind the name on the line of the call: `weights, loss = step(weights, batch)`.
</quiz>

<quiz>
`jax.live_arrays()` shows 5 GiB before a step and 5 GiB after it. What is the peak?
- [ ] 5 GiB
- [ ] 10 GiB
- [x] You can't know from these numbers

The peak is inside the program. `memory_analysis()` of the compiled step tells what that program
needs. A GPU's `device.memory_stats()["peak_bytes_in_use"]` is the highest mark since the *process*
began: it may belong to another program.
</quiz>

## Recap

- `memory_analysis()` tells a program's need before it runs.
- `jit` removes intermediate results; it does not cause memory use.
- An update holds old and new state: here {{ plain_mib:.0f }} MiB for a state of
  {{ state_mib:.0f }} MiB. Between the steps you don't see it.
- `donate_argnums` reuses the old buffers: {{ donated_mib:.0f }} MiB. The old arrays are deleted.
- A donation needs a result with as many elements (or JAX warns) and as many bytes (or nobody says a
  word). On an Auto mesh bytes alone count, and nobody warns. Check `alias_size_in_bytes`.
- Each shape is a program. With buckets, padded on the host, {{ numpy_compiles }} serve
  {{ arrivals }} batches; the mask keeps the numbers right.

Next: [memory for compute](10-memory-for-compute.ipynb).
"""
