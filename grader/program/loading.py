"""Reads a serialised program as hostile input, and compares what it claims with its code.

The blob comes from the learner's process. Size, platform, devices, effects, types and
operations are checked before anything is compiled; a program that claims one signature
and computes another is refused. A blob can still crash the parser below Python, so this
runs in a disposable process.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import export
from jax.interpreters.mlir import dtype_to_ir_type, ir, make_ir_context
from jax.sharding import AbstractMesh, Mesh, NamedSharding, Sharding, SingleDeviceSharding

from grader.program.allowlist import operations, refused
from grader.program.export import SIZE_LIMIT, TARGET_PLATFORM, first_line
from grader.records.record import Measured, Signature


class Refused(Exception):
    """The program is not accepted; the message is for the learner."""

    def __init__(self, problem: str, operations: Sequence[str] = ()) -> None:
        super().__init__(problem)
        self.operations = list(operations)

    def note(self, measured: Measured) -> None:
        """Write the refusal into a record."""
        measured.problem = str(self)
        measured.refused = self.operations


@dataclass(frozen=True)
class Receiver:
    """The machine that a program is loaded for."""

    platform: str
    devices: int
    sharding: Callable[[NamedSharding, int], Sharding]
    """An exported sharding, over the given number of the receiver's devices."""


def here() -> Receiver:
    """This machine."""
    return Receiver(export.default_export_platform(), jax.device_count(), _concrete)


def elsewhere(devices: int) -> Receiver:
    """A target with this number of devices."""
    return Receiver(TARGET_PLATFORM, devices, _abstract)


@dataclass(frozen=True)
class Loaded:
    """A program that passed every check, on the receiver's devices."""

    exported: export.Exported
    signature: Signature
    donated: tuple[int, ...]
    """Flat indices of arguments whose buffers it may reuse."""
    operations: dict[str, int]
    """See `allowlist.operations`."""
    in_shardings: tuple[Sharding | None, ...]
    out_shardings: tuple[Sharding | None, ...]


def load(blob: bytes, receiver: Receiver | None = None) -> Loaded:
    """Read and check one program, for this machine unless there is another receiver.

    Raises:
      Refused: with the reason in words.
    """
    if len(blob) > SIZE_LIMIT:
        raise Refused(f"the program is larger than {SIZE_LIMIT >> 20} MiB")
    try:
        return _load(blob, receiver or here())
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"it is not a program JAX can read ({first_line(error)})") from error


def _load(blob: bytes, receiver: Receiver) -> Loaded:
    no_mesh: Any = None  # keeps the abstract mesh; the annotation of out_shardings_jax lacks it
    exported = export.deserialize(bytearray(blob))
    _check_claims(exported, receiver)
    with make_ir_context() as context, ir.Location.unknown():
        module = _parse(exported, context)
        if forbidden := refused(module):
            found = "; ".join(forbidden[:5])
            raise Refused(f"the program holds {found}: the grader does not run that", forbidden)
        main = _main(module)
        _check_types(main, exported)
        donated = _donated(main, exported.module_kept_var_idx)
        counts = operations(module)
    return Loaded(
        exported,
        _signature(exported),
        donated,
        counts,
        _placed(exported.in_shardings_jax(), exported.nr_devices, receiver),
        _placed(exported.out_shardings_jax(no_mesh), exported.nr_devices, receiver),
    )


def _check_claims(exported: Any, receiver: Receiver) -> None:
    if exported.platforms != (receiver.platform,):
        claimed = ", ".join(exported.platforms)
        raise Refused(f"it was exported for {claimed}, not for {receiver.platform}")
    if not 1 <= exported.nr_devices <= receiver.devices:
        raise Refused(
            f"it was exported for {exported.nr_devices} devices, this machine has "
            f"{receiver.devices}"
        )
    if exported.ordered_effects or exported.unordered_effects:
        raise Refused("it has side effects, so it cannot leave the process that made it")
    if exported.uses_global_constants or not _static(exported):
        raise Refused("its shapes are symbolic; export it for concrete shapes")
    leaves = exported.in_tree.num_leaves, exported.out_tree.num_leaves
    if leaves != (len(exported.in_avals), len(exported.out_avals)):
        raise Refused("its trees do not have as many leaves as it has arguments and results")


