"""Compiles a program for a machine that is not there, with JAX's CUDA plugin and no GPU.

Runs in a disposable process that never saw the learner's Python. The blob is hostile
input, and `grader.program.loading` reads it as such. Nothing is executed, so there are no
outputs and no times. XLA tunes no kernels without a GPU: the kernels, and the temporary
memory that they need, may differ from a real run's. Collectives, shardings and copies to the
host are decided before that, so the kernels here are those that compile fastest. The targets
are described in `grader.program.targets`.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import jax
from jax.experimental import topologies

from grader.program import targets
from grader.program.export import TARGET_PLATFORM, first_line
from grader.program.loading import Loaded, Refused, elsewhere, load
from grader.program.measuring import ON_GPU, memory_of, mesh_context, trace
from grader.program.placing import sharding_text
from grader.records import hlo
from grader.records.record import Measured, Target

QUICK = {**ON_GPU, "xla_backend_optimization_level": 0}
"""Matrix products use cuBLAS, which needs no code, and all other code is left unoptimised.
Compiling takes a half to a quarter of the time. Of what is read from the compiled program, only
the temporary memory differs, by some MiB."""


class NoCompiler(Exception):
    """Nothing can be compiled for the target here, whatever the program."""


def compile_for(target: Target, programs: Mapping[str, bytes]) -> dict[str, Measured]:
    """Compile every program for a target; returns what became of each, by name.

    Raises:
      NoCompiler: JAX's CUDA plugin does not work.
    """
    try:
        devices = _devices(target)
    except Exception as error:
        why = f"JAX's CUDA plugin does not compile for {target.title}: {first_line(error)}"
        raise NoCompiler(why) from error
    return {name: _measured(name, blob, devices) for name, blob in programs.items()}


def _devices(target: Target) -> tuple[Any, ...]:
    """The devices of the target. Programs can be compiled for them, and nothing can run."""
    found = topologies.get_topology_desc(
        platform=TARGET_PLATFORM,
        topology_name=target.name,
        target_config=targets.config(target.name),
        topology=targets.topology(target),
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
        mesh = mesh_context(loaded, used)
        with jax.default_device(used[0]), mesh, warnings.catch_warnings():
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
    measured.work = facts.work
    measured.memory = memory_of(compiled)
