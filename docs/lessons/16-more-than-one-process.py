# %% [markdown]
"""
---
part: 4 Many GPUs
description: Several processes as one - joining, one array of many parts, who waits for whom.
---
# 16 More than one process

After this lesson you can

- say when one process is enough;
- join processes to one program, and see whether it worked;
- make one array of the rows that each process has read for itself;
- read a result, and know what a process cannot read;
- recognise processes that wait for each other, and name the cause.

**Why care.** Two processes run the same script, each on half of the rows. One line is missing, and
each of them finishes, without an error, with a mean of its own: {{ alone_0:.2f }} and
{{ alone_1:.2f }}. The mean of all rows is {{ together:.2f }}.

!!! note "One machine with eight GPUs needs one process"
    One JAX process drives all GPUs of its machine; [lesson 12](12-meshes-and-shardings.ipynb) is
    all it takes. A second process is for a second *machine*: two DGX, say, with eight GPUs each.
    Here both processes run on this computer, two simulated CPU devices each, and talk over its
    loopback, through a library called Gloo. Between GPUs it is NCCL, which this page does not show.
    <!-- gpu: source: JAX docs, multi-process programs -->

## Join first { #join-first }

The cells below hold a program as text and run it twice, in two processes. Each knows its `index`,
the `count` of all, and an `address` to meet at. `_processes.run` starts both and prints what
they say side by side.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
These devices belong to this one process. Below, other processes bring their own.
"""

# %%
import _processes

READ = """
import jax, numpy as np

rows = np.arange(8, dtype=np.float32).reshape(4, 2) + 100 * index   # its part of the data
"""

alone = _processes.run(
    READ
    + """
print("process", jax.process_index(), "of", jax.process_count())
print("devices", [d.id for d in jax.devices()])
print("mean", jax.numpy.mean(rows))
"""
)

# %% [markdown]
"""
Both say that they are process 0 of 1. Nobody told them of each other, and nothing is wrong with
either: a process that never joined has the whole of JAX for itself.

<quiz>
**Predict.** `jax.distributed.initialize(address, count, index)` is put in, right before the first
`print`. What does `jax.devices()` give in each process?
- [ ] Two devices, its own
> Its own are `jax.local_devices()`.
- [x] Four devices, the same list in both
> Right. That is what joining is for: one program, whose mesh may span all of them.
- [ ] An error: JAX was imported already
> Importing starts nothing. The first use of a device does.

</quiz>
"""

# %%
JOIN = READ + "jax.distributed.initialize(address, count, index)\n"

joined = _processes.run(
    JOIN
    + """
print("process", jax.process_index(), "of", jax.process_count())
print("all devices ", [d.id for d in jax.devices()])
print("mine        ", [d.id for d in jax.local_devices()])

mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
split = jax.NamedSharding(mesh, jax.P("data"))
batch = jax.make_array_from_process_local_data(split, rows)
print("shape", batch.shape, "all here:", batch.is_fully_addressable)
for shard in batch.addressable_shards:
    rows_here = shard.index[0]
    print("device", shard.device.id, "rows", rows_here.start, rows_here.stop)

print("mean", float(batch.mean()))
try:
    np.asarray(batch)
except RuntimeError as error:
    print("asarray:", str(error).partition(" is not possible")[0])
"""
)

# %% [markdown]
"""
The large ids are those of process 1: on CPUs, a wide range is kept for each process.

Joining has three parts, and each can go wrong:

- **before anything else.** The first use of a device starts a backend, and it is too late.
  `jax.devices()`, `jax.process_count()` and every array do;
- **the same count** in all. A process that expects more waits for them;
- **an index of its own**, from 0. Process 0 also keeps the meeting place.

You say them yourself: let `train.py` read its index and the address from `sys.argv`, and join with
`initialize(address, 2, index)`. Then, on two machines:

```console
first$ hostname -I                          # say it prints 10.0.0.1; the port is any free one
first$ python train.py 0 10.0.0.1:1234
second$ python train.py 1 10.0.0.1:1234
```

## What Slurm does not say { #what-slurm-does-not-say }

On a cluster with a scheduler that JAX knows, such as Slurm, `initialize()` finds address, count and
index by itself. It finds a fourth thing, too.

<quiz>
**Predict.** Two nodes with eight GPUs each, and `srun --ntasks-per-node=1 python train.py`: one
process a node. It calls `jax.distributed.initialize()` without arguments. How many GPUs does it use
in all?
- [ ] Sixteen: each process drives the GPUs of its node
> So it would, if nobody had restricted it.
- [x] Two
> Right. JAX takes it that Slurm starts one task for each GPU. Task 0 of a node gets GPU 0, and the
> other seven have nothing to do.
- [ ] It raises: sixteen processes are missing
> Slurm says that there are two processes, and two are there.

</quiz>

Slurm tells its tasks where they are by variables. Here they are set as on two such nodes, and JAX's
own log says which GPUs a process may use. (The address is given, since both nodes are this
computer.) <!-- gpu: source: JAX's own log, in this page's run -->
"""

