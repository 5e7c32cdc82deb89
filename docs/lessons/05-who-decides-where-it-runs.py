# %% [markdown]
"""
---
part: 2 Why is my code not using the GPU?
description: What decides where a line runs, and how to read the log of a broken machine.
---
# 05 Who decides where it runs?

After this lesson you can

- say on which device a line will run, before it runs;
- keep some work on the CPU of a GPU machine, and the rest off it;
- tell what `JAX_PLATFORMS` does to a program that you did not write;
- read the log of a broken machine, and not its most famous line. <!-- gpu: nothing claimed -->

**Why care.** Below, a model of {{ model_mib:.0f }} MiB lies on the accelerator. One batch of
{{ batch_kib:.0f }} KiB was put on the CPU. The whole call runs on the CPU, the model is copied
there each time, and nothing is said.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
In this lesson device 0 plays the CPU, and the last one plays the accelerator: it is made the
default device, as a GPU is on a GPU machine. The names `cpu` and `gpu` below mean these two. (On
a machine with GPUs they are the real ones.) <!-- gpu: nothing claimed -->
"""

# %%
import numpy as np

cpu, gpu = jax.devices("cpu")[0], jax.devices()[-1]
jax.config.update("jax_default_device", gpu)


def place(array):
    (device,) = array.devices()
    return ("cpu" if device == cpu else "gpu") + (", committed" if array.committed else "")


# %% [markdown]
"""
## New arrays follow the default { #new-arrays-follow-the-default }

An array that nobody places goes to the **default device**. That is true of `jnp.ones`, of random
numbers from a key that is free, of a NumPy array that a jitted function gets, if no committed array
is beside it. `jax.default_device(d)` is a context manager that changes it for a block.

<quiz>
**Predict.** `rows` is put on the CPU by `device_put`. Then
`rows + jax.random.normal(key, rows.shape)` is computed. The result is on the CPU. Where was the
noise made?
- [ ] On the CPU, beside `rows`
> `jax.random.normal` gets a key and a shape. It has never heard of `rows`.
- [x] On the default device, and then it was copied
> Right. The sum ran on the CPU, because `rows` is committed. The noise had to come over.

</quiz>
"""

# %%
numbers = np.random.default_rng(0).normal(size=(64, 1024)).astype(np.float32)
key = jax.random.key(0)

rows = jax.device_put(numbers, cpu)
noise = jax.random.normal(key, rows.shape)
print("rows        ", place(rows))
print("noise       ", place(noise))
print("rows + noise", place(rows + noise))

with jax.default_device(cpu):
    noise = jax.random.normal(jax.random.key(0), rows.shape)
    fresh = jnp.asarray(numbers)
print("inside `with jax.default_device(cpu)`:")
print("noise       ", place(noise))
print("jnp.asarray ", place(fresh))

# %% [markdown]
"""
So there are two ways to work on the CPU, and they reach different things. `device_put` reaches the
arrays that you have. `default_device` reaches those that are not made yet, in functions that you
did not write. To prepare data on the CPU you want the second, or both.

!!! quote "Claim S0-07 (haiku-gpu): false"
    The document says that arrays are not tied to a device until they are put there. Each line
    above has a device. What an array may lack is *commitment*.

!!! quote "Claim S0-08 (haiku-gpu): false"
    The document says that only `device_put` brings an array to the accelerator, and that it
    stays in CPU memory otherwise. The first noise above was made on the accelerator, and there
    was nothing to be told. It takes words to stay on the CPU.

A mistake that is as old as the document: to take the first device and test whether there is one.
"""

# %%
listed = jax.devices("cpu")  # what jax.devices() gives on a machine without a GPU
first = listed[0] if len(listed) > 0 else None
print("found one?", bool(first), "| a GPU?", first.platform == "gpu")

# %% [markdown]
"""
!!! quote "Claim S0-16 (haiku-gpu): false"
    The document picks "the first GPU" with `jax.devices()[0] if len(jax.devices()) > 0 else None`.
    The list is never empty: where there is no GPU, that line picks a CPU.

!!! quote "Claim S0-19 (haiku-gpu): false"
    So its `if gpu_device: ... else: print("No GPU device found.")` never prints. Ask for the
    platform: `device.platform == "gpu"`.

## Who wins { #who-wins }

Now several voices at once: a default for the process, a default for a block, arrays that are put
somewhere. Each case below is a call of one jitted function. Which voice does it follow?

<quiz>
**Predict.** Inside `with jax.default_device(gpu)`, a jitted model gets its parameters, which lie
on `gpu` and were not put there by hand, and a batch that was put on `cpu`. Where does it run?
- [ ] On `gpu`: there are more arrays, and the block says so
> Arrays have no majority vote. A block speaks for arrays that nobody has placed.
- [x] On `cpu`: the batch is committed
> Right. The parameters are copied to it, at each call.
- [ ] It raises: two devices
> It would, if the parameters were committed too.

</quiz>
"""


