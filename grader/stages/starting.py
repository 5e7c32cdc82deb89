"""Collects what JAX says as it starts on a machine that is not there.

As in `grader.stages.machines`, JAX's own code runs. What it says is taken from its logger, its
warnings and its exceptions. The plugin that fails is made up: the caller says what it raises.
Drives use this module; the record is not written here.
"""

import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import jax

from grader.probes.private import Gone as Gone
from grader.stages import machines

_PLUGIN = """
def _check(errors):
    if len(errors) > 1:
        try:
            _check(errors[:-1])
        except Exception as cause:
            raise errors[-1] from cause
    raise errors[-1]

def initialize():
    _check(ERRORS)
"""


@dataclass(frozen=True)
class Machine:
    """A machine, as far as JAX looks at it while it starts.

    `gpus`: how many the plugin finds, and `kind`: what they call themselves. `visible`: whether a
    GPU's device node is there. `platforms`: JAX_PLATFORMS. `initialize`: the errors with which the
    plugin's first step fails, each the cause of the next. `connect`: the error of its second step.
    """

    gpus: int = 0
    visible: bool = False
    platforms: str = ""
    plugin: str = "cuda13"
    initialize: Sequence[Exception] = ()
    connect: str = ""
    packages: str = "/usr/lib/python3/site-packages"
    kind: str = machines.NVIDIA.kind


@dataclass
class Told:
    """What JAX logged as it started, and the backend or the error that it ended with."""

    lines: list[str] = field(default_factory=list)
    backend: str = ""
    """`gpu: 4 x NVIDIA H200`; empty where JAX raised."""
    error: str = ""


def start(machine: Machine) -> Told:
    """Start JAX on `machine`, in this process, and put everything back.

    Raises:
      Gone: a name that this needs is no longer there, or nothing was heard.
    """
    bridge, told = machines.bridge_module(), Told()
    with _heard(bridge, told.lines), ExitStack() as stack:
        if machine.initialize:
            _initialize(bridge, machine)
            if not told.lines:
                raise Gone("JAX said nothing of a plugin that fails")
        registered = _registered(bridge, machine)
        stack.enter_context(
            machines.replaced(bridge, registered, machine.visible, machine.platforms)
        )
        try:
            found = jax.devices()
        except Exception as error:  # noqa: BLE001 (whatever it raises is what the user reads)
            told.error = _words(error)
        else:
            told.backend = f"{found[0].platform}: {len(found)} x {found[0].device_kind}"
    here = str(Path(jax.__file__).parents[1])
    told.lines = [line.replace(here, machine.packages) for line in told.lines if line.strip()]
    return told


def plugin_mismatch(plugin: str, jaxlib: str, version: str) -> list[str]:
    """What jaxlib says of a plugin of another version.

    Raises:
      Gone: jaxlib no longer checks, or accepts this version.
    """
    from jaxlib import plugin_support

    check = getattr(plugin_support, "check_plugin_version", None)
    if check is None:
        raise Gone("jaxlib.plugin_support.check_plugin_version")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(plugin, jaxlib, version)
    if not caught:
        raise Gone(f"jaxlib {jaxlib} does not mind a plugin of version {version}")
    return [f"{w.category.__name__}: {w.message}" for w in caught]


def jaxlib_mismatch(version: str, jaxlib: str, least: str) -> str:
    """The error that jax raises on import for a jaxlib that does not fit.

    Raises:
      Gone: jax no longer checks, or accepts this jaxlib.
    """
    package = machines.bridge_module().__name__.rpartition(".")[0]
    check = getattr(sys.modules.get(f"{package}.lib"), "check_jaxlib_version", None)
    if check is None:
        raise Gone("check_jaxlib_version")
    try:
        check(version, jaxlib, least)
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    raise Gone(f"jax {version} does not mind jaxlib {jaxlib}")


def _registered(bridge: Any, machine: Machine) -> dict[str, Any]:
    cpu = bridge._backends["cpu"]
    registered = {"cpu": machines.registration(bridge, lambda: cpu, 0)}
    if machine.gpus or machine.connect:
        start = _raiser(machine.connect) if machine.connect else _gpus(machine, type(cpu))
        registered["cuda"] = machines.registration(bridge, start, 500)
    return registered


def _raiser(text: str) -> Callable[[], Any]:
    def start() -> Any:
        raise jax.errors.JaxRuntimeError(text)

    return start


def _gpus(machine: Machine, kind: type) -> Callable[[], Any]:
    made = replace(machines.NVIDIA, kind=machine.kind)
    client = machines.staged_client(machine.gpus, kind, made)
    return lambda: client


def _initialize(bridge: Any, machine: Machine) -> None:
    """Let JAX discover one plugin, whose first step fails."""
    name = f"jax_plugins.xla_{machine.plugin}"
    module, path = ModuleType(name), f"{machine.packages}/{name.replace('.', '/')}/__init__.py"
    exec(compile(_PLUGIN, path, "exec"), module.__dict__)
    module.__dict__["ERRORS"] = machine.initialize
    package = SimpleNamespace(__path__=[path], __name__="jax_plugins")
    patches = (
        mock.patch.dict(sys.modules, {"jax_plugins": package, name: module}),
        mock.patch.object(bridge, "jax_plugins", package),
        mock.patch.object(bridge.pkgutil, "iter_modules", return_value=[(None, name, False)]),
        mock.patch("importlib.metadata.entry_points", return_value=[]),
    )
    with ExitStack() as stack:
        try:
            for patch in patches:
                stack.enter_context(patch)
            discover = bridge.discover_pjrt_plugins
        except AttributeError as error:
            raise Gone(str(error)) from error
        discover()


class _Lines(logging.Handler):
    """Appends what is logged, in the form in which JAX prints it."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines
        self.setFormatter(
            logging.Formatter("{levelname}:{asctime}:{name}:{lineno}: {message}", style="{")
        )

    def emit(self, record: logging.LogRecord) -> None:
        self._lines += self.format(record).splitlines()


@contextmanager
def _heard(bridge: Any, lines: list[str]) -> Iterator[None]:
    """While entered, what JAX logs is kept, and printed nowhere."""
    logger, handler = bridge.logger, _Lines(lines)
    before = logger.handlers, logger.propagate, logger.level
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])


def _words(error: Exception) -> str:
    """The error's type and text, or the line that raised it if it has no text."""
    where = traceback.extract_tb(error.__traceback__)[-1].line
    return f"{type(error).__name__}: {str(error) or where}"
