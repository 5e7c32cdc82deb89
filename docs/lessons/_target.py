"""Compiles a function for a machine that is not here, such as 8 x H200; nothing is run.

`compiled(f, *args)` exports `f` in the notebook, for arguments on simulated devices, and
compiles it in a process of its own, with JAX's CUDA plugin and no GPU. What comes back is
what XLA decided for that machine: its collectives, its memory, its copies to the host. It
tunes no kernels without a GPU, so kernels and small temporaries may differ from a real run's.
"""

import base64
import json
import math
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distributions, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MACHINES = Path(__file__).resolve().parents[2] / "grader" / "program" / "machines.toml"
CHECKOUT = f"this lesson reads {MACHINES}: run it in docs/lessons of a checkout of the course"
INSTALL = "this lesson compiles for a GPU that is not here; it needs: make target"
PLACE = os.environ.get("GRADER_TARGET_FOLDER") or Path(sysconfig.get_path("purelib")).parent
PACKAGES = str(Path(PLACE, "target-packages").absolute())
"""What compiles lies beside the environment: inside, every JAX program would load it."""
QUICK = {"xla_gpu_enable_triton_gemm": False, "xla_backend_optimization_level": 0}
"""Kernels that take little time to compile, as `grader.program.targeting` has them."""
SECONDS = 240
OPERATIONS = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
MEMORY = {
    "arguments": "argument_size_in_bytes",
    "outputs": "output_size_in_bytes",
    "temporaries": "temp_size_in_bytes",
    "aliased": "alias_size_in_bytes",
    "peak": "peak_memory_in_bytes",
    "host_arguments": "host_argument_size_in_bytes",
    "host_outputs": "host_output_size_in_bytes",
    "host_temporaries": "host_temp_size_in_bytes",
}


@dataclass(frozen=True)
class Collective:
    """`count` collectives of one kind, each with `nbytes` of result on a device."""

    op: str
    nbytes: int
    count: int


@dataclass(frozen=True)
class Compiled:
    """A program as the target's compiler left it; `memory` is bytes on one device."""

    machine: str
    text: str
    memory: SimpleNamespace

    @property
    def collectives(self) -> list[Collective]:
        """What the devices exchange; one in a loop counts once."""
        found = Counter(map(_collective, filter(_OPERATION.search, self.text.splitlines())))
        return [Collective(*what, count) for what, count in found.items()]

    @property
    def host_copies(self) -> int:
        """Copies between a device's memory and the host's."""
        starts = re.findall(r" = \((.*?), u32\[\].*? copy-start\(", self.text)
        return sum(types.count("S(5)") == 1 for types in starts)

    def __str__(self) -> str:
        lines = [f"compiled for {self.machine}; not run"]
        lines += [f"  {c.count} x {c.op} of {c.nbytes:,} bytes" for c in self.collectives]
        lines += [f"  {self.host_copies} copies between device and host memory"]
        kinds = {name: size for name, size in vars(self.memory).items() if size}
        return "\n".join([*lines, *(f"  {n:<17} {s:>18,} bytes" for n, s in kinds.items())])


def machine(name: str = "h200x8") -> SimpleNamespace:
    """What is known of a machine: nodes, devices, bytes of memory, bytes a second of its links."""
    machines = _machines()
    about = machines["targets"][name]
    gpu = machines["gpus"][about["gpu"]]
    known = {"network_bandwidth": 0.0, **about, "name": name, "device_kind": gpu["device_kind"]}
    known["devices"] = about["nodes"] * about["per_node"]
    known["memory_bytes"] = gpu["config"]["device_memory_size"]
    known["memory_bandwidth"] = gpu["config"]["memory_bandwidth"]
    known["sources"] = {**about["sources"], "memory": gpu["source"]}
    return SimpleNamespace(**known)


def _machines() -> dict[str, Any]:
    if not MACHINES.is_file():
        raise RuntimeError(CHECKOUT)
    return tomllib.loads(MACHINES.read_text("utf-8"))


def compiled(function: Any, *args: Any, target: str = "h200x8") -> Compiled:
    """`function` compiled for a machine; `args` are arrays or ShapeDtypeStructs with shardings."""
    return compiled_all([(function, *args)], target=target)[0]


