"""The reports that ex10_diagnose asks about: of machines with a fault, and of sound ones.

What JAX itself says comes from `grader.stages.starting`, where JAX's own code meets each
machine. What only a driver, a CUDA library or the start of XLA says is typed here, as it
was seen on machines that were set up to fail in that way.

Versions, paths, order and the other lines are drawn for each grading. What an answer may
depend on is not left to chance: each spelling comes in each form of report, with each plugin.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import jax

from grader.stages.starting import Machine, Told, jaxlib_mismatch, plugin_mismatch, start

_NO_GPU = "FAILED_PRECONDITION: No visible GPU devices."
_HELPERS = "jaxlib/cuda/versions_helpers.cc"
_NOISE = (
    "INFO:2026-03-02 09:14:07,118:jax._src.xla_bridge:861: Unable to initialize backend 'tpu': "
    "INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open shared object file",
    "E0000 00:00:1772442847.303 2210 cuda_dnn.cc:8579] Unable to register cuDNN factory: "
    "Attempting to register factory for plugin cuDNN when one has already been registered",
    "RuntimeWarning: os.fork() was called. os.fork() is incompatible with multithreaded code, and "
    "JAX is multithreaded, so this will likely lead to a deadlock.",
)
"""Lines that are printed on sound machines too."""
_PLUGINS = "cuda12", "cuda13"
_HARMLESS = {
    "CUDA_VISIBLE_DEVICES": ("0", "0,1"),
    "LD_LIBRARY_PATH": ("/opt/hdf5/lib", "/opt/openmpi/lib64"),
    "XLA_CLIENT_MEM_FRACTION": (".5", ".9"),
    "XLA_FLAGS": ("--xla_dump_to=/tmp/hlo",),
}
"""Variables that are set on sound machines too: name -> values."""


@dataclass(frozen=True)
class Report:
    """One report, and the cause that is true on its machine."""

    cause: str
    text: str


@dataclass
class _Scene:
    """One machine, with what was drawn for it."""

    rng: Any
    plugin: str
    version: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    """What is printed before JAX starts."""
    harmless: bool = True
    """Whether harmless variables may be set too."""

    def __post_init__(self) -> None:
        self.version = f"0.{self.rng.integers(8, 15)}.{self.rng.integers(1, 6)}"
        self.packages = {"jax": self.version, "jaxlib": self.version}
        self.install(self.plugin, self.version)

    def pick(self, *choices: Any) -> Any:
        """One of the choices, drawn."""
        return choices[int(self.rng.integers(len(choices)))]

    def install(self, plugin: str, version: str) -> None:
        """Add the two packages of a plugin."""
        self.packages |= {f"jax-{plugin}-{part}": version for part in ("pjrt", "plugin")}

    def uninstall_plugins(self) -> None:
        """Remove the packages of every plugin."""
        self.packages = {name: v for name, v in self.packages.items() if "cuda" not in name}

    def older_version(self) -> str:
        """A version one or two minor numbers before the machine's."""
        major, minor, _ = self.version.split(".")
        return f"{major}.{int(minor) - self.rng.integers(1, 3)}.{self.rng.integers(0, 6)}"

    def start(self, **machine: Any) -> Told:
        """Start JAX on this machine; `machine` are further fields of `starting.Machine`."""
        if machine.get("platforms"):
            self.environment["JAX_PLATFORMS"] = machine["platforms"]
        home = self.pick("/home/ada/env", "/opt/conda/envs/train", "/srv/job/.venv")
        packages = f"{home}/lib/python3.{self.rng.integers(12, 15)}/site-packages"
        return start(Machine(plugin=self.plugin, packages=packages, **machine))

    def cuinit(self, error: str) -> str:
        """XLA's line about a call of cuInit, the driver's first function, that failed."""
        day = f"{self.rng.integers(1, 13):02d}{self.rng.integers(1, 29):02d}"
        stamp = f"E{day} 08:14:58.{self.rng.integers(10**6):06d}"
        place = f"{self.rng.integers(500, 40000)} cuda_platform.cc:{self.rng.integers(40, 90)}]"
        return f"{stamp} {place} failed call to cuInit: INTERNAL: CUDA error: {error}"

    def helpers(self, why: str) -> RuntimeError:
        """The error of the plugin's helpers, which look at driver and libraries first."""
        return RuntimeError(f"{_HELPERS}:{self.rng.integers(60, 140)}: {why}")


