"""Programs that the reference compiled, so that a submission need not compile the same again.

A fork server has one folder of them. A worker of the reference begins with what was handed on
before, and hands on what it has added when its job is done: whole files only, whatever kills it.
A submission's workers see what was handed on, and can change nothing. So nothing that a
submission does reaches another worker.

    FOLDER/             closed to other users of this machine
      all/              what the reference's workers see at `namespaces.COMPILED`
        own/            a folder for each of them, which JAX reads and adds to
        handed_on/      what a submission's workers see at `namespaces.COMPILED`

Where the fence around files does not stand, no worker uses one.
"""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from grader.fences import namespaces
from grader.running.messages import Use

_PREFIX = "grader-compiled-"
_OWN, _HANDED_ON = "own", "handed_on"
MOST_FILES = 1000
"""How many programs are kept, at about 20 KiB each, before old ones go."""
OLD_SECONDS = 600.0


class Folder:
    """The folder of one fork server, which is this process."""

    def __init__(self) -> None:
        sweep()
        self._path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        for path in (self._all, self._all / _OWN, self._all / _HANDED_ON):
            path.mkdir()
            path.chmod(0o1777)  # each fenced worker is a user of its own

    @property
    def _all(self) -> Path:
        return self._path / "all"

    def seen(self, use: Use) -> str:
        """What a worker is to see that adds to the folder, or reads what was handed on."""
        return os.fspath(self._all if use == "add" else self._all / _HANDED_ON)

    def tidy(self) -> None:
        """Remove what is old: programs once there are many, and what dead workers left."""
        programs = list((self._all / _HANDED_ON).iterdir())
        for path in filter(_is_old, programs if len(programs) > MOST_FILES else []):
            path.unlink(missing_ok=True)
        for path in filter(_is_old, (self._all / _OWN).iterdir()):
            shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._path, ignore_errors=True)


def sweep() -> None:
    """Remove this user's folders whose fork server is dead: it may have been killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, ValueError):
            server = int(path.name.removeprefix(_PREFIX).split("-")[0])
            if path.stat().st_uid == os.geteuid() and not Path(f"/proc/{server}").exists():
                shutil.rmtree(path, ignore_errors=True)


def _is_old(path: Path) -> bool:
    try:
        return path.stat().st_mtime < time.time() - OLD_SECONDS
    except FileNotFoundError:  # its worker was first
        return False


# In a worker.


def used(use: Use) -> str:
    """The folder that JAX is to read, and to add to if `use` says so; "" for none.

    There is none either if it cannot be made, on a full disk, say.
    """
    if use != "add":
        return namespaces.COMPILED if use else ""
    try:
        own = tempfile.mkdtemp(dir=Path(namespaces.COMPILED, _OWN))
    except OSError:
        return ""
    _link(Path(namespaces.COMPILED, _HANDED_ON), Path(own))
    return own


def hand_on(own: str) -> None:
    """Let later workers see what this one has added to its folder."""
    if not Path(own).exists():
        return  # it has run for so long that `tidy` took it for dead
    for path in Path(own).iterdir():
        with suppress(OSError):  # another user's, and handed on already
            path.chmod(0o666)  # or else that user could not link it
    _link(Path(own), Path(namespaces.COMPILED, _HANDED_ON))
    shutil.rmtree(own, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    for path in source.iterdir():
        with suppress(OSError):  # another worker or `tidy` was first, or the disk is full
            (target / path.name).hardlink_to(path)