def _static(exported: export.Exported) -> bool:
    avals = (*exported.in_avals, *exported.out_avals)
    return all(isinstance(size, int) for aval in avals for size in aval.shape)


def _parse(exported: export.Exported, context: Any) -> ir.Module:
    # An operation of an unknown dialect must parse, or the refusal could not name it.
    context.allow_unregistered_dialects = True
    return ir.Module.parse(exported.mlir_module(), context)


def _main(module: ir.Module) -> Any:
    for operation in module.body.operations:
        function: Any = operation
        if operation.operation.name == "func.func" and function.name.value == "main":
            return function
    raise Refused("it has no function `main`")


def _check_types(main: Any, exported: export.Exported) -> None:
    kept = exported.module_kept_var_idx
    if list(kept) != sorted(set(kept)):
        raise Refused("its list of used arguments is out of order")
    wanted = [_ir_type(exported.in_avals[index]) for index in kept]
    results = [_ir_type(aval) for aval in exported.out_avals]
    if list(main.type.inputs) != wanted or list(main.type.results) != results:
        raise Refused(
            f"its signature says {_types(wanted)} -> {_types(results)}, its code is "
            f"{_types(main.type.inputs)} -> {_types(main.type.results)}"
        )


def _types(types: Sequence[Any]) -> str:
    return f"({', '.join(map(str, types))})"


def _ir_type(aval: Any) -> Any:
    if is_key(aval):
        aval = jax.eval_shape(jax.random.key_data, struct(aval))
    return ir.RankedTensorType.get(aval.shape, dtype_to_ir_type(np.dtype(aval.dtype)))


def is_key(value: Any) -> bool:
    """Whether an array or aval holds typed PRNG keys."""
    return bool(jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key))


def struct(aval: Any, sharding: Sharding | None = None) -> Any:
    """An aval as something to lower for, on `sharding` if there is one."""
    make: Any = jax.ShapeDtypeStruct
    return make(aval.shape, aval.dtype, sharding=sharding)


def _donated(main: Any, kept: Sequence[int]) -> tuple[int, ...]:
    """Export carries no donation, but the lowering left it as attributes of the arguments."""
    attributes = main.attributes
    if "arg_attrs" not in attributes:
        return ()
    marks = ("tf.aliasing_output", "jax.buffer_donor")
    return tuple(
        index
        for index, argument in zip(kept, attributes["arg_attrs"], strict=True)
        if any(mark in argument for mark in marks)
    )


def _signature(exported: Any) -> Signature:
    return Signature(
        tuple(map(aval_text, exported.in_avals)),
        tuple(map(aval_text, exported.out_avals)),
        str(exported.in_tree),
        str(exported.out_tree),
        exported.nr_devices,
    )


def aval_text(aval: Any) -> str:
    """`float32[64,32]`, without sharding and memory."""
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]"


def _placed(
    shardings: Sequence[Any], devices: int, receiver: Receiver
) -> tuple[Sharding | None, ...]:
    for mesh in (sharding.mesh for sharding in shardings if sharding):
        if mesh.axis_names and math.prod(mesh.axis_sizes) != devices:
            raise Refused(f"its mesh {dict(mesh.shape)} does not fit its {devices} devices")
    return tuple(s and receiver.sharding(s, devices) for s in shardings)


def _abstract(sharding: NamedSharding, devices: int) -> Sharding:
    """The same sharding on an abstract mesh, since a target's devices know no kinds of memory.

    Every kind of memory is named. If one is not, JAX pairs donated arguments with results
    as if all were in one memory.
    """
    host = sharding.memory_kind == "pinned_host"
    mesh = sharding.mesh if sharding.mesh.axis_names else AbstractMesh((devices,), ("devices",))
    return NamedSharding(mesh, sharding.spec, memory_kind="pinned_host" if host else "device")


def _concrete(sharding: NamedSharding, devices: int) -> Sharding:
    """The same sharding on this machine's first devices; an export holds no device ids."""
    mesh = sharding.mesh
    if not mesh.axis_names:
        return SingleDeviceSharding(jax.devices()[0], memory_kind=sharding.memory_kind)
    grid = np.array(jax.devices()[:devices]).reshape(mesh.axis_sizes)
    concrete = Mesh(grid, mesh.axis_names, axis_types=mesh.axis_types)
    return NamedSharding(concrete, sharding.spec, memory_kind=sharding.memory_kind)
