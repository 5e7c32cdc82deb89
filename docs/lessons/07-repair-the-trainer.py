# %% [markdown]
"""
---
part: 2 Why is my code not using the GPU?
description: A Haiku trainer with six faults, mended one at a time, each repair measured.
---
# 07 Repair the trainer

After this lesson you can

- find a fault of a trainer by what it does, not by how it looks;
- measure what a step starts, moves and waits for, with a few lines;
- tell faults that cost time from those that change what is learned.

**Why care.** The trainer below runs, prints a falling loss, and has six faults. Mended, it takes
**1/{{ gain:.0f}}** of the time for a step. Two of its faults hardly show in the time, and
are the worse ones.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
As in lesson 05, the last device plays the accelerator, and is the default.

## The program that never ran { #the-program-that-never-ran }

The document about Haiku and GPUs shows a program, and explains why it will likely run on the CPU.
Here are the parts of the line that makes its parameters, one by one, and the name that its second
program uses to move them. <!-- gpu: nothing claimed -->
"""

# %%
import haiku as hk
import numpy as np

gpu = jax.devices()[-1]
jax.config.update("jax_default_device", gpu)


def network_of_the_document():
    return hk.Sequential([hk.Linear(64), jax.nn.relu, hk.Linear(10)])


def error_of(action):
    try:
        return action()
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


transformed = hk.transform(network_of_the_document)
print(error_of(lambda: transformed()))
print(error_of(lambda: transformed.init(jax.random.key(0), np.ones((2, 8)))))
print(error_of(lambda: hk.Params({})))
print("jax.tree_map:", error_of(lambda: jax.tree_map))

# %% [markdown]
"""
It never ran, on a CPU or elsewhere. `hk.transform` gives a pair of pure functions, `init` and
`apply`. The function it transforms must take the inputs. The mended program needs no word about
devices:
"""

# %%
network = hk.transform(lambda inputs: network_of_the_document()(inputs))
inputs = jnp.ones((32, 8))
params = jax.jit(network.init)(jax.random.key(0), inputs)
mean_square = jax.jit(lambda params: (network.apply(params, None, inputs) ** 2).mean())
loss, grads = jax.value_and_grad(mean_square)(params)
places = {str(leaf.device) for leaf in jax.tree.leaves((params, loss, grads))}
print("params, loss and gradients are on", places, "- the default device is", gpu)

# %% [markdown]
"""
!!! quote "Claim S0-13 (haiku-gpu): false"
    The document calls `hk.transform(my_model)()`. What `transform` returns cannot be called.

!!! quote "Claim S0-14 (haiku-gpu): false"
    It wraps the parameters in `hk.Params(...)`. That is the name of a type, for annotations.

!!! quote "Claim S0-15 (haiku-gpu): false"
    It says that this example "will likely run on CPU, even if a GPU is available". Mended, all of
    it is on the default device, and on a GPU machine that is the GPU.

!!! quote "Claim S0-17 (haiku-gpu): outdated"
    `jax.tree_map` worked when the document was written, with a warning. It is `jax.tree.map` now.

## Six faults, and what they do { #six-faults-and-what-they-do }

Now a trainer that runs. It learns to tell {{ classes }} kinds of rows apart. Haiku keeps a running
mean of the inputs as **state**, and **dropout** needs a random key. Each piece can be taken broken
or mended, so that we can mend one at a time.
"""

# %%
import optax

WIDTH, ROWS, classes = 48, 32, 10


def forward(rows):
    mean = hk.get_state("mean", [WIDTH], init=jnp.zeros)
    hk.set_state("mean", 0.9 * mean + 0.1 * rows.mean(0))
    hidden = rows - mean
    for _ in range(2):
        hidden = jax.nn.relu(hk.Linear(WIDTH)(hidden))
    return hk.Linear(classes)(hk.dropout(hk.next_rng_key(), 0.5, hidden))


