"""A client's copies between devices, and arrays laid out, taken apart and put together anew."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from grader.device.front.arrays import (
    DEVICE,
    Array,
    Buffer,
    Placement,
    Shardings,
    checked_shape,
    inside,
    overlap,
    single,
)
from grader.device.front.handles import ALWAYS_COPY, DONATE, Handles
from grader.device.front.holding import Holding, failed
from grader.device.messages import dtypes, wire
from grader.device.messages.dtypes import size
from grader.device.messages.errors import INVALID, Failed
from grader.records.record import PINNED


class Moves:
    """What becomes of one client's arrays without its host."""

    def __init__(self, shardings: Shardings, holding: Holding, arrays: Handles) -> None:
        self._shardings = shardings
        self._holding = holding
        self._desk = holding.desk
        self._arrays = arrays

    def on_copy_arrays(self, op: int, asked: Any) -> None:
        given = self._handles_of(asked.array_handles, asked.result_handles)
        memory = str(asked.memory_kind) if asked.HasField("memory_kind") else None
        if memory not in (None, "", DEVICE, PINNED):
            raise Failed(INVALID, f"there is no memory kind {memory}")
        for handle, array in given:
            before = array.placement
            devices = self._shardings.check(asked.device_ids or before.devices)
            if len(devices) != len(before.devices):
                raise Failed(INVALID, f"{len(before.devices)} shards for {len(devices)} devices")
            after = Placement(
                devices, before.shapes, before.ranges, memory or before.memory, before.tiling
            )
            self._copy(handle, array, after, asked.copy_semantics)
        self._reply_arrays(op, "copy_arrays", asked.result_handles)

    def _handles_of(self, given: Sequence[int], made: Sequence[int]) -> list[tuple[int, Array]]:
        if len(given) != len(made):
            raise Failed(INVALID, f"{len(made)} handles for {len(given)} arrays")
        return [(new, self._arrays.get(old)) for old, new in zip(given, made, strict=True)]

    def _reply_arrays(self, op: int, kind: str, handles: Sequence[int]) -> None:
        found = list(handles)

        def fill(response: Any) -> None:
            answer = getattr(response, f"{kind}_response")
            answer.SetInParent()
            answer.array_handles.extend(found)

        self._arrays.reply(op, fill)

    def _copy(self, handle: int, array: Array, after: Placement, semantics: int) -> None:
        """Copy each shard to another device or another kind of memory, where it must."""
        before = array.placement
        stays = [
            semantics != ALWAYS_COPY and old == new and before.memory == after.memory
            for old, new in zip(before.devices, after.devices, strict=True)
        ]
        wanted = self._holding.wanted(array.dtype, after)
        for device, there in zip(after.devices, stays, strict=True):
            if there:
                wanted.pop(device, None)
        self._holding.check(wanted, f"a copy of {array.words()}")
        buffers = [
            old if there else self._holding.make(array.dtype, old.shape, device, after.memory)
            for old, there, device in zip(array.buffers, stays, after.devices, strict=True)
        ]
        made = self._holding.array(array.dtype, array.shape, after, buffers)
        for old, new, there in zip(array.buffers, buffers, stays, strict=True):
            if not there:
                self._build(new, [wire.Piece(old.number, [], [])], old)
        if semantics == DONATE:
            self._consume(array)
        self._arrays.keep(handle, made)

    def _consume(self, array: Array) -> None:
        """An array was donated: it is gone, but for the buffers that another array holds."""
        self._holding.forget(array)

    def _build(
        self, buffer: Buffer, pieces: list[wire.Piece], source: Buffer, part: int = -1, *,
        silent: bool = False,
    ) -> None:  # fmt: skip
        """Fill a buffer from others; `source` is the one, or one of those, that it comes from.

        `part` is how many bytes come from `source`'s device, all of them if negative. The book
        has no word of it if it is `silent`: a GPU would do nothing.
        """
        count = buffer.bytes if part < 0 else part
        event, engines, seconds = self._way(source, buffer, count)
        asked = self._desk.now()
        order = wire.Build(
            0, buffer.number, buffer.device, buffer.memory, buffer.dtype, list(buffer.shape),
            pieces, engines, seconds,
        )  # fmt: skip

        def heard(answer: Any, payload: bytearray) -> None:
            error = failed(answer)
            start, end = self._desk.times(answer, asked)
            if event and not silent:
                details: dict[str, Any] = {"to": buffer.device} if event == "d2d" else {}
                if source.memory != buffer.memory:
                    details |= {"to_memory": buffer.memory}
                self._holding.copied(
                    event, buffer, asked, start, None if error else end,
                    **{"device": source.device, "memory": source.memory, **details},
                )  # fmt: skip
            self._holding.fill([buffer], error)

        self._desk.machine.ask(order, heard)

    def _way(self, source: Buffer, target: Buffer, count: int) -> tuple[str, list[Any], float]:
        """What a copy is, the engines that do it, and how long they take at least."""
        options = self._desk.options
        match source.memory, target.memory:
            case "device", "device" if source.device != target.device:
                engines = [("out", source.device), ("in", target.device)]
                return "d2d", engines, options.device_link.seconds(count)
            case "device", "device":
                return "copy", [("compute", source.device)], 0.0
            case "device", _:
                return "d2h", [("out", source.device)], options.host_link.seconds(count)
            case _, "device":
                return "h2d", [("in", target.device)], options.host_link.seconds(count)
            case _:
                return "", [], 0.0

    def on_reshard_arrays(self, op: int, asked: Any) -> None:
        given = self._handles_of(asked.array_handles, asked.result_handles)
        if len(asked.array_specs) != len(given):
            raise Failed(
                INVALID, f"{len(asked.array_specs)} specifications for {len(given)} arrays"
            )
        for (handle, array), spec in zip(given, asked.array_specs, strict=True):
            after = self._shardings.read(spec.sharding, array.shape)
            self._reshard(handle, array, after, asked.copy_semantics)
        self._reply_arrays(op, "reshard_arrays", asked.result_handles)

    def _reshard(self, handle: int, array: Array, after: Placement, semantics: int) -> None:
        """Lay an array out anew: each new shard is put together from the parts that it needs."""
        self._holding.check(
            self._holding.wanted(array.dtype, after), f"{array.words()}, laid out anew"
        )
        plans = [self._pieces(array, after, place) for place in range(len(after.devices))]
        buffers = self._holding.make_all(array.dtype, after)
        made = self._holding.array(array.dtype, array.shape, after, buffers)
        itemsize = size(array.dtype)
        for buffer, plan in zip(buffers, plans, strict=True):
            pieces = [piece for _, piece in plan]
            far = [found for found in plan if found[0].device != buffer.device]
            source = (far or plan)[0][0] if plan else buffer
            moved = sum(
                math.prod(end - start for start, end in piece.target) * itemsize for _, piece in far
            )
            self._build(buffer, pieces, source, moved if source.memory == buffer.memory else -1)
        if semantics == DONATE:
            self._consume(array)
        self._arrays.keep(handle, made)

    def _pieces(
        self, array: Array, after: Placement, place: int
    ) -> list[tuple[Buffer, wire.Piece]]:
        """The parts of old shards that make up a new one: from its own device where it can be."""
        before, target = array.placement, after.ranges[place]
        order = sorted(
            range(len(before.devices)),
            key=lambda old: before.devices[old] != after.devices[place],
        )
        found: list[tuple[Buffer, wire.Piece]] = []
        covered: set[Any] = set()
        for old in order:
            common = overlap(before.ranges[old], target)
            if common is not None and before.ranges[old] not in covered:
                covered.add(before.ranges[old])
                source, to = inside(common, before.ranges[old]), inside(common, target)
                buffer = array.buffers[old]
                found.append((buffer, wire.Piece(buffer.number, source, to)))
        return found

    def on_bitcast_arrays(self, op: int, asked: Any) -> None:
        given = self._handles_of(asked.array_handles, asked.result_handles)
        if len(asked.array_specs) != len(given):
            raise Failed(
                INVALID, f"{len(asked.array_specs)} specifications for {len(given)} arrays"
            )
        for (handle, array), spec in zip(given, asked.array_specs, strict=True):
            dtype = dtypes.named(spec.dtype)
            shape = checked_shape(spec.shape.dims, size(dtype))
            after = self._shardings.read(spec.sharding, shape)
            self._bitcast(handle, array, dtype, shape, after, asked.copy_semantics)
        self._reply_arrays(op, "bitcast_arrays", asked.result_handles)

    def _bitcast(
        self, handle: int, array: Array, dtype: str, shape: tuple[int, ...], after: Placement,
        semantics: int,
    ) -> None:  # fmt: skip
        """Read the same bytes as another dtype or shape."""
        if after.devices != array.placement.devices:
            raise Failed(INVALID, "a bitcast stays on its devices")
        sizes = [math.prod(each) * size(dtype) for each in after.shapes]
        if sizes != [buffer.bytes for buffer in array.buffers]:
            raise Failed(
                INVALID, f"{array.words()} does not have the bytes of {dtype}{list(shape)}"
            )
        olds = list(array.buffers)
        if semantics == DONATE:
            self._consume(array)
        self._holding.check(self._holding.wanted(dtype, after), f"a bitcast of {array.words()}")
        buffers = self._holding.make_all(dtype, after)
        for old, new in zip(olds, buffers, strict=True):
            self._build(new, [wire.Piece(old.number, [], [])], old, silent=True)
        self._arrays.keep(handle, self._holding.array(dtype, shape, after, buffers))

    def on_remap_arrays(self, op: int, asked: Any) -> None:
        arrays = [self._arrays.get(handle) for handle in asked.array_handles]
        specs, handles = asked.plan.output_specs, list(asked.result_handles)
        if len(handles) != len(specs):
            raise Failed(INVALID, f"{len(handles)} handles for {len(specs)} arrays")
        outputs = []
        for spec in specs:
            dtype = dtypes.named(spec.dtype)
            shape = checked_shape(spec.shape.dims, size(dtype))
            outputs.append((dtype, shape, self._shardings.read(spec.sharding, shape)))
        shards = _planned(asked.plan, arrays, [placement for _, _, placement in outputs])
        made = [
            self._remapped(output, found) for output, found in zip(outputs, shards, strict=True)
        ]
        if asked.copy_semantics == DONATE:
            for array in arrays:
                self._consume(array)
        for handle, new in zip(handles, made, strict=True):
            self._arrays.keep(handle, new)
        self._reply_arrays(op, "remap_arrays", handles)

    def _remapped(
        self, output: tuple[str, tuple[int, ...], Placement], found: dict[int, Buffer]
    ) -> Array:
        dtype, shape, placement = output
        buffers = [found.get(place) for place in range(len(placement.devices))]
        fits = [
            buffer is not None and buffer.device == device and buffer.dtype == dtype
            and buffer.shape == part
            for buffer, device, part in zip(
                buffers, placement.devices, placement.shapes, strict=True
            )
        ]  # fmt: skip
        if not all(fits):
            raise Failed(INVALID, "a plan whose shards do not make up its arrays")
        return self._holding.array(dtype, shape, placement, [each for each in buffers if each])

    def on_assemble_array_from_single_device_arrays(self, op: int, asked: Any) -> None:
        parts = [self._arrays.get(handle) for handle in asked.single_device_array_handles]
        buffers = [buffer for part in parts for buffer in part.buffers]
        dtype = buffers[0].dtype if buffers else dtypes.named(asked.dtype)
        shape = checked_shape(asked.shape.dims, size(dtype))
        placement = self._shardings.read(asked.sharding, shape)
        places = [(buffer.device, buffer.memory) for buffer in buffers]
        if places != [(device, placement.memory) for device in placement.devices]:
            raise Failed(INVALID, "shards that do not lie where the array's sharding says")
        shapes = tuple(buffer.shape for buffer in buffers)
        actual = Placement(
            placement.devices, shapes, placement.ranges, placement.memory, placement.tiling
        )
        made = self._holding.array(dtype, shape, actual, buffers)
        if asked.copy_semantics == DONATE:
            for part in parts:
                self._consume(part)
        handle = asked.result_handle or self._arrays.new_handle()
        self._arrays.keep(handle, made)

        def fill(response: Any) -> None:
            response.assemble_array_from_single_device_arrays_response.array_handle = handle

        self._arrays.reply(op, fill)

    def on_disassemble_into_single_device_arrays(self, op: int, asked: Any) -> None:
        array = self._arrays.get(asked.array_handle)
        handles = list(asked.result_handles) or [self._arrays.new_handle() for _ in array.buffers]
        if len(handles) != len(array.buffers):
            raise Failed(INVALID, f"{len(handles)} handles for {len(array.buffers)} shards")
        made = [self._shard(array, place) for place in range(len(handles))]
        if asked.copy_semantics == DONATE:
            self._consume(array)
        for handle, shard in zip(handles, made, strict=True):
            self._arrays.keep(handle, shard)
        self._reply_arrays(op, "disassemble_into_single_device_arrays", handles)

    def _shard(self, array: Array, place: int) -> Array:
        buffer = array.buffers[place]
        placement = single(buffer.device, buffer.shape, buffer.memory)
        return self._holding.array(array.dtype, buffer.shape, placement, [buffer])

    def on_fully_replicated_shard(self, op: int, asked: Any) -> None:
        array = self._arrays.get(asked.array_handle)
        shard = self._shard(array, 0)
        if asked.copy_semantics == DONATE:
            self._consume(array)
        handle = asked.result_handle or self._arrays.new_handle()
        self._arrays.keep(handle, shard)

        def fill(response: Any) -> None:
            response.fully_replicated_shard_response.array_handle = handle

        self._arrays.reply(op, fill)


