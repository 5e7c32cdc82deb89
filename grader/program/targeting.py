"""Compiles a program for a machine that nobody has at hand, with JAX's CUDA plugin and no GPU.

Runs in a disposable process that never saw the learner's Python; the blob is hostile
input, read by `grader.program.loading` as ever. Nothing is executed, so there are no
outputs and no times. XLA tunes no kernels without a GPU: the kernels, and what they need
of temporary memory, may differ from a real run's. Collectives, shardings and copies to
the host are decided before that, so kernels are chosen that take little time to compile.
"""

import warnings
from typing import Any

import jax
from jax.experimental import topologies

from grader import hlo
from grader.messages import Targeted, TargetJob
from grader.program.export import TARGET_PLATFORM, first_line
from grader.program.loading import Loaded, Refused, elsewhere, load
from grader.program.measuring import memory_of, trace, where
from grader.program.placing import sharding_text
from grader.record import Measured

QUICK = {"xla_gpu_enable_triton_gemm": False, "xla_backend_optimization_level": 0}
"""Matrix products by cuBLAS, which needs no code, and unoptimised code for the rest: a half to
a quarter of the time. Of what is read, temporary memory alone differs, by some MiB."""


def compile_for(job: TargetJob) -> Targeted:
    """Compile every program of a job for its target."""
    try:
        devices = _devices(job)
    except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
        why = f"JAX's CUDA plugin does not compile for {job.target.title}: {first_line(error)}"
        return Targeted(problem=why)
    return Targeted({n: _measured(n, blob, devices) for n, blob in job.programs.items()})


def _devices(job: TargetJob) -> tuple[Any, ...]:
    """The devices of the target; they can be compiled for, and nothing else."""
    found = topologies.get_topology_desc(
        platform=TARGET_PLATFORM,
        topology_name=job.target.name,
        target_config=job.config,
        topology=job.topology,
    )
    return tuple(found.devices)


def _measured(name: str, blob: bytes, devices: tuple[Any, ...]) -> Measured:
    measured = Measured(name)
    try:
        loaded = load(blob, elsewhere(len(devices)))
        measured.signature, measured.donated = loaded.signature, list(loaded.donated)
        measured.operations = loaded.operations
        _read(_compile(loaded, devices), loaded, measured)
    except Refused as reason:
        reason.note(measured)
    return measured


def _compile(loaded: Loaded, devices: tuple[Any, ...]) -> jax.stages.Compiled:
    """Lower on an abstract mesh, which keeps kinds of memory, and assign devices at the end."""
    used = devices[: loaded.exported.nr_devices]
    try:
        with jax.default_device(used[0]), where(loaded, used), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unused donation shows in `aliases`
            lowered = trace(loaded).lower(lowering_platforms=(TARGET_PLATFORM,))
            compiled: jax.stages.Compiled = lowered.compile(QUICK, device_assignment=used)
            return compiled
    except Exception as error:
        raise Refused(f"it does not compile for the target: {first_line(error)}") from error


def _read(compiled: jax.stages.Compiled, loaded: Loaded, measured: Measured) -> None:
    text = compiled.as_text() or ""
    facts = hlo.read(text)
    wanted = zip(loaded.in_shardings, loaded.exported.in_avals, strict=True)
    measured.in_shardings = [sharding_text(s, aval.shape) if s else "" for s, aval in wanted]
    measured.out_memory_kinds = hlo.result_memories(text)
    measured.aliases = facts.aliases
    measured.collectives = facts.collectives
    measured.host_copies = facts.host_copies
    measured.memory = memory_of(compiled)