network = hk.transform_with_state(forward)
optimizer = optax.sgd(0.05)


def loss_fn(params, state, key, batch):
    logits, state = network.apply(params, state, key, batch[0])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean(), state


gradient = jax.value_and_grad(loss_fn, has_aux=True)


def step(model, key, batch, keep_state):
    params, state, opt_state = model
    (loss, new_state), grads = gradient(params, state, key, batch)
    updates, opt_state = optimizer.update(grads, opt_state)
    state = new_state if keep_state else state
    return (optax.apply_updates(params, updates), state, opt_state), loss


# %% [markdown]
"""
The loop has a switch for each fault. The names of the switches say what is *right*.
"""

# %%
REPAIRS = ["one program", "model stays", "default device", "no reads", "state kept", "new keys"]
compiled = jax.jit(step, static_argnums=3)


@jax.jit
def fresh_model(key, batch):
    params, state = network.init(key, batch[0])
    return params, state, optimizer.init(params)


def train(batches, right, log):
    key = jax.random.key(1)
    model, losses = fresh_model(key, batches[0]), []
    run = compiled if "one program" in right else step
    for batch in batches:
        if "default device" not in right:
            model, batch = jax.device_put((model, batch), jax.devices("cpu")[0])
        used = key
        if "new keys" in right:
            key, used = jax.random.split(key)
        model, loss = run(model, used, batch, "state kept" in right)
        losses.append(loss)
        if "no reads" not in right:
            float(loss)
        if "model stays" not in right:
            model = jax.device_get(model)
        log(model, loss, used)
    return model, losses


draw = np.random.default_rng(0)
KINDS = draw.normal(size=(classes, WIDTH))


def batch_of(kinds):
    rows = 2 + KINDS[kinds] + draw.normal(size=(ROWS, WIDTH))
    return rows.astype(np.float32), kinds.astype(np.int32)


batches = [batch_of(draw.integers(0, classes, ROWS)) for _ in range(24)]
_, losses = train(batches, [], lambda *_: None)
by_six = np.array(losses).reshape(4, 6).mean(1)
print("loss of the broken trainer, means of six steps:", " ".join(f"{x:.2f}" for x in by_six))
assert by_six[-1] < by_six[0]

# %% [markdown]
"""
A falling loss. Nothing in the output shows that anything is wrong. So we measure what a step
*does*: how many operations it makes, how long it takes, where it ran, which keys it used.
"""

# %%
from time import perf_counter as now


def operations_in(run):  # counted in a trace; a jitted function counts as one
    key = jax.random.key(0)
    model = jax.eval_shape(fresh_model, key, batches[0])
    made = jax.make_jaxpr(lambda *args: run(*args, True))(model, key, batches[0])
    return len(made.jaxpr.eqns)


def measured(right, steps=8):
    record, times = {"keys": set(), "devices": set()}, []

    def log(model, loss, key):
        if len(times) in (2, steps - 1):
            jax.block_until_ready((model, loss))  # where the clock starts, and where it stops
        times.append(now())
        record["keys"].add(str(jax.random.key_data(key)))
        record["devices"] |= {str(device) for device in loss.devices()}

    model, _ = train([batches[i % len(batches)] for i in range(steps)], right, log)
    record["ms"] = (times[-1] - times[2]) * 1000 / (steps - 3)
    record["mean"] = float(np.abs(np.asarray(model[1]["~"]["mean"])).max())
    record["host"] = isinstance(jax.tree.leaves(model)[0], np.ndarray)
    return record


def steps_of(count):
    return [measured(REPAIRS[:count]) for _ in range(3)]


def ms(stage):
    return min(run["ms"] for run in stages[stage])


stages = [steps_of(0)]
broken = stages[0][0]
print(f"operations a step   {operations_in(step):8}")
print(f"time of a step      {ms(0):8.1f} ms")
print(f"model on the host   {broken['host']!s:>8}")
print(f"ran on              {broken['devices']}, the default is {gpu}")
print(f"running mean        {broken['mean']:8.2f}, of inputs whose mean is near 2")
print(f"keys in 8 steps     {len(broken['keys']):8}")

