"""Fences around a process that runs a learner's code, and what to say when one is refused.

Linux only; elsewhere nothing is fenced. Three stages, because a pid namespace holds only
processes forked after it is made, and because whoever looks for strays must keep the old
view of /proc:

    supervisor  `separate()`   namespaces for its children: pid, network, ipc
    init        `furnish()`    pid 1 there: read-only files, a private scratch folder
    learner     `confine()`    limits, another user, no privileges

Every stage returns lines that say what it achieved; a line that begins with `REFUSED`
says what it did not, and why. How the stages are put together is in `grader.forkserver`.
"""

import ctypes
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

REFUSED = "refused: "
SCRATCH = "/dev/shm"
"""HOME and TMPDIR of a fenced worker. Not /tmp: Python itself may live there."""

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND = 0x1, 0x2, 0x4, 0x1000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, _SYS_MOUNT_SETATTR = -100, 0x8000, 0x1, 442
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 4, 8
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_CAP_AMBIENT_RAISE = 2
_CAP_DAC_READ_SEARCH, _CAP_VERSION_3 = 2, 0x20080522
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

_FIRST_USER = 0x7000_0000  # a range of numbers that no system gives to anybody
_NOBODY = 65534
_MAX_FILE = 1 << 28
_STACKS_PER_CORE = 64 << 20  # JAX starts threads by the core, and their stacks are data too
KILL_SECONDS = 5.0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(function: Callable[..., int], *args: object) -> None:
    if function(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _refused(what: str, error: OSError) -> str:
    return f"{REFUSED}{what} ({error.strerror})"


def die_with_parent() -> None:
    """Be killed when the parent process dies."""
    _call(_libc().prctl, _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    _call(_libc().prctl, _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def sockets_of_others() -> list[str]:
    """Sockets in the file system; a session bus, say, runs any program it is sent.

    To be asked before `separate()`. Those of GPU drivers are left out.
    """
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    paths = (line.split(maxsplit=7)[-1] for line in lines)
    return [path for path in paths if path.startswith("/") and "nvidia" not in path]


def separate() -> str:
    """Put the children of this process into namespaces of their own; returns why not."""
    try:
        _unshare(os.CLONE_NEWPID | os.CLONE_NEWNET | os.CLONE_NEWIPC)
    except OSError as error:
        return str(error.strerror)
    with suppress(OSError):
        _raise_loopback()
    return ""


def _unshare(flags: int) -> None:
    """Root needs no user namespace. Anybody else does, and so does root in a container."""
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
    """GPUs that work together find each other through a network device, if only this one."""
    import fcntl  # here, for this module is loaded on Windows too

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack_from("16xH", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[0]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def furnish(hidden: Sequence[str], sockets: Sequence[str], refused: str) -> tuple[list[str], str]:
    """Make all files read-only, `hidden` folders empty, `sockets` of others dead.

    `refused` is why there are no namespaces, if there are none. Returns what was achieved,
    and the folder for scratch files: `SCRATCH`, private and gone with the worker, or else
    a temporary folder that somebody must remove.
    """
    if refused:
        what = "namespaces, and a fence around files"
        return [f"{REFUSED}{what} ({refused})"], tempfile.mkdtemp(prefix="grader-")
    fences = ["namespaces: pid, network, ipc"]
    try:
        os.unshare(os.CLONE_NEWNS)
        _mount("none", "/", _MS_REC | _MS_PRIVATE)
        _mount("tmpfs", SCRATCH, _MS_NOSUID | _MS_NODEV, "size=256m,mode=1777")
        _set_mounts("/", _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, 0)
        _set_mounts(SCRATCH, 0, 0, _MOUNT_ATTR_RDONLY)
    except OSError as error:
        scratch = tempfile.mkdtemp(prefix="grader-")
        return [*fences, _refused("a fence around files", error)], scratch
    fences.append("files: read-only but for a private scratch folder")
    try:
        for folder in filter(os.path.isdir, [*hidden, "/dev/pts"]):
            _mount("tmpfs", folder, _MS_RDONLY, "size=4k,mode=555")
        for path in filter(os.path.exists, sockets):
            _mount("/dev/null", path, _MS_BIND)
        _mount("proc", "/proc", _MS_NOSUID | _MS_NODEV)
    except OSError as error:
        fences.append(_refused("hiding solutions and other processes", error))
    return fences, SCRATCH


def _mount(kind: str, target: str, flags: int, data: str = "") -> None:
    names = (kind.encode(), os.fsencode(target), kind.encode())
    _call(_libc().mount, *names, ctypes.c_ulong(flags), data.encode() or None)


def _set_mounts(path: str, flags: int, switch_on: int, switch_off: int) -> None:
    attributes = struct.pack("QQQQ", switch_on, switch_off, 0, 0)
    where = (_AT_FDCWD, path.encode(), flags)
    _call(_libc().syscall, _SYS_MOUNT_SETATTR, *where, attributes, len(attributes))


def settle(scratch: str) -> None:
    """Let this process and its children keep temporary files in `scratch`."""
    os.environ |= {"HOME": scratch, "TMPDIR": scratch}
    tempfile.tempdir = None


def confine(memory: int, scratch: str, user: int) -> list[str]:
    """Set limits and give up every privilege; keep `scratch`.

    `memory` is bytes of private data, 0 for no limit; `user` tells this worker from
    others that run at the same time.
    """
    with suppress(OSError):  # where memory runs out, this process goes first
        Path("/proc/self/oom_score_adj").write_text("1000")
    fences = _limit(memory)
    try:
        fences += _drop_privileges(scratch, _FIRST_USER + user)
    except OSError as error:
        fences.append(_refused("running without privileges", error))
    return fences


def _limit(memory: int) -> list[str]:
    import resource

    cores = os.cpu_count() or 1
    processes = _tasks_of_user() + 512 + 16 * cores
    limits = {
        resource.RLIMIT_FSIZE: _MAX_FILE,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: processes,
    }
    if memory:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        memory = min(memory, physical * 3 // 4)
        limits[resource.RLIMIT_DATA] = memory + cores * _STACKS_PER_CORE
    for name, value in limits.items():
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (value, value))
    size = f"{memory / (1 << 30):.3g} GiB of memory, " if memory else ""
    return [f"limits: {size}{processes} processes and threads"]


def _tasks_of_user() -> int:
    """Threads that count against this user's limit already."""
    user, found = os.geteuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == user:
                found += len(list((process / "task").iterdir()))
        except OSError:
            continue  # it has ended
    return found


def _drop_privileges(scratch: str, user: int) -> list[str]:
    """As root: become a user of no name, who may read root's files only if Python is there."""
    libc, fences, keep = _libc(), [], 0
    needed = [path for path in map(Path, (*sys.path, sys.base_prefix)) if path.exists()]
    if os.geteuid() == 0:
        _call(libc.prctl, _PR_SET_KEEPCAPS, 1, 0, 0, 0)
        try:
            _change_user(scratch, user)
        except OSError as error:
            fences.append(_refused("a user of its own", error))
        _call(libc.prctl, _PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self would be root's
        if not all(os.access(path, os.R_OK) for path in needed):
            fences.append("privileges: reads all files, for Python lies in a closed folder")
            keep = 1 << _CAP_DAC_READ_SEARCH
    _call(libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = struct.pack("Ii", _CAP_VERSION_3, 0)
    _call(libc.capset, header, struct.pack("6I", keep, keep, keep, 0, 0, 0))
    if keep:
        with suppress(OSError):  # for a Python that the worker starts (`probes.processes`)
            _call(libc.prctl, _PR_CAP_AMBIENT, _CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)
    return fences


def _change_user(scratch: str, user: int) -> None:
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
    except OSError:  # a container knows few users
        user = _NOBODY
        os.setresgid(user, user, user)
    os.chown(scratch, user, user)
    os.setresuid(user, user, user)


def kill_tree(patience: float = KILL_SECONDS) -> bool:
    """Kill every descendant of this process, those that fled their session too.

    Needs `adopt_orphans()`. Returns whether all are gone.
    """
    deadline = time.monotonic() + patience
    while children := _children(os.getpid()):
        if time.monotonic() > deadline:
            return False
        _kill_all(children)
        _reap()
        time.sleep(0.001)
    return True


def _kill_all(found: list[int]) -> None:
    """Stop first, so that none forks while the others are looked for."""
    for pid in found:
        if _send(pid, signal.SIGSTOP):
            found += [child for child in _children(pid) if child not in found]
    for pid in found:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue  # it has ended
    return found
