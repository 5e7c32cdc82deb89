# %% [markdown]
"""
---
part: 3 GPU memory
description: Whose memory is it - the pool's, the arrays' or the program's - and how to share a GPU.
---
# 08 Who took the memory

After this lesson you can

- tell three figures apart: what the driver sees, what arrays hold, what a program needs;
- say what moves an array to the GPU, and what does not;
- read an out-of-memory error, and choose what to give up;
- set how much of a GPU a process takes, and prove that JAX has read it;
- find the three ways in which such a setting is lost. <!-- gpu: nothing claimed -->

**Why care.** A document explains that `jit` fills your GPU. Below, {{ big_mib:.0f }} MiB reach the
device with {{ put_compiles }} compiles. And of {{ tried }} ways to write "no preallocation",
{{ taken_as_no }} mean no; JAX takes the others for yes, and says nothing. <!-- gpu: S1-01 -->
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
## Three figures, three owners { #three-figures-three-owners }

"How much GPU memory does my program use?" has three answers: <!-- gpu: nothing claimed -->

1. **the driver's**, which `nvidia-smi` shows: what the process has taken from the GPU;
2. **the arrays'**: what your `jax.Array`s hold, a part of the first;
3. **the program's**: what a compiled program needs while it runs, for results on the way.
   <!-- gpu: S1-14 -->

They differ because JAX takes memory from the driver in a large piece, the **pool**, and hands it
out itself. The pool is three quarters of the GPU, and it is taken when the first array is made. On
an H200, `nvidia-smi` showed 537 MiB after `jax.devices()`, 107,927 MiB after an array of one
number, and as much after an array of 1 GiB. So the first figure says nothing about your arrays.
<!-- gpu: G2 -->

The next cell asks the device for the pool's own books.
"""

# %%
device = jax.devices()[0]
books = device.memory_stats()
if books:
    for name in ("bytes_in_use", "peak_bytes_in_use", "pool_bytes", "bytes_limit"):
        print(f"{name:18} {books.get(name)}")
else:
    print(device.platform, "keeps no books: memory_stats() is", books)

# %% [markdown]
"""
A CPU has no pool. A GPU has one from the first array on: before that, it keeps books, and there is
nothing in them but the limit. <!-- gpu: G2 -->

The other two figures can be had on every machine.
"""

# %%
import optax

MIB = 2**20
adam = optax.adam(1e-3)


def live_mib():
    return sum(array.nbytes for array in jax.live_arrays()) / MIB


def needed_mib(compiled):
    sizes = compiled.memory_analysis()
    return (sizes.output_size_in_bytes + sizes.temp_size_in_bytes) / MIB


def loss_of(weights, batch):
    hidden = batch
    for layer in weights:
        hidden = jnp.tanh(hidden @ layer)
    return jnp.mean((hidden - batch) ** 2)


@jax.jit
def step(weights, memory, batch):
    gradients = jax.grad(loss_of)(weights, batch)
    updates, memory = adam.update(gradients, memory, weights)
    return optax.apply_updates(weights, updates), memory


evaluate = jax.jit(loss_of)

# %% [markdown]
"""
<quiz>
**Predict.** You look at `jax.live_arrays()` before and after each call of a training loop. Where is
the peak?
- [ ] After the step: then the new weights are there
> The old ones are gone by then.
- [ ] After the batch is loaded
> That is a high point, but not the highest.
- [x] Inside the step, where you can't look
> Right. Old state, new state and the results on the way are there together.

</quiz>
"""

# %% alt="A staircase of live MiB, and above it a tall thin peak in each step, where no look goes."
import matplotlib.pyplot as plt
import numpy as np

start = live_mib()
story = []  # (what, alive before, alive after, alive while it runs)


def happens(what, action, program_mib=0.0):
    before = live_mib() - start
    result = action()
    story.append((what, before, live_mib() - start, before + program_mib))
    return result


