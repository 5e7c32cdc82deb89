# %% [markdown]
"""
---
part: 2 Why is my code not using the GPU?
description: What a launch costs, when the work is worth it, and how many launches become one.
---
# 06 When the GPU pays

After this lesson you can

- tell what part of a running time is work, and what part is asking for work;
- find the size from which a device pays, by measuring, not by rule of thumb;
- turn a loop of many small launches into one program;
- read a claim like "a thousand times faster" and ask the two questions it leaves open.

**Why care.** Below, a simulation runs in Python, one small operation after the other. The same
steps in one program take **1/{{ one_speedup:.0f}}** of the time, on the same device, with the same
numbers. A faster device would not have helped.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %%
import os
from functools import partial
from time import perf_counter as now

import matplotlib.pyplot as plt
import numpy as np


def in_turn(rounds, *runs):
    """The shortest time of each run. They take turns, after a first one that compiles."""
    spans = []
    for _ in range(rounds + 1):
        spans.append([])
        for run in runs:
            start = now()
            jax.block_until_ready(run())
            spans[-1].append(now() - start)
    return np.min(spans[1:], axis=0)


def seconds(run, *args, times=7):
    """The shortest of some runs, each waited for, after one that compiles."""
    return float(in_turn(times, lambda: run(*args))[0])


# %% [markdown]
"""
## A launch has a price { #a-launch-has-a-price }

Each time Python hands a compiled program to the device, that is a **launch**. It has a price before
any number is touched: check the arguments, find the program, put it into the queue. Outside
`jax.jit`, *every operation* is a program of its own, and a launch of its own.

The same formula three ways: in NumPy, in JAX without `jit`, and as one jitted program.

<quiz>
**Predict.** The formula has five operations. On an array of ten numbers, how does JAX without
`jit` compare with NumPy?
- [ ] It is quicker: the device calculates faster
> There is nothing to calculate. Ten numbers are no work.
- [ ] About the same: ten numbers are no work
> They are not. Asking five times is.
- [x] It takes several times as long
> Right. It launches five programs, for ten numbers each. NumPy launches nothing.

</quiz>
"""


# %%
def formula(x):
    return x * x * 0.5 + x * 0.25 - 1.0


jitted = jax.jit(formula)
sizes = [10, 100, 1000, 10_000, 100_000, 1_000_000, 4_000_000]
ways = {"NumPy": [], "JAX, five launches": [], "JAX, one launch": []}
for size in sizes:
    on_host = np.ones(size, np.float32)
    on_device = jax.device_put(on_host)
    rounds = min(200, max(25, 5_000_000 // size))
    runs = [partial(formula, on_host), partial(formula, on_device), partial(jitted, on_device)]
    for times, shortest in zip(ways.values(), in_turn(rounds, *runs), strict=True):
        times.append(shortest)

print(f"{'numbers':>12} {'NumPy':>12} {'5 launches':>12} {'1 launch':>12}   microseconds")
for row in zip(sizes, *ways.values(), strict=True):
    print(f"{row[0]:12,}", *(f"{t * 1e6:12.1f}" for t in row[1:]))

# %% alt="Time over size, both axes logarithmic. Three lines, nearly flat at the left, then rising."
figure, axes = plt.subplots(figsize=(7, 3.2))
for (name, times), marker in zip(ways.items(), "osD", strict=True):
    axes.loglog(sizes, np.array(times) * 1e6, marker=marker, label=name)
axes.xaxis.set_major_formatter("{x:,.10g}")
axes.yaxis.set_major_formatter("{x:,.10g}")
axes.set_xlabel("numbers in the array")
axes.set_ylabel("microseconds")
axes.legend()
plt.show()

# %%
numpy_times, many_times, one_times = (np.array(times) for times in ways.values())
launch_us = float(one_times[0]) * 1e6
five_us = float(many_times[0]) * 1e6
assert many_times[0] > 2 * numpy_times[0]
assert one_times[1] < 2 * one_times[0]
ahead = one_times < 0.8 * numpy_times  # clearly: by a fifth, at least
assert ahead[-1]
pays_from = next(size for i, size in enumerate(sizes) if ahead[i:].all())
fused = float(many_times[-1] / one_times[-1])
assert fused > 1.5
print(f"a launch and nothing else: {launch_us:.0f} us; five of them: {five_us:.0f} us")
print(f"one program is clearly ahead of NumPy at {pays_from:,} numbers and all larger sizes")

# %% [markdown]
"""
Every line has two parts. On the left it is nearly flat: a hundred numbers take about as long as
ten. There you pay for asking, {{ launch_us:.0f }} µs for one launch and {{ five_us:.0f }} µs for
five. On the right it rises with the size: there you pay for work. Somewhere the device begins to
pay. Here one program is clearly ahead of NumPy, by a fifth at least, from {{ pays_from:, }} numbers
on, at all sizes measured. Near that size it is close, and another run may name another one.

