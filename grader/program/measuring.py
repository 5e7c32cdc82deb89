"""Compiles a loaded program again, reads what the compiler made of it, and runs it.

`measure` takes the blob and the recorded inputs and returns a `Measured`; it judges
nothing and knows no expected output. It must run in a disposable process: a hostile
program can still make XLA abort.
"""

import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, Sharding

from grader.probes.describe import describe
from grader.program.export import first_line
from grader.program.loading import Loaded, Refused, load, struct
from grader.program.placing import place, plain, runnable, sharding_text, wait
from grader.records import hlo
from grader.records.record import Leaf, Measured, Memory

ON_GPU = {"xla_gpu_enable_triton_gemm": False}
"""Matrix products use cuBLAS. To try all that Triton could make of one takes seconds, and minutes
where float32 is multiplied in full precision."""


@dataclass(frozen=True)
class Built:
    """A program compiled for this machine; it takes and returns flat tuples of arrays."""

    loaded: Loaded
    compiled: jax.stages.Compiled

    @property
    def in_shardings(self) -> tuple[Sharding, ...]:
        """Where each flat argument goes, as compiled."""
        return tuple(self.compiled.input_shardings[0])

    @property
    def out_shardings(self) -> tuple[Sharding, ...]:
        """Where each flat result comes out, as compiled."""
        return tuple(self.compiled.output_shardings)

    def place(self, inputs: Sequence[Leaf]) -> tuple[jax.Array, ...]:
        """Fresh flat arguments; see `placing.place`."""
        return place(inputs, self.loaded.exported.in_avals, self.in_shardings)


@dataclass(frozen=True)
class Lowered:
    """A program that waits to be compiled."""

    loaded: Loaded
    lowered: jax.stages.Lowered