numbers = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)
weights = happens("weights", lambda: [jnp.eye(512) * 0.5 for _ in range(4)])
memory = happens("Adam", lambda: adam.init(weights))
batch = happens("batch", lambda: jax.device_put(numbers))
in_step = needed_mib(step.lower(weights, memory, batch).compile())
in_evaluate = needed_mib(evaluate.lower(weights, batch).compile())


def one_step():
    global weights, memory
    weights, memory = step(weights, memory, batch)


happens("step", one_step, in_step)
happens("step", one_step, in_step)
happens("evaluate", lambda: evaluate(weights, batch), in_evaluate)


def drop_batch():
    global batch
    del batch


happens("del batch", drop_batch)

figure, axes = plt.subplots(figsize=(7, 2.8))
edges = np.arange(len(story) + 1)
axes.stairs([after for _, _, after, _ in story], edges, fill=True, alpha=0.5, label="arrays")
for place, (what, _, _, inside) in enumerate(story):
    if what in ("step", "evaluate"):
        label = "while a program runs" if what == "evaluate" else None
        look = {"fill": False, "edgecolor": "tab:red", "hatch": "//", "label": label}
        axes.bar(place + 0.5, inside, 0.25, **look)
axes.set_xticks(edges[:-1] + 0.5, [what for what, *_ in story])
axes.set_ylabel("MiB")
axes.legend(loc="upper left")
plt.show()

peak_mib = max(inside for *_, inside in story)
seen_mib = max(after for _, _, after, _ in story)
print(f"between the calls at most {seen_mib:.0f} MiB, inside a step {peak_mib:.0f} MiB")

# %% [markdown]
"""
Between the calls you see at most {{ seen_mib:.0f }} MiB. The step needs {{ peak_mib:.0f }}. Lesson
[09](09-what-jit-does-to-memory.ipynb) takes that peak apart.

!!! quote "Claim S1-14 (gpu-memory): true with conditions"
    The document runs `x * 2` and tells you to watch the GPU's memory grow. The result does lie on
    the GPU. But an array that fits into the pool changes nothing that the driver sees. Ask
    `memory_stats()["bytes_in_use"]`, or `jax.live_arrays()` as here.

## What moves an array { #what-moves-an-array }

The document's question is: why is GPU memory used, when my data is on the CPU? Its answer is
`jit`. Let us look. JAX reports each compile to whoever listens. <!-- gpu: S1-01 -->

<quiz>
**Predict.** `jax.device_put(data)` brings a NumPy array to the device. How many programs are
compiled for it?
- [x] None
> Right. A copy needs no program.
- [ ] One
> There is nothing to compute.
- [ ] One for each shape
> That is `jit`. This is not.

</quiz>
"""

# %%
compiled_names = []


def listen(event, seconds, **about):
    if event.endswith("backend_compile_duration"):
        compiled_names.append(about.get("fun_name"))


jax.monitoring.register_event_duration_secs_listener(listen)


def compiles(action):
    compiled_names.clear()
    result = jax.block_until_ready(action())
    print(f"{len(compiled_names)} compiles, {result.nbytes / MIB:4.0f} MiB on {result.device}")
    return len(compiled_names)


data = np.ones((2048, 2048), np.float32)
elsewhere = jax.devices("cpu")[-1]  # never the default device
big_mib = data.nbytes / MIB
put_compiles = compiles(lambda: jax.device_put(data))
compiles(lambda: jax.device_put(data, elsewhere))
array_compiles = compiles(lambda: jnp.array(data))
array_program = compiled_names[-1] if compiled_names else "none"
eager_compiles = compiles(lambda: jnp.sin(jax.device_put(data)) * 2 + 1)
assert put_compiles == 0 < array_compiles < eager_compiles
jit_compiles = compiles(lambda: jax.jit(lambda x: jnp.sin(x) * 2 + 1)(data))