On the right there is a second effect. One program is {{ fused:.0f }} times as quick as five. It
launches less, but above all it **fuses**: it reads `x` once and writes the result once, and what
lies between the operations never goes to memory. [Lesson 17](17-measure-before-you-tune.ipynb)
counts those bytes.

!!! quote "Claim S0-10 (haiku-gpu): true with conditions"
    The document says that for small data the overhead can outweigh what a GPU gains. So it is, on
    any device: that is the flat part of the picture. It depends on two more things: how much is
    done with each number, and whether the data is on the device already.

!!! quote "Claim S1-04 (gpu-memory): true"
    The document says that the compiler looks at the whole graph, and fuses. It does, within one
    jitted function. Without `jit` there are five graphs of one operation each, and nothing to
    fuse.

!!! note "On a GPU"
    A GPU does the work of the rising part quicker. It is asked for it by the same Python, so the
    flat part reaches further there. An H200 took about as long for ten numbers as for a million.
    The 16 cores beside it were quicker for a thousand numbers, and slower for ten thousand.
    <!-- gpu: G7 -->

## Many launches or one { #many-launches-or-one }

Some work consists of many small steps that depend on each other: a simulation, a recurrent
network, a sampler. No array gets larger; there is only more of them. Here are a hundred pendulums.
"""


# %%
def step(angle, speed):
    speed = speed - 0.01 * jnp.sin(angle)
    return angle + 0.01 * speed, speed


jitted_step = jax.jit(step)


def operations(angle, speed, steps):
    for _ in range(steps):
        angle, speed = step(angle, speed)
    return angle, speed


def steps_jitted(angle, speed, steps):
    for _ in range(steps):
        angle, speed = jitted_step(angle, speed)
    return angle, speed


@jax.jit
def one_program(angle, speed, steps):
    return jax.lax.fori_loop(0, steps, lambda _, state: step(*state), (angle, speed))


start = (jnp.linspace(0.1, 1.0, 100), jnp.zeros(100))

# %% [markdown]
"""
<quiz>
**Predict.** A step has five operations (the minus, the plus, the sine, and two products). How many
programs does each version launch for 50 steps?
- [ ] 50, 50 and 1
> The first version has no `jit` at all: each operation is a launch.
- [x] 250, 50 and 1
> Right. `jit` around a step makes one launch of five operations; `jit` around the loop makes one of
> everything.
- [ ] 250, 1 and 1
> `jitted_step` is compiled once, and launched each time that Python calls it.

</quiz>

JAX's profiler sees each launch. The helper module of this lesson counts them in its trace.
"""

# %%
import _trace

versions = {"operations": operations, "steps jitted": steps_jitted, "one program": one_program}
counted = {}
for name, version in versions.items():
    version(*start, 50)  # compiles
    _, spans = _trace.record(version, *start, 50)
    counted[name] = len(_trace.launches(spans))
    print(f"{name:13} {counted[name]:4} launches for 50 steps")

# %% alt="Time over steps, both axes logarithmic. Three lines far apart; one program is the lowest."
lengths = [1, 3, 10, 30, 100, 300]
curves = {
    name: [seconds(version, *start, steps, times=3) for steps in lengths]
    for name, version in versions.items()
}
figure, axes = plt.subplots(figsize=(7, 3.2))
for (name, times), marker in zip(curves.items(), "sDo", strict=True):
    axes.loglog(lengths, np.array(times) * 1e6, marker=marker, label=name)
axes.xaxis.set_major_formatter("{x:,.10g}")
axes.yaxis.set_major_formatter("{x:,.10g}")
axes.set_xlabel("steps")
axes.set_ylabel("microseconds")
axes.legend()
plt.show()

# %%
per_step = {name: times[-1] / lengths[-1] * 1e6 for name, times in curves.items()}
one_speedup = per_step["operations"] / per_step["one program"]
step_speedup = per_step["operations"] / per_step["steps jitted"]
for name, microseconds in per_step.items():
    print(f"{name:13} {microseconds:7.2f} us for a step")
assert counted["one program"] == 1
assert one_speedup > 3
ends = [version(*start, 300)[0] for version in versions.values()]
print("same angles:", all(bool(jnp.allclose(end, ends[0], atol=1e-4)) for end in ends))

# %% [markdown]
"""
The device does the same arithmetic three times. `jit` around the step makes it
{{ step_speedup:.0f}} times as fast, `jit` around the loop {{ one_speedup:.0f}} times. What went
away is Python: in the last version the program goes from step to step by itself.

You can ask your own loop the same question. Make its arrays ten times smaller: if its time stays
the same, it pays for launches.

## Compiled once { #compiled-once }

