# %% [markdown]
"""
---
part: 1 Working on GPUs
description: What a read costs inside a training loop, and how to keep reads without the cost.
---
# 04 The inner loop

After this lesson you can

- say when a JAX call returns, and time one honestly;
- name the lines that make a loop wait for the device;
- log a loss at every step without that wait;
- copy each batch to the device once, and nothing else.

**Why care.** Below, one line is added to a training loop: `float(loss)`. The loop then takes
**{{ slowdown:.1f }} times** as long. The numbers it computes are the same.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
The program of this lesson is a small network that learns to give back its input. `step` takes
weights and a batch, and returns new weights and the loss.
"""


# %%
import numpy as np


@jax.jit
def step(weights, batch):
    def loss_of(weights):
        hidden = batch
        for layer in weights:
            hidden = jnp.tanh(hidden @ layer)
        return jnp.mean((hidden - batch) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], loss


side = 512 if jax.default_backend() == "cpu" else 8192  # a GPU wants more to do
numbers = np.random.default_rng(0)
batches = list(numbers.normal(size=(4, 512, side)).astype(np.float32))
weights = [jnp.eye(side) * 0.5 for _ in range(4)]

# %% [markdown]
"""
## A call returns before the work is done { #a-call-returns-before-the-work-is-done }

A JAX call has two parts. Python checks the arguments and hands the program to the device: this
is the **dispatch**. Then the device runs the program. The call returns after the dispatch. What
it returns is a `jax.Array` whose numbers may not exist yet.

<quiz>
**Predict.** One step keeps the device busy for about {{ ready_ms:.0f }} ms. How long does the
line `new, loss = step(weights, batch)` take, once it is compiled?
- [ ] About {{ ready_ms:.0f }} ms
> That would be true if the call waited for its result. It does not.
- [x] Much less
> Right. The call only hands the work over.
- [ ] Longer, because arrays have to be copied back
> Nothing is copied back until you ask for the numbers.

Run it and see.
</quiz>
"""

# %%
from time import perf_counter as now

batch = jax.device_put(batches[0])

start = now()
jax.block_until_ready(step(weights, batch))
first_ms = (now() - start) * 1000

times = []
for _ in range(9):
    start = now()
    _, loss = step(weights, batch)
    called = now()
    done = loss.is_ready()
    loss.block_until_ready()
    times.append((called - start, now() - start))
call_ms, ready_ms = np.median(times, axis=0) * 1000
assert call_ms < ready_ms / 3

print(f"first call, compiling:  {first_ms:7.2f} ms")
print(f"call returned after:    {call_ms:7.2f} ms   result there: {done}")
print(f"result there after:     {ready_ms:7.2f} ms")

# %% [markdown]
"""
The call came back after {{ call_ms:.2f }} ms, the result after {{ ready_ms:.1f }} ms. A timer
that stops when the call returns measures the dispatch and nothing else. An honest timer

1. puts the inputs on the device, so that no copy is in the figure;
2. runs the program once, **and waits**, so that compiling is not in it either;
3. calls `block_until_ready` on the result before it stops the clock.

Each line that is left out gives a figure of its own:
"""


# %%
def timed(run, *args, warm, wait):
    if warm:
        jax.block_until_ready(run(*args))
    start = now()
    result = run(*args)
    if wait:
        jax.block_until_ready(result)
    took = now() - start
    jax.block_until_ready(result)
    return took * 1000


def fresh():
    return jax.jit(lambda weights, batch: step(weights, batch))


host_weights = [np.asarray(w) for w in weights]
no_wait_ms = timed(fresh(), weights, batch, warm=True, wait=False)
cold_ms = timed(fresh(), weights, batch, warm=False, wait=True)
arguments = {"copies": (host_weights, batches[0]), "honest": (weights, batch)}
rounds = [[timed(step, *a, warm=True, wait=True) for a in arguments.values()] for _ in range(7)]
copying_ms, honest_ms = np.min(rounds, axis=0)
tries = len(rounds)
print(f"not waited for:        {no_wait_ms:8.2f} ms")
print(f"compiling counted:     {cold_ms:8.2f} ms")
print(f"copies counted:        {copying_ms:8.2f} ms")
print(f"honest:                {honest_ms:8.2f} ms")

