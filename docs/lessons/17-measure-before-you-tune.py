# %% [markdown]
"""
---
part: 4 Many GPUs
description: Two ceilings and the kernels under them, measured in one run, and a trace to read.
---
# 17 Measure before you tune

After this lesson you can

- count what a kernel does and what it moves, before you time it;
- measure the two ceilings of a machine, and draw its roofline;
- tell whether a kernel is bound by memory or by compute, and how near to the roof it is;
- take a trace with JAX's profiler, and read in it who waits for whom.

**Why care.** Below, a kernel is made to do **{{ work_ratio:.0f}} times** the arithmetic. It takes
far from {{ work_ratio:.0f}} times as long: {{ once_ms:.2f}} ms before, {{ often_ms:.2f}} ms after.
Somebody who tunes its arithmetic wins nothing: it was never what took the time.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %%
from functools import partial
from time import perf_counter as now

import matplotlib.pyplot as plt
import numpy as np


def seconds(run, *args):
    """One run, waited for."""
    start = now()
    jax.block_until_ready(run(*args))
    return now() - start


def side_by_side(programs, rounds=30):
    """The shortest run of each program; they take turns, so that all meet the same noise."""
    for program in programs.values():
        seconds(*program)  # compiles
    turns = [[seconds(*program) for program in programs.values()] for _ in range(rounds)]
    return dict(zip(programs, np.min(turns, axis=0), strict=True))


# %% [markdown]
"""
## Count first { #count-first }

A kernel does two things: it **computes**, in floating-point operations (FLOPs), and it **moves**
bytes between memory and the chip. Both can be counted on paper, before anything runs.

A product of (m, k) and (k, n) has m·n results. Each is a sum of k terms, and a term is a
multiplication and an addition: **2·m·k·n** FLOPs. It reads two arrays and writes one:
**m·k + k·n + m·n** elements, of 4 bytes in float32. <!-- arithmetic: 32 bits -->

<quiz>
**Predict.** You double m, k and n of a matrix product. What happens to FLOPs and bytes?
- [ ] Both are doubled
> Each of three sizes is doubled, and FLOPs have all three of them as factors.
- [x] 8 times the FLOPs, 4 times the bytes
> Right. Larger products do more with each byte.
- [ ] 8 times both
> An array has two of the three sizes as factors.