# %% [markdown]
"""
Each line shows a fault, and the second the sum of some. We go through them.

## No jit, no program { #no-jit-no-program }

<quiz>
**Predict.** `step` is called without `jax.jit`. JAX compiles all the same: each operation by
itself, once. So what is missing?
- [ ] Nothing after the first step
> Each operation is compiled by then. It must still be started, one by one, from Python.
- [x] One start in place of one for each of {{ operations }} operations
> Right. And the gradient is worked out anew in Python at each call.
- [ ] The GPU: without jit, all runs on the CPU
> Where it runs has nothing to do with jit.

</quiz>
"""


# %%
stages.append(steps_of(1))
operations = operations_in(step)
jit_gain = ms(0) / ms(1)
print(f"without jit {ms(0):7.1f} ms a step, {operations} operations")
print(f"with jit    {ms(1):7.1f} ms a step, {operations_in(compiled)} operation")

model, _ = train(batches[:1], REPAIRS, lambda *_: None)
start = now()
anew = jax.jit(lambda *args: step(*args, True))
jax.block_until_ready(anew(model, jax.random.key(0), batches[0]))
fresh_ms = (now() - start) * 1000
print(f"jax.jit(lambda ...) in the loop: {fresh_ms:.0f} ms, each time")

# %% [markdown]
"""
`jit` around the *whole* step: 1/{{ jit_gain:.0f}} of the time. In the loop, `jax.jit(lambda ...)`
is worse than none: each lambda is new to it, and all is compiled again. A Python value that
changes at each step, such as a static step number, does the same harm.

## The model stays where it is { #the-model-stays-where-it-is }

The line `model = jax.device_get(model)` was meant to keep the model safe, or to free memory. It
brings all of it to the host at each step, and the next step takes it back.

<quiz>
**Predict.** The model weighs {{ model_kib:.1f}} KiB. How many bytes does the loop move for it,
there and back?
- [ ] None, the CPU *is* the host
> Here it hardly shows. A GPU has memory of its own: there it is a copy each way.
- [x] {{ moved_kib:.1f}} KiB at each step
> Right, once each way. Only the batch has a reason to travel.
- [ ] {{ moved_kib:.1f}} KiB in all
> It happens at every step.

</quiz>
"""

# %%
model_kib = sum(leaf.nbytes for leaf in jax.tree.leaves(model)) / 2**10
moved_kib = 2 * model_kib
stages.append(steps_of(2))
print("before:", "on the host" if stages[1][0]["host"] else "on the device")
print("after: ", "on the host" if stages[2][0]["host"] else "on the device")

# %% [markdown]
"""
If you want a copy of the model, take one every hundredth step, and start it with
`copy_to_host_async`. Lesson 02 shows what travels, lesson 15 what a copy costs.

## The device is not yours to name { #the-device-is-not-yours-to-name }

`jax.devices("cpu")[0]` stands in many programs, from the day when somebody's GPU was broken. The
loop puts everything there, and it stays there, because it is committed.
<!-- gpu: nothing claimed -->
"""

# %%
stages.append(steps_of(3))
print("default device:", gpu)
print("before: ran on", stages[2][0]["devices"])
print("after:  ran on", stages[3][0]["devices"])
assert stages[3][0]["devices"] == {str(gpu)}

