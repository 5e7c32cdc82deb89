"""What a fresh process's settings make of a GPU's memory: what JAX hands to its CUDA client.

On the stage, JAX's own code finds a plugin, reads environment and configuration, and
creates the client. Only the plugin's library and the GPU behind it are replaced. Where
there is a GPU, `reported` asks a real process. Drives use it; nothing is judged here.
"""

import ctypes
import importlib.metadata
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import jax

from grader.judging.words import line_on_stack, typed
from grader.probes.private import Gone as Gone
from grader.stages import machines

PLUGIN = "grader_staged_cuda_plugin"
OPTIONS = ("allocator", "memory_fraction", "preallocate")
SECONDS = 25.0
_STEERING = ("XLA_", "JAX_", "TF_CPP_", "TF_FORCE_UNIFIED_MEMORY")
"""How variables of JAX and XLA begin: of those that begin with TF_, most are TensorFlow's."""
_READ_IN_C = ("XLA_FLAGS", "TF_FORCE_UNIFIED_MEMORY")
"""Variables that XLA reads itself, and not by way of `os.environ`."""
_AMD = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", *_AMD)
_ASK = """
import json, sys, types
source, share, grow = json.load(sys.stdin)
module = types.ModuleType("submission")
exec(compile(source, "submission", "exec"), module.__dict__)
module.start(share, grow)
import jax
device = jax.devices()[0]
jax.device_put(0.0, device).block_until_ready()
print("\\n" + json.dumps(device.memory_stats()))
"""


@dataclass
class Process:
    """A process on the stage, and what its JAX was told."""

    gpu: Any
    path: str
    read: Callable[[], Mapping[str, Any]]
    """What the CUDA plugin reads the environment with."""
    options: dict[str, Any] | None = None
    """What the client was created with, of `OPTIONS`; None while there is no client."""
    more: dict[str, Any] = field(default_factory=dict)
    """The other options that the client was created with, as plain values."""
    environment: dict[str, str] | None = None
    """The variables that steer a client, when JAX read them; None before that."""
    line: int | None = None
    """The line of the file at `path` on which JAX read the environment."""
    complaint: str = ""
    """What the plugin raised when it read the environment; JAX logs it and goes on."""
    cpus: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    """The GPUs after the first one."""
    put: set[str] = field(default_factory=set)
    """The variables of the environment that were given a value."""

    def asked_now(self) -> dict[str, Any]:
        """What JAX would read from the environment, if it read it now.

        Raises:
          ValueError: a value that it does not accept.
        """
        return _told(self.read())


@contextmanager
def process(shell: Mapping[str, str], path: str, gpus: int = 1) -> Iterator[Process]:
    """While entered, JAX has been imported and asked nothing yet, on a machine with some GPUs.

    `shell` is what the environment holds of XLA's and JAX's variables; `path` is the
    learner's file.

    Raises:
      Gone: a name this leans on is no longer there.
    """
    bridge = machines.bridge_module()
    cpu = bridge._backends["cpu"]
    client = machines.staged_client(gpus, type(cpu))
    jax.clear_caches()  # a fresh process has compiled nothing, so its first array asks for a device
    with ExitStack() as stack:
        put = set[str]()
        stack.callback(_put_back, put)
        try:
            read = bridge.xla_client.generate_pjrt_gpu_plugin_options
            first, *others = client.devices()
            staged = Process(first, path, read, cpus=cpu.devices(), others=others, put=put)
            for patch in _patches(bridge, client, staged, shell):
                stack.enter_context(patch)
            registered = {"cpu": machines.registration(bridge, lambda: cpu, 0)}
            stack.enter_context(machines.replaced(bridge, registered, True, ""))
            stack.enter_context(mock.patch.object(os, "putenv", partial(_putenv, os.putenv, put)))
        except AttributeError as error:
            raise Gone(str(error)) from error
        yield staged


def started(
    submission: ModuleType, shell: Mapping[str, str], share: float, grow: bool, gpus: int = 1
) -> dict[str, Any]:
    """What the learner's `start(share, grow)` did in a staged process with `gpus` GPUs.

    As plain values.

    Raises:
      Gone: a name this leans on is no longer there.
    """
    with process(shell, str(submission.__file__), gpus) as staged:
        answer, array, before = "", "", _environment()
        try:
            answer = _word(machines.fresh(submission).start(share, grow), staged)
        except TypeError as error:
            if not _of_jax(error):
                raise
            array = f"{type(error).__name__}: {str(error).partition('.')[0]}"
        variables, foreign = _steering(), _changes(before, staged.put)
        afterwards: dict[str, Any] = {}
        with suppress(ValueError):  # a value it does not accept stands in `complaint`, if read
            afterwards = staged.asked_now()
        jax.devices()  # a `start` that asked nothing leaves the first question to its caller
    about = {"answer": answer, "variables": variables, "afterwards": afterwards, "array": array}
    about["foreign"] = foreign
    about["put"] = sorted(staged.put)
    told = {"options": staged.options, "more": staged.more, "read": staged.environment}
    return {**about, **told, "line": staged.line, "complaint": staged.complaint}