# %% [markdown]
"""
The copy with `device_put` needed {{ put_compiles }} compiles, to either device; with `jnp.array` it
needed {{ array_compiles }}. Three operations **without** `jit` needed
{{ eager_compiles }}, the same three in one `jit` {{ jit_compiles }}. Compiling and moving are two
things, and `jit` is not where either begins.

What decides is whether an input is committed, and where.
"""

# %%
double = jax.jit(lambda x: x * 2)
there = jax.device_put(data, elsewhere)
committed = double(there).device
eager = (there * 2).device
with jax.default_device(elsewhere):
    by_default = double(data).device
by_itself = double(data).device

print("committed input, with jit:   ", committed)
print("committed input, without jit:", eager)
print("NumPy, default_device:       ", by_default)
print("NumPy, nothing said:         ", by_itself)
assert committed == eager == by_default == elsewhere != by_itself

# %% [markdown]
"""
!!! quote "Claim S1-01 (gpu-memory): false"
    The document says that GPU memory is used because of compilation. Above, an array lies on the
    device before anything was compiled. Two other things fill a GPU: the pool, and new arrays,
    which go to the default device.

!!! quote "Claim S1-07 (gpu-memory): false"
    The text makes compiling the reason for the copy. `jnp.array` does compile, for each new shape
    {{ array_compiles }} small program: `{{ array_program }}`. But the copy does not need it:
    `device_put` moved the same {{ big_mib:.0f }} MiB with {{ put_compiles }}.

!!! quote "Claim S1-15 (gpu-memory): false"
    So a conversion *and* `jit` are not both needed. `device_put` was done before any `jit`.

!!! quote "Claim S1-09 (gpu-memory): false"
    `jit` is said to guarantee that the accelerator is used. It follows its inputs: here to a CPU
    device that is not the default. Beside a GPU it would do the same.

!!! quote "Claim S1-17 (gpu-memory): false"
    After `device_put`, the document says, the GPU computes "due to jit". The line without `jit` ran
    in the same place. The committed input decides.

!!! quote "Claim S1-06 (gpu-memory): false"
    JAX is said to move data ahead, where that is quicker. There is no such rule. Committed inputs
    decide, else the default device does.

!!! quote "Claim S1-02 (gpu-memory): true with conditions"
    "Data often has to be moved": NumPy arrays, yes, to the default device. Arrays committed to
    another device stay there.

!!! quote "Claim S1-13 (gpu-memory): true"
    `jnp.array(numpy_array)` puts the data on the default device. That is the GPU where there is
    one.

Two surprises wait in the document's first lines. It makes a million `int64`, and gives them to JAX.
"""

# %%
counts = np.arange(1_000_000)
on_device = jnp.array(counts)
print(f"NumPy {counts.dtype}: {counts.nbytes / MIB:.1f} MiB")
print(f"JAX   {on_device.dtype}: {on_device.nbytes / MIB:.1f} MiB")


def aligned(size):
    """float32 ones that begin on a multiple of 64 bytes."""
    room = np.empty(4 * size + 64, np.uint8)
    start = -room.__array_interface__["data"][0] % 64
    array = room[start : start + 4 * size].view(np.float32)
    array[:] = 1
    return array


mine = aligned(1024)
put = jax.device_put(mine, jax.devices("cpu")[0]).block_until_ready()
mine[0] = 77
shared = bool(put[0] == 77)
print("NumPy changed, and the array on a CPU device with it:", shared)