# %% [markdown]
"""
The cure is to delete the line. Model and batch then follow the default, which is the GPU where
there is one. Here both devices are the same CPU: what the clock gains is the copies that are gone,
not a faster device. The name tells. <!-- gpu: S0-02 -->

## A read a step { #a-read-a-step }

`float(loss)` waits for the step. Lesson 04 tells what that costs and how to avoid it: keep the
array, read it later.

<quiz>
**Predict.** In this loop nothing is loaded from a disk, and the batches are there. What can the
trainer gain without the read?
- [ ] The time to prepare a batch, as in lesson 04
> There, the host had that work to do meanwhile. Here the batches are ready.
- [x] At most Python's part of a step
> Right: a wait costs what could have run meanwhile. Here that is Python's start of the next step.
- [ ] The time of the step on the device
> The device has as much to do as before.

</quiz>
"""

# %%
stages.append(steps_of(4))
pairs = [[measured(REPAIRS[:count])["ms"] for count in (3, 4)] for _ in range(15)]  # in turn
before, after = np.median(pairs, axis=0)
low, high = np.percentile(np.subtract(*np.transpose(pairs)), [25, 75])
print(f"before: {before:6.2f} ms a step, median of {len(pairs)} runs")
print(f"after:  {after:6.2f} ms a step")
print(f"gained: {low:.2f} to {high:.2f} ms in the middle half of the runs")
print("a difference" if low > 0 or high < 0 else "no difference", "that this run can see")

# %% [markdown]
"""
If that range holds zero, the run has seen no gain. The gain is Python's part of a step: a large
share only where the step is short. Mend it all the same. The day the batches come from a disk, it
counts.

## State that is thrown away { #state-that-is-thrown-away }

Now the two that hardly show in the time. Haiku has no hidden state: `apply` *returns* the new one,
and whoever drops it trains with the old one for ever.
"""

# %%
stages.append(steps_of(5))
before, after = stages[4][0]["mean"], stages[5][0]["mean"]
print(f"running mean before: {before:.2f}")
print(f"running mean after:  {after:.2f}")
assert before == 0 < after

# %% [markdown]
"""
Before, the mean is the zero it started with. The network never centred its inputs, learned to do
without, and its loss fell. With `jax.value_and_grad`, say `has_aux=True` and hand the state on.

## One key, one mask { #one-key-one-mask }

A key is not a generator. The same key gives the same numbers, each time.

<quiz>
**Predict.** `PRNGKey(0)` stands in the loss, as in the document. At step 1, dropout keeps units
3, 4 and 9 of the first row, and takes out the others. Which ones does it keep at step 2?
- [ ] Others: each step draws anew
> It draws anew from the same key, and gets the same.
- [x] 3, 4 and 9
> Right. The noise that should keep the network from leaning on single units is a fixed pattern.

</quiz>
"""

# %% alt="Two blocks of dots, six steps. With one key all rows are equal, with new keys none."
import matplotlib.pyplot as plt

stages.append(steps_of(6))
print("keys in 8 steps, before:", len(stages[5][0]["keys"]), "after:", len(stages[6][0]["keys"]))
assert len(stages[6][0]["keys"]) == 8


def masks(new_keys):
    key, rows = jax.random.PRNGKey(0), []
    for _ in range(6):
        used = key
        if new_keys:
            key, used = jax.random.split(key)
        rows.append(np.asarray(jax.random.bernoulli(used, 0.5, (32,))))
    return np.stack(rows)


figure, axes = plt.subplots(1, 2)
for ax, new_keys, title in zip(axes, [False, True], ["one key", "a new key a step"], strict=True):
    steps, units = np.nonzero(masks(new_keys))
    ax.scatter(units, steps, s=14, marker="s", color="tab:blue")
    ax.set(title=title, xlabel="unit of one row that is kept", ylabel="step", yticks=range(6))
    ax.invert_yaxis()
plt.show()

# %% [markdown]
"""
`key, subkey = jax.random.split(key)`, once a step. Inside a jitted step a key that is written
there, such as `PRNGKey(0)`, is a constant of the program.

!!! quote "Claim S0-27 (haiku-gpu): true"
    The document writes `jax.random.PRNGKey(0)`. It works as ever; new code writes
    `jax.random.key(0)`, whose type says that it is a key. Either is right once, wrong in a loop.

## What each repair was worth

All stages in one picture. Each has the repairs of those before it.
"""