def lower(blob: bytes, measured: Measured) -> Lowered:
    """Load and check a program, and lower it again, with its own shardings and donation.

    Raises:
      Refused: it is no program that may run; what was found before is filled in.
    """
    loaded = load(blob)
    measured.signature = loaded.signature
    measured.donated = list(loaded.donated)
    measured.operations = loaded.operations
    try:
        with mesh_context(loaded, jax.devices()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unused donation shows in `aliases`
            return Lowered(loaded, trace(loaded).lower())
    except Exception as error:
        raise _not_compiled(error) from error


def build(lowered: Lowered) -> Built:
    """Compile a program; several threads may do so, each with a program of its own.

    Raises:
      Refused: XLA does not compile it, or it needs more memory than there is.
    """
    try:
        options = ON_GPU if jax.default_backend() == "gpu" else None
        built = Built(lowered.loaded, lowered.lowered.compile(options))
    except Exception as error:
        raise _not_compiled(error) from error
    _check_room(built.compiled)
    return built


def _not_compiled(error: Exception) -> Refused:
    return Refused(f"it does not compile here: {first_line(error)}")


def trace(loaded: Loaded) -> jax.stages.Traced:
    """A program traced as a function of flat arguments, with its own shardings and donation."""
    exported: Any = loaded.exported

    def flat(*leaves: Any) -> tuple[Any, ...]:
        args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
        return tuple(jax.tree.leaves(exported.call(*args, **kwargs)))

    avals = map(struct, exported.in_avals, loaded.in_shardings)
    jitted = jax.jit(flat, donate_argnums=loaded.donated, out_shardings=loaded.out_shardings)
    return jitted.trace(*avals)


def mesh_context(loaded: Loaded, devices: Sequence[Any]) -> Any:
    """A context that says on how many devices to compile, where no sharding does.

    That is so for `pmap` under `jit`.
    """
    count = loaded.exported.nr_devices
    if count == 1 or any(loaded.in_shardings) or any(loaded.out_shardings):
        return nullcontext()
    return jax.set_mesh(Mesh(np.array(devices[:count]), ("devices",), (AxisType.Auto,)))


def _check_room(compiled: jax.stages.Compiled) -> None:
    memory, room = memory_of(compiled), _room()
    if memory is None:
        return
    # Simulated devices share this machine's memory; each GPU has its own.
    shared = jax.default_backend() == "cpu" and compiled.output_shardings
    devices = len(next(iter(compiled.output_shardings)).device_set) if shared else 1
    needed = devices * (memory.arguments + memory.outputs + memory.temporaries - memory.aliased)
    if needed > room:
        raise Refused(f"it needs {needed / 2**30:,.1f} GiB, more than this machine has")


def _room() -> int:
    statistics = jax.devices()[0].memory_stats()
    if statistics and "bytes_limit" in statistics:
        return int(statistics["bytes_limit"])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def measure(blob: bytes, name: str, inputs: Sequence[Leaf] | None) -> Measured:
    """Load, check, compile, measure and run one program.

    `inputs` are the flat arguments with their values; without them, or where one has no
    values, the program is compiled but not run. Returns a `Measured`. If a step failed,
    `problem` is set, and what the steps before it found is filled in.
    """
    measured = Measured(name)
    try:
        examine(build(lower(blob, measured)), measured, inputs)
    except Refused as reason:
        reason.note(measured)
    return measured


def examine(built: Built, measured: Measured, inputs: Sequence[Leaf] | None) -> None:
    """Read what the compiler made of a program, and run it if all its inputs have values.

    Raises:
      Refused: it failed when it ran; what was read before is filled in.
    """
    _read(built, measured)
    if inputs is not None and runnable(inputs):
        outputs = _run_once(built, inputs, measured)
        tree = jax.tree.unflatten(built.loaded.exported.out_tree, map(plain, outputs))
        measured.outputs = describe(tree)[0]


def _run_once(built: Built, inputs: Sequence[Leaf], measured: Measured) -> tuple[jax.Array, ...]:
    """Run, and see which arguments are gone and which results lie in their buffers."""
    arguments = built.place(inputs)
    owners = {_buffers(argument): index for index, argument in enumerate(arguments)}
    outputs = run(built, arguments)
    places = {str(index): owners.get(_buffers(out)) for index, out in enumerate(outputs)}
    measured.deleted = [index for index, a in enumerate(arguments) if a.is_deleted()]
    measured.reused = {out: index for out, index in places.items() if index in measured.deleted}
    return outputs


def _buffers(array: jax.Array) -> tuple[int, ...]:
    return tuple(shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards)


def _read(built: Built, measured: Measured) -> None:
    exported = built.loaded.exported
    facts = hlo.read(built.compiled.as_text() or "")
    measured.in_shardings = _texts(built.in_shardings, exported.in_avals)
    measured.out_shardings = _texts(built.out_shardings, exported.out_avals)
    measured.out_memory_kinds = [s.memory_kind or "" for s in built.out_shardings]
    measured.aliases = facts.aliases
    measured.collectives = facts.collectives
    measured.host_copies = facts.host_copies
    measured.work = facts.work
    measured.memory = memory_of(built.compiled)
    costs: Any = built.compiled.cost_analysis() or {}
    measured.flops = float(costs.get("flops", 0.0))


def _texts(shardings: Iterable[Sharding], avals: Iterable[Any]) -> list[str]:
    return [sharding_text(s, aval.shape) for s, aval in zip(shardings, avals, strict=True)]


def memory_of(compiled: jax.stages.Compiled) -> Memory | None:
    """What XLA says of the memory a compiled program takes on one device."""
    found: Any = compiled.memory_analysis()
    return found and Memory(
        arguments=found.argument_size_in_bytes,
        outputs=found.output_size_in_bytes,
        temporaries=found.temp_size_in_bytes,
        aliased=found.alias_size_in_bytes,
        peak=found.peak_memory_in_bytes,
        host_arguments=found.host_argument_size_in_bytes,
        host_outputs=found.host_output_size_in_bytes,
        host_temporaries=found.host_temp_size_in_bytes,
    )


def run(built: Built, arguments: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Run once and wait; donated arguments are gone afterwards.

    Raises:
      Refused: it failed.
    """
    try:
        return wait(tuple(built.compiled(*arguments)))
    except Exception as error:
        raise Refused(f"it fails when it runs: {first_line(error)}") from error
