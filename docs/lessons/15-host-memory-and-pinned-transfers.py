# %% [markdown]
"""
---
part: 4 Many GPUs
description: Memory kinds - where an array lies beside its device, and how to stage it on the host.
---
# 15 Host memory and pinned transfers

After this lesson you can

- name the memories of a device, and the memory an array lies in;
- put an array into pinned host memory, and bring it back;
- write a jitted step that reads from host memory and writes to it;
- explain two errors that stop you from mixing memories.

**Why care.** Adam keeps {{ adam_share:.0f }} % of this lesson's training state, and needs it only
once in each step. Below it moves to host memory: {{ device_before:.0f }} MiB in device memory
become {{ device_after:.0f }} MiB. The argument `pinned=True`, which a document recommends, does not
exist.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
!!! note "What a CPU can show here, and what it cannot"
    A CPU device has the same *kinds* of memory as a GPU, and JAX checks them in the same way. But
    all of them are the same chips. So this page shows which memory an array is in, and what the
    compiled program says. It says nothing about speed.

## There is no pinned argument { #there-is-no-pinned-argument }

A GPU reads host memory by itself only if the operating system promises not to move it: the memory
is **pinned**. The source document pins an array with an argument of `jnp.array`. Try it.
"""

# %%
import numpy as np

data = np.ones((1024, 1024), np.float32)
for options in [{"pinned": True}, {"order": "F"}]:
    try:
        jnp.array(data, **options)
    except (TypeError, NotImplementedError) as error:
        print(options, "\n   ", type(error).__name__ + ":", error)

# %% [markdown]
"""
!!! quote "Claim S3-05 (dgx): false"
    The document pins with `jnp.array(..., pinned=True)`. There is no such argument.

!!! quote "Claim S3-06 (dgx): false"
    It also asks for Fortran order. A `jax.Array` has no order that you can choose: only
    `order="K"`, the default, is accepted.

A NumPy array can't be pinned in JAX, and it does not have to be. What you can choose is where a
`jax.Array` lies.

## Memory kinds { #memory-kinds }

Each device has its own memory and can also reach memory of the host. JAX calls these **memory
kinds**. The kind is a part of the array's sharding, like the device.
"""

# %%
device = jax.devices()[0]
print("kinds:  ", [memory.kind for memory in device.addressable_memories()])
print("default:", device.default_memory().kind)

x = jax.device_put(data, device)
pinned = x.sharding.with_memory_kind("pinned_host")
h = jax.device_put(x, pinned)
for name, array in [("x", x), ("h", h)]:
    kind = array.sharding.memory_kind
    print(f"{name}: {array.device}, {kind:11} {jax.typeof(array)}")

# %% [markdown]
"""
`h` is a `jax.Array` like any other. It belongs to the same device, and lies in pinned host memory.
Its type says so: `<host>`.

<quiz>
**Predict.** `x` lies in device memory, `h` in host memory, on the same device. What does `x + h`
do?
- [ ] It copies `h` to the device and adds
> JAX moves free arrays between *devices*. Between memories it moves nothing.
- [ ] It adds on the host
> Nothing in the line says where.
- [x] It raises a `ValueError`
> Right. You say where, or JAX refuses.

</quiz>
"""

# %%
try:
    x + h
except ValueError as error:
    text = str(error).replace(". Got", ".\n  Got")
    print("ValueError:", text.replace(" and another", "\n  and another"))

back = jax.device_put(h, x.sharding)
print("brought back:", back.sharding.memory_kind)
print("same numbers:", bool((back == x).all()))
host_again = np.asarray(h)
print("read by NumPy:", type(host_again).__name__, host_again.shape)

# %% [markdown]
"""
!!! quote "Claim S1-11 (gpu-memory): true with conditions"
    The document names pinned memory as a means to make transfers quicker. It exists, as the
    memory kind `pinned_host` of a `jax.Array`. There is no call that pins a NumPy array of yours.

## Inside a jitted step { #inside-a-jitted-step }

In a jitted function the same `device_put` becomes a part of the program. With
`jax.memory.Space.Device` it says only *which memory*, not which device.

The aim: keep Adam's state in host memory between the steps. The step brings it in, computes, and
hands it back.
"""

# %%
import optax

MIB = 2**20
adam = optax.adam(1e-3)
params = {"a": np.eye(1024, dtype=np.float32), "b": np.ones(1024, np.float32)}
params = jax.device_put(params, device)
state = jax.device_put(adam.init(params), device)
batch = jax.device_put(np.ones((64, 1024), np.float32), device)


def kind_of(array):
    return array.sharding.memory_kind


def mib(tree, kind):
    arrays = jax.tree.leaves(tree)
    return sum(a.nbytes for a in arrays if kind_of(a) == kind) / MIB


