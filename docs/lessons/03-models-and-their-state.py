# %% [markdown]
"""
---
part: 1 Working on GPUs
description: Place a model, its optimizer state and its batch, and know which arrays may move.
---
# 03 Models and their state

After this lesson you can

- place a whole model with one call, and check every array of it;
- say what *committed* means, and which arrays JAX may still move;
- find the one number of an optimizer that is left behind, and the `jit` that leaves all of it
  behind;
- keep a training step free of copies that nobody asked for;
- place a Flax model with all it remembers, and lose nothing of what a step changes.

**Why care.** Model and optimizer below have {{ leaves }} arrays. As NumPy arrays they are
**{{ state_mib:.1f }} MiB** to be copied to a GPU in *every* call that takes them, and no line of
the program shows it. One call places them all, once. <!-- gpu: G5 -->
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
A Haiku model is a pair of functions, `init` and `apply`. The parameters are a dictionary of
arrays, and the optimizer's state is another tree of arrays. Nothing is hidden in an object.

The lesson places things on `there`: the last device, so that you see what moved and what did not.
"""

# %%
import haiku as hk
import numpy as np
import optax

there = jax.devices()[-1]

model = hk.transform(lambda x: hk.nets.MLP([512, 512, 16])(x))
net = hk.without_apply_rng(model)  # it draws no random numbers
adam = optax.adam(1e-3)
numbers = np.random.default_rng(0)
batch = numbers.normal(size=(64, 256)).astype(np.float32)

params = net.init(jax.random.key(0), batch)
state = adam.init(params)
arrays = jax.tree.leaves((params, state))
leaves = len(arrays)
state_mib = sum(array.nbytes for array in arrays) / 2**20


