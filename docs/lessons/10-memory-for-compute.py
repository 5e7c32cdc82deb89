# %% [markdown]
"""
---
part: 3 GPU memory
description: What the backward pass keeps, and how to compute it again in place of keeping it.
---
# 10 Memory for compute

After this lesson you can

- list what a backward pass keeps of the forward pass, line by line, in bytes;
- trade that memory for work, and say how much of each;
- choose a policy that keeps what is expensive and drops what is cheap;
- see when a checkpoint does nothing.

**Why care.** The gradients below need {{ plain_mib:.1f }} MiB for intermediate results. One line,
and they need {{ dots_mib:.1f }} MiB, for {{ dots_extra:.0f }} % more work. Another line needs
{{ full_mib:.1f }} MiB, for {{ full_extra:.0f }} % more. The numbers are the same.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
## What the backward pass keeps { #what-the-backward-pass-keeps }

A gradient is computed backwards, from the loss to the first layer. On the way each operation needs
what it saw on the way forward: the derivative of `tanh` at `z` is `1 - tanh(z) ** 2`. So the
forward pass keeps that. These kept arrays are the **residuals**.

Here is one layer as transformers have it, with a wide part in the middle.
"""

# %%
import numpy as np

ROWS, WIDTH, HIDDEN = 2048, 64, 256
MIB = 2**20


def layer(x, weights):
    up, gate = x @ weights["up"], x @ weights["gate"]
    hidden = jax.nn.gelu(up) * jax.nn.sigmoid(gate)
    hidden = hidden / jnp.sqrt(jnp.mean(hidden**2, axis=-1, keepdims=True) + 1e-6)
    return x + jnp.tanh(hidden @ weights["down"])


