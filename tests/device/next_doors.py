"""What tests of the device share: devices that live for a module, and clients of two kinds."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from raw import Raw

from grader.device.nursery import Nursery
from grader.device.options import Options
from grader.device.start import Device
from grader.records import book
from grader.records.book import Entry

type Program = Callable[[Device, str], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def forked() -> Iterator[Nursery]:
    """What forks devices, for all tests."""
    with Nursery() as found:
        found.wait()
        yield found


@pytest.fixture(scope="module")
def device(forked: Nursery) -> Iterator[Device]:
    """Four devices with 1 MiB of memory each, for all tests of a module."""
    with forked.start(Options(devices=4, memory=1 << 20)) as started:
        yield started


@pytest.fixture
def raw(device: Device) -> Iterator[Raw]:
    """A client without JAX."""
    client = Raw(device)
    yield client
    client.close()


@pytest.fixture
def entries(device: Device) -> Callable[[], list[Entry]]:
    """The entries that were written since the test began, once nothing is under way."""
    device.counts()
    before = len(book.read(device.book).entries)

    def read() -> list[Entry]:
        device.counts()
        return book.read(device.book).entries[before:]

    return read


@pytest.fixture(scope="session")
def program() -> Program:
    """Runs a text as an unmodified program on a device."""

    def run(device: Device, text: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", text],
            env={**plain_environment(), **device.environment},
            capture_output=True,
            text=True,
            timeout=200,
            cwd=Path(__file__).parent,
        )

    return run


def plain_environment() -> dict[str, str]:
    """This process's environment, without what JAX and the grader read."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "XLA_", "GRADER_"))
    }
