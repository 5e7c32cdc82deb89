"""A client's arrays as the front knows them: shapes, places and counted buffers, but no data.

A `Buffer` is one shard on one device. Arrays share buffers, and a buffer lives until the last
array that holds it is gone. Where an array's shards lie is a `Placement`, which is read from
a sharding of XLA's protocol.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grader.device.messages.errors import INVALID, UNIMPLEMENTED, Failed
from grader.device.messages.protocol import Messages
from grader.records.record import PINNED

DEVICE = "device"
_LARGEST = 1 << 46
"""Bytes of an array beyond which no machine is asked."""
_RANK = 32
_WHOLE = ("REPLICATED", "MAXIMAL", "UNREDUCED", "MANUAL")
"""Shardings of which each shard has the array's whole shape."""

Range = tuple[int, int]
Ranges = tuple[Range, ...]


@dataclass(eq=False)
class Buffer:
    """One shard. `ready` is called back once it is filled, or has failed."""

    number: int
    device: int
    memory: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    place: int
    """What tells its memory from others': its own number, or the place of a donated buffer that
    it was written over."""
    holders: int = 0
    deleted: bool = False
    filled: bool = False
    error: Failed | None = None
    ready: list[Callable[[], None]] = field(default_factory=list)

    def words(self) -> str:
        """`float32[8,16]`."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Placement:
    """Where the shards of an array lie."""

    devices: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    """Of each shard."""
    ranges: tuple[Ranges, ...]
    """What part of the array each shard is; a shard may be longer where it is filled up."""
    memory: str
    tiling: bytes | None
    """`xla.OpSharding`, serialised, if it is one of those."""

    def at(self, place: int) -> "Placement":
        """Where one shard lies, as an array of its own."""
        return single(self.devices[place], self.shapes[place], self.memory)


@dataclass(eq=False)
class Array:
    """An array of a client."""

    dtype: str
    shape: tuple[int, ...]
    placement: Placement
    buffers: list[Buffer]
    released: bool = False

    def words(self) -> str:
        """`float32[8,16]`."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def deleted(self) -> bool:
        """Whether it was deleted, or donated, or a part of it was."""
        return self.released or any(each.deleted for each in self.buffers)


def single(device: int, shape: Sequence[int], memory: str) -> Placement:
    """A whole array on one device."""
    whole = tuple((0, size) for size in shape)
    return Placement((device,), (tuple(shape),), (whole,), memory, None)


