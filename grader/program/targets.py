"""Describes the machines that can be compiled for, and finds the packages that compile for them.

The machines are in `machines.toml`, with the sources of their figures; nobody needs to have
one. JAX's CUDA plugin is not installed into the environment: JAX would load it in every
program, and every program would print that CUDA's libraries are missing. It lies in a folder
of its own, which only a process that compiles sees.

There is only data and package metadata here, no JAX and no process. How a program is compiled
for a target is in `grader.program.targeting`, and how the packages are installed is in
`grader.app.install`.
"""

import os
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from grader.records.record import Target

REMEDY = "`grader install-target`"
FOLDER = "GRADER_TARGET_FOLDER"
"""The environment variable that names another place for the folder of packages."""
PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
"""Either of these compiles for CUDA, with NVIDIA's compiler beside it."""
_ENUMS = ("feature_extension",)


class Speed(msgspec.Struct, frozen=True):
    """What one device can do at most, for a device next door that is modelled on it."""

    flops: float
    """Bfloat16 operations a second, of the matrix units."""
    host_bandwidth: float
    """Bytes a second between it and the host, one way."""


class Unknown(Exception):
    """No target has this name; the message lists the names that exist."""


def names() -> list[str]:
    """The names of all targets."""
    return list(_machines()["targets"])


def find(name: str) -> Target:
    """The target of this name.

    Raises:
      Unknown: no target has this name.
    """
    if name not in names():
        raise Unknown(f"no target {name}; there are {', '.join(names())}")
    about = _machines()["targets"][name]
    gpu = _machines()["gpus"][about["gpu"]]
    config: dict[str, Any] = gpu["config"]
    return Target(
        name=name,
        title=about["title"],
        device_kind=gpu["device_kind"],
        nodes=about["nodes"],
        per_node=about["per_node"],
        memory_bytes=config["device_memory_size"],
        memory_bandwidth=config["memory_bandwidth"],
        node_bandwidth=about["node_bandwidth"],
        network_bandwidth=about.get("network_bandwidth", 0.0),
        sources={**about["sources"], "memory_bytes": gpu["source"], "config": gpu["source"]},
    )


def speed(name: str) -> Speed:
    """How fast one device of the target of this name is.

    Raises:
      Unknown: no target has this name.
    """
    find(name)
    figures = _machines()["gpus"][_machines()["targets"][name]["gpu"]]["speed"]
    return Speed(figures["flops"], figures["host_bandwidth"])


def config(name: str) -> str:
    """What XLA needs to know about a target's GPU, as a protocol buffer in text form."""
    gpus = _machines()["gpus"]
    gpu = gpus[_machines()["targets"][name]["gpu"]]
    device = {**gpus["common"]["config"], **gpu["config"]}
    device["cuda_compute_capability"] = gpu["compute_capability"]
    whole = {
        "gpu_device_info": device,
        "platform_name": "CUDA",
        "dnn_version_info": gpu["dnn_version"],
        "device_description_str": gpu["device_kind"],
    }
    return _text(whole)


def topology(target: Target) -> str:
    """The shape of a target as XLA writes it: partitions, nodes, devices of a node."""
    return f"1x{target.nodes}x{target.per_node}"


def missing() -> str:
    """Why nothing can be compiled for a target here, as far as package metadata shows, or ""."""
    if not sys.platform.startswith("linux"):
        return "compiling for a target needs JAX's CUDA plugin, which is for Linux"
    plugins = _plugins(sys.path) + _plugins([str(folder())])
    if not plugins:
        return f"compiling for a target needs JAX's CUDA plugin, and no GPU: {REMEDY}"
    jaxlib = installed("jaxlib")
    if jaxlib not in [version for _, version in plugins]:
        pair = f"{' '.join(plugins[0])} and jaxlib {jaxlib}"
        return f"JAX's CUDA plugin must be of jaxlib's version, not {pair}: {REMEDY}"
    return ""


def folder() -> Path:
    """The folder of the packages that compile for targets, beside the environment's own."""
    place = os.environ.get(FOLDER) or Path(sysconfig.get_path("purelib")).parent
    return Path(place, "target-packages").absolute()


def import_path() -> list[str]:
    """What a process that compiles for targets puts first on its import path.

    Nothing if the environment itself has the plugin, as on a machine with GPUs.
    """
    own = [version for _, version in _plugins(sys.path)]
    return [] if installed("jaxlib") in own else [str(folder())]


def installed(package: str, path: Sequence[str] | None = None) -> str:
    """The version of an installed package, or "".

    `path` lists the folders to look into; it is the import path unless given.
    """
    # Here, for it takes longer to import than all of this module, and every check imports this.
    from importlib.metadata import distributions

    found = distributions(name=package, path=sys.path if path is None else list(path))
    return next((distribution.version for distribution in found), "")


def _plugins(path: Sequence[str]) -> list[tuple[str, str]]:
    """The name and version of each plugin that is installed there."""
    found = ((name, installed(name, path)) for name in PLUGINS)
    return [(name, version) for name, version in found if version]


@cache
def _machines() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("machines.toml").read_text("utf-8"))


def _text(message: dict[str, Any]) -> str:
    """A protocol buffer in text form."""
    return "\n".join(_field(name, value) for name, value in message.items())


def _field(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{name} {{\n{_text(value)}\n}}"
    quoted = isinstance(value, str) and name not in _ENUMS
    return f'{name}: "{value}"' if quoted else f"{name}: {value}"
