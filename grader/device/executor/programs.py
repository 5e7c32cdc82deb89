"""Reads and compiles the programs that clients send: hostile input, which runs in the executor.

A program is StableHLO. A custom call that JAX does not emit for this device is refused, since
a crafted one may end the process; one that ends it all the same takes only the executor along.
What a program gives and takes is read from its own text, and from XLA once it is compiled.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.interpreters import mlir
from jax.interpreters.mlir import ir
from jaxlib import _jax, xla_client
from jaxlib.mlir.dialects import stablehlo

from grader.device.messages import wire
from grader.device.messages.dtypes import NUMBERS, TOKEN
from grader.records import hlo

CALLBACKS = "mhlo.grader_callbacks"
"""The attribute of a module that says which callbacks of its client it calls: `TABLE:COUNT`."""
_LARGEST = 1 << 30
_ALLOWED = re.compile(
    r"lapack_\w+_ffi|Sharding|SPMD(FullToShard|ShardToFull)Shape|annotate_device_placement"
    r"|mhlo\.(erf|topk|sinh|cosh|asin|acos|asinh|acosh|atanh|tan|ragged_dot)|xla\.sdy\.\w+"
    r"|TopK|ApproxTopK|(dynamic_)?ducc_fft\w*|MoveToHost|MoveToDevice|cpu_csr_\w+_ffi"
    r"|LayoutConstraint|shape_assertion|AllocateBuffer|Eigh|Qr|LuDecomposition"
    r"|ProductOfElementaryHouseholderReflectors|tridiagonal_solve_perturbed_ffi"
)
_CALLBACK = re.compile(r"xla(_ffi)?(_partitioned)?_python_cpu_callback")
_REFUSED = frozenset({"stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv"})
_ELEMENTS = {
    "i1": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "bf16": "bfloat16",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
}


class Refused(Exception):
    """The program cannot run on this device; the message says why."""


@dataclass
class Program:
    """A program that can be launched."""

    loaded: Any
    devices: list[int]
    shardings: list[Any] | None
    """Of each parameter (`HloSharding`), where there are several devices."""
    about: wire.Compiled


def compiled(
    order: wire.Compile,
    text: bytes,
    devices: Sequence[Any],
    callback: Callable[[int, int, int], Callable[..., Any]],
) -> Program:
    """Compile a program for some of the `devices`.

    `callback(program, table, index)` makes a function that calls the client.

    Raises:
      Refused: a program that is none, or that holds what is not allowed.
      Exception: XLA's own errors, of any type.
    """
    start = time.monotonic()
    options = xla_client.CompileOptions.ParseFromString(order.options)
    mine = [devices[number] for number in order.devices]
    with mlir.make_ir_context() as context:
        module = _module(context, text)
        table, count = _callbacks(module)
        _check(module.operation, count)
        main = _main(module)
        outputs = [_type(each) for each in main.type.results]
        inputs = [_type(each) for each in main.type.inputs]
        ranks = [-1 if dtype == TOKEN else len(shape) for dtype, shape in inputs]
        donated = _donated(main)
        name = str(module.operation.attributes["sym_name"]).strip('"')
        called = [callback(order.program, table, index) for index in range(count)]
        loaded = devices[0].client.compile_and_load(
            module, _jax.DeviceList(tuple(mine)), options, *([called] if called else [])
        )
    stats = loaded.get_compiled_memory_stats()
    several = len(mine) > 1
    whole = xla_client.HloSharding.replicate()
    given = loaded.get_parameter_shardings()
    gets = [_sharding(each) for each in given] if given else [whole] * len(ranks)
    gives = [_sharding(each) for each in loaded.get_output_shardings() or []]
    gives = gives or [whole] * len(outputs)
    kinds = (loaded.get_output_memory_kinds() or [["device"] * len(outputs)])[0]
    if not outputs:  # XLA describes an empty tuple as one result
        gives, kinds = [], []
    laid_in = _layouts(loaded.get_parameter_layouts(), ranks)
    laid_out = _layouts(loaded.get_output_layouts(), [len(shape) for _, shape in outputs])
    costs = loaded.cost_analysis()
    costs = costs[0] if isinstance(costs, list) else costs
    facts = hlo.read(loaded.get_hlo_text()) if several or donated else None
    over: dict[int, int] = {}  # what no result is written over stays with the client
    if facts is not None:
        over = {int(result): at for result, at in facts.aliases.items() if at in donated}
    about = wire.Compiled(
        op=order.op,
        start=start,
        end=0.0,
        name=name,
        outputs=[
            wire.OutputIs(
                dtype,
                list(shape),
                list(_shard_shape(mine, sharding, shape) if several else shape),
                kind,
                sharding.to_proto().SerializeToString(),
                layout,
            )
            for (dtype, shape), sharding, kind, layout in zip(
                outputs, gives, kinds, laid_out, strict=True
            )
        ],
        ranks=ranks,
        layouts=laid_in,
        parameter_shardings=[_sharding(each).to_proto().SerializeToString() for each in given]
        if given
        else None,
        over=over,
        code=stats.generated_code_size_in_bytes,
        arguments_size=stats.argument_size_in_bytes,
        outputs_size=stats.output_size_in_bytes,
        alias_size=stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        fingerprint=_bytes(loaded.fingerprint),
        flops=max(0.0, float(costs.get("flops", 0.0))),
        accessed=max(0.0, float(costs.get("bytes accessed", 0.0))),
        collectives=[(each.op, each.nbytes, each.count, each.runs) for each in facts.collectives]
        if facts is not None and several
        else [],
        costs={str(key): float(value) for key, value in costs.items()},
    )
    about.end = time.monotonic()
    return Program(loaded, order.devices, gets if several else None, about)


def _module(context: Any, text: bytes) -> Any:
    if len(text) > _LARGEST:
        raise Refused(f"a program of {len(text):,} bytes")
    try:
        if text.startswith(b"ML\xefR"):
            return stablehlo.deserialize_portable_artifact(context, text)
        return ir.Module.parse(text)
    except Exception as error:  # the parser has several types of its own
        raise Refused(f"no program: {error}") from error


def _callbacks(module: Any) -> tuple[int, int]:
    """The client's table of callbacks, and how many it holds."""
    if CALLBACKS not in module.operation.attributes:
        return 0, 0
    table, _, count = ir.StringAttr(module.operation.attributes[CALLBACKS]).value.partition(":")
    if not (table.isdecimal() and count.isdecimal() and len(table + count) < 20):
        raise Refused("a table of callbacks that is none")
    return int(table), int(count)