# %% [markdown]
"""
The last two are the quickest of {{ tries }} runs each. The copies show little here: a CPU device
copies within one memory, and the weights not at all, since they are views of JAX's own arrays. To a
GPU they cross a bus: 400 MB of NumPy took 55.6 ms to an H200, and a
step there 3.24 ms. <!-- gpu: G11 -->

!!! quote "Claim S3-17 (dgx): false"
    The document sets two jitted calls side by side, and asks you to compare their times. One call
    gets NumPy float64, the other float32 on the device. Each makes its function on that line, so
    each compiles. It shows no clock: as the lines stand, around them you would measure mistakes of
    the table above. Neither figure would say anything about pinning.

!!! quote "Claim S3-13 (dgx): true with conditions"
    The document says that JAX offers some asynchronous mechanisms, and that to use them well takes
    careful planning. The cell above planned nothing: a call is asynchronous by default. What takes
    care is not to wait, and to know [the calls that do](#calls-that-wait).

## Reading stops the loop { #reading-stops-the-loop }

If a call returns before its result exists, something must wait as soon as Python needs the
*numbers*. Not every use of an array needs them.

<quiz>
**Predict.** `loss` is still being computed. Which of these lines wait for it?
- [x] `float(loss)`
- [x] `if loss > 0.5: ...`
- [x] `print(loss)`
- [ ] `loss.shape`
- [ ] `loss * 2`

The three that wait need a number in Python: to convert it, to choose a branch, to print digits.
Shape and type are known when the call returns, and `loss * 2` is one more program in the queue.
</quiz>
"""

# %%
uses = {
    "loss.shape": lambda loss: loss.shape,
    "loss * 2": lambda loss: loss * 2,
    "[loss]": lambda loss: [loss],
    "loss.copy_to_host_async()": lambda loss: loss.copy_to_host_async(),
    "float(loss)": lambda loss: float(loss),
    "if loss > 0.5": lambda loss: bool(loss > 0.5),
    "f'{loss}'": lambda loss: f"{loss}",
    "np.asarray(loss)": lambda loss: np.asarray(loss),
}


def waits(use):
    _, loss = step(weights, batch)
    use(loss)
    done = loss.is_ready()
    loss.block_until_ready()
    return done


for text, use in uses.items():
    waits(use)  # compiles what the line itself needs
    always = all(waits(use) for _ in range(3))
    assert always or text in list(uses)[:4]
    print(f"{text:27}", "waits" if always else "does not wait")

# %% [markdown]
"""
### Calls that wait { #calls-that-wait }

`loss * 2` gives an array whose shape is known before its numbers. There are calls of `jax.numpy`
for which that is not so.

<quiz>
**Predict.** `w` is a matrix that is still being computed. Which of these calls wait for it?
- [ ] `jnp.where(w > 0, w, 0)`
- [x] `w[w > 0]`
- [x] `jnp.unique(w)`
- [ ] `jnp.nonzero(w, size=100)`

How many elements are positive? Until the numbers are there nobody knows, and without a shape there
is no array to return. `where` with three arguments has the shape of `w`; `size=100` says the shape.
</quiz>
"""

# %%
shaped_by_values = {
    "jnp.where(w > 0, w, 0)": lambda w: jnp.where(w > 0, w, 0),
    "w[w > 0]": lambda w: w[w > 0],
    "w.at[w > 0].set(0)": lambda w: w.at[w > 0].set(0),
    "jnp.nonzero(w)": jnp.nonzero,
    "jnp.nonzero(w, size=100)": lambda w: jnp.nonzero(w, size=100),
    "jnp.unique(w)": jnp.unique,
    "jnp.unique(w, size=100)": lambda w: jnp.unique(w, size=100),
    "print(w)": str,  # which is what print calls
}
many = jax.jit(lambda a: a @ a @ a @ a @ a @ a)
large = jnp.eye(max(1024, side)) * 0.5


def waits_for(use, work=many):
    w = work(large)
    use(w)
    done = w.is_ready()
    w.block_until_ready()
    return done


