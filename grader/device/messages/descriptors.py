"""Finds the descriptions of XLA's messages that stand in the installed jaxlib.

The classes that protoc generates carry the description of their file, serialised, as constant
data of the shared library. A description begins with the name of its file, so the library is
searched for such names, and what follows is read until it is no description any more. Nothing
of XLA is imported or run. What the descriptions are used for is in `protocol`.
"""

import mmap
import re
from collections.abc import Sequence
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

_NAME = re.compile(rb"\n([\x01-\x7f])([A-Za-z0-9_./\-]{3,127}?\.proto)\x12")
_LARGEST = 400_000
"""Bytes of the longest description that is looked for."""
_NESTED = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 12})
"""Fields of a FileDescriptorProto that have a length."""
_ONCE = frozenset({1, 2, 8, 12, 14})
"""Fields that stand there at most once: a second one belongs to the next description."""
_NUMBERS = frozenset({10, 11, 14})


def find(library: Path, wanted: Sequence[str]) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """File name -> description, of the `wanted` files and all that they import.

    Raises:
      OSError: the library cannot be read.
      LookupError: one of these files has no description there.
    """
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        places: dict[str, list[int]] = {}
        for match in _NAME.finditer(data):
            if match[1][0] == len(match[2]):
                places.setdefault(match[2].decode(), []).append(match.start())
        found: dict[str, descriptor_pb2.FileDescriptorProto] = {}
        todo = [*wanted]
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = _longest(data, name, places.get(name, []))
                todo += found[name].dependency
    return found


def _longest(data: mmap.mmap, name: str, places: list[int]) -> descriptor_pb2.FileDescriptorProto:
    read = (_description(data, place) for place in places)
    known = [each for each in read if each is not None and each.name == name]
    if not known:
        raise LookupError(f"no description of {name}")
    return max(known, key=lambda each: each.ByteSize())


def _description(data: mmap.mmap, start: int) -> descriptor_pb2.FileDescriptorProto | None:
    """What begins at `start`, as far as it can be read; None if that is nothing."""
    for end in reversed(_ends(data, start)):
        description = descriptor_pb2.FileDescriptorProto()
        try:
            description.ParseFromString(data[start:end])
        except DecodeError:
            continue
        return description
    return None


def _ends(data: mmap.mmap, start: int) -> list[int]:
    """Where each field of the message that begins at `start` ends."""
    ends: list[int] = []
    seen: set[int] = set()
    at = start
    while at - start < _LARGEST:
        tag, at = _number(data, at)
        field, kind = tag >> 3, tag & 7
        if field in seen & _ONCE:
            break
        seen.add(field)
        if kind == 2 and field in _NESTED:
            length, at = _number(data, at)
            at += length
        elif kind == 0 and field in _NUMBERS:
            _, at = _number(data, at)
        else:
            break
        if at - start > _LARGEST or at > len(data):
            break
        ends.append(at)
    return ends


def _number(data: mmap.mmap, at: int) -> tuple[int, int]:
    """The varint at `at`, and where it ends; a tag that means nothing if it never ends."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    return 0, at