# %%
def at(number):  # device `number` of 8; on a machine with fewer, counted around
    return jax.devices()[number % jax.device_count()]


def free(number):
    with jax.default_device(at(number)):
        return jnp.ones(4)


def put(number):
    return jax.device_put(np.ones(4, np.float32), at(number))


@jax.jit
def total(*arrays):
    return sum(arrays)


#         text                        process  block  free  committed
CASES = [
    ("nothing said", None, None, [], []),
    ("default of the process", 5, None, [], []),
    ("default of a block", 5, 3, [], []),
    ("free arrays elsewhere", 5, 3, [1, 6], []),
    ("one committed array", 5, 3, [6], [1]),
    ("two committed arrays", 5, 3, [], [1, 6]),
]


def decide(process, block, loose, committed):
    jax.config.update("jax_default_device", None if process is None else at(process))
    arrays = [*map(free, loose), *map(put, committed), np.ones(4, np.float32)]
    with jax.default_device(None if block is None and process is None else at(block or process)):
        try:
            return total(*arrays).device.id
        except ValueError as error:
            return str(error).split(".")[0]


ran = [decide(*case[1:]) for case in CASES]
jax.config.update("jax_default_device", gpu)
for case, device in zip(CASES, ran, strict=True):
    print(f"{case[0]:24}", device if isinstance(device, str) else f"ran on device {device}")

# %% alt="Six cases, eight devices. Defaults and a committed array move the run, free ones do not."
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 3.1))
KINDS = {
    "process default": ("s", "none", "tab:blue", 190),
    "block default": ("D", "none", "tab:purple", 120),
    "free array": ("o", "none", "tab:green", 45),
    "committed array": ("o", "tab:green", "tab:green", 45),
    "ran here": ("x", "tab:red", None, 130),
}


def mark(kind, numbers, row):
    shape, face, edge, size = KINDS[kind]
    style = {"facecolors": face, "edgecolors": edge} if edge else {"color": face}
    devices = [n % jax.device_count() for n in numbers]
    axes.scatter(devices, [row] * len(devices), marker=shape, s=size, linewidths=1.6, **style)


for row, ((_, process, block, loose, committed), device) in enumerate(zip(CASES, ran, strict=True)):
    mark("process default", [] if process is None else [process], row)
    mark("block default", [] if block is None else [block], row)
    mark("free array", loose, row)
    mark("committed array", committed, row)
    if isinstance(device, int):
        mark("ran here", [device], row)
    else:
        axes.text(4, row, "ValueError", ha="center", va="center", color="tab:red")
for kind, (shape, face, edge, _) in KINDS.items():
    axes.plot([], [], shape, mfc=face, mec=edge or face, label=kind)
axes.set_yticks(range(len(CASES)), [case[0] for case in CASES])
axes.set_xticks(range(jax.device_count()))
axes.set_xlabel("device")
axes.set_ylim(len(CASES) - 0.4, -0.5)
axes.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.38, 1), fontsize=8, handletextpad=0.2)
plt.show()

# %% [markdown]
"""
Read the red crosses from top to bottom. Each row adds a voice, and it is heard if it is stronger:

1. nothing said: the default backend's first device;
2. `jax_default_device`, for the process;
3. `with jax.default_device(...)`, for a block;
4. free arrays have no voice. They are copied to where the block says;
5. a committed array beats every default, and free arrays are copied to it;
6. two committed devices: neither is stronger, and that is an error.

One more voice is not in the figure: what `jit` is told. `out_shardings` beats every default, and
must not contradict a committed array. `in_shardings` moves even committed arrays, if they are cut
in the same way.

The row "one committed array" is the one that surprises. Here is the case of the quiz, with a model
that weighs something.
"""

# %%
params = [jax.random.normal(jax.random.key(i), (1024, 1024)) / 32 for i in range(2)]


@jax.jit
def model(params, batch):
    for weights in params:
        batch = jnp.tanh(batch @ weights)
    return batch