# %% [markdown]
"""
!!! quote "Claim S1-20 (gpu-memory): false"
    The document takes for granted that a million `int64` stay that. JAX makes `int32` of them,
    without a word, unless `jax_enable_x64` is on. (Only if you ask for the type by name, as in
    `jnp.zeros(3, jnp.int64)`, does it warn.)

!!! quote "Claim S1-16 (gpu-memory): true with conditions"
    `jax.device_put(array, jax.devices()[0])` copies to the first device of the default backend:
    the GPU, if there is one. To a CPU device it may not copy at all. It may *share* NumPy's memory,
    as above. Don't write to a NumPy array that you have given away.

## When it runs out { #when-it-runs-out }

A CPU device takes its memory from the whole machine, so nothing runs out here that you would notice
in time. A [device next door](../reference/device.md) has memory of its own, of a size that you
choose. What an array takes of it is counted before the array is made, and given back with its last
reference.

The program below keeps a copy of the best weights so far, and takes one step on a device of 64 MiB.
If the step does not fit, it tries once more, with its state donated. A second program differs in
one thing: it keeps the copy on the host. To run them yourself, save their texts under the names
below, and type the lines that begin with `$`.
<!-- arithmetic: the size in the program below -->

<quiz>
**Predict.** The arrays on the device have 38 MiB together. The step returns new weights and a new
momentum, 24 MiB. Does the step fit into 64 MiB?
- [ ] Yes: 38 and 24 are 62
> So they are, but a program needs more than its arguments and results.
- [x] No
> Right. It also needs room for results on the way, such as the gradients.
- [ ] Yes: the new weights take the place of the old ones
> Only if you say so. The old ones have names, and could be used again.

</quiz>
"""

# %%
import _next_door

FULL = """
import jax, jax.numpy as jnp, numpy as np

def step(weights, momentum, batch):
    def loss_of(weights):
        hidden = batch
        for layer in weights:
            hidden = jnp.tanh(hidden @ layer)
        return jnp.mean((hidden - batch) ** 2)

    momentum = 0.9 * momentum + jax.grad(loss_of)(weights)
    return weights - 0.1 * momentum, momentum

weights = jax.device_put(np.stack([np.eye(1024, dtype=np.float32)] * 3))
momentum = jax.device_put(np.zeros((3, 1024, 1024), np.float32))
batch = jax.device_put(np.ones((512, 1024), np.float32))
best = jnp.copy(weights)  # the best so far, to go back to

for how, donated in {"as it is": (), "with donation": (0, 1)}.items():
    run = jax.jit(step, donate_argnums=donated)
    try:
        jax.block_until_ready(run(weights, momentum, batch))
        print(f"The step fits {how}.")
        break
    except jax.errors.JaxRuntimeError as error:
        print(error)
"""
ON_HOST = FULL.replace("jnp.copy(weights)", "jax.device_get(weights)")
options = ("--devices", "1", "--memory", "64MiB")
programs = [("full.py", FULL, {}), ("on_host.py", ON_HOST, {})]
full, on_host = _next_door.run_all(programs, *options)
if full.book:
    (refused,) = [line for line in full.book if line.event == "oom"]
    wanted_mib, held_mib = refused.bytes / MIB, refused.in_use / MIB
    limit_mib = full.book[0].memory / MIB
    donated_mib, moved_mib = (
        line.in_use / MIB
        for line in full.book + on_host.book
        if line.event == "launch" and line.program == "jit_step"
    )
    assert (held_mib, limit_mib) == (3 * 12 + 2, 64)
    assert 2 * 12 < limit_mib - held_mib < wanted_mib
    assert max(donated_mib, moved_mib) <= limit_mib