def fresh(layers):
    keys = iter(jax.random.split(jax.random.key(0), 3 * layers + 1))
    shapes = {"up": (WIDTH, HIDDEN), "gate": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    draws = [
        {name: jax.random.normal(next(keys), shape) / 8 for name, shape in shapes.items()}
        for _ in range(layers)
    ]
    return draws, jax.random.normal(next(keys), (ROWS, WIDTH))


params, x = fresh(6)
wide_kib = 4 * ROWS * HIDDEN / 1024
print(f"a wide array (n, h) has {wide_kib:.0f} KiB")

# %% [markdown]
"""
<quiz>
**Predict.** The layer has three matrix products, and about ten element-wise operations. How many
wide arrays does its backward pass keep?
- [ ] Two: the results of the wide products
> The element-wise operations need theirs too.
- [ ] One for each line
> A line may hold several operations.
- [x] Several more than the products make
> Right. The list is below.

</quiz>
"""

# %%
import contextlib
import io
import linecache
import re

from jax.ad_checkpoint import checkpoint_name, print_saved_residuals


def kept(function):
    """What JAX keeps of `function` for a backward pass: lines of `print_saved_residuals`."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print_saved_residuals(function, x, params[0])
    return [line for line in text.getvalue().splitlines() if "output of" in line]


def wide(lines):
    return sum(line.startswith(f"f32[{ROWS},{HIDDEN}]") for line in lines)


PARTS = re.compile(r"f32\[([\d,]+)\] output of (\w+) from (.+):(\d+):\d+ ")
plain_lines = kept(layer)
by_source = {}
for shape, operation, file, number in PARTS.findall("\n".join(plain_lines)):
    size = 4 * np.prod([int(side) for side in shape.split(",")]) / 1024
    by_source.setdefault(linecache.getline(file, int(number)).strip(), []).append((operation, size))
for source, found in by_source.items():
    print(source)
    print(f"    {sum(size for _, size in found):5.0f} KiB:", ", ".join(name for name, _ in found))
assert sum(map(len, by_source.values())) == len(plain_lines)
plain_wide = wide(plain_lines)
print(f"{plain_wide} of them are wide")

# %% [markdown]
"""
After each line of `layer`: what is kept of it, and the operations that made it. In all
{{ plain_wide }} wide arrays for one layer, and as many for the next. The compiler merges some of
them, and the program tells what is left.

## Compute it again { #compute-it-again }

Everything in that list can be computed again from the layer's arguments. `jax.checkpoint(layer)` is
the same function, but of it only the arguments are kept. When the backward pass comes to the layer,
it runs it forward once more.

<quiz>
**Predict.** A layer's forward pass costs 3 matrix products, its backward pass 6. With
`jax.checkpoint` around each layer, the whole costs
- [ ] twice as much
> Only the forward part is done twice.
- [x] about a third more
> Right: 12 products in place of 9.
- [ ] about the same, the element-wise part is cheap
> The products are computed again as well.

</quiz>
"""


# %%
def gradients(run_layer):
    def loss_of(params, x):
        out = x
        for weights in params:
            out = run_layer(out, weights)
        return jnp.mean((out - x) ** 2)

    return jax.jit(jax.grad(loss_of))


def build(run_layer, params=params):
    return gradients(run_layer).lower(params, x).compile()


def price(compiled):
    """Memory for intermediate results (MiB), and work (FLOPs)."""
    work = (compiled.cost_analysis() or {}).get("flops", float("nan"))
    return compiled.memory_analysis().temp_size_in_bytes / MIB, work


programs = {"plain": build(layer), "nothing kept": build(jax.checkpoint(layer))}
plain_mib, plain_work = price(programs["plain"])
full_mib, full_work = price(programs["nothing kept"])
full_extra = 100 * (full_work / plain_work - 1)
print(f"as it stands:   {plain_mib:5.2f} MiB")
print(f"jax.checkpoint: {full_mib:5.2f} MiB, {full_extra:.0f} % more work")

# %% [markdown]
"""
## What a policy saves { #what-a-policy-saves }

All or nothing is not the only choice. A `policy` says for each operation whether its result is
kept. Products are expensive and few; the rest is cheap and large. `dots_saveable` keeps the results
of products.
"""

# %% alt="Memory over work. Plain: much memory. Nothing kept: much work. Dots kept: little of both."
from functools import partial

import matplotlib.pyplot as plt

save = jax.checkpoint_policies


def named(x, weights):
    up = checkpoint_name(x @ weights["up"], "up")
    gate = x @ weights["gate"]
    hidden = jax.nn.gelu(up) * jax.nn.sigmoid(gate)
    hidden = hidden / jnp.sqrt(jnp.mean(hidden**2, axis=-1, keepdims=True) + 1e-6)
    return x + jnp.tanh(hidden @ weights["down"])


choices = {
    "dots kept": jax.checkpoint(layer, policy=save.dots_saveable),
    "one name kept": jax.checkpoint(named, policy=save.save_only_these_names("up")),
    "everything kept": jax.checkpoint(layer, policy=save.everything_saveable),
}
programs |= {name: build(choice) for name, choice in choices.items()}
prices = {name: price(program) for name, program in programs.items()}
figure, axes = plt.subplots(figsize=(7, 3))
for (name, (mib, work)), mark in zip(prices.items(), "osD^v", strict=True):
    relative = work / plain_work
    axes.plot(relative, mib, mark, markersize=9)
    axes.annotate(name, (relative, mib), (9, -3), textcoords="offset points", color="#808182")
    print(f"{name:16} {mib:5.2f} MiB   work {relative:.2f}")
axes.set_xlabel("work, plain = 1")
axes.set_ylabel("MiB of intermediate results")
axes.set_ylim(0)
axes.margins(x=0.25)
plt.show()

right = programs["plain"](params, x)
for program in programs.values():
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5), program(params, x), right
    )
print("the gradients are the same in all", len(programs))
dots_mib, dots_work = prices["dots kept"]
everything_mib, _ = prices["everything kept"]
name_mib, name_work = prices["one name kept"]
dots_extra, name_extra = (100 * (work / plain_work - 1) for work in (dots_work, name_work))
assert full_mib < name_mib < plain_mib < everything_mib
assert dots_mib < 0.75 * plain_mib
assert dots_extra < 0.5 * full_extra
assert dots_extra < name_extra < full_extra

# %% [markdown]
"""
`dots_saveable` is the bargain here: {{ dots_mib:.1f }} of {{ plain_mib:.1f }} MiB for
{{ dots_extra:.0f }} % more work. "One name kept" lies between: it keeps `up` alone, one product of
the three, for {{ name_mib:.1f }} MiB and {{ name_extra:.0f }} %. And look at "everything kept":
{{ everything_mib:.1f }} MiB, more than without a checkpoint. A checkpoint is also a wall. What its
policy keeps is really kept; where there is no wall, the compiler is free to fuse and to merge.

Does it stay a bargain with more layers?
"""

# %% alt="Memory over layers: three straight lines, plain steepest, nothing kept flattest."
depths = (2, 4, 6)
ways = {"plain": layer, "dots kept": choices["dots kept"], "nothing kept": jax.checkpoint(layer)}
lines = {}
for name, way in ways.items():
    shallow = [price(build(way, params[:depth]))[0] for depth in depths[:-1]]
    lines[name] = [*shallow, prices[name][0]]
figure, axes = plt.subplots()
for (name, found), style in zip(lines.items(), ("o-", "D--", "s:"), strict=True):
    axes.plot(depths, found, style, label=name)
axes.set_xticks(depths)
axes.set_ylim(0)
axes.set_xlabel("layers")
axes.set_ylabel("MiB")
axes.legend()
plt.show()


def slope(name):
    """Wide arrays for each further layer."""
    growth = (lines[name][-1] - lines[name][0]) / (depths[-1] - depths[0])
    return growth * 1024 / wide_kib


plain_slope, dots_slope, full_slope = map(slope, lines)
print(f"a further layer costs {plain_slope:.1f} wide arrays,")
print(f"{dots_slope:.1f} with dots kept, {full_slope:.2f} with nothing kept")

# %% [markdown]
"""
The slopes differ: {{ plain_slope:.1f }} wide arrays a layer, {{ dots_slope:.1f }}, and
{{ full_slope:.2f }}. Even with nothing kept there is a rest. Each checkpoint keeps its arguments,
here the narrow array between two layers, a quarter of a wide one.

## A checkpoint can do nothing { #a-checkpoint-can-do-nothing }

<quiz>
**Predict.** You write `jax.checkpoint` once, around the whole loss, in place of around each layer.
What do you save?
- [ ] As much: it is the same code
> Where the walls stand matters.
- [ ] Everything but the loss
> The backward pass still needs the residuals, all of them, when it begins.
- [x] Nothing
> Right. All is dropped, and the next thing to happen is that all is computed again, and kept.

</quiz>
"""


# %%
def whole(params, x):
    def loss_of(params):
        out = x
        for weights in params:
            out = layer(out, weights)
        return jnp.mean((out - x) ** 2)

    return jax.grad(jax.checkpoint(loss_of))(params)


around_all = jax.jit(whole).lower(params, x).compile()
whole_mib = around_all.memory_analysis().temp_size_in_bytes / MIB
undone_mib, _ = price(build(jax.checkpoint(layer, prevent_cse=False)))
print(f"as it stands:                   {plain_mib:.2f} MiB")
print(f"checkpoint around all:          {whole_mib:.2f} MiB")
print(f"around each, prevent_cse=False: {undone_mib:.2f} MiB")
assert min(whole_mib, undone_mib) > 0.8 * plain_mib

# %% [markdown]
"""
Two ways to get nothing. Around everything, there is no moment at which less is kept
(jax-ml/jax#12792 is somebody's surprise). And with `prevent_cse=False` the compiler sees the same
operations twice, merges them, and keeps the first results: your checkpoint is undone. That flag is
for `jax.lax.scan`, whose loop is a wall of its own.

!!! quote "Claim S1-04 (gpu-memory): true"
    The document says that XLA looks at the whole program. It does, at one jitted function at a
    time. Above it looked so well that it undid a checkpoint.

So never believe a checkpoint; ask `memory_analysis()`.

## Your turn

!!! example "Exercise ex16: compute it again"
    A deep network's gradients must fit into a budget of memory, and keep a budget of work. The
    grader compiles them and reads both. Start on the [page of ex16](../exercises/ex16_remat.md).

    === "Failing"

        {{ capture: check ex16 starter }}

    === "Passing"

        {{ capture: check ex16 solution }}

## Three questions

<quiz>
A network fits by a hair's breadth with `jax.checkpoint` around each layer, and is slow. What do you
try?
- [x] A policy that keeps the products
- [ ] `jax.checkpoint` around the whole network
- [ ] `prevent_cse=False`

It spends some of the memory on the expensive part.
</quiz>

<quiz>
You add `checkpoint_name(x, "up")` to a layer, and memory stays the same. Why?
- [ ] The name must be unique
- [x] A name alone does nothing: a policy of a checkpoint around it must speak of it
- [ ] Names are only for offloading

Here it was `save_only_these_names("up")`.
</quiz>

<quiz>
Does `jax.checkpoint` save memory in a function that nobody differentiates?
- [x] No
- [ ] Yes, just as much

Without a backward pass nothing is kept for it.
</quiz>

## Recap

- A backward pass keeps residuals: here {{ plain_slope:.1f }} wide arrays a layer.
- `jax.checkpoint` around each layer keeps its arguments, for about a third more work.
- `dots_saveable` keeps products: {{ dots_mib:.1f }} of {{ plain_mib:.1f }} MiB,
  {{ dots_extra:.0f }} % more work.
- Around everything, or outside of a scan with `prevent_cse=False`, a checkpoint saves nothing.

Next: [leaks that are and are not](11-leaks-that-are-and-are-not.ipynb).
"""