def _putenv(put: Callable[[Any, Any], None], names: set[str], name: Any, text: Any) -> None:
    """What `os.environ` calls, too, to give a variable a value: note its name."""
    names.add(os.fsdecode(name))
    put(name, text)


def _of_jax(error: TypeError) -> bool:
    """Whether JAX's own code raised it: what it does for an array that is to lie on the stage."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("jax.")


def _word(device: Any, staged: Process) -> str:
    if device is staged.gpu:
        return "the GPU"
    for number, other in enumerate(staged.others, 2):
        if device is other:
            return f"GPU {number} of {1 + len(staged.others)}, not the first that JAX lists"
    if any(device is cpu for cpu in staged.cpus):
        return "a CPU device"
    return typed(type(device).__name__)


def _patches(bridge: Any, client: Any, staged: Process, shell: Mapping[str, str]) -> list[Any]:
    """Each patch insists that its name is there."""
    # A GPU is staged: which real ones are ours matters nothing.
    kept = {name: v for name, v in os.environ.items() if name not in _steering()}
    plugin: Any = ModuleType(PLUGIN)
    plugin.initialize = partial(_initialize, bridge, staged)
    found = [SimpleNamespace(value=PLUGIN)]

    def create(name: str, options: Mapping[str, Any], *_: Any) -> Any:
        staged.options = _told(options)
        staged.more = {name: v for name, v in options.items() if name not in OPTIONS}
        return client

    return [
        mock.patch.dict(os.environ, {**kept, **shell}, clear=True),
        mock.patch.dict(sys.modules, {PLUGIN: plugin}),
        mock.patch.object(importlib.metadata, "entry_points", return_value=found),
        mock.patch.object(bridge, "jax_plugins", None),
        mock.patch.object(bridge, "_plugins_registered", False),
        mock.patch.object(bridge.logger, "disabled", True),
        mock.patch.object(bridge.xla_client, "pjrt_plugin_initialized", return_value=True),
        mock.patch.object(bridge.xla_client, "make_c_api_client", create),
    ]


def _initialize(bridge: Any, staged: Process) -> None:
    """What the CUDA plugin does when JAX finds it, without its library."""
    staged.line = line_on_stack(sys._getframe(1), staged.path)
    in_c = _in_c(_READ_IN_C)
    staged.environment = _steering() | {name: text for name, text in in_c.items() if text}
    try:
        options = staged.read()
    except Exception as error:
        staged.complaint = f"{type(error).__name__}: {error}"
        raise
    create = partial(bridge.make_pjrt_c_api_client, "cuda", options=options)
    bridge.register_backend_factory("cuda", create, priority=500, fail_quietly=False)


def _steering() -> dict[str, str]:
    """The variables of the environment that steer JAX, XLA and CUDA."""
    return {name: v for name, v in os.environ.items() if name.startswith((*_STEERING, *_VISIBLE))}


def _changes(before: Mapping[str, str | None], put: Iterable[str]) -> dict[str, str | None]:
    """What the environment holds otherwise than `before`, but for JAX's and XLA's variables.

    Variables that were `put` there may be where only C code sees them.
    """
    now = {**_in_c(put), **_environment()}
    names = sorted(name for name in {*before, *now} if not name.startswith(_STEERING))
    return {name: now.get(name) for name in names if now.get(name) != before.get(name)}


def _environment() -> dict[str, str | None]:
    """The environment of the process and of those that it starts, None for what is not there.

    What only `os.putenv` or `os.unsetenv` has changed is as C code reads it.
    """
    return {**os.environ, **_in_c([*os.environ, *_VISIBLE])}


def _in_c(names: Iterable[str]) -> dict[str, str | None]:
    """Variables as C code reads them: `os.putenv` changes that, and not `os.environ`."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    texts = {name: getenv(os.fsencode(name)) for name in names}
    return {name: None if text is None else os.fsdecode(text) for name, text in texts.items()}


def _put_back(put: Iterable[str]) -> None:
    """Make C code read what `os.environ` says, also in the processes to come.

    A process has `put` some variables there.
    """
    for name, text in _in_c([*os.environ, *_VISIBLE, *_READ_IN_C, *put]).items():
        if name in os.environ:
            os.putenv(name, os.environ[name])
        elif text is not None:
            os.unsetenv(name)


def _told(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in OPTIONS if name in options}


def reported(source: str, share: float, grow: bool) -> dict[str, Any]:
    """What the GPU's allocator says in a process that ran `start(share, grow)`.

    Returns `Device.memory_stats()` after the first array, bytes; or a "problem" in words.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_STEERING)}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _ASK],
            input=json.dumps([source, share, grow]),
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"problem": f"{type(error).__name__}: {error}"}
    with suppress(IndexError, ValueError):
        found = json.loads(done.stdout.splitlines()[-1])
        return found if isinstance(found, dict) else {"problem": "it has no memory_stats"}
    said = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
    return {"problem": said[-1]}