One launch is only a gain if the program is there already. `jax.jit` keeps compiled programs by
**function**. A function that is made anew is unknown to it.

<quiz>
**Predict.** `fresh` below makes its jitted function inside, and is called five times with the same
arguments. How often is it compiled?
- [ ] Once, at the first call
> The text of the function is the same. The function is another one each time.
- [x] Five times
> Right. `jit` compares functions, not their text.
- [ ] Never, `fori_loop` is compiled already
> A loop is compiled with its body, and the body is new.

</quiz>
"""


# %%
def fresh(angle, speed, steps):
    @jax.jit
    def run(angle, speed):
        return jax.lax.fori_loop(0, steps, lambda _, state: step(*state), (angle, speed))

    return run(angle, speed)


compiled = []


def heard(event, duration, **facts):
    if event.endswith("backend_compile_duration"):
        compiled.append(facts.get("fun_name", ""))


jax.monitoring.register_event_duration_secs_listener(heard)
for name, version in {"one program": one_program, "fresh": fresh}.items():
    compiled.clear()
    for _ in range(5):
        jax.block_until_ready(version(*start, 50))
    print(f"{name:12} {len(compiled)} compiles in five calls")
fresh_compiles = len(compiled)
jax.monitoring.unregister_event_duration_listener(heard)

fresh_ratio = seconds(fresh, *start, 50, times=3) / seconds(one_program, *start, 50)
assert fresh_ratio > 3
print(f"fresh takes {fresh_ratio:.0f} times as long")

# %% [markdown]
"""
`lax.fori_loop` and `lax.scan` *outside* of `jit` have the same trouble: they launch one program,
and compile it again for each new body. So put the `jit` at the top of the file, as a decorator.

A Python loop inside `jit` is one launch too. But it is **unrolled**: the program holds each step,
and the compiler works through all of them.
"""


# %%
def unrolled(steps):
    return jax.jit(lambda angle, speed: operations(angle, speed, steps))


def rolled(steps):
    return jax.jit(lambda angle, speed: one_program(angle, speed, steps))


def first_call(program):
    begin = now()
    jax.block_until_ready(program(*start))
    return now() - begin


for steps in (10, 100):
    times = first_call(unrolled(steps)), first_call(rolled(steps))
    print(f"{steps:4} steps: first call unrolled {times[0]:6.2f} s, as a loop {times[1]:6.2f} s")
unrolled_ratio = times[0] / times[1]
assert unrolled_ratio > 2

# %% [markdown]
"""
With 100 steps the unrolled program takes {{ unrolled_ratio:.0f}} times as long to compile. A loop
of the program's own, `lax.fori_loop` or `lax.scan`, compiles its body once, however many steps
there are.

## Where the data is { #where-the-data-is }

The third part of the price is the way to the device. A jitted function that gets a NumPy array
takes it there, on every call. To a GPU that is always a copy. A CPU device can do without: of an
array that begins at a suitable address, it reads NumPy's own memory. This one begins elsewhere.
<!-- gpu: G5 -->
"""

# %%
big = np.ones(sizes[-1] + 1, np.float32)[1:]
resident = jax.device_put(big)
pairs = [(seconds(jitted, big, times=3), seconds(jitted, resident, times=3)) for _ in range(3)]
from_host_ms, resident_ms = np.min(pairs, axis=0) * 1000
print(f"16 MB from NumPy:         {from_host_ms:6.1f} ms")
print(f"16 MB on the device:      {resident_ms:6.1f} ms")
print(f"NumPy does it itself in:  {numpy_times[-1] * 1000:6.1f} ms")

# %% [markdown]
"""
On this CPU the copy stays within one memory: {{ from_host_ms:.1f }} ms with it and
{{ resident_ms:.1f }} ms without it, the shortest of nine runs each. To a GPU it goes over a bus:
a hundred sums of 80 MB took an H200 1,511 ms where each batch came from NumPy, and 5.90 ms where
it was on the device. The formula does five operations for each four bytes. The more is done with a
byte, the sooner its way is paid for; and a byte that stays on the device pays for its way once.
<!-- gpu: G5 -->

!!! quote "Claim S0-11 (haiku-gpu): true with conditions"
    The document says that moving large data to the GPU has benefits, and in the same sentence that
    the transfer has a price. Moving itself brings nothing: it is pure cost, and larger data costs
    more. The condition is the work that follows: enough of it for each byte, or often enough on
    data that is *already* there.

## "A thousand times faster" { #a-thousand-times-faster }

