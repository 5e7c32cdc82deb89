"""Keeps records in a folder, for `grader judge`: each whole, and none written over.

The records of two students, or of two runs, may come into one folder: the second gets a number
in its name. A record takes its name only when all of it is on the disk, so that whoever ends
the grader, or fills the disk, leaves no part of one behind.
"""

import itertools
import os
import tempfile
from pathlib import Path

from grader.records.record import Record
from grader.records.verdict import encode


def save(record: Record, folder: Path) -> Path:
    """Keep a record as `ex07_quiet_loop.json`, or `ex07_quiet_loop.2.json`; returns the file.

    Raises:
      OSError: the folder cannot be made or written, or the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".part") as file:
        file.write(encode(record))
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o644)
        return _named(Path(file.name), folder, record.exercise)


def _named(whole: Path, folder: Path, stem: str) -> Path:
    """Give a whole file the first name that is free."""
    for number in itertools.count(1):
        path = folder / (f"{stem}.json" if number == 1 else f"{stem}.{number}.json")
        try:
            path.hardlink_to(whole)
        except FileExistsError:
            continue
        except OSError:  # a file system without links
            if not _reserved(path):
                continue
            path.write_bytes(whole.read_bytes())
        return path
    raise AssertionError("numbers do not end")


def _reserved(path: Path) -> bool:
    """Whether a name was free, and is now this grader's."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