def compiled_all(calls: Sequence[tuple[Any, ...]], *, target: str = "h200x8") -> list[Compiled]:
    """Several `(function, *args)`, in one process: its start is paid once."""
    title = machine(target).title
    _require_plugin()
    programs = [_exported(function, args) for function, *args in calls]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "1"}
    path = [PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment |= {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps({"target": target, "programs": programs}),
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise RuntimeError(f"compiling for {target} failed: {last[0]}")
    return [
        Compiled(title, found["text"], SimpleNamespace(**found["memory"]))
        for found in json.loads(done.stdout.splitlines()[-1])
    ]


def _require_plugin() -> None:
    """Raises RuntimeError unless there is a CUDA plugin of jaxlib's version."""
    places = [PACKAGES, *sys.path]
    names = ("jax-cuda13-plugin", "jax-cuda12-plugin")
    found = [plugin.version for name in names for plugin in distributions(name=name, path=places)]
    if version("jaxlib") not in found:
        raise RuntimeError(INSTALL)


def _exported(function: Any, args: Sequence[Any]) -> dict[str, Any]:
    """A function of flat arguments as StableHLO for CUDA, and which arguments it donates."""
    import jax
    from jax import export

    leaves, tree = jax.tree.flatten(tuple(args))
    jitted = function if isinstance(function, type(jax.jit(len))) else jax.jit(function)
    infos = jax.tree.leaves(jitted.trace(*args).args_info)
    donated = tuple(index for index, info in enumerate(infos) if info.donated)

    def flat(*flat_args: Any) -> Any:
        return jax.tree.leaves(jitted(*jax.tree.unflatten(tree, flat_args)))

    outer = jax.jit(flat, donate_argnums=donated)
    blob = export.export(outer, platforms=("cuda",))(*leaves).serialize()
    return {"blob": base64.b64encode(blob).decode(), "donated": donated}


_OPERATION = re.compile(rf" = (.*?) ({'|'.join(OPERATIONS)})(-start)?\(")


def _collective(line: str) -> tuple[str, int]:
    found = _OPERATION.search(line)
    assert found is not None
    types, op, start = found.groups()
    return op, _nbytes(types.partition("), ")[2] if start else types)  # a start names operands too


def _nbytes(types: str) -> int:
    arrays = re.findall(r"([a-z]+)(\d*)\w*\[([\d,]*)\]", types)
    sizes = [math.prod(map(int, filter(None, shape.split(",")))) for *_, shape in arrays]
    bits = [8 if kind == "pred" else int(width or 0) for kind, width, _ in arrays]
    return sum(size * width // 8 for size, width in zip(sizes, bits, strict=True))


# What follows runs in the process that compiles.


def _serve(job: dict[str, Any]) -> list[dict[str, Any]]:
    from jax.experimental import topologies

    about = machine(job["target"])
    devices = topologies.get_topology_desc(
        platform="cuda",
        topology_name=about.name,
        target_config=_config(about.gpu),
        topology=f"1x{about.nodes}x{about.per_node}",
    ).devices
    return [_compile(program, devices) for program in job["programs"]]


def _config(gpu: str) -> str:
    """What XLA wants to know of a GPU, as the text of a protocol buffer."""
    gpus = _machines()["gpus"]
    device = {**gpus["common"]["config"], **gpus[gpu]["config"]}

    def text(fields: dict[str, Any]) -> str:
        return " ".join(f"{name}: {value}" for name, value in fields.items())

    return (
        f"gpu_device_info {{ {text(device)} "
        f"cuda_compute_capability {{ {text(gpus[gpu]['compute_capability'])} }} }} "
        f"dnn_version_info {{ {text(gpus[gpu]['dnn_version'])} }} "
        f'platform_name: "CUDA" device_description_str: "{gpus[gpu]["device_kind"]}"'
    )


def _compile(program: dict[str, Any], devices: Sequence[Any]) -> dict[str, Any]:
    import jax
    from jax import export

    exported: Any = export.deserialize(bytearray(base64.b64decode(program["blob"])))
    shardings = map(_abstract, exported.in_shardings_jax())
    struct: Any = jax.ShapeDtypeStruct
    args = [
        struct(a.shape, a.dtype, sharding=s)
        for a, s in zip(exported.in_avals, shardings, strict=True)
    ]
    jitted = jax.jit(exported.call, donate_argnums=program["donated"])
    used = tuple(devices[: exported.nr_devices])
    with jax.default_device(used[0]):  # until here no device is named, so that ...
        lowered = jitted.trace(*args).lower(lowering_platforms=("cuda",))
        done = lowered.compile(QUICK, device_assignment=used)
    found = done.memory_analysis()
    return {"text": done.as_text(), "memory": {n: getattr(found, f) for n, f in MEMORY.items()}}


def _abstract(sharding: Any) -> Any:
    """... kinds of memory stay: the devices of a target do not know theirs."""
    if sharding is None or not sharding.mesh.axis_names:
        return None
    host = sharding.memory_kind == "pinned_host"
    return sharding.with_memory_kind("pinned_host" if host else "device")


if __name__ == "__main__":
    print(json.dumps(_serve(json.load(sys.stdin))))
