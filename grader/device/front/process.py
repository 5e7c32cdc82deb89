"""The front: the process that clients speak with, and that keeps the book. It never runs a program.

It serves XLA's IFRT proxy over gRPC on a Unix socket. Each client has a session
(`session`); what they ask for is done by the executor (`machine`). Whoever started it holds the
other end of its control socket: when that closes, the device ends. When the executor dies, the
front lives on, and says so.
"""

import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import msgspec
from google.protobuf.message import DecodeError

from grader import __version__
from grader.device.front.arrays import Shardings
from grader.device.front.arriving import Arriving, Sent, open_sent
from grader.device.front.bridge import Bridge, Bridges
from grader.device.front.holding import Desk, Holding
from grader.device.front.ledger import Ledger
from grader.device.front.machine import Machine
from grader.device.front.session import Session
from grader.device.front.writing import Writer
from grader.device.messages import protocol, wire
from grader.device.messages.errors import INVALID, Failed
from grader.device.setup import SHARED, AskCounts, Close, Closed, Counts, Ready, Setup, Word
from grader.fences import limits
from grader.records.book import BOOK_VERSION, Entry, Opening

_CALLS = 512
"""Calls of all clients that are served at one time. More are refused."""
_CALLS_OF_ONE = 64
"""Calls of one connection at one time. More wait in the client: it sends each number that a launch
takes from the host by a call of its own, and would give up its session if one were refused."""
_LARGEST_MESSAGE = 1 << 30
_PIECE = 1 << 21
_DRAIN_SECONDS = 2.0
BRIDGE_KEY = "grader"
"""The entry of a session's initialization data that holds the name of its bridge."""