batches = {
    "NumPy": numbers,
    "made on the CPU, free": fresh,
    "device_put(numbers, cpu)": jax.device_put(numbers, cpu),
    "jnp.from_dlpack(numbers)": jnp.from_dlpack(numbers),
}
print("params:", {place(weights) for weights in params})
for text, batch in batches.items():
    print(f"{text:26} -> {place(model(params, batch))}")

assert {model(params, batches[text]).devices() == {cpu} for text in list(batches)[2:]} == {True}
model_mib = sum(weights.nbytes for weights in params) / 2**20
batch_kib = numbers.nbytes / 2**10

# %% [markdown]
"""
The last line names no device, and still commits its array to the CPU: `from_dlpack` shares the
memory of the NumPy array, and that is the CPU's. Data loaders use it. A user of one found, on a
machine with a GPU, that all of their training ran on the CPU
([insitubatch #88](https://github.com/emfdavid/insitubatch/issues/88)). <!-- gpu: G4 -->

Three lines that look like a cure, and one that is:
"""

# %%
batch = jax.device_put(numbers, cpu)
with jax.default_device(gpu):
    print("default_device(gpu)    ", place(model(params, batch)))
print("jnp.asarray(batch)     ", place(model(params, jnp.asarray(batch))))
print("device_put(batch)      ", place(model(params, jax.device_put(batch))))
print("device_put(batch, gpu) ", place(model(params, jax.device_put(batch, gpu))))

# %% [markdown]
"""
`device_put` without a device leaves a committed array where it is. With one, it copies and
commits. And if you are not sure, ask the result: print `y.devices()` once, for the first batch.

!!! quote "Claim S0-03 (haiku-gpu): false"
    The document says that code runs on the CPU because somebody forgot `device_put`. Above it is
    the other way round: the one batch that was *put* took the model to the CPU.

!!! quote "Claim S0-09 (haiku-gpu): false"
    The document says that without `device_put` even a jitted function stays on the CPU. A jitted
    function runs where the committed arrays are that it uses, and where there are none, where its
    `out_shardings` say, or on the default device.
    ([Lesson 03](03-models-and-their-state.ipynb#jit-looks-at-what-is-used) has the case of arrays
    that it is given and does not use.)

## Before the program starts { #before-the-program-starts }

Who chooses the default device, if nobody says anything? Each **backend** has a priority. The CUDA
plugin registers itself with 500, the CPU has 0, and the highest that starts wins. The environment
variable `JAX_PLATFORMS` replaces that choice: a list of the backends that may start, the first
being the default. <!-- gpu: S0-02 -->

<quiz>
**Predict.** On a machine whose NVIDIA GPU works, `JAX_PLATFORMS=gpu` is set. What does
`jax.devices()` do?
- [ ] It lists the GPUs
> That is what the variable's name promises.
- [x] It raises
> Right, see below: `gpu` is short for three backends, and *all* must be there.

</quiz>

A fresh process tries one value after the other. This page is built without a GPU, so a stand-in
takes its place: a made-up plugin calls itself `cuda`, and hands out the CPU. Everything else is
JAX's own. <!-- gpu: nothing claimed -->
"""

# %% gpu=false
import os
import subprocess
import sys
import tempfile
from pathlib import Path

START = """
from unittest import mock
import jax
from jax.extend import backend
# What JAX sees when it looks for device nodes, and for plugins: only those of this page.
mock.patch("jax._src.hardware_utils.has_visible_nvidia_gpu", return_value=True).start()
mock.patch("importlib.metadata.entry_points", return_value=[]).start()
"""
PLATFORMS = """
from jaxlib import xla_client
backend.register_backend_factory("cuda", xla_client.make_cpu_client, priority=500)
for value in ["", "cpu", "cuda", "cuda,cpu", "cpu,cuda", "gpu", "CUDA", "cuda, cpu"]:
    backend.clear_backends()
    jax.config.update("jax_platforms", value)
    try:
        jax.devices()
        print(f"{value!r:12} started: {', '.join(backend.backends())}")
    except Exception as error:
        print(f"{value!r:12} {type(error).__name__}: {error}")
"""


