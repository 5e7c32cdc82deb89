"""A device next door for a command: its options, and why it could not be had.

What the options mean for the device is in `grader.device.options`; what runs on it is in
`grader.app.next_door.run`, and a device for another shell is in `grader.app.next_door.lent`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from grader.app.versions import unsupported
from grader.device.options import Options, like
from grader.device.start import CouldNotStart, Device, start
from grader.program import targets
from grader.records.book import Link


class Unusable(Exception):
    """An option is wrong; the message names it."""


class NoDevice(Exception):
    """No device next door can be started here; the message says why."""


class Wanted(msgspec.Struct, frozen=True):
    """The device as the command line asks for it; None where an option was not given."""

    devices: int | None = None
    memory: int | None = None
    link: float | None = None
    like: str | None = None
    book: Path | None = None


def options_of(wanted: Wanted) -> Options:
    """The device's options: the figures of `--like`, and over them what was given beside it.

    Raises:
      Unusable: no machine has the name in `--like`, or the book cannot be written.
    """
    options = Options() if wanted.like is None else _like(wanted.like)
    if wanted.devices is not None:
        options = msgspec.structs.replace(options, devices=wanted.devices)
    if wanted.memory is not None:
        options = msgspec.structs.replace(options, memory=wanted.memory)
    if wanted.link is not None:
        latency = options.host_link.latency
        options = msgspec.structs.replace(options, host_link=Link(wanted.link, latency))
    if wanted.book is not None:
        writable("--book", wanted.book)
        options = msgspec.structs.replace(options, book=wanted.book.absolute())
    return options


def _like(name: str) -> Options:
    try:
        target, speed = targets.find(name), targets.speed(name)
    except targets.Unknown as error:
        raise Unusable(f"--like: {error}") from None
    return like(target, speed.host_bandwidth, speed.flops)


def writable(option: str, path: Path) -> None:
    """Find out early whether a file can be written, and leave it as it is.

    Raises:
      Unusable: it cannot; the message names the option and the reason.
    """
    if path.is_dir():
        raise Unusable(f"{option} {path} is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise Unusable(f"{option} {path}: there is no folder {path.parent}; make it first")
    place = path if path.exists() else path.absolute().parent
    if not os.access(place, os.W_OK):
        raise Unusable(f"{option} {path}: you may not write there; name another file")


@contextmanager
def borrowed(options: Options) -> Iterator[Device]:
    """A device inside the block.

    Raises:
      NoDevice: it could not be started.
    """
    if problem := unsupported():
        raise NoDevice(problem)
    try:
        device = start(options)
    except CouldNotStart as error:
        raise NoDevice(f"no device next door could be started: {error}") from error
    with device:
        yield device
