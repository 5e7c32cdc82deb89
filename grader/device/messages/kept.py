"""Keeps the descriptions of jaxlib's messages in the user's cache folder, one file a jaxlib.

It takes half a second to find them in the library (`protocol`), and a start of a
device must not take that long. A file that is damaged counts as missing. Neither protobuf nor
jaxlib is imported here.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution


def _jaxlib() -> "Distribution":
    """What is installed.

    Raises:
      LookupError: there is none.
    """
    # Here, since importing this takes longer than importing a third of the grader.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution("jaxlib")
    except PackageNotFoundError as error:
        raise LookupError("jaxlib is not installed") from error


def version() -> str:
    """The version of the installed jaxlib.

    Raises:
      LookupError: there is none.
    """
    return _jaxlib().version


def library() -> Path:
    """The shared library of the installed jaxlib.

    Raises:
      LookupError: jaxlib is not installed, or is of a kind that is not known here.
    """
    jaxlib = _jaxlib()
    path = Path(str(jaxlib.locate_file("jaxlib/libjax_common.so")))
    if not path.is_file():
        raise LookupError(f"jaxlib {jaxlib.version} has no {path.name}")
    return path


def folder() -> Path:
    """Where descriptions are kept for this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "where-does-my-array-live")


def _place(cache: Path) -> Path:
    about = library().stat()
    return cache / f"{version()}-{about.st_size}-{about.st_mtime_ns}.protocol"


def load(cache: Path) -> bytes | None:
    """The descriptions of the installed jaxlib; None if they are not kept, or damaged.

    Raises:
      LookupError: there is no jaxlib whose library could be read.
    """
    try:
        found = _place(cache).read_bytes()
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    return found[size:] if hashlib.sha256(found[size:]).digest() == found[:size] else None


def save(cache: Path, data: bytes) -> None:
    """Keep the descriptions of the installed jaxlib; where that cannot be, they are not kept."""
    place = _place(cache)
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=cache, prefix=place.name)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
        Path(temporary).replace(place)
