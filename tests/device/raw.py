"""A client of a device next door without JAX: it sends requests one by one, right or wrong."""

import itertools
import queue
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from grader.device import start
from grader.device.messages import protocol
from grader.device.start import Device

PROGRAM = """
module @double {
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
"""Doubles four floats."""
FOUR = struct.pack("<4f", 1, 2, 3, 4)
ALWAYS_COPY, REUSE, DONATE = 1, 2, 3


class Refused(Exception):
    """The device answered with an error."""


class Raw:
    """One client with one session."""

    def __init__(self, device: Device, bridge: str = "") -> None:
        self.messages = protocol.messages(start.described())
        path = device.environment["GRADER_DEVICE"]
        self.channel = grpc.insecure_channel(f"unix:{path}/socket")
        self._numbers = itertools.count(1)
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: dict[int, queue.SimpleQueue[Any]] = {}
        self.ended = threading.Event()
        metadata = self.messages.find("proxy.GrpcIfrtSessionMetadata")()
        version = self.messages.find("proxy.GrpcIfrtSessionMetadata")().version
        version.protocol_version = protocol.VERSION
        metadata.version.CopyFrom(version)
        if bridge:
            metadata.initialization_data.attributes["grader"].string_value = bridge.encode()
        key = "ifrt-proxy-grpc-ifrt-session-metadata-bin"
        self.call = self.channel.stream_stream(f"/{protocol.SERVICE}/IfrtSession")(
            iter(self._out.get, None), metadata=((key, metadata.SerializeToString()),)
        )
        threading.Thread(target=self._listen, daemon=True).start()
        init = self.ask("init").init_response
        self.session = init.session_id
        self.devices = [each.id for each in init.all_devices]

    def _listen(self) -> None:
        response = self.messages.find("proxy.IfrtResponse")
        try:
            for raw in self.call:
                answer = response.FromString(raw)
                waiting = self._answers.pop(answer.response_metadata.op_id, None)
                if waiting is not None:
                    waiting.put(answer)
        except grpc.RpcError:
            pass
        self.ended.set()
        for waiting in list(self._answers.values()):
            waiting.put(None)

    def handle(self) -> int:
        """A new number."""
        return next(self._numbers)

    def request(self, kind: str, **fields: Any) -> Any:
        """A request of this kind, with these plain fields."""
        request = self.messages.find("proxy.IfrtRequest")()
        request.request_metadata.op_id = self.handle()
        asked = getattr(request, f"{kind}_request")
        asked.SetInParent()
        for name, value in fields.items():
            if isinstance(value, Sequence) and not isinstance(value, str | bytes):
                getattr(asked, name).extend(value)
            else:
                setattr(asked, name, value)
        return request

    def send(self, raw: bytes) -> None:
        """Send anything."""
        self._out.put(raw)

    def later(self, request: Any) -> "queue.SimpleQueue[Any]":
        """Send a request; its answer comes into the queue that is returned."""
        waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers[request.request_metadata.op_id] = waiting
        self.send(request.SerializeToString())
        return waiting

    def tell(self, request: Any, seconds: float = 60) -> Any:
        """Send a request and return its answer.

        Raises:
          Refused: it is an error.
        """
        answer = self.later(request).get(timeout=seconds)
        if answer is None:
            raise Refused("the session has ended")
        status = answer.response_metadata.status
        if status.code:
            raise Refused(f"{status.code}: {status.message}")
        return answer

    def ask(self, kind: str, **fields: Any) -> Any:
        """`tell` a request with these fields."""
        return self.tell(self.request(kind, **fields))

    def sharding(self, device: int, memory: str = "device") -> Any:
        """The sharding of an array on one device."""
        sharding = self.messages.find("ShardingProto")()
        whole = sharding.serialized_sharding
        whole.type_name = "xla::ifrt::SingleDeviceSharding"
        single = self.messages.find("SingleDeviceShardingProto")
        whole.data = single(device_id=device, memory_kind=memory).SerializeToString()
        return sharding

    def tiled(self, devices: Sequence[int], tiles: Sequence[int]) -> Any:
        """The sharding of an array that is cut into tiles, one for each device."""
        sharding = self.messages.find("ShardingProto")()
        tiled = self.messages.find("HloShardingProto")()
        tiled.devices.device_ids.extend(devices)
        operation = tiled.xla_op_sharding
        operation.type = operation.Type.Value("OTHER")
        operation.tile_assignment_dimensions.extend(tiles)
        operation.tile_assignment_devices.extend(range(len(devices)))
        sharding.serialized_sharding.type_name = "xla::ifrt::HloSharding"
        sharding.serialized_sharding.data = tiled.SerializeToString()
        return sharding

    def store(self, data: bytes, announced: int | None = None) -> int:
        """Send a host buffer; returns its handle."""
        handle = self.handle()
        metadata = self.messages.find("proxy.GrpcHostBufferStoreMetadata")(
            session_id=self.session,
            handle=handle,
            buffer_size=len(data) if announced is None else announced,
        )
        piece = self.messages.find("proxy.GrpcHostBufferStoreRequest")
        half = len(data) // 2
        pieces = [piece(data=data[:half]), piece(data=data[half:])]
        key = "ifrt-proxy-grpc-host-buffer-store-metadata-bin"
        self.channel.stream_unary(f"/{protocol.SERVICE}/HostBufferStore")(
            (each.SerializeToString() for each in pieces),
            metadata=((key, metadata.SerializeToString()),),
            timeout=60,
        )
        return handle

    def put_request(
        self, host: int, shape: Sequence[int], sharding: Any, strides: Sequence[int] | None = None
    ) -> Any:
        """A request that makes a float32 array of a host buffer."""
        request = self.request("make_array_from_host_buffer")
        asked = request.make_array_from_host_buffer_request
        asked.dtype.kind = 11
        asked.shape.SetInParent()
        asked.shape.dims.extend(shape)
        asked.sharding.CopyFrom(sharding)
        asked.host_buffer_handle = host
        asked.array_handle = self.handle()
        if strides is not None:
            asked.byte_strides.strides.extend(strides)
        return request

    def put(
        self,
        data: bytes,
        shape: Sequence[int],
        sharding: Any = None,
        strides: Sequence[int] | None = None,
    ) -> int:
        """A float32 array of these bytes, on device 0 unless a sharding is given."""
        place = self.sharding(0) if sharding is None else sharding
        request = self.put_request(self.store(data), shape, place, strides)
        self.tell(request)
        return int(request.make_array_from_host_buffer_request.array_handle)

    def get(self, array: int) -> bytes:
        """The bytes of an array on one device."""
        host = self.handle()
        self.ask("copy_to_host_buffer", array_handle=array, host_buffer_handle=host)
        return b"".join(self.look_up(host))

    def look_up(self, host: int) -> Iterator[bytes]:
        """The pieces of a host buffer."""
        asked = self.messages.find("proxy.GrpcHostBufferLookupRequest")
        answer = self.messages.find("proxy.GrpcHostBufferLookupResponse")
        request = asked(session_id=self.session, handle=host).SerializeToString()
        call = self.channel.unary_stream(f"/{protocol.SERVICE}/HostBufferLookup")
        for raw in call(request, timeout=60):
            yield answer.FromString(raw).data

    def shards(self, array: int, count: int) -> list[int]:
        """The single parts of an array."""
        made = [self.handle() for _ in range(count)]
        self.ask(
            "disassemble_into_single_device_arrays",
            array_handle=array,
            copy_semantics=REUSE,
            result_handles=made,
        )
        return made

    def compile_request(self, text: str = PROGRAM, device: int = 0) -> Any:
        """A request that compiles a program for one device."""
        request = self.request("compile")
        asked = request.compile_request
        asked.program.type_name = "xla::ifrt::XlaProgram"
        asked.program.data = text.encode()
        options = self.messages.find("XlaCompileOptionsProto")()
        build = options.compile_options.executable_build_options
        build.num_replicas = build.num_partitions = 1
        build.device_ordinal = -1
        build.device_assignment.replica_count = build.device_assignment.computation_count = 1
        build.device_assignment.computation_devices.add().replica_device_ids.append(device)
        asked.compile_options.type_name = "xla::ifrt::XlaCompileOptions"
        asked.compile_options.data = options.SerializeToString()
        return request

    def compile(self, text: str = PROGRAM, device: int = 0) -> int:
        """The handle of a compiled program."""
        answer = self.tell(self.compile_request(text, device))
        return int(answer.compile_response.loaded_executable_handle)

    def launch_request(self, program: int, arguments: Sequence[int], results: Sequence[int]) -> Any:
        """A request that launches a program."""
        return self.request(
            "loaded_executable_execute",
            loaded_executable_handle=program,
            args_handles=arguments,
            result_array_handle=results,
        )

    def launch(self, program: int, arguments: Sequence[int], results: int = 1) -> list[int]:
        """Launch a program; returns the handles of its results."""
        made = [self.handle() for _ in range(results)]
        self.tell(self.launch_request(program, arguments, made))
        return made

    def wait(self, *arrays: int) -> None:
        """Wait until arrays are ready."""
        self.ask("check_value_ready", value_handles=arrays)

    def destruct(self, *arrays: int) -> None:
        """Forget arrays."""
        self.ask("destruct_array", array_handle=arrays)

    def close(self) -> None:
        """Leave."""
        self._out.put(None)
        self.call.cancel()
        self.channel.close()
