"""Puts a process into namespaces: limits what it reaches of the machine and the file system.

There are two steps, because a pid namespace holds only processes that are forked after it is
made, and because the process that looks for strays must keep the old view of /proc:

    supervisor  `separate()`   namespaces for its children: pid, network, ipc
    init        `furnish()`    pid 1 there: read-only files, a private scratch folder

Linux only. Limits and privileges are in `grader.fences.limits`.
"""

import ctypes
import os
import socket
import struct
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from grader.fences.system import REFUSED, call, libc, refused_line

SCRATCH = "/dev/shm"
"""HOME and TMPDIR of a fenced worker. Not /tmp: Python itself may live there."""
COMPILED = f"{SCRATCH}/.compiled"
"""Where a fenced worker finds the folder of compiled programs that it was given, if any."""

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND = 0x1, 0x2, 0x4, 0x1000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, _SYS_MOUNT_SETATTR = -100, 0x8000, 0x1, 442
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def sockets_of_others(own: str = "") -> list[str]:
    """Sockets in the file system, apart from those of GPU drivers and those in the folder `own`.

    A session bus, for example, runs any program that it is told to. Call it before
    `separate()`.
    """
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    paths = (line.split(maxsplit=7)[-1] for line in lines)
    found = [path for path in paths if path.startswith("/") and "nvidia" not in path]
    return [path for path in found if not own or Path(path).parent != Path(own)]


def separate() -> str:
    """Put the children of this process into namespaces of their own; returns why not, or ""."""
    try:
        _unshare(os.CLONE_NEWPID | os.CLONE_NEWNET | os.CLONE_NEWIPC)
    except OSError as error:
        return str(error.strerror)
    with suppress(OSError):
        _raise_loopback()
    return ""


def _unshare(flags: int) -> None:
    """Make namespaces. All but root need a user namespace too, and so does root in a container."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        with suppress(PermissionError):
            os.unshare(flags)
            return
    os.unshare(flags | os.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _raise_loopback() -> None:
    """Switch on loopback: GPUs that work together find each other through a network device."""
    import fcntl  # here, since this module is loaded on Windows too

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack_from("16xH", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[0]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def furnish(
    hidden: Sequence[str],
    sockets: Sequence[str],
    refused: str,
    compiled: str = "",
    *,
    adds: bool = False,
) -> tuple[list[str], str]:
    """Make all files read-only, empty the `hidden` folders, and block the `sockets` of others.

    `refused` is why there are no namespaces, or "". The folder `compiled`, if given, is found at
    `COMPILED`, and can be written to if `adds`. Returns what was achieved, and the folder for
    scratch files: `SCRATCH`, which is private and gone with the worker, or else a temporary
    folder that the caller must remove; then `COMPILED` is not there.
    """
    if refused:
        what = "namespaces, and a fence around files"
        return [f"{REFUSED}{what} ({refused})"], tempfile.mkdtemp(prefix="grader-")
    fences = ["namespaces: pid, network, ipc"]
    try:
        os.unshare(os.CLONE_NEWNS)
        _mount("none", "/", _MS_REC | _MS_PRIVATE)
        _mount("tmpfs", SCRATCH, _MS_NOSUID | _MS_NODEV, "size=256m,mode=1777")
        writable = [SCRATCH]
        with suppress(OSError):  # the fence stands without it
            writable += [COMPILED] * (_mount_compiled(compiled) and adds)
        _set_mounts("/", _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, 0)
        for folder in writable:
            _set_mounts(folder, 0, 0, _MOUNT_ATTR_RDONLY)
    except OSError as error:
        scratch = tempfile.mkdtemp(prefix="grader-")
        return [*fences, refused_line("a fence around files", error)], scratch
    fences.append("files: read-only but for a private scratch folder")
    try:
        for folder in filter(os.path.isdir, [*hidden, "/dev/pts"]):
            _mount("tmpfs", folder, _MS_RDONLY, "size=4k,mode=555")
        for path in filter(os.path.exists, sockets):
            _mount("/dev/null", path, _MS_BIND)
        _mount("proc", "/proc", _MS_NOSUID | _MS_NODEV)
    except OSError as error:
        fences.append(refused_line("hiding solutions and other processes", error))
    return fences, SCRATCH


def _mount_compiled(folder: str) -> bool:
    """Let a folder be seen at `COMPILED` too, if one is given."""
    if folder:
        Path(COMPILED).mkdir()
        _mount(folder, COMPILED, _MS_BIND)
    return bool(folder)


def _mount(kind: str, target: str, flags: int, data: str = "") -> None:
    names = (kind.encode(), os.fsencode(target), kind.encode())
    call(libc().mount, *names, ctypes.c_ulong(flags), data.encode() or None)


def _set_mounts(path: str, flags: int, switch_on: int, switch_off: int) -> None:
    attributes = struct.pack("QQQQ", switch_on, switch_off, 0, 0)
    where = (_AT_FDCWD, path.encode(), flags)
    call(libc().syscall, _SYS_MOUNT_SETATTR, *where, attributes, len(attributes))


def settle(scratch: str) -> None:
    """Let this process and its children keep temporary files in `scratch`."""
    os.environ |= {"HOME": scratch, "TMPDIR": scratch}
    tempfile.tempdir = None