def raises_in_jit(use):
    try:
        jax.jit(use).eval_shape(large)
    except (TypeError, IndexError):
        return True
    return False


waited = {}
for text, use in shaped_by_values.items():
    waits_for(use)  # compiles
    waited[text] = all(waits_for(use) for _ in range(3))
    print(f"{text:27}", "waits, and raises in jit" if waited[text] else "does not wait")
    assert raises_in_jit(use) or not waited[text]
assert [list(waited).index(text) for text, waits in waited.items() if not waits] == [0, 4, 6, 7]
print("print(w) shows", large)

# %% [markdown]
"""
No `float`, no `print`: and four of these lines stop the loop. So do `jnp.argwhere`, `jnp.where`
with one argument, `jnp.compress`, `jnp.extract`, `jnp.bincount`, `jax.ops.segment_sum` without
`num_segments`, and `jnp.repeat` with an array of counts. Each reads its argument on the host, to
learn a shape. Inside `jit` all of them raise; outside of it they wait, and say nothing. Give the
length (`size=`; `length=` of `bincount`, `num_segments=` of `segment_sum`, `total_repeat_length=`
of `repeat`), or use a mask: `jnp.where(w > 0, w, 0)`. The grader's probe counts them as what they
are, reads.

The last line is the exception to the table before: of an array of 1 MiB or more, `print` shows the
shape alone, and does not wait. An f-string does. <!-- source: jax/_src/array.py, __str__ -->

Shapes are one reason. Another is a single number that JAX has to know before it can build a
program. Here `n` is still being computed:
"""

# %%
x, key = jnp.arange(8.0), jax.random.key(0)
three = jax.jit(lambda a: 3 + (many(a)[0, 0] < 0))


def twice(i, x):
    return x * 2


needs_n = {
    "x[n]": lambda n: x[n],
    "x[:n]": lambda n: x[:n],
    "jnp.zeros(n)": jnp.zeros,
    "x ** n": lambda n: x**n,
    "jax.random.randint(key, (), 0, n)": lambda n: jax.random.randint(key, (), 0, n),
    "jax.lax.cond(n > 2, ...)": lambda n: jax.lax.cond(n > 2, jnp.sin, jnp.cos, x),
    "jax.lax.fori_loop(0, n, ...)": lambda n: jax.lax.fori_loop(0, n, twice, x),
    "jax.device_put(n, device)": lambda n: jax.device_put(n, jax.devices()[-1]),
}
waited_for_n = {}
for text, use in needs_n.items():
    waits_for(use, three)  # compiles
    waited_for_n[text] = all(waits_for(use, three) for _ in range(3))
    print(f"{text:34}", "waits" if waited_for_n[text] else "does not wait")
assert [list(needs_n).index(text) for text, waits in waited_for_n.items() if waits] == [1, 2, 3, 6]

# %% [markdown]
"""
`x[n]` and `randint` take `n` as an input of their program. A slice, a size, an exponent and the
bounds of a `fori_loop` become a part of it, so they are read. (Inside `jit`, `fori_loop` and `**`
take a traced `n` and wait for nothing; the other two raise.) A `jit` does the same with an array
that its function closes over: the first call reads it. And a `device_put` of an array that is split
already, to other parts or to one device, reads it, too
([lesson 12](12-meshes-and-shardings.ipynb#read-a-sharding)).

And a queue has an end. How many steps can Python hand over before a call waits for room?
"""


# %% gpu=false
def spans_of(calls):
    spans, results = [], []
    for _ in range(calls):
        start = now()
        results.append(step(weights, batch))
        spans.append(now() - start)
    jax.block_until_ready(results)
    return np.array(spans) * 1000


spans = np.median([spans_of(40) for _ in range(5)], axis=0)
taken = int(np.argmax(spans > ready_ms / 2))  # the first that waited for a step
assert taken > 8
print(f"{taken} calls were taken, each in {spans[:taken].max():.2f} ms at most")
print(f"call {taken + 1} took {spans[taken]:.2f} ms")
many_programs = [waits_for(lambda w: jnp.histogram(w[0])) for _ in range(4)][1:]
print("jnp.histogram(w[0])", "waits" if all(many_programs) else "does not wait")
assert all(many_programs)