Tell = Callable[[_Scene], Told]
"""Sets up the machine for one cause, starts JAX on it, and returns what JAX said."""


def _gpus(scene: _Scene) -> dict[str, Any]:
    """The fields of a machine whose GPUs work."""
    return {"gpus": scene.pick(1, 2, 8), "visible": True}


def _in_use(gpus: int, platforms: str) -> Tell:
    return lambda scene: scene.start(gpus=gpus, visible=True, platforms=platforms)


def _loud(tell: Tell) -> Tell:
    """A sound machine with every harmless line and every harmless variable at once."""

    def tell_all(scene: _Scene) -> Told:
        scene.environment = {name: scene.pick(*values) for name, values in _HARMLESS.items()}
        scene.before = list(_NOISE)
        return tell(scene)

    return tell_all


def _no_gpu(scene: _Scene) -> Told:
    scene.uninstall_plugins()
    return scene.start()


def _no_plugin(scene: _Scene) -> Told:
    scene.uninstall_plugins()
    return scene.start(visible=True)


def _no_plugin_but_asked(scene: _Scene) -> Told:
    scene.uninstall_plugins()
    return scene.start(visible=True, platforms="cuda")


def _plugin_version(scene: _Scene) -> Told:
    other = scene.older_version()
    scene.install(scene.plugin, other)
    scene.before = plugin_mismatch(f"jax_{scene.plugin}_plugin", scene.version, other)
    return scene.start(**_gpus(scene))


def _jaxlib_too_old(scene: _Scene) -> Told:
    scene.packages["jaxlib"] = old = scene.older_version()
    return Told(error=jaxlib_mismatch(scene.version, old, scene.version))


def _jaxlib_too_new(scene: _Scene) -> Told:
    scene.packages["jax"] = old = scene.older_version()
    return Told(error=jaxlib_mismatch(old, scene.version, old))


def _two_plugins(scene: _Scene) -> Told:
    for plugin in _PLUGINS:
        scene.install(plugin, scene.version)
    exists = "ALREADY_EXISTS: PJRT_Api already exists for device type cuda"
    return scene.start(**_gpus(scene), initialize=[jax.errors.JaxRuntimeError(exists)])


def _library(name: str, platforms: str) -> Tell:
    def tell(scene: _Scene) -> Told:
        scene.harmless = False  # a harmless LD_LIBRARY_PATH would look like the cause here
        errors = [RuntimeError(f"Unable to load {name}. Is it installed?")]
        return scene.start(visible=True, platforms=platforms, initialize=errors)

    return tell


def _foreign_library(scene: _Scene) -> Told:
    scene.environment["LD_LIBRARY_PATH"] = f"/usr/local/cuda-12.{scene.rng.integers(0, 9)}/lib64"
    why = scene.helpers(
        "operation cusparseGetProperty(MAJOR_VERSION, &major) failed: "
        "The cuSPARSE library was not found."
    )
    unable = RuntimeError("Unable to load cuSPARSE. Is it installed?")
    return scene.start(visible=True, initialize=[why, unable])


def _no_driver(scene: _Scene) -> Told:
    error = scene.helpers(
        "operation cuInit(0) failed: Unknown CUDA error 303; cuGetErrorName failed. This "
        "probably means that JAX was unable to load the CUDA libraries."
    )
    return scene.start(visible=True, initialize=[error])


def _no_driver_later(scene: _Scene) -> Told:
    scene.before = [scene.cuinit("Failed call to cuInit: UNKNOWN ERROR (303)")]
    return scene.start(visible=True, connect=_NO_GPU)


def _hidden(value: str) -> Tell:
    def tell(scene: _Scene) -> Told:
        scene.environment["CUDA_VISIBLE_DEVICES"] = value
        error = scene.helpers("operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE")
        return scene.start(visible=True, initialize=[error])

    return tell


def _hidden_later(value: str) -> Tell:
    def tell(scene: _Scene) -> Told:
        scene.environment["CUDA_VISIBLE_DEVICES"] = value
        why = "Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
        scene.before = [scene.cuinit(why)]
        return scene.start(visible=True, connect=_NO_GPU)

    return tell


def _no_node(platforms: str) -> Tell:
    return lambda scene: scene.start(connect="never asked", platforms=platforms)


def _platforms(value: str) -> Tell:
    return lambda scene: scene.start(**_gpus(scene), platforms=value)


