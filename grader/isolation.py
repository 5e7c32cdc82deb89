"""Fences around a process that runs a learner's code, and what to say when one is refused.

Linux only; elsewhere nothing is fenced and `fences()` says so. Three stages, because a
pid namespace holds only processes forked after it is made:

    supervisor  `separate()`   new namespaces for its children
    init        `furnish()`    mounts of the new world (it is pid 1 there)
    learner     `confine()`    limits, no privileges

Every stage returns what it achieved or why not. `kill_tree` ends what a missing pid
namespace could not.
"""

import ctypes
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

LINUX = sys.platform.startswith("linux")

_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV = 0x4000, 0x40000, 0x2, 0x4
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 8, 36, 38
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 0x1
_SYS_MOUNT_SETATTR = 442
_CAP_DAC_READ_SEARCH = 2
_CAP_VERSION_3 = 0x20080522
_FIRST_UID = 200_000

SCRATCH = "/dev/shm"
"""A worker's HOME and TMPDIR. Not /tmp: Python itself may live there."""
MAX_PROCESSES = 2048
MAX_FILE = 1 << 28


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(function: Callable[..., int], *args: object) -> None:
    if function(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent() -> None:
    """Be killed when the parent process dies."""
    _call(_libc().prctl, _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    _call(_libc().prctl, _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def separate() -> list[str]:
    """Put the children of this process into namespaces of their own."""
    flags = os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWNET | os.CLONE_NEWIPC
    uid, gid = os.geteuid(), os.getegid()
    try:
        os.unshare(flags if uid == 0 else flags | os.CLONE_NEWUSER)
        if uid != 0:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError as error:
        return [f"no namespaces: {error.strerror}"]
    return ["namespaces: pid, mount, network, ipc"]


def furnish(hidden: Sequence[str]) -> list[str]:
    """Make all files read-only, `SCRATCH` private and empty, `hidden` empty."""
    libc = _libc()

    def mount(kind: str, target: str, flags: int, data: str = "") -> None:
        names = (kind.encode(), target.encode(), kind.encode())
        _call(libc.mount, *names, ctypes.c_ulong(flags), data.encode() or None)

    try:
        mount("none", "/", _MS_REC | _MS_PRIVATE)
        attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
        where = (_AT_FDCWD, b"/", _AT_RECURSIVE)
        _call(libc.syscall, _SYS_MOUNT_SETATTR, *where, attributes, len(attributes))
        for folder in [*hidden, SCRATCH]:
            if os.path.isdir(folder):
                mount("tmpfs", folder, _MS_NOSUID | _MS_NODEV, "size=256m,mode=1777")
        mount("proc", "/proc", _MS_NOSUID | _MS_NODEV)
    except OSError as error:
        return [f"files not fenced: {error.strerror}"]
    return ["files: read-only but for a private scratch folder, solutions hidden"]


def confine(memory: int) -> list[str]:
    """Set limits (`memory` in bytes of private data) and give up every privilege."""
    import resource

    limits = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_FSIZE: MAX_FILE,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: MAX_PROCESSES,
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    achieved = [f"limits: {memory >> 30} GiB memory, {MAX_PROCESSES} processes"]
    try:
        _drop_privileges()
    except OSError as error:
        achieved.append(f"privileges kept: {error.strerror}")
    return achieved


def _drop_privileges() -> None:
    """As root: become a user of no name who may still read root's Python files."""
    libc = _libc()
    keep = 0
    if os.geteuid() == 0:
        user = _FIRST_UID + os.getppid() % 60_000 * 4 + os.getpid() % 4
        _call(libc.prctl, _PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        keep = 1 << _CAP_DAC_READ_SEARCH
    _call(libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = struct.pack("Ii", _CAP_VERSION_3, 0)
    _call(libc.capset, header, struct.pack("6I", keep, keep, 0, 0, 0, 0))


def kill_tree() -> None:
    """Kill every descendant of this process, those that fled their session too."""
    while children := _children(os.getpid()):
        for pid in children:
            _kill_with_descendants(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def _kill_with_descendants(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGSTOP)
        for child in _children(pid):
            _kill_with_descendants(child)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found
