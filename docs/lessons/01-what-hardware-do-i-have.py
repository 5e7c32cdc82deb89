# %% [markdown]
"""
---
part: 1 Working on GPUs
description: Ask JAX for devices, and tell a machine without a GPU from one whose GPU is broken.
---
# 01 What hardware do I have?

After this lesson you can

- say which devices JAX found, and which one it will use;
- count GPUs without an error where there is none;
- tell "there is no GPU" from "there is one, and it does not work". <!-- gpu: nothing claimed -->

**Why care.** Below, the driver of a made-up accelerator is broken. A program asks JAX
{{ asked }} times for its devices. JAX reports the fault {{ told }} time. Miss that message, and you
train on the CPU and never learn why.
"""

# %%
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)  # simulates 8, if there is no GPU
print(jax.device_count(), "x", jax.devices()[0].device_kind)

# %% [markdown]
"""
All lessons start with this cell. JAX can present one CPU as eight devices. They are real devices
to JAX: arrays lie on one of them, copies go between them. Only their speed says nothing of a GPU:
they share the cores and the memory of one machine. <!-- gpu: nothing claimed -->

## Count what is there { #count-what-is-there }

A **backend** is JAX's connection to one kind of hardware: `cpu`, `gpu`, `tpu`. A **device** is
one unit behind it. JAX may have several backends, and takes one as its default.
"""

# %%
print("default backend:", jax.default_backend())
for device in jax.devices()[:3]:
    print(repr(device), "| text:", device, "| platform:", device.platform)
print("...", len(jax.devices()), "in all")

# %% [markdown]
"""
`jax.devices()` lists the devices of the **default** backend only. On a machine with a GPU it
shows the GPUs, and `jax.devices("cpu")` shows the CPU. The list is never empty: where JAX has no
backend that it may use, it raises, an `AssertionError` without a text included.
<!-- gpu: G15 -->

<quiz>
**Predict.** This page was built without a GPU. What does `jax.devices("gpu")` do there?
- [ ] It returns `[]`
> That is what one would like. JAX treats it as an error to ask for a backend that is not there.
- [ ] It returns the CPU devices
> JAX does not put another backend in the place of the one that you name.
- [x] It raises a `RuntimeError`
> Right.

</quiz>
"""


# %%
from textwrap import shorten


def answer(question):
    try:
        return str(question())
    except RuntimeError as error:
        return shorten(f"RuntimeError: {error}", 79, placeholder=" ...")


print('jax.devices("gpu")')
print("   ", answer(lambda: jax.devices("gpu")))
print('[d for d in jax.devices() if d.platform == "gpu"]')
print("   ", answer(lambda: [d for d in jax.devices() if d.platform == "gpu"]))

# %% [markdown]
"""
The second line needs no `try`. It asks a question that has an answer on every machine: which of
my devices are GPUs? It has a limit: it looks at the default backend only. The first line finds
GPUs behind any backend, and you must say what to do when it raises. <!-- gpu: nothing claimed -->

One more trap: `jax.devices("gpu")[i]` is the i-th of a list, so `i = -1` is a valid index. A helper
`try_gpu(-1)` that only tests `i < count` returns the last GPU. <!-- gpu: S2-13 -->

!!! quote "Claim S2-14 (d2l-gpus): false"
    The document has a helper `try_all_gpus`, whose docstring promises `[cpu()]` where there is no
    GPU. Its code builds a list over the GPUs: no GPU, empty list. The next line that takes
    `devices[0]` then fails, far from the cause.

## New arrays go to the default device { #new-arrays-go-to-the-default-device }

Do you have to *send* work to a GPU? Let device 5 stand for the GPU and make it the default.
<!-- gpu: nothing claimed -->

<quiz>
**Predict.** Device 5 is the default inside a `with` block. No line says `device_put`. Where does
`x @ x` run, inside the block and after it?
- [ ] On the CPU (device 0) both times, until something is sent
> There is no such first stop.
- [ ] On device 5 both times: `x` lies there
> `x` lies there because nobody said otherwise. That binds nobody to compute there.
- [x] On device 5 inside the block, on device 0 after it
> Right. Nobody has *put* `x` anywhere, so each call runs on what is the default at that moment.

</quiz>
"""

# %%
with jax.default_device(jax.devices()[5 % jax.device_count()]):
    x = jnp.ones((64, 64))
    print("x lives on             ", x.device)
    print("x @ x in the block     ", (x @ x).device)
print("x @ x after the block  ", (x @ x).device)

