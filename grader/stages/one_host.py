"""Runs inside one of several processes that run one file together.

It is a fresh Python, `python -m grader.stages.one_host STACK`. A `Job` comes from stdin. What
the process tells goes to stdout, as lines of JSON, and what it prints goes to stderr. The
place where it is stuck or crashed goes to the descriptor STACK. How it is started and watched
is in `grader.stages.hosts`.
"""

import builtins
import faulthandler
import gc
import json
import linecache
import marshal
import os
import signal
import sys
import traceback
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

import msgspec

from grader.fences.family import die_with_parent
from grader.records.lines import cached
from grader.records.raised import in_words

Say = Callable[[str, Any], None]


class Part(Protocol):
    """What one process does with a submission.

    It is sent as code, since its file may be hidden from the learner's processes. So it
    imports what it needs, and uses no other name of its module.
    """

    __code__: CodeType

    def __call__(
        self, submission: ModuleType, index: int, address: str, given: Any, say: Say
    ) -> None:
        """Run as process number `index`; the processes meet at `address`.

        `given` is the JSON value for this process, and `say(name, value)` tells one back.
        """
        ...


class Job(msgspec.Struct):
    """What a process needs to know."""

    path: str
    source: str
    part: str
    index: int
    address: str
    devices: int
    given: Any


def main() -> None:
    """Entry point of `python -m grader.stages.one_host STACK`: one process of several."""
    with suppress(OSError, AttributeError):
        die_with_parent()
    told = os.dup(1)
    os.dup2(2, 1)
    stack = int(sys.argv[1])
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR1, file=stack)
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)

    def say(name: str, value: Any) -> None:
        with os.fdopen(os.dup(told), "wb") as pipe:
            pipe.write(json.dumps([name, value]).encode() + b"\n")

    _serve(job, say)
    sys.stdout.flush()
    sys.stdin.buffer.read()  # others may still need this process: it ends when it is killed


def _serve(job: Job, say: Say) -> None:
    gc.disable()  # what is imported stays: a collector that looks through it finds nothing
    import jax  # here: `main` must have set up signals and stacks before this long import

    gc.freeze()
    gc.enable()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", job.devices)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    part = FunctionType(marshal.loads(b64decode(job.part)), {"__builtins__": builtins})
    linecache.cache[job.path] = cached(job.source, job.path)
    say("ready", True)
    sys.stdin.buffer.readline()
    try:
        module = ModuleType("submission")
        module.__file__ = job.path
        sys.modules["submission"] = module
        exec(compile(job.source, job.path, "exec", dont_inherit=True), module.__dict__)
        part(module, job.index, job.address, job.given, say)
    except BaseException as error:  # noqa: BLE001 (whatever the file raises is reported)
        say("raised", _told(error, job.path))
    else:
        say("finished", True)


def _told(error: BaseException, path: str) -> tuple[str, int | None]:
    """The error in words, and the learner's innermost line."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return in_words(error), lines[-1] if lines else None


if __name__ == "__main__":
    main()
