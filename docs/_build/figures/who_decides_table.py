"""Asks JAX where a jitted call runs, for every state of the figure "Who decides?".

A program of its own: it starts a process for each value of `JAX_PLATFORMS`, and each process makes
every call. There is no GPU where the site is built, so a stand-in takes its place, as in lesson 05:
a made-up backend calls itself `cuda` and hands out CPU devices. The decision is JAX's own; no rule
of it is written here.
"""

import functools
import itertools
import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.extend import backend
from jaxlib import xla_client

ENVIRONMENTS = ("", "cpu", "cuda", "cuda,cpu", "cpu,cuda")
DEVICES = ("cpu 0", "gpu 0", "gpu 1")
CONFIGS = BLOCKS = ("", *DEVICES)
ARGUMENTS = ("NumPy", "free cpu 0", "free gpu 1", *(f"put {name}" for name in DEVICES))
_GPUS = 2
type Answer = dict[str, Any]


def stand_in() -> None:
    """Two CPU devices under the name of a GPU's backend, with a CUDA plugin's priority."""
    mock.patch("importlib.metadata.entry_points", return_value=[]).start()
    mock.patch("jax._src.hardware_utils.has_visible_nvidia_gpu", return_value=True).start()
    client = functools.partial(xla_client.make_cpu_client, num_devices=_GPUS)
    backend.register_backend_factory("cuda", client, priority=500)


def device(name: str) -> jax.Device:
    """`cpu 0` or `gpu 1`. Raises RuntimeError, as JAX does, where its backend has not started."""
    kind, number = name.split()
    return jax.devices({"cpu": "cpu", "gpu": "cuda"}[kind])[int(number)]


def default(name: str) -> AbstractContextManager[Any]:
    """A block with this default device; an empty name says nothing."""
    return jax.default_device(device(name)) if name else nullcontext()


def argument(kind: str) -> Any:
    """What the call gets: a NumPy array, a free array made somewhere, or one that was put."""
    numbers = np.ones(4, np.float32)
    how, _, name = kind.partition(" ")
    if how == "put":
        return jax.device_put(numbers, device(name))
    if how == "free":
        with default(name):
            return jax.numpy.ones(4)
    return numbers


@jax.jit
def _add(a: Any, b: Any) -> Any:
    return a + b


def answer(config: str, block: str, a: str, b: str) -> Answer:
    """Where the call runs and whether its result is committed; or what JAX raises."""
    try:
        jax.config.update("jax_default_device", device(config) if config else None)
        arguments = argument(a), argument(b)
        with default(block):
            result = _add(*arguments)
        (found,) = result.devices()
        names = [name for name in DEVICES if _started(name) and device(name) is found]
        return {"at": names[0], "committed": bool(result.committed)}
    except (RuntimeError, ValueError) as error:
        return {"refused": f"{type(error).__name__}: {str(error).split('. ')[0].rstrip('.')}."}
    finally:
        jax.config.update("jax_default_device", None)


def _started(name: str) -> bool:
    try:
        return bool(device(name))
    except RuntimeError:
        return False


def states() -> list[Answer]:
    """The answers of this process, in the order of the four choices' product."""
    return [answer(*state) for state in itertools.product(CONFIGS, BLOCKS, ARGUMENTS, ARGUMENTS)]


def table() -> dict[str, Any]:
    """All states: for each environment, indices into `answers`."""
    answers: list[Answer] = []
    found = {}
    for environment in ENVIRONMENTS:
        done = subprocess.run(
            [sys.executable, __file__, "states"],
            env={**os.environ, "JAX_PLATFORMS": environment},
            capture_output=True,
            text=True,
            check=True,
        )
        of_this = json.loads(done.stdout)
        for one in of_this:
            if one not in answers:
                answers.append(one)
        found[environment] = [answers.index(one) for one in of_this]
    return {
        "jax": jax.__version__,
        "environments": ENVIRONMENTS,
        "configs": CONFIGS,
        "blocks": BLOCKS,
        "arguments": ARGUMENTS,
        "devices": DEVICES,
        "answers": answers,
        "states": found,
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["states"]:
        stand_in()
        print(json.dumps(states()))
    else:
        print(json.dumps(table(), separators=(",", ":")))