# %% [markdown]
"""
The first {{ taken }} calls return at once, and the next waits until a step is done: Python runs
ahead by so many, and no more. `jnp.histogram` outside `jit` is so many small programs that it fills
the queue alone. (That is the CPU's queue. Other devices may have another.)

### A read in a loop

Now put a read into a loop. A real loop also does work in Python: it loads the next batch. Here
`load` sleeps for as long as one step takes, as a slow disk would.
"""

# %%
import time

SECONDS = ready_ms / 1000
STEPS = 20


def load(i):
    time.sleep(SECONDS)
    return jax.device_put(batches[i % len(batches)])


def read_each(weights):
    losses = []
    for i in range(STEPS):
        weights, loss = step(weights, load(i))
        losses.append(float(loss))  # waits here, at every step
    return losses


def read_at_end(weights):
    losses = []
    for i in range(STEPS):
        weights, loss = step(weights, load(i))
        losses.append(loss)  # keeps the array; nobody waits
    return [float(loss) for loss in losses]


def seconds(loop):
    start = now()
    loop(weights)
    return now() - start


pairs = [(seconds(read_each), seconds(read_at_end)) for _ in range(5)]
slowdown = float(np.divide(*np.min(pairs, axis=0)))
assert slowdown > 1.1
assert read_each(weights) == read_at_end(weights)

print(f"read each step:  {min(each for each, _ in pairs) * 1000:5.0f} ms")
print(f"read at the end: {min(end for _, end in pairs) * 1000:5.0f} ms")
print(f"slowdown (shortest of {len(pairs)} runs each): {slowdown:.2f}x")

# %% [markdown]
"""
### What the device saw { #what-the-device-saw }

Where did the time go? A clock in Python cannot tell what the device did meanwhile. A
[device next door](../reference/device.md) can: it is a JAX device in a process of its own, with
memory, a queue and copies, and it writes every copy, step and read into a book. Counts and order in
that book are real; the speed is this computer's.

The cell holds a program as text: the two loops, with a simpler step. To run it yourself, save both
texts as `loops.py`, one below the other, and type the line that begins with `$`.

<quiz>
**Predict.** Each loop takes eight steps. What does the device see more of in `read_each` than in
`read_at_end`?
- [ ] Reads
> Both loops read eight losses. `read_at_end` reads them later.
- [ ] Steps
> A read launches nothing.
- [x] Nothing
> Right. To the device, both loops are the same work. What differs is when it is asked for.

</quiz>
"""

# %%
import _next_door

NETWORK = """
import time
import jax, jax.numpy as jnp, numpy as np

batches = np.random.default_rng(0).normal(size=(8, 768, 768)).astype(np.float32)
weights = jax.device_put(np.eye(768, dtype=np.float32))
seconds = 0

@jax.jit
def step(weights, batch):
    for _ in range(4):
        weights = jnp.tanh(weights @ batch)
    return weights, weights.mean()

def load(batch):
    time.sleep(seconds)  # a slow disk
    return jax.device_put(batch)

jax.block_until_ready(step(weights, load(batches[0])))  # compiles
began = time.perf_counter()
jax.block_until_ready(step(weights, load(batches[0])))
seconds = (time.perf_counter() - began) / 2  # a load takes half as long as a step
"""
LOOPS = """
def read_each(weights):
    losses = []
    for batch in batches:
        weights, loss = step(weights, load(batch))
        losses.append(float(loss))
    return losses

def read_at_end(weights):
    losses = []
    for batch in batches:
        weights, loss = step(weights, load(batch))
        losses.append(loss)
    return [float(loss) for loss in losses]

assert read_each(weights) == read_at_end(weights)
"""
seen = _next_door.run("loops.py", NETWORK + LOOPS, "--devices", "1", page=True)

# %% [markdown]
"""
This page adds up the whole program: the two loops, and before them three copies and two steps. (At
a terminal it ends with a timeline.) The book tells the loops apart:
"""

# %% alt="Two timelines of the device. Read each: gaps between the steps. Read at the end: no gaps."
import itertools


def before_the_last_step(loop):
    """How many reads were asked for before the last step was handed over."""
    return sum(read.asked < loop.steps[-1].asked for read in loop.reads)


