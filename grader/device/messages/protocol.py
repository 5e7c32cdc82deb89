"""The messages of XLA's IFRT proxy, as the installed jaxlib speaks them.

The classes are made from the descriptions in jaxlib (`descriptors`). A protocol
that this package was not written for is refused. What the messages mean is in
`grader.device.front.session`.
"""

import hashlib
import sys
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from grader.device.messages import descriptors, kept

VERSION = 25
"""The version of the protocol that is spoken here; the client says what it speaks."""
SERVICE = "xla.ifrt.proxy.GrpcIfrtService"
_PROXY = "xla/python/ifrt_proxy/common/"
_FILES = (
    f"{_PROXY}grpc_ifrt_service.proto",
    f"{_PROXY}ifrt_service.proto",
    "xla/python/ifrt/sharding_serdes.proto",
    "xla/python/pjrt_ifrt/xla_sharding.proto",
    "xla/python/pjrt_ifrt/xla_compiler.proto",
)
_OWN = "xla/python/"
"""The folder of the protocol's own files. Others describe programs, and XLA reads those."""
_KNOWN = frozenset(
    {
        "d5321079445dd88c8c5fae0df55a41e6a6e469671f26092a47dde92f00fd5c14",  # jaxlib 0.11.2
        "6bbac76cbd7c7ba2b00dc0d642ac62a42843c636a6a1de4c66a38480130a0a1a",  # jaxlib 0.12.0.1
    }
)
"""Digests of the protocol's own files, in the versions that this was written for."""


class Unknown(Exception):
    """The installed jaxlib speaks no protocol that is known here; the message says why."""


class Messages:
    """The classes of messages, by their names."""

    def __init__(self, files: Iterable[descriptor_pb2.FileDescriptorProto]) -> None:
        pool = descriptor_pool.DescriptorPool()
        known = {file.name: file for file in files}
        added: set[str] = set()

        def add(name: str) -> None:
            if name not in added:
                added.add(name)
                for imported in known[name].dependency:
                    add(imported)
                pool.AddSerializedFile(known[name].SerializeToString())

        for name in known:
            add(name)
        self._pool = pool

    def find(self, name: str) -> Any:
        """The class of the message `xla.ifrt.NAME`, or of the one with this full name.

        Raises:
          KeyError: there is no such message.
        """
        full = name if name.startswith("xla.") else f"xla.ifrt.{name}"
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(full))


def digest(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> str:
    """What tells one protocol from another: a digest of the protocol's own files."""
    own = sorted((file for file in files if file.name.startswith(_OWN)), key=lambda file: file.name)
    whole = b"".join(file.SerializeToString(deterministic=True) for file in own)
    return hashlib.sha256(whole).hexdigest()


def described() -> bytes:
    """The descriptions of the installed jaxlib's messages.

    Raises:
      Unknown: jaxlib is missing, or its protocol is not known here.
    """
    try:
        place = kept.library()
    except LookupError as error:
        raise Unknown(str(error)) from error
    version = kept.version()
    try:
        files = descriptors.find(place, _FILES).values()
    except (LookupError, OSError) as error:
        raise Unknown(f"the protocol of jaxlib {version} cannot be read: {error}") from error
    if digest(files) not in _KNOWN:
        raise Unknown(f"jaxlib {version} speaks a protocol that is not known here")
    return bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


def messages(data: bytes) -> Messages:
    """The classes of messages, from what `serialised` returned.

    Raises:
      Unknown: the data are no descriptions.
    """
    try:
        return Messages(descriptor_pb2.FileDescriptorSet.FromString(data).file)
    except (DecodeError, KeyError, TypeError) as error:
        raise Unknown(f"the descriptions of jaxlib's protocol are damaged: {error}") from error


def main() -> None:
    """Write the descriptions to stdout: `python -m grader.device.messages.protocol`."""
    try:
        data = described()
    except Unknown as error:
        sys.exit(str(error))
    sys.stdout.buffer.write(data)


if __name__ == "__main__":
    main()