# %%
SLURM = """
import logging, os, sys
os.environ |= {
    "SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_NTASKS": str(count),
    "SLURM_STEP_NUM_NODES": str(count), "SLURM_PROCID": str(index), "SLURM_LOCALID": "0",
}
import jax
log = logging.getLogger("jax._src.distributed")
log.setLevel(logging.INFO)
log.propagate = False
log.addFilter(lambda record: "visible" in record.msg)
log.addHandler(logging.StreamHandler(sys.stdout))
jax.distributed.initialize(address{more})
print("process", jax.process_index(), "of", jax.process_count())
"""
one_a_node = _processes.run(SLURM.replace("{more}", ""))
print()
all_of_node = _processes.run(SLURM.replace("{more}", ", local_device_ids=range(8)"))
assert all("visible devices: 0 process" in lines for lines in map(" ".join, one_a_node))
assert all("visible devices: 0,1,2,3,4,5,6,7" in lines for lines in map(" ".join, all_of_node))

# %% [markdown]
"""
The first job trains, with one GPU of eight on each node, and nothing is said above the level of
INFO. There are two cures, and one test: <!-- gpu: source: JAX's own log, in this page's run -->

- one process a node: `jax.distributed.initialize(local_device_ids=range(8))`;
- or one task for each GPU: `srun --ntasks-per-node=8`, which is what JAX expects;
- and in both, after joining: `assert jax.device_count() == 16`, the number of GPUs that you pay
  for. (The CPU devices of this page are not restricted: that needs GPUs to be seen.)
  <!-- gpu: source: JAX's own log, in this page's run -->

!!! quote "Claim S1-19 (gpu-memory): true with conditions"
    The document says that JAX is made for distributed computing. It is, for those who ask: without
    `initialize`, two processes are two programs, as the first run shows.

## One array from local rows { #one-array-from-local-rows }

Each process read 4 rows, and `batch` has 8. `make_array_from_process_local_data` puts the rows of
a process onto the devices of that process. The *shape* of the whole is worked out; no row is sent.
"""

# %% alt="One column of eight rows in four blocks. The upper two lie on process 0, the lower on 1."
import re

import matplotlib.pyplot as plt

_, axes = plt.subplots(figsize=(5, 2.4))
for index, (lines, hatch) in enumerate(zip(joined, ["", "///"], strict=True)):
    for line in lines:
        if found := re.match(r"device (\d+) rows (\d+) (\d+)", line):
            device, top, bottom = map(int, found.groups())
            style = {"facecolor": ["#4477aa", "#ee6677"][index], "alpha": 0.35}
            axes.add_patch(plt.Rectangle((0, top), 2, bottom - top, **style))
            style = {"fill": False, "edgecolor": "#808182", "hatch": hatch}
            axes.add_patch(plt.Rectangle((0, top), 2, bottom - top, **style))
            words = f"process {index}, device {device}: rows {top} to {bottom - 1}"
            axes.text(2.1, (top + bottom) / 2, words, va="center")
axes.set(xlim=(0, 5), ylim=(8.1, -0.1), xticks=[], yticks=[])
axes.spines[:].set_visible(False)
plt.show()

# %% [markdown]
"""
The colours are the processes. Neither holds the array; each holds a half, and `addressable_shards`
lists that half. `np.asarray` of the whole is refused, for the rest lies in the memory of another
process.

What does *not* work is `jax.device_put(rows, split)`: it wants the same whole array in every
process, and these are different rows. JAX compares, and raises.

## Everybody or nobody { #everybody-or-nobody }

`batch.mean()` is a program over four devices, in two processes. It runs when *both* have called
it. Its result is a single number, copied to every device, so each process can read its copy.

<quiz>
**Predict.** To print the mean only once, somebody writes `if jax.process_index() == 0:` before
`print(batch.mean())`. What happens?
- [ ] It is printed once
> The `print` would be. But the mean inside it is a program of all.
- [ ] Process 0 prints the mean of its own rows
> `batch` is the array of all rows. Process 0 can't do it alone.
- [x] Process 0 waits, until a timeout ends the job
> Right. It waits for process 1 to run the same program, which it never does.

</quiz>

Both cases at once: an early `if`, and a `count` that is too high. Here a process that has said
nothing for two seconds is killed. JAX itself is more patient: by its source, a join waits for five
minutes.
"""