def _planned(
    plan: Any, arrays: Sequence[Array], placements: Sequence[Placement]
) -> list[dict[int, Buffer]]:
    """For each result of a plan, its shards by their place.

    Raises:
      Failed: the plan names arrays or shards that are not there.
    """
    shards: list[dict[int, Buffer]] = [{} for _ in placements]

    def there(array: int, output: int) -> None:
        if not (0 <= array < len(arrays) and 0 <= output < len(placements)):
            raise Failed(INVALID, "a plan for arrays that are not there")

    for mapping in plan.mappings:
        there(mapping.in_array, mapping.out_array)
        buffers = arrays[mapping.in_array].buffers
        for source, target in _mapped(mapping, len(buffers)):
            shards[mapping.out_array][target] = buffers[source]
    for output, array, device in _moved(plan):
        there(array, output)
        places = placements[output].devices
        for buffer in arrays[array].buffers:
            if buffer.device == device and device in places:
                shards[output][places.index(device)] = buffer
    return shards


def _moved(plan: Any) -> Iterator[tuple[int, int, int]]:
    """Result, argument and device of each shard of a plan that names devices, not intervals."""
    for output in plan.input_devices_for_output:
        for given in output.input_devices:
            for device in given.device_list.device_ids:
                yield output.out_array, given.in_array, device


def _mapped(mapping: Any, count: int) -> Iterator[tuple[int, int]]:
    """Which shard becomes which, by one mapping of a plan.

    Raises:
      Failed: it names shards that are not there.
    """
    fields = ("from_start", "from_end", "from_step", "to_start", "to_end", "to_step")
    columns = [list(getattr(mapping, name)) for name in fields]
    if len({len(column) for column in columns}) != 1:
        raise Failed(INVALID, "a plan with torn intervals")
    for row in zip(*columns, strict=True):
        if row[2] < 1 or row[5] < 1:
            raise Failed(INVALID, "a plan that steps backwards")
        sources, targets = range(*row[:3]), range(*row[3:])
        if len(sources) != len(targets) or (sources and not 0 <= sources[0] <= sources[-1] < count):
            raise Failed(INVALID, "a plan for shards that are not there")
        yield from zip(sources, targets, strict=True)
