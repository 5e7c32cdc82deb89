"""Machines to compile for, which nobody needs to have: `machines.toml`, with its sources.

Data and package metadata only: neither JAX nor a process lives here. How a program is
compiled for a target is in `grader.program.targeting`.
"""

import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from grader.record import Target

REMEDY = '`make target`, or `pip install -c constraints.txt ".[target]"`'
PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
"""Either of these compiles for CUDA, with the compiler beside it."""
_ENUMS = ("feature_extension",)


class Unknown(Exception):
    """No target has this name; the message lists those there are."""


def names() -> list[str]:
    """The names of all targets."""
    return list(_machines()["targets"])


def find(name: str) -> Target:
    """The target of this name.

    Raises:
      Unknown: there is none.
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


def config(name: str) -> str:
    """What XLA wants to know of a target's GPU, as a text proto."""
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
    """Why nothing can be compiled for a target here, as far as package metadata tell, or ""."""
    if not sys.platform.startswith("linux"):
        return "compiling for a target needs JAX's CUDA plugin, which is for Linux"
    jaxlib, found = installed("jaxlib"), {name: installed(name) for name in PLUGINS}
    plugin = next((name for name in PLUGINS if found[name]), None)
    if plugin is None:
        return f"compiling for a target needs JAX's CUDA plugin, and no GPU: {REMEDY}"
    if jaxlib not in found.values():
        pair = f"{plugin} {found[plugin]} and jaxlib {jaxlib}"
        return f"JAX's CUDA plugin must be of jaxlib's version, not {pair}: {REMEDY}"
    return ""


def installed(package: str) -> str:
    """The version of an installed package, or ""."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def _machines() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("machines.toml").read_text("utf-8"))


def _text(message: dict[str, Any]) -> str:
    return "\n".join(_field(name, value) for name, value in message.items())


def _field(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{name} {{\n{_text(value)}\n}}"
    quoted = isinstance(value, str) and name not in _ENUMS
    return f'{name}: "{value}"' if quoted else f"{name}: {value}"