def _operations(operation: Any) -> Iterator[Any]:
    todo = [operation]
    while todo:
        found = todo.pop()
        yield found
        todo += [each.operation for region in found.regions for block in region for each in block]


def _check(whole: Any, callbacks: int) -> None:
    """Refuse operations that talk to the outside, and custom calls that JAX does not emit."""
    for operation in _operations(whole):
        if operation.name in _REFUSED:
            raise Refused(f"{operation.name} is not available on this device")
        if operation.name == "stablehlo.remainder" and "complex" in str(operation.results[0].type):
            raise Refused("a remainder of complex numbers, which ends XLA's compiler")
        if operation.name != "stablehlo.custom_call":
            continue
        target = ir.StringAttr(operation.attributes["call_target_name"]).value
        if _CALLBACK.fullmatch(target):
            _check_callback(operation, callbacks)
        elif not _ALLOWED.fullmatch(target):
            raise Refused(f"the custom call {target} is not available on this device")
        elif target == "TopK" and not _several(operation):
            raise Refused("a TopK that does not give values and indices, of which XLA aborts")


def _several(operation: Any) -> bool:
    """Whether an operation gives several values, or a tuple of them."""
    return len(operation.results) > 1 or any("tuple<" in str(r.type) for r in operation.results)


def _check_callback(operation: Any, count: int) -> None:
    given = [
        name for name in ("mhlo.backend_config", "backend_config") if name in operation.attributes
    ]
    configuration: Any = ir.DictAttr(operation.attributes[given[0]]) if given else {}
    if "index" not in configuration or ir.IntegerAttr(configuration["index"]).value >= count:
        raise Refused("a host callback that no client has registered")


def _main(module: Any) -> Any:
    for operation in module.body.operations:
        if operation.operation.name == "func.func" and _text_of(operation, "sym_name") == "main":
            return operation
    raise Refused("a program without a function `main`")


def _text_of(operation: Any, name: str) -> str:
    return str(ir.StringAttr(operation.attributes[name]).value)


def _type(given: Any) -> tuple[str, tuple[int, ...]]:
    """The dtype and the shape of a parameter or a result."""
    if "token" in str(given):
        return TOKEN, ()
    ranked = ir.RankedTensorType(given)
    element = str(ranked.element_type)
    name = _ELEMENTS.get(element)
    if name is None:
        name = re.sub(r"^f(\d+)E", r"float\1_e", element).lower()
        if name not in NUMBERS:
            raise Refused(f"arrays of {element} are not available on this device")
    return name, tuple(ranked.shape)


def _donated(main: Any) -> list[int]:
    if "arg_attrs" not in main.attributes:
        return []
    attributes = [ir.DictAttr(each) for each in main.attributes["arg_attrs"]]
    names = ("tf.aliasing_output", "jax.buffer_donor")
    return [at for at, each in enumerate(attributes) if any(name in each for name in names)]


def _sharding(given: Any) -> Any:
    if isinstance(given, xla_client.HloSharding):
        return given
    return xla_client.HloSharding.from_proto(given)


def _shard_shape(devices: Sequence[Any], sharding: Any, shape: tuple[int, ...]) -> list[int]:
    """The shape of one shard; filled up where it does not divide the whole."""
    if sharding.is_replicated() or sharding.is_maximal() or not shape:
        return list(shape)
    tiles = sharding.tile_assignment_dimensions()[: len(shape)]
    if len(tiles) < len(shape) or 0 in tiles:  # unreduced: each shard has the whole shape
        return list(shape)
    return [-(-size // tile) for size, tile in zip(shape, tiles, strict=True)]


def _layouts(found: Sequence[Any], ranks: Sequence[int]) -> list[list[int]]:
    """The dimensions of each array in the order in which XLA lays them out, the innermost first.

    As XLA writes it: `{1,0}` is an array in C order. It has none for tokens, and may have none at
    all.
    """
    usual = [list(reversed(range(max(rank, 0)))) for rank in ranks]
    if len(found) != len(ranks):
        return usual
    said = [[int(each) for each in re.findall(r"\d+", str(layout))] for layout in found]
    return [
        mine if sorted(mine) == sorted(other) else other
        for mine, other in zip(said, usual, strict=True)
    ]


def _bytes(fingerprint: Any) -> bytes:
    if fingerprint is None:
        return b""
    return fingerprint if isinstance(fingerprint, bytes) else str(fingerprint).encode()


def global_array(parts: Sequence[Any], devices: Sequence[Any], sharding: Any, shape: Any) -> Any:
    """One array of several devices, of their single parts, as XLA takes them."""
    placed = _jax.GSPMDSharding(tuple(devices), sharding, memory_kind=parts[0].sharding.memory_kind)
    return jax.make_array_from_single_device_arrays(tuple(shape), placed, list(parts))