# %%
BATCH = """
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
batch = jax.make_array_from_process_local_data(jax.NamedSharding(mesh, jax.P("data")), rows)
"""
early_if = _processes.start(
    JOIN
    + BATCH
    + """
print("joined")
if jax.process_index() == 0:
    print("the mean is", batch.mean())
print("done")
"""
)
too_many = _processes.start(
    READ
    + """
print("joining", count + 1)
jax.distributed.initialize(address, count + 1, index)
print("joined")
"""
)
waits_if, waits_many = early_if.finish(patience=2), too_many.finish(patience=2)
print("an early if:\n")
_processes.show(waits_if)
print("\na count that is too high:\n")
_processes.show(waits_many)

# %% [markdown]
"""
In the first case process 0 has begun to print: `batch.mean()` came back at once, as most calls
do, and the wait is where the number is needed. Process 1 is `done` and waits, too: a process
that ends says goodbye to the others first. In the second case both wait for a third one.

For a long time there is no error in either. Then a timeout raises, or ends both processes: left
alone, the first case stood still for half a minute here, and the second for five, and the errors
say what timed out, not why. So a job that stands still, with idle devices, means: *somebody is not
where the others are*. Look at where each process stands, not at one of them.

So: compute in all processes, and choose afterwards who prints.

```python
mean = float(batch.mean())  # everybody
if jax.process_index() == 0:  # one
    print(mean)
```
"""


# %%
def number(lines, start):
    return next(float(line.split()[-1]) for line in lines if line.startswith(start))


alone_0, alone_1 = (number(lines, "mean") for lines in alone)
together, also = (number(lines, "mean") for lines in joined)
print("apart:", alone_0, "and", alone_1, "| together:", together, "and", also)
assert together == also
assert _processes.KILLED in waits_if[0]
assert all(_processes.KILLED in lines for lines in waits_many)

# %% [markdown]
"""
## Your turn

!!! example "Exercise ex29: two processes, one array"
    Join the processes, make one array of what each has read, and a mean over all of it. The
    grader starts your file twice, for real. Start on the
    [page of ex29](../exercises/ex29_two_processes.md).

    === "Failing"

        {{ capture: check ex29 starter }}

    === "Passing"

        {{ capture: check ex29 solution }}

## Three questions

<quiz>
A script for two machines trains on each of them, and the losses differ from the first step.
`jax.process_count()` is 1 on both. What is missing?
- [ ] A `pmean` of the gradients
- [x] `jax.distributed.initialize`, before anything else
- [ ] A faster network

Each process is alone, and trains a model of its own.
</quiz>

<quiz>
`RuntimeError: Fetching value for jax.Array that spans non-addressable devices`. What do you do?
- [ ] Move the array to the CPU first
- [x] Compute what you want to know in a jitted program of all processes, and read that
- [ ] Read it in process 0, which holds everything

Nobody holds everything. A small result is copied to all; `addressable_shards` is your own part.
</quiz>

<quiz>
Two machines with eight GPUs each. How many processes?
- [ ] One
- [x] Two
- [ ] Sixteen

One for each machine; a process can drive all GPUs of its own. Under Slurm say so, with
`local_device_ids=range(8)`, or start sixteen: its tasks get one GPU each.
</quiz>

## Recap

- One process drives one machine. More processes become one program by `jax.distributed.initialize`,
  before the first use of a device. Under Slurm it takes one GPU for each task: count the devices.
- `make_array_from_process_local_data` makes one array of what each has; no row travels.
- A program over all devices runs when all processes call it. An early `if` makes the others wait.
- The mean was {{ alone_0:.2f }} and {{ alone_1:.2f }} apart, {{ together:.2f }} together.
  <!-- gpu: source: JAX's own log, in this page's run -->

Next: [measure before you tune](17-measure-before-you-tune.ipynb).
"""