# %% [markdown]
"""
New arrays are made on the default device, and what is computed from them runs on the default
device, too. [Lesson 02](02-arrays-live-somewhere.ipynb) shows how to bind an array to its place.
Where a GPU and its plugin work, the GPU *is* the default. Run this lesson's file there and see.
<!-- gpu: S0-02 -->

!!! quote "Claim S0-02 (haiku-gpu): false"
    The document says that JAX needs explicit directives to use a GPU. The cell above gives no
    directive to any array. If your code runs on the CPU of a GPU machine, look at the
    installation first, as in the next section.


## A broken plugin is not zero GPUs { #a-broken-plugin-is-not-zero-gpus }

JAX reaches a GPU through a **plugin**, a separate package. A plugin has two steps that can fail:
<!-- gpu: source: JAX docs, installation -->

1. `initialize()` loads libraries and registers the backend;
2. the backend connects to the driver, when somebody first asks for a device.

We write a plugin of our own that fails in one step or the other, and ask for devices several
times in a fresh process.
"""

# %%
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PLUGIN = """
from jax.extend import backend
def connect():
    raise RuntimeError("the driver is too old")
def initialize():
    {first_step}
    backend.register_backend_factory(
        "made_up", connect, priority=500, fail_quietly=False)
"""
PROGRAM = """
import textwrap, jax
def show(text, question):
    try:
        print(text, "->", question())
    except RuntimeError as error:
        print(text, "-> RuntimeError:", textwrap.shorten(str(error), 66, placeholder=" ..."))
show("devices()     ", jax.devices)
show("devices()     ", jax.devices)
show("devices('gpu')", lambda: jax.devices("gpu"))
"""


def staged(first_step, program=PROGRAM, check=True, **variables):
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "jax_plugins" / "made_up" / "__init__.py"
        plugin.parent.mkdir(parents=True)
        plugin.write_text(PLUGIN.format(first_step=first_step))
        kept = {k: text for k, text in os.environ.items() if "JAX" not in k}
        return subprocess.run(
            [sys.executable, "-c", program],
            env=kept | {"PYTHONPATH": folder} | variables,
            capture_output=True,
            text=True,
            check=check,
        )


# %% [markdown]
"""
<quiz>
**Predict.** The plugin fails in its **first** step, `initialize()`. The program asks for devices.
What does it get?
- [ ] The plugin's error
> It would be better. JAX catches what `initialize()` raises.
- [x] The CPU, and a message in the log
> Right. The log goes to stderr. Jobs that keep only stdout lose it.
- [ ] An empty list
> The CPU is always there.

</quiz>
"""

# %% gpu=false
loading = staged('raise RuntimeError("Unable to load a library")')
print(loading.stdout)
for line in loading.stderr.splitlines():
    if line.endswith(("made_up.initialize()", "Error: Unable to load a library")):
        print("stderr:", line)

# %% [markdown]
"""
The program runs, on the CPU. A program that looks only at `devices('gpu')` sees the same error
as on a machine without any GPU. The one difference is in the log. <!-- gpu: S0-01 -->

Now the second step fails: the library is fine, the driver is not.
"""

# %% gpu=false
connecting = staged("pass")
print(connecting.stdout)
asked = len(connecting.stdout.splitlines())
told = connecting.stdout.count("driver")
assert told == 1 < asked

# %% gpu=false
PLACES_NOTHING = "import jax.numpy as jnp; print('on', (jnp.ones(3) * 2).device)"
for name, first_step in {"first": 'raise RuntimeError("no library")', "second": "pass"}.items():
    ended = staged(first_step, program=PLACES_NOTHING, check=False)
    errors = [x for x in ended.stderr.splitlines() if x.startswith("RuntimeError: Unable")]
    print(f"the {name} step fails: {(ended.stdout.strip() or errors[0])[:66]}")
    assert (ended.returncode == 0) == (name == "first")

# %% [markdown]
"""
Read the lines again. The **first** question gets the fault. JAX then keeps what it has, and the
same question gets the CPU, as if nothing had happened. `devices('gpu')` says that no such
backend is known.

The last two lines are of a program that asks nothing, and computes. If the first step fails, it
runs on the CPU. If the second fails, its first array raises, and it stops: that is the better
fault to have. In a notebook the next cell runs, on the CPU.

So a bare `except` around the first call does not turn the fault into "0 GPUs" once. It loses it
for the whole process: <!-- gpu: S2-12 -->

```python
try:
    return jax.device_count("gpu")
except:             # swallows the only message there will be
    return 0
```

All of this is so while JAX chooses the platforms itself. You can also name them, in the variable
`JAX_PLATFORMS`, which [lesson 05](05-who-decides-where-it-runs.ipynb#before-the-program-starts)
explains. Name the plugin first, and look again:
"""