@jax.jit
def step(params, state, batch):
    def loss_of(params):
        return jnp.mean(net.apply(params, batch) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, state = adam.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


def place(array):
    return f"{array.device} {'committed' if array.committed else 'free'}"


def where(tree):
    arrays = jax.tree.leaves(tree)
    return f"{len(arrays)} arrays on {', '.join(sorted(set(map(place, arrays))))}"


print("params:", where(params))
print("state: ", where(state))
print(f"both:   {leaves} arrays, {state_mib:.1f} MiB")

# %% [markdown]
"""

## One call moves the tree { #one-call-moves-the-tree }

`jax.device_put` takes any tree of arrays: a dictionary, a tuple, an optimizer's state, or all of
them together.

<quiz>
**Predict.** What does `jax.device_put((params, state), there)` do?
- [ ] It fails: `device_put` takes one array
> It takes any tree. You need no `jax.tree.map`.
- [ ] It moves the arrays in place
> Arrays don't change. The old tree stays where it was.
- [x] It returns a new tree, with every array on `there`
> Right. The old one lives until you drop it.

</quiz>
"""

# %%
placed_params, placed_state = jax.device_put((params, state), there)
print("new params:", where(placed_params))
print("new state: ", where(placed_state))
print("old params:", where(params))


def first_buffer(tree):
    return jax.tree.leaves(tree)[0].unsafe_buffer_pointer()


placed_again = jax.device_put(placed_params, there)
same = first_buffer(placed_again) == first_buffer(placed_params)
print("placed twice, same buffer:", same)

# %% [markdown]
"""
To place a tree where it already is costs nothing: the last line shows the same buffer.

!!! quote "Claim S0-18 (haiku-gpu): true with conditions"
    The document moves the parameters with a function over every array of the tree. That works if
    the function is `jax.tree.map`: the document's `jax.tree_map` is gone. `device_put` does the
    same for the whole tree in one call.

!!! quote "Claim S2-07 (d2l-gpus): not about JAX"
    The document's rule is to move the model to the GPU before training. In JAX `init` makes it on
    the default device, as the lists above show. Move it to go elsewhere, to split it, or to commit
    it.


## Committed or not { #committed-or-not }

The words after the device matter more than the device. An array from `jnp`, `jax.random` or `init`
is **uncommitted**, or free, if you named no device and the key is free: JAX put it somewhere by
default, and may move it. An array that *you* placed with `device_put(x, device)` is **committed**:
JAX does not move it on its own, unless `jit` is told to by `in_shardings`. (From a committed key,
`init` makes committed weights, and free biases.)

A jitted function runs where the committed arguments are that it *uses*. Free ones follow. What
"uses" means here is a trap, and comes [below](#jit-looks-at-what-is-used).

<quiz>
**Predict.** `params` are committed to `there`. The optimizer's state is still free, on the default
device. What does `step(params, state, batch)` do?
- [ ] It raises an error: two devices
> Only two *committed* arrays on different devices are an error.
- [ ] It runs on the default device
> The committed `params` stay where they are, and decide.
- [x] It runs on `there`, and copies the state over
> Right: at this call, and without a word.

</quiz>
"""

# %%
_, followed, loss = step(placed_params, state, batch)
print("loss on", loss.device, "| new state:", where(followed))


def reason(error):
    text = str(error).splitlines()[0]
    return text.replace("Got", "\n  Got").replace(" and argument", "\n  and argument")


try:
    step(placed_params, jax.device_put(state, jax.devices()[0]), batch)
except ValueError as error:
    print("ValueError:", reason(error))

# %% [markdown]
"""
On a machine with one device the second call cannot fail, because there is no other place.

!!! quote "Claim S2-04 (d2l-gpus): true with conditions"
    The document says that mixing devices in one operation crashes. It does if both arrays are
    **committed**. The first call above mixed devices too, and ran.

## What is left behind { #what-is-left-behind }

You place the parameters first and make the optimizer's state from them. Does it follow?
"""

# %%
made_after = adam.init(placed_params)
for path, leaf in jax.tree_util.tree_leaves_with_path(made_after)[:3]:
    name = jax.tree_util.keystr(path)
    print(f"{name:32} {place(leaf)}")
print("...")
made = jax.tree.leaves(made_after)
(stray,) = [leaf for leaf in made if not leaf.committed]
stray_bytes = stray.nbytes
print(f"free: 1 of {len(made)} arrays, {stray_bytes} bytes")

# %% [markdown]
"""
Adam makes its two large trees with `zeros_like`, which follows a committed array. Its step
*count* is a new number, made on the default device. {{ stray_bytes }} bytes: small, and yet a copy
in the first step, if the default device is another one.

`jax.transfer_guard("disallow")` finds it: inside it, a copy that nobody asked for is an error.
Use it from the first step on: with given placements, a copy between devices it sees only at the
[first call](02-arrays-live-somewhere.ipynb#a-free-array-is-copied-at-every-call),
a copy from the host at every call.
"""


# %%
def first_step(params, state, batch):
    try:
        with jax.transfer_guard("disallow"):
            step(params, state, batch)
    except jax.errors.JaxRuntimeError as error:
        what, _, array = str(error).partition(" transfer: aval=")
        return f"{what.split()[-1]} copy of {array.partition(', ')[0]}"
    return "no copy that was not asked for"


placed_batch = jax.device_put(batch, there)
host_params = jax.tree.map(np.asarray, params)

cases = {
    "NumPy batch": (placed_params, placed_state, batch),
    "NumPy params": (host_params, placed_state, placed_batch),
    "state made afterwards": (placed_params, made_after, placed_batch),
    "everything placed": (placed_params, placed_state, placed_batch),
}
for name, arguments in cases.items():
    print(f"{name:22} {first_step(*arguments)}")

# %% [markdown]
"""
The rule that follows: make the model and the optimizer's state, then place **both** with one
call. Place each batch where you load it. Then the guard has nothing to say.

After the first step everything is committed, because the results of a committed step are. That
is why such a stray copy hides: it is gone when you look at the second step.

## jit looks at what is used { #jit-looks-at-what-is-used }

`adam.init` makes many small programs, one for each array. It is tempting to put `jax.jit` around
it, and libraries do. The parameters are committed to `there`, all of them.

<quiz>
**Predict.** `state = jax.jit(adam.init)(placed_params)`. Where are the arrays of the state?
- [ ] On `there`, as without `jit`, but for the count
> Without `jit`, `zeros_like` sees an array that lies somewhere. Inside `jit` it sees a shape.
- [ ] On `there`, all of them: a jitted function runs where its committed arguments are
> That is the rule for arguments that the program *uses*.
- [x] On the default device, all of them, and free
> Right. Zeros need no value of any parameter. JAX drops unused arguments, and their places with
> them.

</quiz>
"""

# %%
beside = jax.sharding.SingleDeviceSharding(there)
inits = {
    "adam.init": adam.init,
    "jit(adam.init)": jax.jit(adam.init),
    "keep_unused=True, second": jax.jit(adam.init, keep_unused=True),
    "keep_unused=True, first": jax.jit(lambda tree: adam.init(tree), keep_unused=True),
    "jit(..., out_shardings=...)": jax.jit(adam.init, out_shardings=beside),
}
lists = {name: jax.tree.leaves(init(placed_params)) for name, init in inits.items()}
for name, found in lists.items():
    print(f"{name:28} {sum(x.device == there for x in found):2} of {len(found)} on {there}")
followed_jit = sum(x.device == there and x.committed for x in lists["jit(adam.init)"])
zeros = jax.jit(lambda tree: jax.tree.map(jnp.zeros_like, tree))(placed_params)
print("jit(zeros_like):", where(zeros))
assert jax.device_count() == 1 or followed_jit == 0
for way in "keep_unused=True, first", "jit(..., out_shardings=...)":
    assert all(x.device == there and x.committed for x in lists[way])

# %% [markdown]
"""
Eagerly, all arrays but one follow. Under `jit`, {{ followed_jit }} do: their place is that of the
default device, however many committed parameters went in. `keep_unused=True` keeps the arguments,
and with them their place. But it comes too late for a function that was compiled without it: JAX
takes the program that it has, as the third line shows. `out_shardings` says where the result is to
lie, and always helps.

On one device nothing is lost. With a mesh it costs most: a state that should be split over eight
devices is made whole on the first one, and that is where it runs out of memory. (Inside
`jax.set_mesh` it is made whole on each device of an Auto mesh, and split like the parameters on an
Explicit one.) So give every
function that *makes* arrays its `out_shardings`, and look at where its results are.

!!! quote "Claim S2-08 (d2l-gpus): true with conditions"
    The document says that the optimizer's state follows the parameters. Without `jit` its large
    arrays do, and the count does not. With `jit` around `init`, nothing follows.

!!! quote "Claim S2-31 (d2l-gpus): not about JAX"
    The document warns to make the optimizer after the model was moved. That is a rule of another
    library. In JAX a state made before is free, and follows; or you place it yourself.

## A model with more than parameters { #a-model-with-more-than-parameters }

Parameters are not all that a model remembers. A batch norm keeps the mean and the variance of the
batches it has seen. Dropout needs a random key. All of it lies somewhere, too.

Flax is the other library that you will meet. Its present interface is `flax.nnx`: there a model
*is* an object that holds its arrays, each in a variable that says of what kind it is.
"""

# %%
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(256, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(64, 16, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(nnx.relu(self.norm(self.hidden(x)))))


def kinds(model):
    found = {}
    for path, variable in nnx.to_flat_state(nnx.state(model)):
        here = place(variable.get_value())
        found.setdefault((type(variable).__name__, here), []).append(".".join(map(str, path)))
    for (kind, here), names in sorted(found.items()):
        print(f"{kind:10}{here:17}{', '.join(names)}")


flax_model = Net(nnx.Rngs(params=0, dropout=1))
kinds(flax_model)

# %% [markdown]
"""
<quiz>
**Predict.** `nnx.state(model, nnx.Param)` picks the parameters. They are placed on `there`, and
written back with `nnx.update`. What does the next training step do?
- [ ] It fails: half of the model is elsewhere
> The other half is free. Only two *committed* places are an error.
- [x] It runs on `there`, and copies the statistics, the key and the count
> Right. You know this from the optimizer's count.
- [ ] It runs, with statistics that lie on two devices
> This call runs on one device, and takes all its arguments there.

</quiz>
"""

# %%
only_params = nnx.clone(flax_model)
nnx.update(only_params, jax.device_put(nnx.state(only_params, nnx.Param), there))
print("parameters placed:")
kinds(only_params)

nnx.update(flax_model, jax.device_put(nnx.state(flax_model), there))
print("\nthe whole state placed:")
kinds(flax_model)

# %% [markdown]
"""
Without a filter, `nnx.state(model)` is the whole state. It is a tree, and one `device_put` moves
it.

Much code is written in the older interface, `flax.linen`. There a model holds nothing, as in Haiku.
Its variables come as a dictionary with one entry for each kind, a **collection**.
"""

# %%
from flax import errors
from flax import linen as nn


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(64)(x))
        return nn.Dense(16)(nn.Dropout(0.5, deterministic=not train)(nn.relu(x)))


linen_net = LinenNet()
variables = jax.device_put(linen_net.init(jax.random.key(0), batch, train=False), there)
for name, collection in variables.items():
    print(f"{name:12}{where(collection)}")

dense = nn.Sequential([nn.Dense(1)])  # as in the document
key1, key2 = jax.random.split(jax.random.PRNGKey(0))
x = jax.random.normal(key1, (10,))
dense_variables = dense.init(key2, x)
print("the document's model:", dense.apply(dense_variables, x))
print(jax.tree.map(lambda array: str(array.device), dense_variables))

# %% [markdown]
"""
!!! quote "Claim S2-23 (d2l-gpus): true"
    The document's model, in Linen, gives -0.3464. It still does. Flax's documentation encourages
    new users to take NNX.

!!! quote "Claim S2-25 (d2l-gpus): true"
    It shows the devices of all parameters with a map over the tree, as the last line above does.

!!! quote "Claim S2-22 (d2l-gpus): not about JAX"
    The document's text calls the model a tree of Parameter tensors, moved by `.to(device)`. In JAX
    the state is a tree of arrays, and `jax.device_put` returns a new one.

!!! quote "Claim S2-29 (d2l-gpus): not about JAX"
    It advises `register_buffer`, so that what is not trained moves, too. JAX has no buffers. What
    is not trained is another part of the tree: it moves if you place the whole.

## What a step changes has to come out { #what-a-step-changes-has-to-come-out }

A step changes the parameters, the statistics and the count of dropout. The function below does all
three. It is compiled twice, by `jax.jit` and by `nnx.jit`.

<quiz>
**Predict.** What happens to `model` in a function that `jax.jit` has made?
- [ ] It raises: a jitted function must not change an object
> It would be kinder.
- [x] Nothing: the function gets a copy, and the copy is dropped
> Right. Not even a warning.
- [ ] It changes at the first call, when the function is traced
> What is traced is a copy, too.

</quiz>
"""


# %%
def sgd(model, batch):
    loss, gradients = nnx.value_and_grad(lambda model: jnp.mean(model(batch) ** 2))(model)
    weights = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients))
    return loss