# %% alt="Time of a step for seven stages, logarithmic. The first is far right of all others."
times = [ms(stage) for stage in range(len(stages))]
names = ["broken", *(f"+ {name}" for name in REPAIRS)]
figure, ax = plt.subplots(figsize=(7, 2.8))
ax.hlines(names, min(times) / 2, times, color="tab:blue", linewidth=1)
ax.plot(times, names, "o", color="tab:blue")
for name, value in zip(names, times, strict=True):
    ax.text(value * 1.2, name, f"{value:.1f} ms", va="center")
ax.set(xscale="log", xlim=(min(times) / 2, max(times) * 3))
ax.set_xlabel("milliseconds a step, best of three runs, logarithmic")
ax.invert_yaxis()
plt.show()

gain = times[0] / times[-1]
assert gain > 2
assert times[0] - times[1] > (times[0] - times[-1]) / 2  # the first repair saves most

# %% [markdown]
"""
Here the first repair saves most of the milliseconds; copies and places cost little where host and
devices share one memory. The third decides whether a GPU is used at all. The last two are not for
the clock: handing on the state saves no time, and a split of the key costs a little.
<!-- gpu: nothing claimed -->

| what you see | look for |
|---|---|
| many operations, or a compile, at each step | no `jit`, `jit` in the loop, a static number |
| arrays that turn into NumPy | `device_get`, `np.asarray`, `tree_map(np.array, ...)` |
| results on another device | a device by name, a committed batch (lesson 05) |
| a wait at each step | `float`, `print`, `block_until_ready` (lesson 04) |
| state equal to its first value | what `apply` returns, dropped |
| one key | a key that is not split |

What of Haiku itself? Its package says:
"""

# %%
from importlib.metadata import metadata

said = metadata("dm-haiku").get_payload()
sentence = said[said.index("Haiku will remain") :].partition("](")[0]
print(sentence.replace("\n> ", " ").replace("[", ""))

# %% [markdown]
"""
!!! quote "Claim S0-28 (haiku-gpu): outdated"
    The document takes Haiku as the model library. It still works, as this page shows, and has
    been in maintenance mode since July 2023. Its authors advise Flax for new projects. Every fault
    above can be made there too.

## Your turn

!!! example "Exercise ex12: repair a trainer"
    A trainer with six faults, another one than above. Each is judged apart: mend them in any
    order, and see one verdict change at a time. Start on the
    [page of ex12](../exercises/ex12_repair_trainer.md).

    === "Failing"

        {{ capture: check ex12 starter }}

    === "Passing"

        {{ capture: check ex12 solution }}

## Three questions

<quiz>
A loss falls, a step takes 3 ms, the GPU is used. What could still be wrong?
- [ ] Nothing
- [x] The state, or the keys
- [ ] The placement of the batch

Faults that change what is learned show in values, not in times. Look at the state after ten steps.
</quiz>

<quiz>
You put `jax.jit` on `step`, and the first step takes 4 seconds, the tenth too. Why?
- [x] Something makes each call new: a static number, a lambda, a shape
- [ ] The network is large
- [ ] The cache is off

Count the compiles: inside `with jax.log_compiles():` each is named.
</quiz>

<quiz>
`model = jax.device_get(model)` in the loop takes no time on your laptop. On the GPU machine
- [ ] it takes no time either
- [x] it copies the whole model at each step, both ways
- [ ] it raises

On a CPU, host and device share their memory. Only the guard and the types tell you.
</quiz>

## Recap

- Measure what a step does: operations, copies, waits, place, keys, state.
- One jitted step: 1/{{ jit_gain:.0f}} of the time here.
- The model goes from step to step and never to the host.
- Name no device. Delete the line.
- State and keys are values: pass them on, and split.

Next: [who took the memory](08-who-took-the-memory.ipynb).
"""
