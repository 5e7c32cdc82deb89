"""Programs that the reference compiled, so that a submission need not compile the same again.

A fork server has one folder of them. The reference's workers read and add to it, and hand on what
they compiled when they have done their job: whole files only. A submission's workers see what was
handed on, and can change nothing. So nothing that a submission does reaches another worker.

    FOLDER/             closed to other users of this machine
      all/              where the reference's workers see `namespaces.COMPILED`
        own/            what JAX keeps for them
        handed_on/      where a submission's workers see `namespaces.COMPILED`

Where the fence around files does not stand, no worker uses one.
"""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from grader.fences import namespaces
from grader.running.messages import Compiled

_PREFIX = "grader-compiled-"
_OWN, _HANDED_ON = "own", "handed_on"
MOST_FILES = 2000
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

    def seen(self, use: Compiled) -> str:
        """What a worker is to see that adds to the folder, or reads what was handed on."""
        return os.fspath(self._all if use == "add" else self._all / _HANDED_ON)

    def tidy(self) -> None:
        """Remove old programs once there are many."""
        for folder in (self._all / _OWN, self._all / _HANDED_ON):
            with suppress(OSError):
                paths = list(folder.iterdir())
                if len(paths) <= MOST_FILES:
                    continue
                since = time.time() - OLD_SECONDS
                for path in paths:
                    if path.stat().st_mtime < since:
                        path.unlink()

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


# In a worker.


def used(use: Compiled) -> str:
    """The folder that JAX is to read, and to add to if `use` says so; "" for none."""
    return {"": "", "read": namespaces.COMPILED, "add": f"{namespaces.COMPILED}/{_OWN}"}[use]


def hand_on() -> None:
    """Let later workers see what is in the folder that this one adds to."""
    own = Path(namespaces.COMPILED, _OWN)
    for path in own.iterdir():
        with suppress(OSError):  # it is there already
            os.link(path, own.parent / _HANDED_ON / path.name)