steps = 8
losses = {}
for name, jit in {"jax.jit": jax.jit, "nnx.jit": nnx.jit}.items():
    model, jitted = nnx.clone(flax_model), jit(sgd)
    losses[name] = [float(jitted(model, placed_batch)) for _ in range(steps)]
    mean = float(jnp.abs(model.norm.mean.get_value()).mean())
    count = int(model.dropout.rngs.count.get_value())
    print(f"{name}: losses {losses[name][0]:.4f} ... {losses[name][-1]:.4f}")
    print(f"         running mean {mean:.4f}, draws counted by dropout {count}")

different = len(set(losses["jax.jit"]))
assert different == 1
assert losses["nnx.jit"][-1] < losses["nnx.jit"][0]

# %% alt="Loss over steps. With jax.jit it is a flat line, with nnx.jit it falls."
import matplotlib.pyplot as plt

figure, axes = plt.subplots()
for (name, values), marker in zip(losses.items(), "so", strict=True):
    axes.plot(range(1, steps + 1), values, marker=marker, label=name)
axes.set_xlabel("step")
axes.set_ylabel("loss")
axes.legend()
plt.show()

# %% [markdown]
"""
{{ steps }} steps with `jax.jit`, and {{ different }} different loss: not even the mask of dropout
changed, because its count was dropped with the copy. `nnx.jit` takes the state out of the model,
gives it to the program as an argument, and writes the result back into the model.

You can do that yourself: split the model outside, put it together inside, and hand back the state.

```python
graph, state = nnx.split(model)

@jax.jit
def step(state, batch):
    model = nnx.merge(graph, state)
    loss = sgd(model, batch)
    return nnx.state(model), loss  # all of the state, not the parameters alone

state, loss = step(state, batch)  # in the loop
nnx.update(model, state)          # after it
```

Then *all* of the state has to be among the results. Linen makes you say so:
"""

