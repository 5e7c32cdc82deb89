"""Outputs recorded on a real GPU: their format, how they are written, which are still good.

Input and output: `docs/recorded/<lesson>.<device-kind>.json` (described in
`docs/recorded/README.md`). A recording keeps the outputs of each code cell under the hash of
all code up to that cell. Executing a lesson is `notebooks`; showing a recording is `lesson_pages`.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lesson import Lesson

VERSION = 1
REHEARSAL = "rehearsal"
"""The kind of a device that is no GPU and calls itself one (`make gpu-rehearsal`)."""

_ASK_DEVICE = """
import json, jax
device = jax.devices()[0]
print(json.dumps([device.platform, device.device_kind, jax.__version__]))
"""
_ASK_DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


class NoGpuError(Exception):
    """JAX found no GPU on this machine, so there is nothing to record."""


class RecordingError(Exception):
    """A file among the recordings that the site does not show; the message names it."""


@dataclass(frozen=True)
class Device:
    """What a recording was made on; `rehearsed` where that was no GPU."""

    kind: str
    driver: str
    jax: str
    date: str
    rehearsed: bool = False

    @property
    def label(self) -> str:
        """One line for the page: device, driver, jax and date."""
        return f"{self.kind}, driver {self.driver}, jax {self.jax}, {self.date}"

    @property
    def slug(self) -> str:
        """`nvidia-h200`, for names of files."""
        return re.sub(r"[^a-z0-9]+", "-", self.kind.lower()).strip("-")


@dataclass(frozen=True)
class Recording:
    """One file: nbformat outputs by hash of the code up to the cell."""

    path: Path
    device: Device
    cells: dict[str, list[dict[str, Any]]]


def device() -> Device:
    """The first GPU of this machine, asked in another process.

    Raises NoGpuError where JAX's default backend is the CPU.
    """
    answer = subprocess.run(
        [sys.executable, "-c", _ASK_DEVICE], check=True, capture_output=True, text=True
    )
    platform, kind, version = json.loads(answer.stdout)
    if platform == "cpu":
        raise NoGpuError("nothing recorded: JAX found no GPU here, only the CPU")
    date = datetime.now(UTC).date().isoformat()
    return Device(kind, _driver(), version, date, rehearsed=kind == REHEARSAL)


def _driver() -> str:
    try:
        answer = subprocess.run(_ASK_DRIVER, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.split()[0]


def write(out: Path, this: Lesson, outputs: list[list[dict[str, Any]]], on: Device) -> Path:
    """Write the recording of one lesson into the folder `out` and return its path.

    A cell marked `# %% gpu=false` shows what a GPU does not change, so it is left out.
    """
    path = out / f"{this.name}.{on.slug}.json"
    wanted = [c.metadata.get("gpu", True) for c in this.notebook.cells if c.cell_type == "code"]
    found = zip(this.hashes(), outputs, wanted, strict=True)
    cells = {key: shown for key, shown, want in found if want and shown}
    text = {"version": VERSION, "device": vars(on), "cells": cells}
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    return path


def checked(path: Path) -> tuple[Device, dict[str, Any]]:
    """The device and the content of a recording, of a lesson or of claims.

    Raises RecordingError for another version of the format, and for what was recorded in a
    rehearsal: its numbers are no GPU's.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["version"] != VERSION:
        raise RecordingError(f"{path}: recording version {data['version']}, not {VERSION}")
    device = Device(**data["device"])
    if device.rehearsed or device.kind == REHEARSAL:
        raise RecordingError(f"{path}: recorded in a rehearsal, on no GPU: delete it")
    return device, data


def read(path: Path) -> Recording:
    """Read the recording of one lesson. Raises RecordingError as `checked`."""
    on, data = checked(path)
    return Recording(path, on, data["cells"])


def of_lesson(folder: Path, this: Lesson) -> list[Recording]:
    """The recordings of a lesson that a folder holds, in order of the device's name.

    Raises RecordingError as `checked`.
    """
    return [read(path) for path in sorted(folder.glob(f"{this.name}.*.json"))]


def stale(this: Lesson, recording: Recording) -> int:
    """How many cells of a recording no code cell of the lesson matches any more."""
    return len(recording.cells.keys() - set(this.hashes()))