class Front:
    """The sessions of one device."""

    def __init__(self, setup: Setup, messages: protocol.Messages, machine: Machine,
                 writer: Writer, lock: threading.RLock, shared: Path | None) -> None:  # fmt: skip
        self._messages = messages
        self._lock = lock
        options = setup.options
        memory = options.memory or 0
        accounts = Ledger(options.devices, memory)
        self.desk = Desk(options, machine, accounts, writer, setup.birth)
        self.bridges = Bridges(self.desk, lock, shared)
        self._shardings = Shardings(messages, options.devices)
        self._sessions: dict[int, tuple[Session, Arriving, Bridge | None]] = {}
        self._clients = 0
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._most_arriving = physical // 4

    def lost(self) -> None:
        """The executor has died: the book says so; the lock is held."""
        now = self.desk.now()
        detail = str(self.desk.machine.lost)
        self.desk.writer.write(Entry("lost", now, end=now, detail=detail))

    def called(self, call: wire.Call, payload: bytearray) -> None:
        """A running program calls its host; the lock is held."""
        for session, _, bridge in self._sessions.values():
            if session.programs.owns(call.program):
                self.bridges.call(bridge, call, payload, session.programs.asked(call.program))
                return
        self.bridges.call(None, call, payload, None)

    # --- sessions

    def open(self, metadata: Any) -> Session:
        """A session for a client that has come."""
        values = metadata.initialization_data.attributes
        name = values[BRIDGE_KEY].string_value if BRIDGE_KEY in values else b""
        with self._lock:
            bridge = self.bridges.find(name.decode("ascii", "replace"))
            options = self.desk.options
            preallocate, fraction = options.preallocate, options.fraction
            if bridge is not None:
                said = bridge.greeting
                preallocate = preallocate if said.preallocate is None else said.preallocate
                fraction = fraction if said.fraction is None else said.fraction
            account = self.desk.ledger.open(fraction, preallocate)
            if bridge is not None:
                bridge.account = account
            self._clients += 1
            if bridge is not None:
                bridge.client = self._clients
            holding = Holding(self.desk, self._clients, account)
            arriving = Arriving(self._lock, self._most_arriving)
            number = secrets.randbits(62)
            session = Session(
                self._messages, self._shardings, holding, arriving, bridge, number, self._lock
            )
            self._sessions[number] = (session, arriving, bridge)
            now = self.desk.now()
            holding.entry("client", now, end=now, detail="came")
        return session

    def leave(self, session: Session) -> None:
        """A client has gone; it may be said twice."""
        with self._lock:
            if self._sessions.pop(session.number, None) is not None:
                session.close()
                now = self.desk.now()
                session.entry("client", now, end=now, detail="left")

    def serve(self, raw: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """`IfrtSession`: requests in, responses out, until either side ends it."""
        metadata = self._metadata(context, "ifrt-session", "proxy.GrpcIfrtSessionMetadata")
        session = self.open(metadata)
        if not context.add_callback(lambda: self.leave(session)):
            self.leave(session)
        threading.Thread(target=self._read, args=(session, raw), daemon=True).start()
        try:
            yield from session.responses()
        finally:
            self.leave(session)

    def _read(self, session: Session, raw: Iterator[bytes]) -> None:
        try:
            for request in raw:
                session.handle(request)
        except Failed as error:
            print(f"a session ends: {error}", file=sys.stderr)  # noqa: T201 (the front's log)
        except Exception as error:  # noqa: BLE001 (gRPC ends an iterator with its own errors)
            if not isinstance(error, grpc.RpcError):
                traceback.print_exc()
        finally:
            self.leave(session)

    def _metadata(self, context: Any, what: str, message: str) -> Any:
        """What a call says of itself beside its messages; ends the call if it is nothing."""
        given: Mapping[str, Any] = dict(context.invocation_metadata())
        data = given.get(f"ifrt-proxy-grpc-{what}-metadata-bin", b"")
        try:
            return self._messages.find(message).FromString(data)
        except (DecodeError, TypeError):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no metadata of a {what}")

    # --- host buffers

    def _arriving(self, number: int, context: Any) -> Arriving:
        found = self._sessions.get(number)
        if found is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such session")
        assert found is not None
        return found[1]

    def version(self, raw: bytes, context: Any) -> bytes:
        """`GetVersion`: what this speaks, if the client speaks it too."""
        asked = self._parsed("proxy.GrpcGetVersionRequest", raw, context)
        least, most = asked.min_version.protocol_version, asked.max_version.protocol_version
        if not least <= protocol.VERSION <= most:
            words = f"the device speaks version {protocol.VERSION} of the protocol, not {most}"
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, words)
        answer = self._messages.find("proxy.GrpcGetVersionResponse")()
        answer.version.CopyFrom(asked.max_version)
        answer.version.protocol_version = protocol.VERSION
        return bytes(answer.SerializeToString())

    def _parsed(self, message: str, raw: bytes, context: Any) -> Any:
        try:
            return self._messages.find(message).FromString(raw)
        except DecodeError:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a message that is none")

    def store(self, raw: Iterator[bytes], context: Any) -> bytes:
        """`HostBufferStore`: the bytes of one buffer, in pieces."""
        about = self._metadata(context, "host-buffer-store", "proxy.GrpcHostBufferStoreMetadata")
        arriving = self._arriving(about.session_id, context)
        data = bytearray()
        try:
            arriving.check(about.buffer_size)
            for piece in raw:
                data += _data_of(piece, self._messages)
                if len(data) > about.buffer_size:
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "more than was announced")
            if len(data) < about.buffer_size:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "less than was announced")
            arriving.add(about.handle, Sent(data, None, len(data)))
        except (Failed, DecodeError) as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        return b""

    def read_file(self, raw: bytes, context: Any) -> bytes:
        """`HostBufferReadFromDisk`: a buffer that the client has written into its folder."""
        asked = self._parsed("proxy.GrpcHostBufferReadFromDiskRequest", raw, context).metadata
        arriving = self._arriving(asked.session_id, context)
        _, _, bridge = self._sessions.get(asked.session_id, (None, None, None))
        folder = None if bridge is None else bridge.folder
        try:
            if folder is None:
                raise Failed(INVALID, "this client has no folder")
            arriving.add(asked.handle, open_sent(folder, asked.handle, asked.buffer_size))
        except Failed as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return b""

    def look_up(self, raw: bytes, context: Any) -> Iterator[bytes]:
        """`HostBufferLookup`: the bytes of one buffer, in pieces."""
        asked = self._parsed("proxy.GrpcHostBufferLookupRequest", raw, context)
        try:
            sent = self._arriving(asked.session_id, context).look(asked.handle)
        except Failed as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        data = memoryview(sent.data or b"")
        for start in range(0, max(len(data), 1), _PIECE):
            yield _piece(data[start : start + _PIECE])

    def delete(self, raw: bytes, context: Any) -> bytes:
        """`HostBufferDelete`."""
        asked = self._parsed("proxy.GrpcHostBufferDeleteRequest", raw, context)
        self._arriving(asked.session_id, context).remove(asked.handle)
        return b""

    def handlers(self) -> Any:
        """What gRPC calls. Messages come and go as bytes: they are parsed here."""
        methods = {
            "GetVersion": grpc.unary_unary_rpc_method_handler(self.version),
            "IfrtSession": grpc.stream_stream_rpc_method_handler(self.serve),
            "HostBufferStore": grpc.stream_unary_rpc_method_handler(self.store),
            "HostBufferReadFromDisk": grpc.unary_unary_rpc_method_handler(self.read_file),
            "HostBufferLookup": grpc.unary_stream_rpc_method_handler(self.look_up),
            "HostBufferDelete": grpc.unary_unary_rpc_method_handler(self.delete),
        }
        return grpc.method_handlers_generic_handler(protocol.SERVICE, methods)