# %%
keys = {"dropout": jax.device_put(jax.random.key(1), there)}
try:
    linen_net.apply(variables, placed_batch, train=True, rngs=keys)
except errors.ModifyScopeVariableError as error:
    print(type(error).__name__ + ":", str(error).split(" (")[0])

_, changed = linen_net.apply(
    variables, placed_batch, train=True, rngs=keys, mutable=["batch_stats"]
)
variables = {**variables, **changed}  # the new statistics; the key of the next step is up to you
print("comes out:", *changed, "|", where(variables))

# %% [markdown]
"""
!!! quote "Claim S2-26 (d2l-gpus): not about JAX"
    The document's training loop calls `MyModel().to(device)` once, and steps an optimizer object.
    In JAX the state goes in and comes out: `state = step(state, batch)`. `nnx.jit` does that for
    you, and does not change what it is.

## Your turn

!!! example "Exercise ex04: place a model"
    A Haiku model, its optimizer state and a batch are on the wrong device. Put all of them on the
    device that is asked for. The grader looks at every array, and at every copy inside the step.
    Start on the [page of ex04](../exercises/ex04_place_model.md).

    === "Failing"

        {{ capture: check ex04 starter }}

    === "Passing"

        {{ capture: check ex04 solution }}

!!! example "Exercise ex05: all the state of a model"
    A Flax model with a batch norm and dropout is placed by half, and its training step forgets what
    it did. Mend both. The grader looks at each kind of variable, before and after the steps. Start
    on the [page of ex05](../exercises/ex05_model_state.md).

    === "Failing"

        {{ capture: check ex05 starter }}

    === "Passing"

        {{ capture: check ex05 solution }}

## Three questions

<quiz>
`x = jnp.ones(3)`, then `y = jax.device_put(jnp.ones(3), jax.devices()[1])`. Where is `x + y`?
- [ ] Nowhere: an error
- [ ] On device 0
- [x] On device 1

`x` is free and follows `y`, which is committed.
</quiz>

<quiz>
Which of these is *not* committed?
- [x] `jax.random.normal(key, (3,))` with a free key
- [ ] `jax.device_put(batch, device)`
- [ ] The result of a jitted function that computes with a committed array

New arrays are free. Placed arrays, and what is computed from their values, are committed.
</quiz>

<quiz>
With `jax.transfer_guard("disallow")` around the whole loop, the first step raises, and names a
device-to-device transfer. With the guard only from the second step on, nothing does. What is the
likely cause?
- [ ] Compiling copies arrays from device to device
- [x] A part of the state was free, on another device
- [ ] The guard needs a warm-up

The first step returned it committed, so the second one finds it in place. Such a copy has to be
looked for in the first step.
</quiz>

## Recap

- One `jax.device_put(tree, device)` places a whole tree and returns a new one.
- Committed arrays stay; free arrays follow, silently. Two committed places are an error.
- The optimizer's count is left behind if you only move the parameters. `jax.jit(adam.init)` leaves
  everything behind: say `out_shardings`.
- The transfer guard shows copies from the host at every call, and copies between devices only in
  the first call with these placements.
- Statistics, keys and counts are state: place the whole, and let the whole come out of the step.

Next: [the inner loop](04-the-inner-loop.ipynb).
"""