def idle_ms(loop):
    """How long the device stood still between the steps."""
    pairs = itertools.pairwise(loop.steps)
    return sum(after.start - before.end for before, after in pairs) * 1000


if seen.book:
    each, at_end = _next_door.last_loops(seen.book, 2, steps=8)
    named = {"read_each": each, "read_at_end": at_end}
    _next_door.draw(named)
    for name, loop in named.items():
        counts = [f"{len(events)} {kind}" for kind, events in vars(loop).items()]
        print(f"{name:11}  {', '.join(counts)}; device idle for {idle_ms(loop):4.0f} ms")

    events = [line.event for line in seen.book]
    counted = [events.count(kind) for kind in _next_door.KINDS]
    assert counted == [3 + 2 * 8, 2 + 2 * 8, 2 * 8]
    early, late = map(before_the_last_step, named.values())
    assert (early, late) == (7, 0)
    for read, copy in zip(each.reads, each.copies[1:], strict=False):
        assert read.end <= copy.asked, "the device has nothing to do while Python loads"
    assert idle_ms(each) > 2 * idle_ms(at_end)

# %% [markdown]
"""
Both loops are the same copies, the same steps and the same reads. But `read_each` asked for
{{ early }} of its losses before it handed over the last step, and `read_at_end` for {{ late }}. In
the picture, each red part of `read_each` is Python doing nothing until the device is done. Each gap
in the green row is the device doing nothing until Python has loaded.

The device needs the same time in both loops, and so does `load`. The difference is whether they
run **at the same time**:

- with a read at each step: `load`, then the step, then `load` again: the times *add up*;
- without: while the device runs step 7, Python already loads batch 8. The longer of the two
  decides.

So a read is cheap in itself. What it costs is the work that could have run meanwhile. Set
`SECONDS = 0` and run the cells again: with nothing to overlap, little is lost.

!!! quote "Claim S2-32 (d2l-gpus): true with conditions"
    The document says that `.numpy()` in the loop forces a wait. JAX arrays have no `.numpy()`; the
    same is true of `np.asarray`, `float`, `print`, `if` and `w[w > 0]`, as the tables above show.
    It costs time only if there is other work to do while the device runs.

!!! quote "Claim S3-14 (dgx): true"
    The document counts too much waiting among the bottlenecks. The two loops above differ in one
    wait a step, and in nothing else.

## Read one step late { #read-one-step-late }

`read_at_end` has two faults. It shows nothing until the run is over, and it keeps one small
array alive for every step. With `float(loss)` it was one Python number. We want the loss while
we train, only not *now*.

The way out: start the copy to the host when the step is dispatched, and read it one step later.
By then it has arrived, or nearly.

<quiz>
**Predict.** The loop below calls `float` at every step, on the loss of the step *before*. Compared
with `read_at_end` it is
- [ ] about as slow as `read_each`: a read is a read
> A read waits only for *its* array. This array belongs to an older step.
- [x] about as fast as `read_at_end`
> Right. While it waits for step 6, the device already has step 7 to work on.
- [ ] twice as fast as `read_at_end`
> The device and `load` still set the pace, in both. What differs a little is noise.

</quiz>
"""


# %%
def read_late(weights):
    losses, before = [], None
    for i in range(STEPS):
        weights, loss = step(weights, load(i))
        loss.copy_to_host_async()  # starts the copy, does not wait
        if before is not None:
            losses.append(float(before))  # the step before this one
        before = loss
    losses.append(float(before))
    return losses


loops = [read_each, read_late, read_at_end]
rounds = np.array([[seconds(loop) for loop in loops] for _ in range(5)])
shortest = rounds.min(axis=0)
speedups = shortest[0] / shortest
_, late_speedup, end_speedup = speedups
assert late_speedup > 1.1
assert read_late(weights) == read_each(weights)

print("compared with read_each, shortest of", len(rounds), "runs each:")
print(f"  read_late    {late_speedup:.2f}x as fast")
print(f"  read_at_end  {end_speedup:.2f}x as fast")