def _data_of(raw: bytes, messages: protocol.Messages) -> memoryview:
    """The field `data` of a `GrpcHostBufferStoreRequest`, which has no other: not copied."""
    if raw[:1] == b"\n":
        size, at, shift = 0, 1, 0
        while at < len(raw) and shift < 35:
            size |= (raw[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if raw[at - 1] < 0x80:
                break
        if at + size == len(raw):
            return memoryview(raw)[at:]
    return memoryview(messages.find("proxy.GrpcHostBufferStoreRequest").FromString(raw).data)


def _piece(data: memoryview) -> bytes:
    """A `GrpcHostBufferLookupResponse`, whose one field is `data`."""
    head, left = bytearray(b"\n"), len(data)
    while left > 0x7F:
        head.append(left & 0x7F | 0x80)
        left >>= 7
    head.append(left)
    return b"".join((head, data))


class Control:
    """The line to whoever has started the device."""

    def __init__(self, end: socket.socket) -> None:
        self._line = wire.Line(end)

    def setup(self) -> tuple[Setup, bytes]:
        """What the device is to be, and the descriptions of its protocol.

        Raises:
          EOFError: nobody wants it any more.
        """
        setup, payload, _ = self._line.receive(msgspec.msgpack.Decoder(Setup))
        return setup, bytes(payload)

    def say(self, word: Word) -> None:
        """Answer; one who has gone need not hear it."""
        with suppress(OSError):
            self._line.send(word)

    def listen(self, front: Front) -> bool:
        """Answer until the device is to end; returns whether it was asked to."""
        decoder = msgspec.msgpack.Decoder(Close | AskCounts)
        try:
            while True:
                word, _, _ = self._line.receive(decoder)
                if isinstance(word, Close):
                    return True
                front.desk.machine.drained(_DRAIN_SECONDS)
                self.say(Counts(front.desk.writer.counts, front.desk.ledger.usage()))
        except (EOFError, OSError, wire.Broken):
            return False


def run(control_end: socket.socket, executor: socket.socket, book: int) -> None:
    """Be a front until nobody wants the device any more.

    `book` is an open file, where the book is written.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    control = Control(control_end)
    try:
        setup, described = control.setup()
    except (EOFError, OSError, wire.Broken):
        os._exit(0)
    shared: Path | None = None
    try:
        fences = limits.step_down(setup.user, setup.folder)
        shared = _shared_folder(setup)
        front, server = _started(setup, described, executor, book, shared)
        control.say(Ready(fences=fences))
    except Exception as error:  # noqa: BLE001 (whatever it is, the starter says why)
        control.say(Ready(problem=str(error) or type(error).__name__))
        _clean(setup, shared, wanted=True)
        os._exit(1)
    asked = control.listen(front)
    _finish(front, server, drain=asked)
    _clean(setup, shared, wanted=asked)
    if asked:
        control.say(Closed())
    os._exit(0)  # at once: threads of gRPC may still wait for clients


def _shared_folder(setup: Setup) -> Path | None:
    """A folder in memory, through which clients pass; None where there is none."""
    try:
        shared = SHARED / Path(setup.folder).name
        shared.mkdir()
        shared.chmod(0o711)
    except OSError:
        return None
    return shared


def _started(
    setup: Setup, described: bytes, executor: socket.socket, book: int, shared: Path | None
) -> tuple[Front, Any]:
    """A front that serves."""
    messages = protocol.messages(described)
    lock = threading.RLock()
    machine = Machine(executor, lock)
    options = setup.options
    pool = ThreadPoolExecutor(_CALLS, "call")
    server = grpc.server(
        pool,
        options=[
            ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
            ("grpc.max_send_message_length", _LARGEST_MESSAGE),
            ("grpc.max_concurrent_streams", _CALLS_OF_ONE),
            ("grpc.http.overload_protection", 0),  # it would refuse some that are not too many
            ("grpc.so_reuseport", 0),
        ],
        maximum_concurrent_rpcs=_CALLS,
    )
    hello = _hello(machine)
    opening = Opening(
        version=BOOK_VERSION,
        grader=__version__,
        jaxlib=hello.jaxlib,
        began=time.time() - (time.monotonic() - setup.birth),
        devices=options.devices,
        kind=options.kind,
        memory=options.memory or 0,
        like=options.like,
        host_link=options.host_link,
        device_link=options.device_link,
        compute=options.compute,
    )
    front = Front(setup, messages, machine, Writer(book, opening), lock, shared)
    machine.listen(front.called, front.lost)
    server.add_generic_rpc_handlers((front.handlers(),))
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{setup.folder}/socket")
        front.bridges.listen(Path(setup.folder, "bridge"))
    finally:
        os.umask(before)
    server.start()
    return front, server


def _hello(machine: Machine) -> wire.Hello:
    try:
        hello = machine.hello()
    except EOFError as error:
        raise RuntimeError("the device's executor died as it started") from error
    if hello.problem:
        raise RuntimeError(f"the device's executor could not start: {hello.problem}")
    return hello


def _finish(front: Front, server: Any, drain: bool) -> None:
    """Hear the last of the executor, and write the book's last line."""
    server.stop(None)
    if drain:
        front.desk.machine.drained(_DRAIN_SECONDS)
    front.desk.writer.close(front.desk.now(), front.desk.ledger.usage())


def _clean(setup: Setup, shared: Path | None, *, wanted: bool) -> None:
    """Leave nothing behind in the file system but the book, as far as anybody wants it.

    The device's own folder may hold it, which the starter then reads and removes.
    """
    for name in ("socket", "bridge"):
        Path(setup.folder, name).unlink(missing_ok=True)
    if shared is not None:
        shutil.rmtree(shared, ignore_errors=True)
    if not wanted:  # the starter is dead
        shutil.rmtree(setup.folder, ignore_errors=True)


def main() -> None:
    """Entry point of `python -m grader.device.front.process CONTROL EXECUTOR BOOK`."""
    control, executor, book = map(int, sys.argv[1:])
    run(socket.socket(fileno=control), socket.socket(fileno=executor), book)


if __name__ == "__main__":
    main()