The d2l document opens with a figure: a GPU does about 80 TFLOP/s, a thousand times more than a
CPU. Such a sentence leaves two questions open: *which* CPU, and *which* work? The first can be
answered here. <!-- source: d2l-gpus, line 5 -->
"""

# %%
side = 768
square = jnp.full((side, side), 1 / side)
product = jax.jit(lambda a: a @ a)
matmul_gflops = 2 * side**3 / seconds(product, square, times=4) / 1e9
formula_gflops = 5 * sizes[-1] / one_times[-1] / 1e9
small_gflops = 5 * sizes[2] / one_times[2] / 1e9

CLAIMED, TIMES = 80_000, 1000  # GFLOP/s of the GPU, and times a CPU's, by the document
print(f"product of {side} x {side}:       {matmul_gflops:8.1f} GFLOP/s")
print(f"formula, {sizes[-1]:,} numbers: {formula_gflops:8.1f} GFLOP/s")
print(f"formula, {sizes[2]:,} numbers:      {small_gflops:8.3f} GFLOP/s")
claimed_ratio = CLAIMED / matmul_gflops
implied_gflops = CLAIMED / TIMES
cores = os.cpu_count()
within = matmul_gflops / small_gflops
assert within > 10
print(f"the document's figure is {claimed_ratio:,.0f} times the first, on {cores} cores")
print(f"a thousandth of it is {implied_gflops:.0f} GFLOP/s")

# %% [markdown]
"""
So against *this* device the figure is {{ claimed_ratio:,.0f }} times as large: a peak from a data
sheet in 16-bit numbers, against what was measured in 32-bit numbers on {{ cores }} cores. And
within this one device, the three programs differ by a factor of {{ within:,.0f }}. Name the CPU and
the work, or the factor says nothing.

!!! quote "Claim S2-02 (d2l-gpus): true with conditions"
    "A thousand times faster than a CPU" needs two conditions. The work is large matrix products.
    And the CPU does {{ implied_gflops:.0f }} GFLOP/s in them, a thousandth of the figure; this one
    does {{ matmul_gflops:.0f }}, on {{ cores }} cores. A server's with many cores does more.

!!! quote "Claim S2-01 (d2l-gpus): true with conditions"
    The card is an RTX 4090. By the published tables (source: NVIDIA's white paper on the Ada
    architecture), about 83 TFLOP/s is its rate in 16-bit numbers *without* its tensor cores. With
    them, which matrix products use, there are two figures: about 165 if the sums are kept in 32
    bits, and about 330 if they are kept in 16. We have measured none of the three.
    <!-- source: NVIDIA, white paper on the Ada architecture -->

The type decides, too. An H200 made 49.4 TFLOP/s in products of float32 *in full precision*
(`jax.default_matmul_precision("highest")`), 343 by default, and 623 in bfloat16. By default, such a
GPU rounds the factors of a product of float32 to TF32, which keeps about three decimal digits. The
16 cores beside it made 1.12. <!-- gpu: G12 -->

What do you measure on a GPU of yours? Three numbers, and you have all you need: the flat part of
the first picture, the time of a copy, and the FLOP/s of your own program.
<!-- gpu: nothing claimed -->

## Your turn

!!! example "Exercise ex11: fewer launches"
    A simulation launches a program for each operation of each step. Make one program of the run.
    The grader counts the launches in the profiler's trace, listens for compiles, and times your
    version beside the loop in Python. Start on the [page of
    ex11](../exercises/ex11_fewer_launches.md).

    === "Failing"

        {{ capture: check ex11 starter }}

    === "Passing"

        {{ capture: check ex11 solution }}

## Three questions

<quiz>
You halve a batch of thousands of rows, and a step of a small model takes as long as before. What
does it tell you?
- [x] You pay for launches, or for Python
- [ ] The device is at its limit
- [ ] The arrays are on the wrong device

Work would have been halved. What stays is what does not depend on the size. (In a large model with
a small batch that may also be the reading of all weights.)
</quiz>

<quiz>
A sampler makes 10,000 steps on a vector of 50 numbers. What helps most?
- [ ] A faster GPU
- [ ] `jit` around the step
- [x] `jit` around the loop, with `lax.scan` or `lax.fori_loop` inside

One launch in place of 10,000. A faster device makes only the work shorter, and there is hardly any.
</quiz>

<quiz>
A jitted program with a Python loop of 5,000 steps has been "hanging" for minutes in its first
call. Why?
- [ ] The device is too slow
- [x] The loop is unrolled, and the compiler works on 5,000 copies of the step
- [ ] It is compiled anew in each step

Use `lax.fori_loop`: the body is compiled once.
</quiz>

## Recap

- A launch has a price, even for ten numbers. Outside `jit`, each operation is one.
- Measure small and large sizes. The device pays from the size where it is ahead, and stays so.
- `jit` around the loop makes one launch. `lax.fori_loop` and `lax.scan` keep the program small.
- Make jitted functions once, not in each call.
- A copy to the device is never a gain by itself. Keep data there.

Next: [repair the trainer](07-repair-the-trainer.ipynb).
"""