# %% [markdown]
"""
Reading one step late is {{ late_speedup:.1f }} times as fast as reading at once, gives the same
losses, and holds two of them at most (four with jax 0.11). `copy_to_host_async` lets the number set
out for the host before Python asks. On a CPU it has no way to go. On a device next door it has:
"""

# %%
LATE = """
def read_late(weights, sets_out):
    losses, before = [], None
    for batch in batches:
        weights, loss = step(weights, load(batch))
        if sets_out:
            loss.copy_to_host_async()
        if before is not None:
            losses.append(float(before))
        before = loss
    return [*losses, float(before)]

assert read_late(weights, False) == read_late(weights, True)
"""
late_seen = _next_door.run("late.py", NETWORK + LATE, "--devices", "1")


def before_the_next_step(loop):
    """How many reads were asked for before the step after theirs was handed over."""
    later = loop.steps[1:]
    return sum(read.asked < step.asked for read, step in zip(loop.reads, later, strict=False))


if late_seen.book:
    loops_seen = _next_door.last_loops(late_seen.book, 2, steps=8)
    without, with_line = map(before_the_next_step, loops_seen)
    assert (without, with_line) == (0, 7)
    print("reads that set out before the next step was handed over, of 7:")
    print(f"  without the line: {without}")
    print(f"  with the line:    {with_line}")

# %% [markdown]
"""
Without the line, a read sets out when Python asks for the number, one step late. With it, the read
sets out as soon as there is a number. On an H200, fifty short steps took 2.83 ms without a read,
20.0 ms with a read at once, 16.4 ms with one a step late, and 8.88 ms with the line. Write it
everywhere: the grader counts a late read without it as a wait. <!-- gpu: G10 -->

If you need only a few losses, read every hundredth step. One wait in a hundred steps is small.
(ex07 asks for every loss, and for no wait at all.)

!!! quote "Claim S2-33 (d2l-gpus): true with conditions"
    The document says to put off all conversions to the end of the epoch. It works, and it hoards
    one device array a step. Reading one step late is as quick and hoards nothing.

## One copy for each batch { #one-copy-for-each-batch }

Reads go from the device to the host. What goes the other way? The weights are already on the
device: they are the result of the last step. Only the batch is new.

`jax.transfer_guard("disallow")` lets you see it: inside it, a copy that nobody asked for raises
an error. A `jax.device_put` is a copy that you asked for, so it passes.

<quiz>
**Predict.** `step` gets a NumPy batch directly, without `device_put`. What happens without a
guard?
- [ ] It fails: NumPy arrays are not on the device
> JAX accepts NumPy arrays and places them for you.
- [x] It works, and copies the batch on this call
> Right, and again on each call that gets it. (A CPU device may read NumPy's own memory in place of
> a copy. Then do not write to the array while the step still runs.)
- [ ] It works, and remembers the copy for the next call
> JAX keeps no copy of a NumPy array: you could have changed it since.

</quiz>
"""


# %%
def try_step(weights, batch):
    try:
        with jax.transfer_guard("disallow"):
            step(weights, batch)
    except jax.errors.JaxRuntimeError as error:
        array = str(error).partition("aval=")[2].partition(", dst")[0]
        return f"refused: {array}"
    return "no copy that was not asked for"


on_host = [np.asarray(w) for w in weights]
print("batch placed:        ", try_step(weights, jax.device_put(batches[0])))
print("NumPy batch:         ", try_step(weights, batches[0]))
print("NumPy weights:       ", try_step(on_host, jax.device_put(batches[0])))

batch_mib = batches[0].nbytes / 2**20
weights_mib = sum(w.nbytes for w in on_host) / 2**20
print(f"a batch is {batch_mib:.0f} MiB, the weights are {weights_mib:.0f} MiB")

# %% [markdown]
"""
A NumPy batch works, but you can't see the copy in the code. Weights left in NumPy cost
{{ weights_mib:.0f }} MiB on the way to a GPU **on every call**, and nothing warns you. If two
jitted functions get the same NumPy batch, it is copied twice: neither knows of the other's copy.
So: one `device_put` for each batch, on the line where it is loaded, and none for the weights after
the first. Keep the guard around the loop while you develop; it is the cheapest test there is. Have
it there from the first step: copies from the host it sees at every call, copies between devices
only at the
[first with these placements](02-arrays-live-somewhere.ipynb#a-free-array-is-copied-at-every-call).
<!-- gpu: G5 -->

And a `device_put` too many? Of an array that is there already, it copies nothing.
"""