def fresh_process(program, plugin=""):
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "jax_plugins"
        package.mkdir()
        (package / "__init__.py").touch()
        if plugin:
            (package / "xla_cuda13.py").write_text(plugin)
        return subprocess.run(
            [sys.executable, "-c", START + program],
            env={k: v for k, v in os.environ.items() if "JAX" not in k} | {"PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=True,
        )


table = fresh_process(PLATFORMS).stdout
for line in table.splitlines():
    print(line.split(": [")[0].replace("Unable to initialize backend", "no"))

# %% [markdown]
"""
What to keep of the table:

- `cpu,cuda` starts both. The first is the default, so new arrays go to the CPU.
- With `cuda` alone there is no CPU backend: `jax.devices("cpu")` raises. Write `cuda,cpu`. It has
  another merit: while a GPU is in sight and CUDA does not start, every question for a device
  raises, and not only the
  [first](01-what-hardware-do-i-have.ipynb#a-broken-plugin-is-not-zero-gpus). Where no GPU is in
  sight, JAX leaves `cuda` out of that list, and says nothing.
- `gpu` stands for cuda, rocm and oneapi, and all of them must be there
  ([jax #25315](https://github.com/jax-ml/jax/issues/25315)).
- Names are in lower case, and a space after the comma belongs to the name.
  <!-- gpu: source: jax/_src/xla_bridge.py, backends -->

!!! quote "Claim S0-06 (haiku-gpu): true with conditions"
    The document says: if `jax.devices()` shows only CPUs, the cause lies outside your code. Mostly.
    `JAX_PLATFORMS=cpu` in a shell profile is outside; `jax.config.update("jax_platforms", ...)` in
    a module that you import is not. And the list is never empty: without a backend, JAX raises.

## Reading a broken machine { #reading-a-broken-machine }

Code can miss its GPU and have not one wrong line: the machine is broken, and the log says how.
Two machines, both with a GPU in sight. On the first, no CUDA plugin is installed. On the second
one is, and it cannot load a library. <!-- gpu: S0-01 -->

<quiz>
**Predict.** Which of the two prints "An NVIDIA GPU may be present on this machine, but a
CUDA-enabled jaxlib is not installed. Falling back to cpu."?
- [ ] The first: there the plugin is not installed
> It does. So does the other.
- [x] Both
> Right. JAX knows that a GPU is in sight and that no CUDA backend runs. It does not know why.

</quiz>
"""

# %% gpu=false
from concurrent.futures import ThreadPoolExecutor

PLUGIN = """
def initialize():
    try:
        raise OSError("libcudnn.so.9: cannot open shared object file")
    except OSError as error:
        raise RuntimeError("Unable to load cuDNN. Is it installed?") from error
"""
with ThreadPoolExecutor() as pool:
    runs = pool.map(lambda plugin: fresh_process("jax.devices()", plugin), ["", PLUGIN])
    logs = [run.stderr.splitlines() for run in runs]


def without_noise(line):  # the time of day, and the line of JAX's own code
    return line.partition("xla_bridge:")[2].partition(": ")[2] or line


for name, log in zip(("no plugin", "plugin that fails"), logs, strict=True):
    print(f"--- {name}")
    shown = [without_noise(line) for line in log if 'File "' not in line]
    print("\n".join(line for line in shown if line[:4].strip()))

last_lines_agree = len({without_noise(log[-1]) for log in logs}) == 1
line_count = len(logs[1]) - 1
assert last_lines_agree

# %% [markdown]
"""
The last lines are the same, word for word. The cause of the second is one of the other
{{ line_count }} lines, above: `Unable to load cuDNN`. If you search the web for the last line, you
find the advice for the first machine, and install a plugin that is there
([jax #29068](https://github.com/jax-ml/jax/issues/29068)).

How to read such a log:

1. **Versions.** Is a plugin listed? Are `jax`, `jaxlib` and the plugin of one version?
2. **The first error from the top**, and of a traceback its last line. What comes after is mostly
   consequence.
3. **Variables.** `JAX_PLATFORMS`, `CUDA_VISIBLE_DEVICES`, `LD_LIBRARY_PATH`, `XLA_FLAGS`.
4. **Silence.** A plugin is listed, the backend is `cpu`, nothing is printed, no variable asks for
   it: JAX looked for `/dev/nvidia0`, `/dev/nvidiactl` and `/dev/dxg` (that of WSL), found none of
   them, and did not try. So it goes in a container that was started without the GPU.
   <!-- gpu: source: jax/_src/hardware_utils.py -->

Texts worth knowing. Each was seen on a machine broken on purpose, with the CUDA plugin installed;
this page's build has none. Texts vary with the version of JAX: look for their middle, not for the
whole line. <!-- gpu: source: the logs of such machines -->

| the log says | what is so |
|---|---|
| `Unable to load cuDNN. Is it installed?` (cuFFT, cuPTI, cuSPARSE) | it is missing |
| the same of any library, and `LD_LIBRARY_PATH` is set | another library is found first |
| `cuInit ... Unknown CUDA error 303`, or `UNKNOWN ERROR (303)` | no `libcuda`: no driver |
| `cuInit ... CUDA_ERROR_NO_DEVICE` | a driver that sees no GPU: `CUDA_VISIBLE_DEVICES` |
| `No visible GPU devices` | no GPU to connect to; the plugin's own check passed or was skipped |
| `JAX plugin ... is not compatible with the installed jaxlib` | parts of it stay unused |
| `PJRT_Api already exists for device type cuda` | plugins for CUDA 12 and 13 are installed |
| `jaxlib ... this version of jax requires ...` | one of the two was updated alone |
| `jaxlib ... is newer than and incompatible with jax ...` | the same |
| `Backend 'cuda' is not in the list of known backends` | no plugin, or it failed before |
| `AssertionError`, with `JAX_PLATFORMS=cuda` | no device node |
| `Unknown flag in XLA_FLAGS`, or `flags` | a misspelt flag; the process dies <!-- gpu: S0-01 --> |

With two versions of plugin and jaxlib the GPU is listed all the same, and some functions fail later
([recovar #64](https://github.com/ma-gilles/recovar/issues/64)). <!-- gpu: source: recovar #64 -->

`grader doctor` prints versions, backend, targets (machines that it can compile for), log and
variables of your machine, in that order.

!!! quote "Claim S0-04 (haiku-gpu): false"
    The document says that a GPU and its driver are not enough: the code must tell JAX to use it.
    The code need not. What is needed besides is the plugin, and it comes with
    `pip install "jax[cuda13]"`.

!!! quote "Claim S0-05 (haiku-gpu): true with conditions"
    The document checks with `jax.devices()`. It lists the default backend alone, so the CPU is
    absent on a GPU machine, and it starts the backend as it asks. `jax.default_backend()` says
    the same in a word; `jax.print_environment_info()` is what a bug report wants.

## Your turn

!!! example "Exercise ex09: stay on the CPU"
    The accelerator is the default. Prepare a batch on the CPU, without one array that strays,
    and run the model on the accelerator, even with a batch that is committed to the CPU. Start
    on the [page of ex09](../exercises/ex09_stay_on_cpu.md).

    === "Failing"

        {{ capture: check ex09 starter }}

    === "Passing"

        {{ capture: check ex09 solution }}

!!! example "Exercise ex10: diagnose"
    Write the function that reads a report and names the cause and the remedy. The grader makes
    new reports each time, most of them by JAX's own code on a staged machine. Start on the
    [page of ex10](../exercises/ex10_diagnose.md).

    === "Failing"

        {{ capture: check ex10 starter }}

    === "Passing"

        {{ capture: check ex10 solution }}

## Three questions

<quiz>
All parameters are on the GPU, the default device. A jitted step gets them and a batch made by
`jnp.from_dlpack(numpy_array)`. Where does the step run?
- [ ] On the GPU, where most arrays are
- [x] On the CPU
- [ ] It raises

The batch is committed to the CPU, the parameters to nothing. Put the batch on the GPU.
</quiz>

<quiz>
A library calls `jnp.zeros` and `jax.random.normal` inside. How do you make it work on the CPU,
once, without changing it?
- [ ] `device_put` of its inputs
- [x] `with jax.default_device(cpu):` around the call
- [ ] `JAX_PLATFORMS=cpu`

The inputs alone don't reach what it makes itself. The variable reaches everything, and for good.
</quiz>

<quiz>
The last line of a log says that a CUDA-enabled jaxlib is not installed. `pip list` shows
`jax-cuda13-plugin`. What do you do?
- [ ] Install it again
- [x] Read upwards
- [ ] Set `JAX_PLATFORMS=cuda`

The line follows any plugin that fails to load, and why stands above it. (One that loads and cannot
connect raises instead.)
</quiz>

## Recap

- Default backend, default of the process, default of a block, committed arrays: each beats the one
  before. `jit` may be told a place, too.
- New arrays follow the default, also beside a committed one.
- A committed batch takes the model along: {{ model_mib:.0f }} MiB for {{ batch_kib:.0f }} KiB.
- `JAX_PLATFORMS=cuda,cpu`, in lower case, without spaces, and never `gpu`.
- The famous line is the last consequence: its cause stands above it, or there is no plugin. Where
  nothing is printed, look at the variables, and for a device node.

Next: [when the GPU pays](06-when-the-gpu-pays.ipynb).
"""