# %% [markdown]
"""
Read the error from the top.

- **What did not fit.** The program `jit_step` wanted {{ wanted_mib:.0f }} MiB: its results, and
  beside them its temporaries, which are results on the way.
- **What was in the way.** Four arrays held {{ held_mib:.0f }} MiB of {{ limit_mib:.0f }}.
- **Who they are.** The list begins with the largest. Three arrays have the shape of the weights.
  Two you expect: weights and momentum. The third is `best`.

There are two things to give up. The old state can make room for the new one: with
`donate_argnums`, the results take the memory of the arguments, and the step reaches
{{ donated_mib:.0f }} MiB, the copy included. Lesson
[09](09-what-jit-does-to-memory.ipynb#two-copies-at-the-peak) is about that. Or the copy can lie on
the host, where `jax.device_get` puts it: that is the second program, whose step reaches
{{ moved_mib:.0f }} MiB.

The error came at `block_until_ready`, not at the call: this device says that it has refused a
program where you wait for the result. On an H200 the error began "Out of memory while trying to
allocate 419.41GiB with allocator GPU_0_bfc on device 0". To see the arrays, ask for
`sorted(jax.live_arrays(), key=lambda array: -array.nbytes)[:10]`. <!-- gpu: G14 -->

## When the settings are read { #when-the-settings-are-read }

Three environment variables decide most about the pool:

| variable | decides |
|---|---|
| `XLA_PYTHON_CLIENT_PREALLOCATE` | is the pool taken at once, or does it grow? |
| `XLA_CLIENT_MEM_FRACTION` | how much of the GPU may it take? |
| `XLA_PYTHON_CLIENT_ALLOCATOR` | is there a pool? (`platform`: no) <!-- gpu: G2 --> |

The second has no `PYTHON` in its name, and that is no typing error: only its
[old name](#what-the-shell-left) has.

Set too late, they do nothing. People disagree on what "too late" is: many put them above
`import jax`. The next cell asks three fresh processes. Each holds a stand-in for the CUDA plugin
that reads the settings with the plugin's own function, and tells. <!-- gpu: nothing claimed -->

<quiz>
**Predict.** `XLA_PYTHON_CLIENT_PREALLOCATE=false` is set (a) before `import jax`, (b) after
`import jax`, (c) after the first `jax.devices()`. Where does JAX see it?
- [ ] (a) only
> Importing JAX looks for no device.
- [x] (a) and (b)
> Right. JAX reads when it first looks for devices.
- [ ] All three
> It reads once.

</quiz>
"""

# %%
from _fresh_process import run_all

SET = "import os; os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'\n"
moments = {
    "before import jax": SET + "import jax; jax.devices()",
    "after import jax": "import jax\n" + SET + "jax.devices()",
    "after jax.devices()": "import jax; jax.devices()\n" + SET + "jax.numpy.ones(3)",
}
lost = "import jax; print(jax.devices()[0].platform)"
both = {"XLA_CLIENT_MEM_FRACTION": ".3", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".9"}
both["JAX_PLATFORMS"] = ""  # may take a GPU, if there is one
*answers, two_names = run_all([(code, {}) for code in moments.values()] + [(lost, both)])
for moment, (read, _, _) in zip(moments, answers, strict=True):
    print(f"set {moment:20} JAX reads {read}")
assert [read.get("preallocate") for read, *_ in answers] == [False, False, None]

# %% [markdown]
"""
`None` said is the default: preallocation on. Reading happens at the **first question for a
device**: `jax.devices()`, `jax.default_backend()`, the first array. A log line such as
`print(jax.devices())` at the top of a script is enough to lose every setting below it.

## What the settings accept { #what-the-settings-accept }

<quiz>
**Predict.** Which values of `XLA_PYTHON_CLIENT_PREALLOCATE` turn preallocation off?
- [x] `false`
- [ ] `no`
- [ ] `off`
- [ ] `FALSE`
- [x] `0`

JAX compares the text with three words: `false`, `False` and `0`. Anything else is yes.
</quiz>
"""

# %%
import os
from unittest import mock

from jaxlib import xla_client


def settings(**variables):
    """What the CUDA plugin would read, if it read now."""
    with mock.patch.dict(os.environ, variables):
        try:
            return xla_client.generate_pjrt_gpu_plugin_options()
        except ValueError as error:
            return {"error": str(error)}


words = ["false", "False", "0", "FALSE", "no", "off", "none", "f"]
tried, taken_as_no = len(words), 0
for word in words:
    preallocate = settings(XLA_PYTHON_CLIENT_PREALLOCATE=word)["preallocate"]
    taken_as_no += not preallocate
    print(f"PREALLOCATE={word:6} preallocation {'on' if preallocate else 'off'}")