</quiz>
"""


# %%
def matmul_cost(m, k, n, itemsize=4):
    return 2 * m * k * n, itemsize * (m * k + k * n + m * n)


@jax.jit
def matmul(x, y):
    return x @ y


x, y = jnp.ones((300, 500)), jnp.ones((500, 200))
flops, nbytes = matmul_cost(300, 500, 200)
said = matmul.lower(x, y).compile().cost_analysis()
print(f"on paper:      {flops:,} FLOPs, {nbytes:,} bytes")
print(f"cost_analysis: {said['flops']:,.0f} FLOPs, {said['bytes accessed']:,.0f} bytes")

# %% [markdown]
"""
The compiler has an opinion too: `cost_analysis()` of a compiled program. Here it agrees. It is an
estimate, made by rules, and on GPUs it has been wrong for products that went to a library
(jax-ml/jax#22249). Count on paper, and compare. <!-- gpu: source: jax-ml/jax#22249 -->

FLOPs per byte is the **arithmetic intensity**. It says how often a byte is used once it is there.

## Fused work moves nothing { #fused-work-moves-nothing }

The next kernel makes `rounds` rounds over an array: multiply by x, add 1.

<quiz>
**Predict.** Under `jit`, how many bytes does it move in 16 rounds, compared with one round?
- [ ] 16 times as many
> That would be true without `jit`, where each operation reads an array and writes one.
- [x] As many
> Right. The rounds are fused: each element is read, worked on 16 times, and written.
- [ ] Twice as many
> The array is read once and written once, in both cases.

</quiz>
"""


# %%
@partial(jax.jit, static_argnums=1)
def poly(x, rounds):
    total = x
    for _ in range(rounds):
        total = total * x + 1
    return total


def poly_cost(n, rounds, itemsize=4):
    return 2 * rounds * n, itemsize * 2 * n


on_gpu = jax.default_backend() == "gpu"
LENGTH = 1 << (28 if on_gpu else 22)
line = jnp.full(LENGTH, 0.5)
ROUNDS = [1, 4, 8, 16]
SIDES = [32, 128, 8192 if on_gpu else 768]
squares = {side: jnp.full((side, side), 1 / side) for side in SIDES}
movers = {"copy": jnp.copy, "negate": jnp.negative, "square": jnp.square, "add": lambda x: x + 1}

programs = {f"poly {rounds}": (poly, line, rounds) for rounds in ROUNDS}
programs |= {f"matmul {side}": (matmul, square, square) for side, square in squares.items()}
programs |= {name: (jax.jit(mover), line) for name, mover in movers.items()}
took = side_by_side(programs)  # all that this page measures of kernels, at once

print("              FLOPs/byte       ms   GFLOP/s")
for rounds in ROUNDS:
    flops, nbytes = poly_cost(LENGTH, rounds)
    span = took[f"poly {rounds}"]
    print(f"poly {rounds:<7} {flops / nbytes:11.2f} {span * 1e3:8.2f} {flops / span / 1e9:9.1f}")
work_ratio = ROUNDS[2] / ROUNDS[0]
once_ms, often_ms = 1e3 * took["poly 1"], 1e3 * took["poly 8"]
assert often_ms < 0.5 * work_ratio * once_ms

# %% [markdown]
"""
With the rounds the FLOPs grow, and the bytes do not; the time grows far less than the FLOPs. With
few rounds these kernels wait for memory, whatever they compute. (More rounds may even take less
time: XLA for CPUs gives a small loop to fewer threads than a large one.)

## Two ceilings { #two-ceilings }

So a machine has two ceilings: how many bytes it can move in a second, and how many FLOPs it can
do. A data sheet gives both. Your program meets those of *this* machine, today, beside whatever
else runs on it. So they were measured above, in turn with the kernels: products of matrices for the
one; for the other every kernel that reads a large array once and writes it once, a copy among them.
The best of each counts, whichever reached it: what a kernel has moved, the machine can move. A copy
alone is often not the best.
"""

# %%
peak_flops = max(2 * side**3 / took[f"matmul {side}"] for side in SIDES)
fastest = min((name for name in took if not name.startswith("matmul")), key=took.get)
peak_bandwidth = 2 * line.nbytes / took[fastest]
ridge = peak_flops / peak_bandwidth

print(f"arithmetic: {peak_flops / 1e9:8.1f} GFLOP/s")
print(f"memory:     {peak_bandwidth / 1e9:8.1f} GB/s, reached by {fastest}")
print(f"they meet at {ridge:.1f} FLOPs per byte")

# %% [markdown]
"""
A kernel of intensity *i* gets *i* FLOPs out of each byte that arrives. So it can reach at most
the lower of `i * peak_bandwidth` and `peak_flops`. That is the **roofline**: a slope, then a
level. They meet at the **ridge**, here at {{ ridge:.1f }} FLOPs per byte.

<quiz>
**Predict.** A kernel adds two float32 arrays into a third one: one FLOP for twelve bytes. Which
ceiling is it under, on this machine?
- [x] Memory
> Right. Its intensity is 0.08, far to the left of the ridge.
- [ ] Compute
> It would have to do {{ ridge:.0f }} FLOPs with each byte for that.
- [ ] Neither, it is too simple
> Every kernel is under one of the two, or far below both.

</quiz>
"""


# %%
def place(flops, nbytes, span):
    intensity = flops / nbytes
    attainable = min(peak_flops, intensity * peak_bandwidth)
    bound = "compute" if intensity >= ridge else "memory"
    return intensity, flops / span, bound, flops / span / attainable


costs = {f"poly {rounds}": poly_cost(LENGTH, rounds) for rounds in ROUNDS}
costs |= {f"matmul {side}": matmul_cost(side, side, side) for side in SIDES}
placed = {name: place(*cost, took[name]) for name, cost in costs.items()}
print(f"{'kernel':12} {'FLOPs/byte':>10} {'GFLOP/s':>9}  {'bound':8} {'of the roof':>11}")
for name, (intensity, rate, bound, share) in placed.items():
    print(f"{name:12} {intensity:10.2f} {rate / 1e9:9.1f}  {bound:8} {share:11.0%}")
assert min(share for *_, share in placed.values()) < 0.3  # some are far below

# %% alt="A roofline: a slope, then a level. Kernels are points on it or below, some far."
figure, axes = plt.subplots(figsize=(7, 3.6))
across = np.logspace(-1.3, 3, 200)
axes.loglog(across, np.minimum(peak_flops, across * peak_bandwidth) / 1e9, color="tab:red")
axes.axvline(ridge, linestyle=":", color="tab:gray")
for kind, marker in (("poly", "o"), ("matmul", "s")):
    found = {name: p for name, p in placed.items() if name.startswith(kind)}
    rates = [p[1] / 1e9 for p in found.values()]
    axes.loglog([p[0] for p in found.values()], rates, marker, label=kind)
    for name, p in found.items():
        axes.annotate(
            name.split()[1], (p[0], p[1] / 1e9), xytext=(6, -10), textcoords="offset points"
        )
axes.xaxis.set_major_formatter("{x:,.10g}")
axes.yaxis.set_major_formatter("{x:,.10g}")
axes.set_xlabel("FLOPs per byte")
axes.set_ylabel("GFLOP/s")
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
"""
The red line is the roof. Its slope is memory, its level is arithmetic, the dotted line is the
ridge. The points carry the number of rounds or the side of the matrix.

!!! quote "Claim S3-01 (dgx): true with conditions"
    The document says that the main bottleneck is inattention to transfers and memory. For a kernel
    left of the ridge that is so. Right of it, memory is not what is lacking. It depends on the
    work, and the picture tells which case is yours.

!!! quote "Claim S3-02 (dgx): true with conditions"
    The document says that the compiler is built for best use of the hardware. It is built for it,
    and does not promise it: no point stands above the roof, some stand far below.

## How near to the roof { #how-near-to-the-roof }

The **share** is what a kernel reaches of what it *could* reach. A copy that moves bytes at full
bandwidth does no FLOP at all, and is perfect. Its share in FLOPs would be 0/0: compare its bytes
per second with `peak_bandwidth`. And never compare a kernel with `peak_flops` unless it is under
that ceiling.

| the kernel is | then |
|---|---|
| under the slope, near to it | move fewer bytes: fuse more, use a smaller dtype, copy less |
| under the level, near to it | do fewer FLOPs, or cheaper ones: a lower precision |
| far below both | launches, waits, copies, small arrays: take a trace. Or an untuned loop |

The product of two 32 by 32 matrices belongs to the last row: {{ small_share:.1f }} % of the roof.
It is all [launch](06-when-the-gpu-pays.ipynb). A kernel of your own may stand far below the level
and have no launches to blame. The level was measured with products of matrices, each a call of a
library that is tuned for them; other loops need not come near. The roofline says *that* something
is left, not what. It says where to look.

A share above 100 % is a ceiling that was measured too low: with the wrong kernel, or on a busy
machine. So let ceilings and kernels take turns, as above, keep the shortest run of each, and let
every kernel raise the ceiling that it reaches. <!-- arithmetic: a share above all of it -->
"""

# %%
small_share = 100 * placed["matmul 32"][3]
assert small_share < 30
print(f"matmul 32: {small_share:.1f} % of the roof")

# %% [markdown]
"""
## Read a trace { #read-a-trace }

A roofline says how good a kernel is. It does not see what happens *between* kernels. A trace does.
`jax.profiler.trace(folder)` writes down every launch, copy, wait and operation; `TraceAnnotation`
adds names of your own. The files are made for viewers such as XProf and Perfetto. They can also be
read in Python, with `jax.profiler.ProfileData`: that is what the helper `_trace.py` of this lesson
does.

Below is a training loop with the fault of [lesson 04](04-the-inner-loop.ipynb): it reads its loss
in each step.
"""

# %%
import time

import _trace

annotate = jax.profiler.TraceAnnotation


@jax.jit
def step(weights, batch):
    hidden = batch
    for _ in range(4):
        hidden = jnp.tanh(hidden @ weights)
    return weights - 1e-3 * (batch.T @ hidden) / 512, jnp.mean(hidden**2)


weights = jnp.eye(512) * 0.5
batches = np.random.default_rng(0).normal(size=(4, 512, 512)).astype(np.float32)
pause = side_by_side({"step": (step, weights, batches[0])})["step"]


def loop(read):
    current = weights
    for batch in batches:
        with annotate("load"):
            time.sleep(pause)
            placed_batch = jax.device_put(batch)
        current, loss = step(current, placed_batch)
        if read:
            with annotate("read"):
                float(loss)
    return current


loop(True)  # compiles
traces = {read: _trace.record(loop, read)[1] for read in (True, False)}

# %% alt="Two traces. With a read in each step, device and load take turns; without, they overlap."
ROWS = {"load": "tab:blue", "read": "tab:red", "device": "tab:green"}


def row_of(span):
    return "device" if span.device else span.name


figure, axes = plt.subplots(2, 1, figsize=(7, 3.6), sharex=True)
for axis, (read, spans) in zip(axes, traces.items(), strict=True):
    begin = min(span.start for span in spans if span.name == "load")
    for height, (name, colour) in enumerate(reversed(ROWS.items())):
        bars = [(s.start - begin, s.length) for s in spans if row_of(s) == name]
        axis.broken_barh(bars, (height - 0.35, 0.7), color=colour)
    axis.set_yticks(range(len(ROWS)), list(reversed(ROWS)))
    axis.set_title("a read in each step" if read else "no read", fontsize=10, loc="left")
axes[1].set_xlabel("milliseconds")
plt.show()

# %% [markdown]
"""
Read it from the bottom row up. The *device* row shows operations of compiled programs. Where it is
empty, the device has nothing to do. Then look at what Python does at that time. Above, it loads,
because it read before: the two take turns. Below, they overlap.

On a GPU we expect the device row to come from the GPU itself, with the names of its kernels. That
is not recorded yet. <!-- gpu: G5 -->
"""

# %%
busy = {}
for read, spans in traces.items():
    own = sorted((s.start, s.start + s.length) for s in spans if s.device)
    end = covered = 0.0
    for start, stop in own:
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    loads = [s.start for s in spans if s.name == "load"]
    busy[read] = 100 * covered / (max(end, max(loads)) - min(loads))
    print(f"{'a read in each step' if read else 'no read':20} device busy {busy[read]:3.0f} %")
idle = 100 - busy[True]
assert idle > 10

# %% [markdown]
"""
A profiler of *Python* would not have shown this. It sees the calls that Python makes.
"""

# %%
import cProfile
import pstats

profile = cProfile.Profile()
profile.runcall(loop, True)
found = pstats.Stats(profile).stats
ranking = sorted(found.items(), key=lambda item: -item[1][2])[:2]
for (_, _, function), (_, calls, own_time, _, _) in ranking:
    print(f"{own_time * 1e3:7.1f} ms in {calls} calls of {function.strip('<>')}")

# %% [markdown]
"""
It blames the sleep, and the conversion to a float. What the device did meanwhile, and that it had
nothing to do for {{ idle:.0f }} % of the time, is not there.

!!! quote "Claim S0-12 (haiku-gpu): true"
    The document says to profile in order to find the bottleneck. Yes, and with a profiler that sees
    the device.

!!! quote "Claim S3-34 (dgx): true with conditions"
    The document calls Python's profilers essential. They are good for what Python does. Of the
    device they see one thing: how long Python waited for it.

## Your turn

!!! example "Exercise ex30: under the roofline"
    Count two kernels, and place them under two ceilings. The grader counts the operations in the
    kernels' own programs, measures the ceilings of your machine in the same run, and draws others
    at random. Start on the [page of ex30](../exercises/ex30_roofline.md).

    === "Failing"

        {{ capture: check ex30 starter }}

    === "Passing"

        {{ capture: check ex30 solution }}

## Three questions

<quiz>
A kernel reaches 3 % of the GPU's peak FLOP/s. Is it bad?
- [ ] Yes, 97 % are lost
- [x] You can't know yet
- [ ] No, GPUs never reach their peak

Under the slope, 3 % of the peak may be all there is. Compare with the roof above its own intensity.
</quiz>

<quiz>
You store an array in bfloat16 in place of float32. What happens to a kernel that is bound by
memory?
- [x] It can be up to twice as fast
- [ ] Nothing, it is not bound by compute
- [ ] It is slower, because of the conversion

Half the bytes go over. The conversion is arithmetic, and there was time left for it.
</quiz>

<quiz>
In a trace the device's row has gaps. Where do you look first?
- [ ] At the longest operation of the device
- [x] At what Python does during the gaps
- [ ] At the ceilings

In a gap the device waits to be given work. The reason stands in the row of who gives it.
</quiz>

## Recap

- Count FLOPs and bytes on paper. Their ratio is the intensity.
- Fusion raises it: more work, and not a byte more.
- Measure both ceilings in the run in which you measure the kernel.
- Left of the ridge move less, right of it compute less, far below look at a trace.
- In a trace, look for the gaps of the device, and for what Python does in them.

Next: [the DGX trainer](18-the-dgx-trainer.ipynb).
"""
