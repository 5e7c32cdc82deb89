"""Runs a person's program as if nothing stood between the program and the terminal.

stdin, stdout and stderr are the program's own. A signal that the terminal sends reaches the
program by itself, since it is in the same group; a signal that was sent to this process alone is
handed on. Nothing here knows what the program does.
"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from grader.fences.family import die_with_parent

HANDED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_FROM_THE_KERNEL = 128
"""`si_code` of a signal that the kernel sent, as for Ctrl-C at the terminal: to all of a group."""


def run(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program to its end; returns its exit code, or -N if signal N ended it.

    Raises:
      OSError: it could not be started.
    """
    awaited = {*HANDED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        # Between fork and exec no other thread of this process runs Python.
        program = subprocess.Popen(
            words, env=environment, preexec_fn=lambda: _begin(before), close_fds=True
        )
        while program.poll() is None:
            came = signal.sigwaitinfo(awaited)
            if came.si_signo != signal.SIGCHLD and came.si_code != _FROM_THE_KERNEL:
                program.send_signal(came.si_signo)
        return program.returncode
    finally:
        while signal.sigtimedwait(awaited, 0):
            pass  # what came for the program as it ended is not for us
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(mask: set[int | signal.Signals]) -> None:
    """In the new process: it does not outlive this one, and signals reach it as they reached us."""
    if sys.platform == "linux":
        die_with_parent()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_like(code: int) -> int:
    """End this process as the program ended: by its signal, or else return its exit code."""
    if code >= 0:
        return code
    with suppress(ValueError, OSError):  # one core dump is enough
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # SIGKILL and SIGSTOP have no handlers
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code
