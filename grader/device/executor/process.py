"""The executor: the process that owns XLA's client of this machine's processor, and may die.

It does what the front asks on the socket that it inherits (`grader.device.messages.wire`), in the
order of its engines (`grader.device.executor.schedule`): it fills buffers, compiles, launches, and
sends buffers back. It keeps no accounts and meets no client. When the front's end closes, it
ends at once, whatever it is doing.
"""

import faulthandler
import itertools
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Buffer, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import ml_dtypes  # noqa: F401 (NumPy knows its types by name once it is imported)
import msgspec
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.interpreters import mlir
from jaxlib import cpu_sparse, lapack, xla_client  # noqa: F401 (registers its calls)

from grader.device.executor import programs
from grader.device.executor.schedule import Schedule, Value, Work
from grader.device.messages import wire
from grader.device.messages.dtypes import TOKEN, numpy_type
from grader.device.messages.packing import pack, unpack
from grader.fences import limits

_QUICK = 1 << 16
"""Bytes that are copied in the thread that reads the orders."""
_ALIGNED = 64
_INVALID, _INTERNAL = 3, 13
_CODES = {
    "CANCELLED": 1,
    "UNKNOWN": 2,
    "INVALID_ARGUMENT": _INVALID,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12,
    "INTERNAL": _INTERNAL,
    "UNAVAILABLE": 14,
    "DATA_LOSS": 15,
}


class Failed(Exception):
    """An error with its code, as it goes to the client."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def failure(error: BaseException) -> Failed:
    """Any error as one with a code; XLA's say their code at the start of their text."""
    if isinstance(error, Failed):
        return error
    if isinstance(error, programs.Refused):
        return Failed(_INVALID, str(error))
    code, _, text = str(error).partition(":")
    if code in _CODES:
        return Failed(_CODES[code], text.strip())
    return Failed(_INTERNAL, f"{type(error).__name__}: {error}")