# %%
placed = jax.device_put(batches[0])
again = jax.device_put(placed, placed.device)
same_buffer = placed.unsafe_buffer_pointer() == again.unsafe_buffer_pointer()
print("placed once more: the same memory:", same_buffer)

# %% [markdown]
"""
!!! quote "Claim S2-21 (d2l-gpus): true with conditions"
    The document says that `.to(device)` in the inner loop adds a round trip to the device. Of an
    array that is there, `device_put` copies nothing. Of a NumPy array it copies once on each
    call, one way.

!!! quote "Claim S2-24 (d2l-gpus): false"
    The document says that every batch must be on the device before the forward pass. In JAX it
    need not: the second case above fails only because the guard refuses it. Place the batch
    because you want to *see* the copy and choose when it starts.

## Your turn

!!! example "Exercise ex06: an honest timer"
    A timer counts what it should not, and stops before the work is done. The grader hands it
    programs whose costs are known, and a clock that counts nothing else. Start on the
    [page of ex06](../exercises/ex06_honest_timer.md).

    === "Failing"

        {{ capture: check ex06 starter }}

    === "Passing"

        {{ capture: check ex06 solution }}

!!! example "Exercise ex07: a loop that reports quietly"
    A training loop reports every loss and waits for every loss. Keep the report, remove the
    wait. The grader counts the reads that made your loop wait, names their lines, and times your
    loop beside a reference. Start on the [page of ex07](../exercises/ex07_quiet_loop.md).

    === "Failing"

        {{ capture: check ex07 starter }}

    === "Passing"

        {{ capture: check ex07 solution }}

!!! example "Exercise ex08: one copy at the boundary"
    A loop hands NumPy arrays to two jitted functions. Copy each batch once, the constants once, and
    nothing else. The grader counts the copies, and names what is copied too often. Start on the
    [page of ex08](../exercises/ex08_boundary_copy.md).

    === "Failing"

        {{ capture: check ex08 starter }}

    === "Passing"

        {{ capture: check ex08 solution }}

## Three questions

<quiz>
You time `y = f(x)` and get 0.1 ms for a large matrix product. What did you measure?
- [ ] A very fast device
- [x] The dispatch
- [ ] The copy of `x` to the device

`f` returned before the product was done. Call `y.block_until_ready()` before you stop the clock.
</quiz>

<quiz>
A loop ends each step with `if jnp.isnan(loss): break`. What does that do?
- [x] It waits for the device at every step
- [ ] Nothing, `isnan` runs on the device
- [ ] It copies the weights to the host

`isnan` does run on the device, but `if` needs its answer in Python. Test the loss of the step
before, or every hundredth step.
</quiz>

<quiz>
Your loop reads no loss, and each step takes a NumPy batch. How many copies to the device does a
step make that you can't see in the code?
- [ ] None
- [x] One, the batch
- [ ] One for each weight

JAX places the batch on each call. The weights come from the step before and stay where they are.
</quiz>

## Recap

- A call returns after the dispatch. An honest timer places, warms up, waits, and then measures.
- `float`, `print`, `if` and `np.asarray` wait. So do calls whose result has a shape that depends on
  values (`w[w > 0]`, `jnp.nonzero`, `jnp.unique`), and those that need a number in Python
  (`x[:n]`, `jnp.zeros(n)`, `fori_loop(0, n, ...)`). So does each call, when {{ taken }} are in the
  queue. What else this page tried does not: shape, type, `loss * 2`, `x[n]`, `device_put` of an
  array on one device.
- A wait costs what could have run meanwhile: here {{ slowdown:.1f }} times the time.
- Start the copy with `copy_to_host_async`, read one step late.
- `grader run train.py` shows your own loop as a device sees it.
- One `device_put` a batch; `transfer_guard("disallow")`, there from the first step, shows what you
  overlooked.

Next: [who decides where it runs](05-who-decides-where-it-runs.ipynb).
"""