# %% gpu=false
for name, first_step in {"first": 'raise RuntimeError("no library")', "second": "pass"}.items():
    named = staged(first_step, JAX_PLATFORMS="made_up,cpu").stdout.splitlines()
    print(f"the {name} step fails; JAX_PLATFORMS=made_up,cpu")
    print("\n".join(f"    {line[:74]}" for line in named))
    assert all("RuntimeError" in line for line in named)

unseen = staged("pass", check=False, JAX_PLATFORMS="cuda").stderr.splitlines()
print("no GPU in sight; JAX_PLATFORMS=cuda")
print("   ", *(line for line in unseen if line.startswith("AssertionError")))
assert "AssertionError" in unseen

# %% [markdown]
"""
Now each question raises, for either fault. JAX may leave out a backend that it found by itself. A
backend that you have named first, and that fails, it does not leave out.

What to do, then?

- Where you know the platform, name it: `JAX_PLATFORMS=cuda,cpu`.
- Or say what you expect at the start: `assert jax.default_backend() == "gpu"`. (A container without
  a GPU passes the first: where JAX sees no GPU, it does not try `cuda`, named or not, and says
  nothing. It does not pass this one.)
- Let the first `jax.devices()` of your program stand outside any `try`, so that a fault stops it.
- If you must catch, catch only "Unknown backend", and raise everything else again. (A plugin that
  could not be loaded ends there, too: then only the log tells.)
- Keep stderr. <!-- gpu: source: jax/_src/xla_bridge.py, backends -->

!!! quote "Claim S2-12 (d2l-gpus): true with conditions"
    The document counts GPUs with `jax.device_count("gpu")` in a bare `except`. It gives 0 where
    there is no GPU. It gives 0 too where the driver is broken, and removes the message.

!!! quote "Claim S0-01 (haiku-gpu): false"
    The document calls code that places nothing the most common reason why JAX misses the GPU.
    Code that places nothing runs on the GPU, if its plugin works. The first fault above left such
    a program on the CPU, with not one wrong line in it, and the second stopped it. How often each
    cause occurs, nobody here has counted.

## Your turn

!!! example "Exercise ex01: find the devices"
    Write `num_gpus`, `try_gpu` and `try_all_gpus` so that they are right on a CPU machine, on a
    GPU machine, and where the plugin is broken. The grader stages such machines and compares the
    answers. Start on the [page of ex01](../exercises/ex01_find_devices.md).

    === "Failing"

        {{ capture: check ex01 starter }}

    === "Passing"

        {{ capture: check ex01 solution }}

## Three questions

<quiz>
`jax.devices()` shows `[CpuDevice(id=0)]` on a machine with a GPU. Where do you look first?
- [ ] At the `device_put` calls
- [x] At what JAX wrote to stderr when it started
- [ ] At the size of the batch

JAX falls back to the CPU when a plugin cannot be loaded, and says so once, in the log. If the log
says nothing, look at `JAX_PLATFORMS`, and whether the GPU is in sight at all.
</quiz>

<quiz>
JAX chose its platforms itself: `JAX_PLATFORMS` is not set. Which line does not raise on a healthy
machine without a GPU?
- [ ] `jax.devices("gpu")`
- [x] `[d for d in jax.devices() if d.platform == "gpu"]`
- [ ] `jax.device_count("gpu")`

It asks about the devices that exist. It still raises when a plugin cannot connect, as it should.
(With `JAX_PLATFORMS=cuda` and no GPU it raises, too: an `AssertionError`, which `except
RuntimeError` does not catch.)
</quiz>

<quiz>
A notebook's first cell fails with "Unable to initialize backend". You run the cell again, and it
works. What happened?
- [ ] The driver recovered
- [x] JAX goes on without that backend
- [ ] The first message was wrong

The second run asked again, and got the CPU. Restart the process after you mend the driver.
</quiz>

## Recap

- `jax.devices()` lists the default backend. It is never empty: it raises instead.
- `jax.devices("gpu")` raises where there is no GPU. Filtering `jax.devices()` does not.
- New arrays go to the default device; a GPU needs no directive.
- JAX reports the fault of a plugin that it found itself once: {{ told }} of {{ asked }} questions
  above. With `JAX_PLATFORMS=made_up,cpu` every question raises. <!-- gpu: S0-02, S2-10 -->

Next: [arrays live somewhere](02-arrays-live-somewhere.ipynb).
"""