def checked_shape(dims: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """A shape that a client sent.

    Raises:
      Failed: no array has it.
    """
    shape = tuple(int(size) for size in dims)
    if len(shape) > _RANK or min(shape, default=0) < 0:
        raise Failed(INVALID, f"no array has the shape {list(shape)[:_RANK]}")
    if math.prod(shape) * max(itemsize, 1) > _LARGEST:
        raise Failed(INVALID, f"an array of the shape {list(shape)} is too large")
    return shape


class Shardings:
    """Reads the shardings of XLA's protocol, for a machine with so many devices."""

    def __init__(self, messages: Messages, devices: int) -> None:
        self._devices = devices
        self._single = messages.find("SingleDeviceShardingProto")
        self._tiled = messages.find("HloShardingProto")
        self._concrete = messages.find("ConcreteShardingProto")
        self._even = messages.find("ConcreteEvenShardingProto")
        self._whole = messages.find("ShardingProto")
        self._operation = messages.find("xla.OpSharding")
        self._known: dict[tuple[bytes, tuple[int, ...]], Placement] = {}

    def read(self, sharding: Any, shape: tuple[int, ...]) -> Placement:
        """Where an array of this shape lies, by a `ShardingProto`.

        Raises:
          Failed: it is none, or names devices that are not there.
        """
        kind = sharding.serialized_sharding.type_name.rpartition("::")[2]
        data = sharding.serialized_sharding.data
        key = kind.encode() + b" " + data, shape
        if key not in self._known:
            if len(self._known) > 4096:
                self._known.clear()
            self._known[key] = self._read(kind, data, shape)
        return self._known[key]

    def _read(self, kind: str, data: bytes, shape: tuple[int, ...]) -> Placement:
        match kind:
            case "SingleDeviceSharding":
                given = self._single.FromString(data)
                self.check([given.device_id])
                return single(given.device_id, shape, _memory(given))
            case "HloSharding":
                given = self._tiled.FromString(data)
                devices = self.check(given.devices.device_ids)
                return tiled(devices, given.xla_op_sharding, shape, _memory(given))
            case "ConcreteEvenSharding":
                given = self._even.FromString(data)
                devices = self.check(given.devices.device_ids)
                shapes = [tuple(given.shard_shape.dims)] * len(devices)
                return _concrete(devices, shape, shapes, _memory(given))
            case "ConcreteSharding":
                given = self._concrete.FromString(data)
                devices = self.check(given.devices.device_ids)
                shapes = [tuple(each.dims) for each in given.shard_shapes]
                return _concrete(devices, shape, shapes, _memory(given))
            case _:
                raise Failed(UNIMPLEMENTED, f"the sharding {kind[:80]}")

    def check(self, devices: Sequence[int]) -> tuple[int, ...]:
        """The numbers of devices, which are all there, and there once.

        Raises:
          Failed: they are not.
        """
        found = tuple(devices)
        if not found or len(set(found)) < len(found):
            raise Failed(INVALID, "no devices, or one device twice")
        if not all(0 <= device < self._devices for device in found):
            raise Failed(INVALID, f"there is no device {max(found)}")
        return found

    def write(self, placement: Placement) -> Any:
        """The `ShardingProto` of a placement that `read` or a program made."""
        sharding = self._whole()
        if placement.tiling is None:
            sharding.serialized_sharding.type_name = "xla::ifrt::SingleDeviceSharding"
            written = self._single(device_id=placement.devices[0], memory_kind=placement.memory)
        else:
            sharding.serialized_sharding.type_name = "xla::ifrt::HloSharding"
            written = self._tiled(memory_kind=placement.memory)
            written.devices.device_ids.extend(placement.devices)
            written.xla_op_sharding.ParseFromString(placement.tiling)
        sharding.serialized_sharding.data = written.SerializeToString()
        return sharding

    def of_program(
        self, devices: Sequence[int], tiling: bytes, shape: Sequence[int], memory: str
    ) -> Placement:
        """Where a program's result lies; `tiling` is an `xla.OpSharding`."""
        if len(devices) == 1:
            return single(devices[0], shape, memory)
        operation = self._operation.FromString(tiling)
        return tiled(tuple(devices), operation, tuple(shape), memory)


def _memory(given: Any) -> str:
    kind = given.memory_kind or DEVICE
    if kind not in (DEVICE, PINNED):
        raise Failed(INVALID, f"there is no memory kind {kind[:40]}")
    return str(kind)


def _concrete(
    devices: tuple[int, ...],
    shape: tuple[int, ...],
    shapes: Sequence[tuple[int, ...]],
    memory: str,
) -> Placement:
    """Shards of given shapes. Which part of the array each is, they do not say."""
    if len(shapes) != len(devices):
        raise Failed(INVALID, f"{len(shapes)} shards for {len(devices)} devices")
    for each in shapes:
        checked_shape(each, 8)
    ranges = tuple(tuple((0, size) for size in each) for each in shapes)
    if len(devices) == 1 and shapes[0] == shape:
        return single(devices[0], shape, memory)
    return Placement(devices, tuple(shapes), ranges, memory, None)


def tiled(
    devices: tuple[int, ...], operation: Any, shape: tuple[int, ...], memory: str
) -> Placement:
    """Where the shards of an `xla.OpSharding` lie.

    Raises:
      Failed: it tiles no array of this shape over these devices.
    """
    ranges = _ranges(operation, len(devices), shape)
    shard = tuple(
        max((end - start for start, end in dim), default=0) for dim in zip(*ranges, strict=True)
    )
    return Placement(
        devices,
        (shard if shape else (),) * len(devices),
        ranges,
        memory,
        operation.SerializeToString(deterministic=True),
    )


def _ranges(operation: Any, count: int, shape: tuple[int, ...]) -> tuple[Ranges, ...]:
    kinds = operation.Type
    if operation.HasField("named_sharding"):
        raise Failed(UNIMPLEMENTED, "a sharding by names")
    if kinds.Name(operation.type) in _WHOLE:
        return (tuple((0, size) for size in shape),) * count
    if operation.type != kinds.Value("OTHER"):
        raise Failed(UNIMPLEMENTED, f"the sharding {kinds.Name(operation.type)}")
    dims = list(operation.tile_assignment_dimensions)
    if len(dims) < len(shape) or min(dims, default=1) < 1 or math.prod(dims) != count:
        raise Failed(INVALID, f"tiles {dims} for {count} devices and the shape {list(shape)}")
    order = _order(operation, count)
    tiles = dims[: len(shape)]
    behind = math.prod(dims[len(shape) :])
    found: dict[int, Ranges] = {}
    for place, index in enumerate(itertools.product(*map(range, tiles))):
        part = tuple(_part(*each) for each in zip(shape, tiles, index, strict=True))
        for number in order[place * behind : (place + 1) * behind]:
            found[int(number)] = part
    if sorted(found) != list(range(count)):
        raise Failed(INVALID, "a sharding that does not name each device once")
    return tuple(found[number] for number in range(count))


def _order(operation: Any, count: int) -> Sequence[int]:
    """The devices' places in the order of the tiles."""
    if not operation.iota_reshape_dims:
        return list(operation.tile_assignment_devices)
    reshape, transpose = list(operation.iota_reshape_dims), list(operation.iota_transpose_perm)
    if math.prod(reshape) != count or sorted(transpose) != list(range(len(reshape))):
        raise Failed(INVALID, "a sharding whose devices have no order")
    return list(np.arange(count).reshape(reshape).transpose(transpose).ravel())


def _part(size: int, tiles: int, index: int) -> Range:
    """The part of a dimension that one tile covers; the last ones may be short, or empty."""
    step = -(-size // tiles)
    return min(index * step, size), min((index + 1) * step, size)


def overlap(one: Ranges, other: Ranges) -> Ranges | None:
    """What two parts of an array have in common; None if that is nothing."""
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return both if all(start < end for start, end in both) else None


def inside(part: Ranges, whole: Ranges) -> list[Range]:
    """`part`, counted from where `whole` begins."""
    return [(a - c, b - c) for (a, b), (c, _) in zip(part, whole, strict=True)]
