"""What the processes of a device say to each other, and how it travels over a socket.

A frame is a message in MessagePack, and after it the bytes of an array, if there is one. The
front asks the executor (`Order`), which answers (`Answer`); a client's patch speaks with the
front's bridge (`Said`, `Told`). Each side reads what it gets as untrusted input: typed, and
limited in size. Arrays have C order here.
"""

import os
import socket
import struct
import threading
from collections.abc import Buffer
from contextlib import suppress

import msgspec

LARGEST_MESSAGE = 1 << 26
LARGEST_PAYLOAD = 1 << 36
_HEAD = struct.Struct("<IQB")
"""Bytes of the message, bytes of the payload, and whether a descriptor comes with it."""
_PIECE = 1 << 20


class Broken(Exception):
    """What arrived is no frame."""


class ArrayOf(msgspec.Struct, frozen=True):
    """An array in a payload. An ordered callback's token has the dtype `token` and no bytes."""

    dtype: str
    shape: list[int]
    bytes: int


Engine = tuple[str, int]
"""`compute`, `in` or `out`, and the number of a device: see `grader.device.executor.schedule`."""

# --- from the front to the executor. `op` numbers what is asked; buffers and programs have
# --- numbers that the front gives. `engines` do it, and `seconds` is how long they take at least.


class Put(msgspec.Struct, tag=True):
    """Make a buffer of the payload, or of the open file that comes with the frame."""

    op: int
    buffer: int
    device: int
    memory: str
    dtype: str
    shape: list[int]
    strides: list[int] | None
    """Bytes, of the payload; None for C order."""
    offset: int
    """Where in the payload the first element lies: strides may be negative."""
    whole: list[int]
    """The buffer's shape, which is larger where the shard is filled up."""
    engines: list[Engine]
    seconds: float


class Get(msgspec.Struct, tag=True):
    """Send a buffer's bytes, laid out with `strides`, in `size` bytes from `offset` on.

    They are the payload of the answer, or go through the socket that comes with the frame.
    """

    op: int
    buffer: int
    strides: list[int] | None
    offset: int
    size: int
    engines: list[Engine]
    seconds: float


class Piece(msgspec.Struct, frozen=True):
    """A part of a buffer, and where it goes."""

    buffer: int
    source: list[tuple[int, int]]
    """For each dimension, from where to where."""
    target: list[tuple[int, int]]


class Build(msgspec.Struct, tag=True):
    """Make a buffer of parts of others, or of one other whole (`pieces` has one, without
    ranges, and `shape` may then differ from the other's)."""

    op: int
    buffer: int
    device: int
    memory: str
    dtype: str
    shape: list[int]
    pieces: list[Piece]
    engines: list[Engine]
    seconds: float


class Compile(msgspec.Struct, tag=True):
    """Compile the payload: StableHLO, portable or not."""

    op: int
    program: int
    options: bytes
    """`xla.CompileOptionsProto`."""
    devices: list[int]


class Launch(msgspec.Struct, tag=True):
    """Run a program; `arguments` and `results` are buffers, for each device of the program."""

    op: int
    program: int
    arguments: list[list[int]]
    results: list[list[int]]
    shapes: list[list[int]]
    """Of each whole argument."""
    kept: list[int]
    """Arguments that must live on, though the program would take them."""
    seconds: float


class Drop(msgspec.Struct, tag=True):
    """Forget buffers. What was asked before still uses them."""

    buffers: list[int] = []
    programs: list[int] = []


class Fail(msgspec.Struct, tag=True):
    """These buffers will never be filled."""

    buffers: list[int]
    code: int
    message: str


class Text(msgspec.Struct, tag=True):
    """Ask for a program's optimised HLO text and its costs."""

    op: int
    program: int


class Returned(msgspec.Struct, tag=True):
    """What a host callback returned: arrays in the payload, or an error."""

    call: int
    arrays: list[ArrayOf] = []
    error: str | None = None


Order = Put | Get | Build | Compile | Launch | Drop | Fail | Text | Returned


# --- from the executor to the front


class Hello(msgspec.Struct, tag=True):
    """The executor is ready."""

    jaxlib: str
    problem: str = ""


class Done(msgspec.Struct, tag=True):
    """`op` has ended; times are `time.monotonic()`."""

    op: int
    start: float = 0.0
    end: float = 0.0
    code: int = 0
    """A status code of absl's; 0 if all went well."""
    message: str = ""


class OutputIs(msgspec.Struct, frozen=True):
    """One result of a program."""

    dtype: str
    shape: list[int]
    shard_shape: list[int]
    memory: str
    sharding: bytes
    layout: list[int]
    """The dimensions, the innermost first."""


class Compiled(msgspec.Struct, tag=True):
    """A program is ready to be launched."""

    op: int
    start: float
    end: float
    name: str
    outputs: list[OutputIs]
    ranks: list[int]
    """Of each parameter; -1 for a token, which may have any."""
    layouts: list[list[int]]
    """Of each parameter: its dimensions, the innermost first."""
    parameter_shardings: list[bytes] | None
    over: dict[int, int]
    """Result -> the donated parameter whose memory it takes."""
    code: int
    arguments_size: int
    outputs_size: int
    alias_size: int
    temporaries: int
    fingerprint: bytes
    flops: float
    accessed: float
    collectives: list[tuple[str, int, int, int]]
    """Operation, bytes, count, runs."""
    costs: dict[str, float] = {}

    @property
    def donated(self) -> list[int]:
        """Parameters whose memory the program takes."""
        return sorted(set(self.over.values()))

    @property
    def odd_layouts(self) -> bool:
        """Whether a parameter or a result does not lie in C order."""
        found = [*self.layouts, *(output.layout for output in self.outputs)]
        return any(layout != sorted(layout, reverse=True) for layout in found)