for share in ("0.3", ".3", "30", "30%"):
    read = settings(XLA_CLIENT_MEM_FRACTION=share)
    print(f"MEM_FRACTION={share:4}", read.get("memory_fraction", read.get("error")))
for name in ("default", "platform", "none"):
    read = settings(XLA_PYTHON_CLIENT_ALLOCATOR=name)
    print(f"ALLOCATOR={name:8}", read.get("allocator", "refused"))

# %% [markdown]
"""
{{ taken_as_no }} of {{ tried }} words mean no. A share of `30` is taken as it stands, many times
the memory, and nobody complains here; `30%` is refused. `platform` is a wide-spread advice: it
means no pool at all. By JAX's documentation it is very slow, takes the least memory, gives it back
to the GPU, and may help to find out-of-memory errors.
<!-- gpu: source: JAX docs, GPU memory allocation -->

!!! quote "Claim S1-12 (gpu-memory): true with conditions"
    The document warns of crashes when GPU memory runs out. True; and users report a cause that it
    does not name: two processes on one GPU, each with the default pool, of which two don't fit
    (jax-ml/jax#19267). On an H200 a second process started beside the first, and made a small
    array. What happens when it wants more is not recorded. <!-- gpu: G14 -->

### The settings at work { #the-settings-at-work }

What do these settings do, once they are read? The device next door takes the first two as the
plugin does. (Where nothing is set, it sets nothing aside and gives a process all that it wants,
which is not JAX's default.) The program below takes 4 MiB of a device of 64 MiB, and starts itself
a second time. The second process wants 24 MiB. <!-- arithmetic: the sizes in the program below -->

<quiz>
**Predict.** Each process may take three quarters of the device, and preallocates them. Does the
second one get its 24 MiB?
- [ ] Yes: 4 and 24 are less than 64
> They are. But the first process has taken more than its array.
- [x] No
> Right. The first has set 48 MiB aside, whatever it uses of them. 16 are left.
- [ ] Yes, but it has to wait until the first one ends
> Nobody waits for memory. What is not there is refused.

</quiz>
"""

# %%
import re

SHARE = """
import subprocess, sys
import jax, numpy as np

who, mib = ("second", 24) if "again" in sys.argv else ("first", 4)
data = np.ones((mib, 512, 512), np.float32)
try:
    array = jax.block_until_ready(jax.device_put(data))
except jax.errors.JaxRuntimeError as error:
    print("second is refused:", str(error).splitlines()[-1])

books = jax.devices()[0].memory_stats()
names = "bytes_in_use", "pool_bytes", "bytes_limit"
used, pool, limit = (books[name] >> 20 for name in names)
print(f"{who:6} uses {used:2} MiB, its pool has {pool:2},", end=" ")
print(f"it may take {limit:2}", flush=True)
if who == "first":
    subprocess.run([sys.executable, __file__, "again"])
"""
PREALLOCATE, FRACTION = "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_CLIENT_MEM_FRACTION"
shares = [("share.py", SHARE, {PREALLOCATE: w, FRACTION: ".75"}) for w in ("true", "false")]
shared = _next_door.run_all(shares, *options)


def figures(run):
    """What each process uses, has in its pool, and may take."""
    lines = [line for line in run.printed if "uses" in line]
    return [[*map(int, re.findall(r"\d+", line))] for line in lines]


if all(run.book for run in shared):
    (used_mib, pool_mib, _), (_, _, left_mib) = figures(shared[0])
    assert figures(shared[0]) == [[4, 48, 48], [0, 16, 16]]
    assert figures(shared[1]) == [[4, 4, 48], [24, 24, 48]]
    events = [[line.event for line in run.book] for run in shared]
    assert [each.count("oom") for each in events] == [1, 0]

