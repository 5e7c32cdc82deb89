"""Sets limits on this process, and gives up its privileges: the last fence before a learner's code.

Linux only. What the process can reach is limited before, in `grader.fences.namespaces`. How
much memory a worker gets is decided in `grader.running`.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from grader.fences.system import REFUSED, call, libc, refused_line

_PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 4, 8
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 38, 47
_CAP_AMBIENT_RAISE = 2
_CAP_DAC_READ_SEARCH, _CAP_VERSION_3 = 2, 0x20080522

THREADS = 512
_FIRST_USER = 0x7000_0000  # no system gives out user ids from here on
_NOBODY = 65534
_MAX_FILE = 1 << 28
_MAX_ATTRIBUTES = 256
"""More bytes than a `pthread_attr_t` has on any machine."""
_STACKS_PER_CORE = 64 << 20  # JAX starts threads for each core, and their stacks are data too


def confine(memory: int, scratch: str, user: int, threads: int = THREADS) -> list[str]:
    """Set limits and give up every privilege, but keep the folder `scratch`.

    `memory` is the limit of private data in bytes, 0 for none; `threads` how many may run.
    `user` is a number that no other worker has at the same time. Returns what was achieved, and
    what was refused.
    """
    with suppress(OSError):  # where memory runs out, this process goes first
        Path("/proc/self/oom_score_adj").write_text("1000")
    fences = _limit(memory, threads)
    try:
        fences += _drop_privileges(scratch, _FIRST_USER + user)
    except OSError as error:
        fences.append(refused_line("running without privileges", error))
    return fences


def small_stacks(size: int) -> None:
    """Give threads that are started from now on, and ask for no size, stacks of `size` bytes.

    A stack counts as private data, used or not. C libraries but glibc keep their own size.
    """
    attributes = ctypes.create_string_buffer(_MAX_ATTRIBUTES)
    c = libc()
    with suppress(AttributeError, OSError):
        call(c.pthread_attr_init, attributes)
        call(c.pthread_attr_setstacksize, attributes, ctypes.c_size_t(size))
        call(c.pthread_setattr_default_np, attributes)


def hand_over(paths: Sequence[str], user: int) -> None:
    """Give files to the user that `confine` will make of this process, if it can make one."""
    if os.geteuid() == 0:
        for path in paths:
            with suppress(OSError):  # root of a container alone: this user stays who it is
                os.chown(path, _FIRST_USER + user, -1)


def step_down(user: int, folder: str = "") -> list[str]:
    """Give up every privilege, and let no process of the same user look into this one.

    For a process of the grader's own beside a learner's. `user` as in `confine`, 0 to stay
    who this is; `folder`, if given, goes over to that user. Returns what was achieved, and
    what was refused.
    """
    if sys.platform != "linux":
        return [f"{REFUSED}a fence around this process (not Linux)"]
    fences: list[str] = []
    try:
        if user:
            fences += _drop_privileges(folder, _FIRST_USER + user)
        call(libc().prctl, _PR_SET_DUMPABLE, 0, 0, 0, 0)
    except OSError as error:
        fences.append(refused_line("running without privileges", error))
    return fences


def _limit(memory: int, threads: int) -> list[str]:
    import resource  # here, since this module is loaded on Windows too

    cores = os.cpu_count() or 1
    processes = _tasks_of_user() + threads + 16 * cores
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
    """How many threads already count against this user's limit."""
    user, found = os.geteuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == user:
                found += len(list((process / "task").iterdir()))
        except OSError:
            continue  # it has ended
    return found


def _drop_privileges(scratch: str, user: int) -> list[str]:
    """Give up every privilege; as root, become a user without a name first.

    That user may read root's files only if Python lies among them.
    """
    c, fences, keep = libc(), [], 0
    needed = [path for path in map(Path, (*sys.path, sys.base_prefix, __file__)) if path.exists()]
    if os.geteuid() == 0:
        call(c.prctl, _PR_SET_KEEPCAPS, 1, 0, 0, 0)
        try:
            _change_user(scratch, user)
        except OSError as error:
            fences.append(refused_line("a user of its own", error))
        call(c.prctl, _PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self would be root's
        if not all(os.access(path, os.R_OK) for path in needed):
            fences.append("privileges: reads all files, since Python lies in a closed folder")
            keep = 1 << _CAP_DAC_READ_SEARCH
    call(c.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = struct.pack("Ii", _CAP_VERSION_3, 0)
    call(c.capset, header, struct.pack("6I", keep, keep, keep, 0, 0, 0))
    if keep:
        with suppress(OSError):  # for a Python that the worker starts (`stages.hosts`)
            call(c.prctl, _PR_CAP_AMBIENT, _CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)
    return fences


def _change_user(scratch: str, user: int) -> None:
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
    except OSError:  # a container knows few users
        user = _NOBODY
        os.setresgid(user, user, user)
    if scratch:
        os.chown(scratch, user, user)
    os.setresuid(user, user, user)
