"""Makes the calls of the figure "Who decides?" again, for its test, written without its table.

Reads from stdin a list of [default of the process, default of the block, a, b], and writes for each
[device, whether the result is committed], or [what JAX raised, null]. The backend `cuda` is two CPU
devices: that is the one thing that is made up.
"""

import json
import sys
from contextlib import ExitStack
from unittest import mock

import jax
import numpy as np
from jax.extend import backend
from jaxlib import xla_client

mock.patch("importlib.metadata.entry_points", return_value=[]).start()
mock.patch("jax._src.hardware_utils.has_visible_nvidia_gpu", return_value=True).start()
backend.register_backend_factory(
    "cuda", lambda: xla_client.make_cpu_client(num_devices=2), priority=500
)


def named(name):
    kind, number = name.split()
    return jax.devices("cuda" if kind == "gpu" else "cpu")[int(number)]


def made(kind):
    if kind == "NumPy":
        return np.zeros(3)
    how, name = kind.split(" ", 1)
    if how == "put":
        return jax.device_put(np.zeros(3), named(name))
    with jax.default_device(named(name)):
        return jax.numpy.zeros(3)


def decided(process, block, *kinds):
    with ExitStack() as stack:
        if process:
            stack.enter_context(ProcessDefault(named(process)))
        arguments = [made(kind) for kind in kinds]
        if block:
            stack.enter_context(jax.default_device(named(block)))
        result = jax.jit(lambda a, b: a * b)(*arguments)
    (device,) = result.devices()
    for name in ("cpu 0", "gpu 0", "gpu 1"):
        try:
            if named(name) is device:
                return [name, result.committed]
        except RuntimeError:  # that backend has not started
            continue
    raise AssertionError(device)


class ProcessDefault:
    """The process's default device, until the end of a block."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        jax.config.update("jax_default_device", self.device)

    def __exit__(self, *_):
        jax.config.update("jax_default_device", None)


def said(state):
    try:
        return decided(*state)
    except (ValueError, RuntimeError) as error:
        return [f"{type(error).__name__}: {error}", None]


json.dump([said(state) for state in json.load(sys.stdin)], sys.stdout)