def step(params, state, batch):
    state = jax.device_put(state, jax.memory.Space.Device)

    def loss_of(params):
        return jnp.mean((jnp.tanh(batch @ params["a"]) - params["b"]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, state = adam.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


on_device = jax.tree.map(lambda a: a.sharding, params)
in_host = jax.tree.map(lambda a: a.sharding.with_memory_kind("pinned_host"), state)
offloading = jax.jit(step, out_shardings=(on_device, in_host, None))

host_state = jax.device_put(state, in_host)
device_before = mib((params, state), "device")
device_after = mib((params, host_state), "device")
adam_share = 100 * mib(state, "device") / device_before
print(f"in device memory: {device_before:.1f} MiB")
print(f"state offloaded:  {device_after:.1f} MiB")
print(f"in host memory:   {mib(host_state, 'pinned_host'):.1f} MiB")

# %% [markdown]
"""
<quiz>
**Predict.** After `params, host_state, loss = offloading(params, host_state, batch)`, where is the
new state?
- [ ] In device memory: that is where it was computed
> It was computed there. `out_shardings` says where the result is to lie.
- [x] In pinned host memory
> Right, so the next call gets what this one got.
- [ ] In both
> A result lies in one place.

</quiz>
"""

# %%
plain = jax.jit(step)
new_params, new_state, loss = offloading(params, host_state, batch)
_, _, plain_loss = plain(params, state, batch)

print("params:", {kind_of(a) for a in jax.tree.leaves(new_params)})
print("state: ", {kind_of(a) for a in jax.tree.leaves(new_state)})
print("same loss as without host memory:", float(loss) == float(plain_loss))

compiled = offloading.lower(params, host_state, batch).compile()
header = compiled.as_text().splitlines()[0]
layout = header.partition("entry_computation_layout={")[2]
arguments, _, results = layout.partition("->")
print("by the program, arguments in host memory:", arguments.count("S(5)"))
print("by the program, results in host memory:  ", results.count("S(5)"))

# %% [markdown]
"""
`S(5)` is XLA's mark for host memory. All {{ host_leaves }} arrays of the state have it, as
arguments and as results. So you can check an offloaded step without a GPU: look at the program.

Two things can be forgotten: the `device_put` inside the step, and `out_shardings`.
"""

# %%
host_leaves = len(jax.tree.leaves(host_state))
try:
    jax.jit(adam.update).lower(params, host_state, params)
except ValueError as error:
    print("without device_put: ValueError:", str(error)[:32], "...")

_, returned, _ = plain(params, host_state, batch)
kinds = {kind_of(a) for a in jax.tree.leaves(returned)}
print("without out_shardings:", kinds)

# %% [markdown]
"""
The first mistake is an error as soon as the step is traced. The second one is the one to test
for: the step works, and after it the state is in device memory, and stays there.

## Your turn

!!! example "Exercise ex26: stage in pinned host memory"
    Arrays are to wait in pinned host memory and come back for the computation. The grader looks
    at the memory kind of what goes in, what comes out, and what the compiled program says. Start
    on the [page of ex26](../exercises/ex26_pinned_host.md).

    === "Failing"

        {{ capture: check ex26 starter }}

    === "Passing"

        {{ capture: check ex26 solution }}

## Three questions

<quiz>
How do you pin a NumPy array in JAX?
- [ ] `jnp.array(a, pinned=True)`
- [ ] `jax.device_put(a, pinned=True)`
- [x] You don't; you put it into a `jax.Array` with memory kind `pinned_host`

Pinned memory is a property of where a `jax.Array` lies.
</quiz>

<quiz>
You run `h = jax.device_put(x, pinned)`. The device has as little free memory as before. Why?
- [ ] Pinned memory is a part of device memory
- [x] `x` is still alive
- [ ] The copy has not started

`device_put` returns a new array. Drop the name `x`, or use `h` in its place.
</quiz>

<quiz>
An offloaded step runs out of device memory in its second call, not in its first. What is missing?
- [ ] `donate_argnums`
- [x] `out_shardings` with the host memory kind
- [ ] A larger pinned pool

The first call got the state from host memory and returned it in device memory.
</quiz>

## Recap

- `pinned=True` does not exist. `sharding.with_memory_kind("pinned_host")` does.
- An array's memory kind is a part of its sharding, and of its type.
- JAX does not mix memories: bring the array to the device, or get a `ValueError`.
- In a step: `device_put(..., jax.memory.Space.Device)` at the start, `out_shardings` at the end.
- `S(5)` in the compiled program proves it, with no GPU at hand.

Back to [the start](../index.md), or take another exercise.
"""