# %% [markdown]
"""
With preallocation, the first process uses {{ used_mib }} MiB and has a pool of {{ pool_mib }}. The
second may take the {{ left_mib }} MiB that are left, and is refused. Without preallocation, a pool
is no larger than what is in it, and both processes get what they want.

So a share is no promise. Two processes that preallocate need shares that fit into the device
together.

## What the shell left { #what-the-shell-left }

`XLA_PYTHON_CLIENT_MEM_FRACTION` is the old name of `XLA_CLIENT_MEM_FRACTION`. Most answers on the
web have the old one, and so may your cluster's start-up script. What if both are set?
"""

# %%
read, error, platform = two_names
print("JAX read:", read)
print("logged:  ", error.partition(". ")[0])
print("the process goes on, on:", platform)
assert "specified together" in error
alone = settings(XLA_PYTHON_CLIENT_MEM_FRACTION=".9")["memory_fraction"]
print("the old name alone:", alone)

# %% [markdown]
"""
An error is logged. The plugin raised before it could register a device. So while JAX chooses the
platforms by itself, as here, the program goes on **without the GPU**, if there is one; with
`JAX_PLATFORMS=cuda,cpu` it stops at its first question for a device. (Here there was none to lose;
the grader of ex13 stages a machine with one.) A slow job may have one environment variable too
many.
<!-- gpu: S0-01 -->

So a setting is lost in three ways: it comes too late, it has a value that JAX takes for another, or
the old name stands beside the new one. A program that must share a GPU sets all three variables,
removes the old name (where it is set: not every shell has it), and then asks for a device. That is
the exercise. <!-- gpu: nothing claimed -->

How much for whom? The shares of all processes together must leave a rest. The driver and libraries
such as cuDNN take memory beside the pool, and fail in odd ways when there is none
(jax-ml/jax#22533). On an H200, 537 MiB were gone before there was a pool. <!-- gpu: G2 -->

## Your turn

!!! example "Exercise ex13: share one GPU"
    Two processes are to share a GPU. Write what each calls first. The grader starts fresh processes
    on a staged machine, from shells that have set something already, and looks at what JAX hands
    to the GPU's client. Start on the [page of ex13](../exercises/ex13_memory_budget.md).

    === "Failing"

        {{ capture: check ex13 starter }}

    === "Passing"

        {{ capture: check ex13 solution }}

## Three questions

<quiz>
`nvidia-smi` shows that your process holds three quarters of the GPU. Your arrays have 2 GiB. What
is wrong?
- [x] Nothing: you see the pool
- [ ] `jit` keeps copies
- [ ] A leak

Ask `device.memory_stats()["bytes_in_use"]` for what is used of the pool.
</quiz>

<quiz>
A script begins with `import jax`, prints `jax.devices()`, and then sets
`XLA_PYTHON_CLIENT_PREALLOCATE=false`. What happens?
- [ ] The pool shrinks
- [x] Nothing
- [ ] An error

The print was the first question for a device. The settings were read there.
</quiz>

<quiz>
You set `XLA_CLIENT_MEM_FRACTION=.4` in Python, and your program suddenly runs on the CPU. Where do
you look?
- [x] In the environment, for the old name of the variable
- [ ] In the driver
- [ ] In your use of `jit`

Both names together are an error, which is logged once, at the start.
</quiz>

## Recap

- The driver sees the pool; `live_arrays` sees arrays; `memory_analysis` sees a program's need.
- `device_put` moves {{ big_mib:.0f }} MiB with {{ put_compiles }} compiles, `jnp.array` with
  {{ array_compiles }} small one. `jit` decides nothing: it follows its committed inputs, and takes
  the others along.
- An out-of-memory error means that something did not fit beside all that is alive, whether the
  program uses it or not. Drop, donate, or move to the host.
- Settings are read once, at the first question for a device.
- `false`, `False`, `0` are no. Everything else is yes.
- Old and new name of the share together cost you the GPU. <!-- gpu: S1-14 -->

Next: [what `jit` does to memory](09-what-jit-does-to-memory.ipynb).
"""