class Executor:
    """Buffers and programs by their numbers, and the engines that work on them."""

    def __init__(self, line: wire.Line, devices: Sequence[Any]) -> None:
        self._line = line
        self._devices = devices
        self._places: dict[tuple[int, str], Any] = {}
        self._buffers: dict[int, Value] = {}
        self._programs: dict[int, programs.Program] = {}
        self._schedule = Schedule(3 * len(devices) + 4)
        self._calls: dict[int, Future[list[Any]]] = {}
        self._numbers = itertools.count(1)
        self._outbox: queue.SimpleQueue[wire.Answer] = queue.SimpleQueue()
        self._reader = 0
        self._odd_layouts = False
        """Whether a program takes or gives arrays that do not lie in C order."""

    def serve(self) -> None:
        """Do what is asked until the front hangs up."""
        threading.Thread(target=self._send_later, name="outbox", daemon=True).start()
        self._reader = threading.get_ident()
        decoder = msgspec.msgpack.Decoder(wire.Order)
        while True:
            order, payload, file = self._line.receive(decoder)
            self._do(order, payload, file)

    def _do(self, order: wire.Order, payload: bytearray, file: int | None) -> None:
        match order:
            case wire.Launch():
                self._launch(order)
            case wire.Put():
                self._put(order, payload, file)
            case wire.Get():
                self._get(order, file)
            case wire.Build():
                self._build(order)
            case wire.Drop():
                self._drop(order)
            case wire.Fail():
                self._fail(order)
            case wire.Compile():
                threading.Thread(target=self._compile, args=(order, payload), daemon=True).start()
            case wire.Text():
                threading.Thread(target=self._text, args=(order,), daemon=True).start()
            case wire.Returned():
                self._returned(order, payload)

    def _drop(self, order: wire.Drop) -> None:
        for number in order.buffers:
            self._buffers.pop(number, None)
        for number in order.programs:
            self._programs.pop(number, None)

    def _fail(self, order: wire.Fail) -> None:
        for number in order.buffers:
            error = Failed(order.code, order.message)
            self._schedule.settle(self._value(number), None, error)

    def _value(self, number: int) -> Value:
        return self._buffers.setdefault(number, Value())

    def _place(self, device: int, memory: str) -> Any:
        key = device, memory
        if key not in self._places:
            self._places[key] = jax.sharding.SingleDeviceSharding(
                self._devices[device], memory_kind=memory
            )
        return self._places[key]

    def _placed(self, host: Any, device: int, memory: str) -> Any:
        aval = jax.core.ShapedArray(host.shape, host.dtype)
        place = self._place(device, memory)
        array = xla_client.batched_device_put(aval, place, [host], [self._devices[device]])
        return array.block_until_ready()

    # --- copies

    def _put(self, order: wire.Put, payload: bytearray, file: int | None) -> None:
        def do() -> list[Any]:
            data: Buffer = payload
            if file is not None:
                data = _read(file)
            if order.dtype == TOKEN:
                host = np.zeros(0, np.bool_)
            else:
                host = np.ndarray(
                    order.shape, numpy_type(order.dtype), data, order.offset, order.strides
                )
                host = np.ascontiguousarray(host).reshape(order.shape)
                if order.whole != order.shape:
                    filled = np.zeros(order.whole, host.dtype)
                    filled[tuple(slice(0, count) for count in order.shape)] = host
                    host = filled
            return [self._placed(host, order.device, order.memory)]

        quick = file is None and len(payload) <= _QUICK
        self._ask(order, [], [self._value(order.buffer)], do, quick)

    def _get(self, order: wire.Get, file: int | None) -> None:
        source = self._value(order.buffer)

        def do() -> list[Any]:
            return [_laid_out(np.asarray(source.result), order)]

        ended = partial(self._ended, order.op, True)
        if file is not None:
            ended = partial(self._delivers, order.op, socket.socket(fileno=file))
        self._schedule.ask(
            Work(order.engines, [source], [Value()], do, ended, order.seconds, quick=False)
        )

    def _delivers(self, op: int, end: socket.socket, work: Work) -> None:
        """Send a read straight to its client, in a thread of its own: it may take it slowly."""
        done, results = self._done(op, work), work.results

        def deliver() -> None:
            with end:
                try:
                    if not done.code:
                        end.sendall(*results)
                        done.end = time.monotonic()
                except OSError:
                    done.code, done.message = _CODES["CANCELLED"], "the client has gone"
            self._send(done)

        threading.Thread(target=deliver, name="parcel", daemon=True).start()

    def _build(self, order: wire.Build) -> None:
        sources = [self._value(piece.buffer) for piece in order.pieces]

        def do() -> list[Any]:
            shape, dtype = tuple(order.shape), numpy_type(order.dtype)
            if len(sources) == 1 and not order.pieces[0].source and not order.pieces[0].target:
                host = np.array(sources[0].result).view(dtype)
                return [self._placed(host.reshape(shape), order.device, order.memory)]
            host = np.zeros(shape, dtype)
            for value, piece in zip(sources, order.pieces, strict=True):
                to, start = _slices(piece.target), _slices(piece.source)
                host[to] = np.asarray(value.result)[start]
            return [self._placed(host, order.device, order.memory)]

        self._ask(order, sources, [self._value(order.buffer)], do, quick=False)

    def _ask(
        self,
        order: wire.Put | wire.Build,
        needs: list[Value],
        makes: list[Value],
        do: Callable[[], list[Any]],
        quick: bool,
    ) -> None:
        ended = partial(self._ended, order.op, False)
        self._schedule.ask(Work(order.engines, needs, makes, do, ended, order.seconds, quick=quick))

    def _ended(self, op: int, sends: bool, work: Work) -> None:
        self._send(self._done(op, work), *(work.results if sends and work.error is None else ()))

    @staticmethod
    def _done(op: int, work: Work) -> wire.Done:
        done = wire.Done(op, work.start, work.end)
        if work.error is not None:
            error = failure(work.error)
            done.code, done.message = error.code, error.message
        return done

    def _send_later(self) -> None:
        while True:
            self._send(self._outbox.get())

    def _send(self, message: wire.Answer, *payload: Any) -> None:
        """Send an answer. The thread that reads does not wait for the front: it may wait for us."""
        if threading.get_ident() == self._reader:
            self._outbox.put(message)
            return
        try:
            self._line.send(message, *payload)
        except OSError:
            os._exit(0)  # the front is gone, and nobody else asks

    # --- programs

    def _compile(self, order: wire.Compile, text: bytearray) -> None:
        try:
            program = programs.compiled(order, bytes(text), self._devices, self._callback)
        except BaseException as error:  # noqa: BLE001 (XLA raises what it likes)
            failed = failure(error)
            self._send(wire.Done(order.op, code=failed.code, message=failed.message))
            return
        self._programs[order.program] = program
        self._odd_layouts |= program.about.odd_layouts
        self._send(program.about)

    def _text(self, order: wire.Text) -> None:
        try:
            text = self._programs[order.program].loaded.get_hlo_text()
        except BaseException as error:  # noqa: BLE001 (XLA raises what it likes)
            failed = failure(error)
            self._send(wire.Done(order.op, code=failed.code, message=failed.message))
            return
        self._send(wire.TextIs(order.op, text))

    def _launch(self, order: wire.Launch) -> None:
        program = self._programs.get(order.program)
        needs = [self._value(number) for each in order.arguments for number in each]
        makes = [self._value(number) for each in order.results for number in each]

        def do() -> list[Any]:
            if program is None:
                raise Failed(_INVALID, "no such program")
            return self._run(program, order, [value.result for value in needs])

        devices = program.devices if program else []
        engines = [("compute", device) for device in devices]
        ended = partial(self._ended, order.op, False)
        self._schedule.ask(Work(engines, needs, makes, do, ended, order.seconds))

    def _run(self, program: programs.Program, order: wire.Launch, parts: list[Any]) -> list[Any]:
        for at in order.kept:
            first = at * len(program.devices)
            for place in range(first, first + len(program.devices)):
                parts[place] = _copied(parts[place])
        if self._odd_layouts:
            each = len(program.devices)
            parts = [_in_layout(p, program.about.layouts[n // each]) for n, p in enumerate(parts)]
        arguments = parts
        if program.shardings is not None:
            count = len(program.devices)
            devices = [self._devices[number] for number in program.devices]
            arguments = [
                programs.global_array(
                    parts[at * count : (at + 1) * count], devices, sharding, shape
                )
                for at, (sharding, shape) in enumerate(
                    zip(program.shardings, order.shapes, strict=True)
                )
            ]
        if not program.about.outputs:  # nothing to wait for but the end
            program.loaded.execute_sharded(
                arguments, with_tokens=True
            ).consume_token().block_until_ready()
            return []
        results = program.loaded.execute_sharded(arguments)
        shards = results.disassemble_into_single_device_arrays()
        return [shard.block_until_ready() for each in shards for shard in each]

    # --- host callbacks

    def _callback(self, program: int, table: int, index: int) -> Callable[..., tuple[Any, ...]]:
        def call(*arguments: Any) -> tuple[Any, ...]:
            arrays = [np.asarray(each) for each in arguments]
            number = next(self._numbers)
            answer: Future[list[Any]] = Future()
            self._calls[number] = answer
            shapes, data = pack(arrays)
            self._send(wire.Call(number, program, table, index, shapes), *data)
            return tuple(answer.result())

        return call

    def _returned(self, order: wire.Returned, payload: bytearray) -> None:
        answer = self._calls.pop(order.call, None)
        if answer is None:
            return
        if order.error is not None:
            answer.set_exception(RuntimeError(order.error))
            return
        try:
            answer.set_result(unpack(order.arrays, payload))
        except (TypeError, ValueError) as error:
            answer.set_exception(error)


def _read(file: int) -> Buffer:
    """All bytes of an open file. It is read and never mapped: who sent it may yet cut it off."""
    try:
        size = os.fstat(file).st_size
        room = np.empty(size + _ALIGNED, np.uint8)  # XLA takes aligned memory as it is
        begin = -room.ctypes.data % _ALIGNED
        data = room[begin : begin + size]
        view, at = memoryview(data), 0
        while at < size and (got := os.preadv(file, [view[at:]], at)):
            at += got
        if at < size:
            raise Failed(_INVALID, "a host buffer that is shorter than it was said to be")
        return data
    finally:
        os.close(file)


def _laid_out(array: Any, order: wire.Get) -> Any:
    """The bytes of an array, in the layout that was asked for."""
    if order.strides is None:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    data = np.zeros(order.size, np.uint8)
    np.ndarray(array.shape, array.dtype, data, order.offset, order.strides)[...] = array
    return data


def _slices(ranges: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    return tuple(slice(start, end) for start, end in ranges)


def _copied(array: Any) -> Any:
    return jax.device_put(array, array.sharding, may_alias=False).block_until_ready()


def _in_layout(array: Any, layout: Sequence[int]) -> Any:
    """The array, laid out as a program takes it: the dimensions, the innermost first."""
    order = tuple(reversed(layout))
    if len(order) < 2 or array.format.layout.major_to_minor == order:
        return array
    wanted = Format(Layout(order), array.sharding)
    return jax.device_put(np.asarray(array), wanted).block_until_ready()


def prepare() -> None:
    """Let programs that were lowered elsewhere find LAPACK's functions in this process, and load
    what reads a program's text: the first time, that takes longer than most compiles.

    It starts no thread and no backend: a process that forks executors does it once.
    """
    fill_in: Callable[..., str] = lapack.prepare_lapack_call
    fill_in("potrf_ffi", np.float32)
    mlir.make_ir_context()


def run(end: socket.socket, devices: int, user: int) -> None:
    """Be an executor with so many devices until the front's end of the socket closes.

    `user` is a number that no other process has as its own; 0 for no change of user.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()
    line = wire.Line(end, trusted=True)
    with suppress(OSError):  # where this machine's memory runs out, this process goes first
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        limits.step_down(user)
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", devices)
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_enable_compilation_cache", False)
        prepare()
        found = jax.local_devices()
        executor = Executor(line, found)
        executor._placed(np.zeros(1, np.int8), 0, "device")
        line.send(wire.Hello(metadata.version("jaxlib")))
    except Exception as error:  # noqa: BLE001 (whatever it is, the front says why)
        line.send(wire.Hello("", f"{type(error).__name__}: {error}"))
        os._exit(1)
    try:
        executor.serve()
    except (EOFError, OSError):
        os._exit(0)  # at once: a running program would keep this process
    except wire.Broken:
        os._exit(1)


def main() -> None:
    """Entry point of `python -m grader.device.executor.process FD DEVICES USER`."""
    end, devices, user = map(int, sys.argv[1:])
    run(socket.socket(fileno=end), devices, user)


if __name__ == "__main__":
    main()