def _flag(flag: str) -> Tell:
    def tell(scene: _Scene) -> Told:
        scene.environment["XLA_FLAGS"] = flag
        stamp = f"F1120 12:30:13.{scene.rng.integers(10**6):06d} {scene.rng.integers(500, 40000)}"
        line = f"{stamp} parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: {flag}"
        return Told([line], error="JAX was killed by SIGABRT before it named a device")

    return tell


_SCENES: Mapping[str, tuple[Tell, ...]] = {
    "gpu in use": (
        _in_use(1, ""),
        _in_use(2, "cuda"),
        _in_use(8, "cuda,cpu"),
        _loud(_in_use(4, "")),
    ),
    "no gpu": (_no_gpu, _loud(_no_gpu)),
    "no plugin": (_no_plugin, _no_plugin_but_asked),
    "plugin of another version": (_plugin_version,),
    "jaxlib of another version": (_jaxlib_too_old, _jaxlib_too_new),
    "two plugins": (_two_plugins,),
    "library missing": tuple(
        _library(name, platforms)
        for name in ("cuDNN", "cuFFT", "cuPTI", "cuSPARSE")
        for platforms in ("", "cuda,cpu")
    ),
    "foreign library": (_foreign_library,),
    "no driver": (_no_driver, _no_driver_later),
    "gpu hidden": tuple(hide(v) for hide in (_hidden, _hidden_later) for v in ("", "-1", "9")),
    "no device node": tuple(map(_no_node, ("", "cuda", "cuda,cpu"))),
    "JAX_PLATFORMS is gpu": (_platforms("gpu"),),
    "JAX_PLATFORMS is misspelt": tuple(
        map(_platforms, ("CUDA", "Cuda", "cuda12", "cuda, cpu", "cuda,Cpu"))
    ),
    "JAX_PLATFORMS is cpu": (_platforms("cpu"),),
    "XLA_FLAGS is misspelt": (
        _flag("--xla_gpu_enable_fast_mni_max=true"),
        _flag("--xla_gpu_autotune_levle=2"),
    ),
}
"""Every cause, in each form in which it shows."""


def reports(rng: Any) -> list[Report]:
    """All reports, in random order; `rng` is a `numpy.random.Generator`.

    Raises:
      grader.probes.private.Gone: JAX could not be staged.
    """
    found = []
    for cause, tells in _SCENES.items():
        for tell in tells:
            for plugin in _PLUGINS:
                scene = _Scene(rng, "cuda12" if cause == "foreign library" else plugin)
                found += [Report(cause, text) for text in _written(scene, tell(scene))]
    return [found[int(index)] for index in rng.permutation(len(found))]


def _written(scene: _Scene, told: Told) -> Iterator[str]:
    """One report as `grader doctor` writes it, one with its parts reversed, one of a terminal."""
    if scene.harmless:
        for name in scene.rng.permutation(list(_HARMLESS))[: scene.rng.integers(0, 3)]:
            scene.environment.setdefault(str(name), scene.pick(*_HARMLESS[str(name)]))
    noise = [scene.pick(*_NOISE)] if scene.rng.random() < 0.5 else []
    printed = [*noise, *scene.before, *told.lines]
    parts = _as_doctor(scene, told, printed)
    drawn = [parts[int(index)] for index in scene.rng.permutation(len(parts))]
    for lines in (chain(*drawn), chain(*drawn[::-1]), _as_terminal(scene, told, printed)):
        yield "\n".join(lines)


def _as_doctor(scene: _Scene, told: Told, printed: list[str]) -> list[list[str]]:
    """The parts of a report by `grader doctor`: versions, what was printed, variables."""
    backend = told.backend or f"FAILED: {told.error}"
    versions = [*(f"{k:<9} {v}" for k, v in scene.packages.items()), f"backend   {backend}"]
    shown = ["JAX printed while it started:", *(f"  {line}" for line in printed)]
    variables = [f"{name}={value}" for name, value in scene.environment.items()]
    return [versions, shown if printed else [], variables]


def _as_terminal(scene: _Scene, told: Told, printed: list[str]) -> Iterator[str]:
    """The lines of a terminal: the packages, a command, what it printed, and how it ended."""
    yield "$ pip list | grep jax"
    yield from (f"{name:<22} {version}" for name, version in scene.packages.items())
    variables = "".join(f"{name}='{value}' " for name, value in scene.environment.items())
    yield f"$ {variables}python train.py"
    yield from printed
    if told.error:
        yield told.error
    else:
        yield f"devices {told.backend}"
        yield f"step 100, loss {scene.rng.random():.4f}"