class TextIs(msgspec.Struct, tag=True):
    """A program's optimised HLO text."""

    op: int
    text: str


class Call(msgspec.Struct, tag=True):
    """A running program calls the host; the arguments are in the payload."""

    call: int
    program: int
    table: int
    """The client's number for the callbacks of the program."""
    index: int
    arrays: list[ArrayOf]


Answer = Hello | Done | Compiled | TextIs | Call


# --- from a client's patch to the front's bridge, and back


class Greeting(msgspec.Struct, tag=True):
    """A program's process comes; what it wants to take of the memory, None if it does not say."""

    process: int
    preallocate: bool | None = None
    fraction: float | None = None


class AskStats(msgspec.Struct, tag=True):
    """Ask for `memory_stats` of all devices."""


Said = Greeting | AskStats | Returned


class Welcome(msgspec.Struct, tag=True):
    """The client's own name, and the folder through which it may send large buffers."""

    bridge: str
    folder: str


class Stats(msgspec.Struct, tag=True):
    """`memory_stats` of all devices."""

    devices: list[dict[str, int]]


class Parcel(msgspec.Struct, tag=True):
    """An array's bytes come through the socket that comes with the frame."""

    ticket: int
    bytes: int


class Delivered(msgspec.Struct, tag=True):
    """The book has that read; or it failed, and the client asks again by XLA's protocol."""

    ticket: int
    whole: bool


Told = Welcome | Stats | Call | Parcel | Delivered


class Line:
    """One end of a connection. Any thread may send; one thread receives."""

    def __init__(self, end: socket.socket, trusted: bool = False) -> None:
        """`trusted` is whether the other end is believed when it announces a large payload."""
        self._end = end
        self._first = LARGEST_PAYLOAD if trusted else _PIECE
        self._encoder = msgspec.msgpack.Encoder()
        self._sending = threading.Lock()
        self._later = b""

    def fileno(self) -> int:
        """The descriptor of this end."""
        return self._end.fileno()

    def later(self, message: object) -> None:
        """Send a frame without payload, together with the next: a wake of the other process
        costs more than most of what it is told."""
        head = self._encoder.encode(message)
        with self._sending:
            self._later += _HEAD.pack(len(head), 0, False) + head

    def send(self, message: object, *payload: Buffer, file: int | None = None) -> None:
        """Send one frame.

        Raises:
          OSError: the other end has gone.
        """
        head = self._encoder.encode(message)
        views = [memoryview(each).cast("B") for each in payload if memoryview(each).nbytes]
        size = sum(view.nbytes for view in views)
        start = _HEAD.pack(len(head), size, file is not None) + head
        with self._sending:
            before, self._later = self._later, b""
            if file is not None:
                self._end.sendall(before)  # a descriptor goes with the first byte of its own frame
                sent = socket.send_fds(self._end, [start], [file])
                self._end.sendall(start[sent:])
            elif size <= _PIECE:
                self._end.sendall(b"".join((before, start, *views)))
                return
            else:
                self._end.sendall(before + start)
            for view in views:
                self._end.sendall(view)

    def receive[T](self, decoder: msgspec.msgpack.Decoder[T]) -> tuple[T, bytearray, int | None]:
        """The next frame: its message, its payload, and a descriptor that came with it.

        The caller closes the descriptor.

        Raises:
          EOFError: the other end has gone.
          Broken: what arrived is no frame.
          OSError: the connection failed.
        """
        head, found, _, _ = socket.recv_fds(self._end, _HEAD.size, 1)
        file = found[0] if found else None
        try:
            if len(head) < _HEAD.size:
                if not head:
                    raise EOFError
                head += self._exactly(_HEAD.size - len(head))
            size, payload, _ = _HEAD.unpack(head)
            if size > LARGEST_MESSAGE or payload > LARGEST_PAYLOAD:
                raise Broken(f"a frame of {size} and {payload} bytes")
            message = decoder.decode(self._exactly(size))
            return message, self._exactly(payload), file
        except (EOFError, Broken, OSError, MemoryError, msgspec.DecodeError) as error:
            if file is not None:
                os.close(file)
            if isinstance(error, msgspec.DecodeError | MemoryError):
                raise Broken(str(error)) from error
            raise

    def _exactly(self, size: int) -> bytearray:
        """The next bytes. Memory is taken as they arrive, and not as they are announced."""
        found = bytearray(min(size, self._first))
        have = 0
        while have < size:
            if have == len(found):
                found += bytes(min(size - have, have))
            with memoryview(found) as view:
                got = self._end.recv_into(view[have:])
            if not got:
                raise EOFError
            have += got
        return found

    def close(self) -> None:
        """Hang up; both ends see it at once."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()
