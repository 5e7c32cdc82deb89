"""The reports that ex10_diagnose asks about: of machines with a fault, and of sound ones.

What JAX itself says comes from `grader.stages.starting`, where JAX's own code meets each machine.
What only a driver, a CUDA library or the start of XLA says is typed here, as it was seen on
machines that were set up to fail in that way.

Versions, paths, order, the program's name and the other lines are drawn for each grading; a
terminal lists its packages by their names, as pip does. What an
answer may depend on is not left to chance: each spelling comes in each form of report, with each
plugin. Where the file names numbers, there is one more report of each spelling in each form, with
longer names. Those of one spelling of each cause have more lines and larger versions, too.
"""

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from typing import Any

import jax

from grader.stages.drawn import beside, beyond
from grader.stages.starting import Machine, Told, jaxlib_mismatch, plugin_mismatch, start

_NO_GPU = "FAILED_PRECONDITION: No visible GPU devices."
_HELPERS = "jaxlib/cuda/versions_helpers.cc"
_NOISE = (
    "INFO:2026-03-{day} 09:14:07,{three}:jax._src.xla_bridge:{place}: Unable to initialize backend "
    "'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open shared object file",
    "E0000 00:00:17724428{day}.{three} {pid} cuda_dnn.cc:{place}] Unable to register cuDNN factory"
    ": Attempting to register factory for plugin cuDNN when one has already been registered",
    "E0000 00:00:17724428{day}.{three} {pid} cuda_blas.cc:{place}] Unable to register cuBLAS "
    "factory: Attempting to register factory for plugin cuBLAS when one has already been "
    "registered",
    "W0000 00:00:17724428{day}.{three} {pid} computation_placer.cc:{place}] computation placer "
    "already registered. Please check linkage and avoid linking the same target more than once.",
    "I0000 00:00:17724428{day}.{three} {pid} cpu_feature_guard.cc:{place}] This binary is "
    "optimized to use available CPU instructions in performance-critical operations.",
    "RuntimeWarning: os.fork() was called. os.fork() is incompatible with multithreaded code, and "
    "JAX is multithreaded, so this will likely lead to a deadlock.",
    "train.py:{place}: UserWarning: Explicitly requested dtype float64 requested in astype is not "
    "available, and will be truncated to dtype float32.",
    "train.py:{place}: DeprecationWarning: device_put_replicated is deprecated; use device_put.",
    "WARNING:root:no checkpoint at step {pid}: training begins anew",
    "WARNING:root:3 of 303 samples are empty",
    "train.py:{place}: UserWarning: {word} is not tuned for this model.",
    "WARNING:root:{word}: {three} values are masked",
)
"""Lines that are printed on sound machines too, with places for numbers."""
_PLUGINS = "cuda12", "cuda13"
_HARMLESS = {
    "CUDA_VISIBLE_DEVICES": ("0", "1", "0,1", "2,3", "0,1,2,3,4,5,6,7"),
    "LD_LIBRARY_PATH": ("/opt/hdf5/lib", "/opt/openmpi/lib64", "/usr/local/cuda-12.{place}/lib64"),
    "XLA_CLIENT_MEM_FRACTION": (".5", ".75", ".9"),
    "XLA_FLAGS": (
        "--xla_dump_to=/tmp/hlo",
        "--xla_gpu_autotune_level=2",
        "--xla_gpu_enable_fast_min_max=true",
        "--xla_force_host_platform_device_count=8",
        "--xla_dump_to=/tmp/hlo --xla_gpu_autotune_level=2",
    ),
    "JAX_ENABLE_X64": ("0", "1"),
    "NCCL_DEBUG": ("INFO", "WARN"),
    "{capitals}_HOME": ("/opt/{word}", "/srv/{word}"),
}
"""Variables that are set on sound machines too: name -> values, with places for words."""
_LAST = (
    "step 100, loss {loss}",
    "step {pid}: loss {loss}",
    "epoch {day}, accuracy {loss}",
    "saved in /srv/{word}",
)
"""What a program that trains prints in the end, with places for numbers."""


_PROGRAMS = ("train.py", "train.py", "main.py", "-m {word}.train", "jobs/{word}.py")
"""What runs in a terminal, with places for words."""
_OTHERS = ("jaxtyping", "jaxopt", "jaxlie")
"""Other packages that `pip list | grep jax` lists."""
_KINDS = (
    "NVIDIA H200",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA A100-SXM4-40GB",
    "Tesla T4",
    "NVIDIA L{day}",
    "NVIDIA RTX {three}",
    "Quadro {pid}",
)
"""What GPUs call themselves, with places for numbers."""
_OTHER_KINDS = (
    "NVIDIA GeForce RTX {pid}",
    "GeForce GTX {pid} Ti",
    "TITAN V",
    "GRID V100D-{place}C",
    "{capitals} {three}",
)
"""What others call themselves: not every name begins with its maker's."""
_LIBRARIES = ("cuBLAS", "cuDNN", "cuFFT", "cuPTI", "cuSOLVER", "cuSPARSE", "cu{capitals}")
"""Libraries that the plugin looks for, with a place for a name that nobody knows by heart."""
_FOREIGN = (
    (
        "/usr/local/cuda-12.{place}/lib64",
        "/opt/cuda/lib64",
        "/opt/conda/envs/torch/lib",
        "/usr/lib/nvidia-cuda-toolkit:/usr/local/lib",
        "/scratch/{pid}/{word}/lib",
        "/home/{word}/lib",
    ),
    (":/usr/local/cuda-12.{place}/lib64", ":/opt/{word}/lib", "~/{word}/lib", "lib/{word}"),
)
"""Folders of CUDA libraries that are not the plugin's: from the root, and otherwise.

An empty part is what is left of a variable that was not set.
"""
_ASKED = "", "cuda", "cuda,cpu"
"""What JAX_PLATFORMS may say where it is no fault."""
_UNSET_OR_NOT = ("",), (*_ASKED[1:], "cpu")
"""What it may say beside a fault of which a text tells before JAX looks for a backend."""
_NONE = (
    ("",),
    ("-1",),
    ("{day}", "MIG-{three}e{pid}"),
    ("1{three}", "-2{three}", "{word}", "NoDevFiles", "GPU-{three}e{pid}"),
)
"""Values of CUDA_VISIBLE_DEVICES that leave no GPU to see, with places for numbers and words."""
_FLAGS = (
    "xla_gpu_enable_fast_min_max=true",
    "xla_gpu_autotune_level=2",
    "xla_dump_to=/tmp/hlo",
    "xla_cpu_multi_thread_eigen=false",
    "xla_force_host_platform_device_count=8",
)
"""Flags that XLA knows."""
_LETTERS = 6
"""How many letters a drawn word has."""
_MOST_LINES, _MOST_LETTERS, _MOST_VERSION, _OF_A_LINE = 400, 2000, 1000, 80
"""Up to where the numbers are reached that the file names: by harmless lines, by letters of a name,
and by versions; and how many letters a harmless line has."""
_SLIPS = "exchanged", "left out", "doubled", "replaced"
"""What becomes of letters in a name that is misspelt."""


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
    unlike: str = ""
    """A harmless variable that is not set too, since it would look like the cause."""
    letters: int = _LETTERS
    """How many letters a drawn word has."""
    lines: int = 0
    """How many harmless lines are printed in a long report; 0 if it is none."""

    def __post_init__(self) -> None:
        zero, middle, last = self.rng.integers((0, 8, 1), (2, 15, 6))
        if self.lines:
            middle, last = (beyond(self.rng, int(n), _MOST_VERSION) for n in (middle, last))
        self.version = f"{zero}.{middle}.{last}"
        self.packages = {"jax": self.version, "jaxlib": self.version}
        self.install(self.plugin, self.version)

    def pick(self, *choices: Any) -> Any:
        """One of the choices, drawn."""
        return choices[int(self.rng.integers(len(choices)))]

    def filled(self, text: str) -> str:
        """A text with numbers, or a word, in its places."""
        drawn = self.rng.integers((100, 10, 100, 1), (1000, 29, 40000, 9))
        three, day, pid, place = (int(number) for number in drawn)
        word = "".join(self.rng.choice(list(string.ascii_lowercase), self.letters))
        return text.format(
            three=three,
            day=day,
            pid=pid,
            place=place,
            word=word,
            capitals=word.upper(),
            loss=f"{self.rng.random():.4f}",
        )

    def install(self, plugin: str, version: str) -> None:
        """Add the two packages of a plugin."""
        self.packages |= {f"jax-{plugin}-{part}": version for part in ("pjrt", "plugin")}

    def uninstall_plugins(self) -> None:
        """Remove the packages of every plugin."""
        self.packages = {name: v for name, v in self.packages.items() if "cuda" not in name}

    def other_version(self, sign: int, *, minor: bool) -> str:
        """A later version than the machine's, or an earlier one, by its minor or last number."""
        zero, middle, last = map(int, self.version.split("."))
        if minor:
            return f"{zero}.{middle + sign * self.rng.integers(1, 3)}.{self.rng.integers(0, 6)}"
        return f"{zero}.{middle}.{last + sign}"

    def start(self, **machine: Any) -> Told:
        """Start JAX on this machine; `machine` are further fields of `starting.Machine`."""
        if machine.get("platforms"):
            self.environment["JAX_PLATFORMS"] = machine["platforms"]
        home = self.pick("/home/ada/env", "/opt/conda/envs/train", "/srv/job/.venv")
        packages = f"{home}/lib/python3.{self.rng.integers(12, 15)}/site-packages"
        kind, apart = self.filled(self.pick(*_KINDS)), beside(self.rng)
        if apart.integers(2):
            kind = _Scene(apart, self.plugin).filled(str(apart.choice(_OTHER_KINDS)))
        return start(Machine(plugin=self.plugin, packages=packages, kind=kind, **machine))

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
    return {"gpus": int(scene.rng.integers(1, 17)), "visible": True}


def _in_use(platforms: str) -> Tell:
    return lambda scene: scene.start(**_gpus(scene), platforms=platforms)


def _loud(tell: Tell) -> Tell:
    """A sound machine with every harmless line and every harmless variable at once."""

    def tell_all(scene: _Scene) -> Told:
        scene.environment = {
            scene.filled(name): scene.filled(scene.pick(*values))
            for name, values in _HARMLESS.items()
        }
        scene.before = [scene.filled(line) for line in _NOISE]
        return tell(scene)

    return tell_all


def _no_gpu(scene: _Scene) -> Told:
    scene.uninstall_plugins()
    return scene.start()


def _no_plugin(scene: _Scene) -> Told:
    scene.uninstall_plugins()
    return scene.start(visible=True)


def _no_plugin_but_asked(*platforms: str) -> Tell:
    def tell(scene: _Scene) -> Told:
        scene.uninstall_plugins()
        return scene.start(visible=True, platforms=scene.pick(*platforms))

    return tell


def _plugin_version(platforms: Sequence[str], sign: int, *, minor: bool) -> Tell:
    def tell(scene: _Scene) -> Told:
        other = scene.other_version(sign, minor=minor)
        scene.install(scene.plugin, other)
        scene.before = plugin_mismatch(f"jax_{scene.plugin}_plugin", scene.version, other)
        return scene.start(**_gpus(scene), platforms=scene.pick(*platforms))

    return tell


def _jaxlib_too_old(scene: _Scene) -> Told:
    scene.packages["jaxlib"] = old = scene.other_version(-1, minor=scene.pick(True, False))
    return Told(error=jaxlib_mismatch(scene.version, old, scene.version))


def _jaxlib_too_new(scene: _Scene) -> Told:
    scene.packages["jax"] = old = scene.other_version(-1, minor=scene.pick(True, False))
    return Told(error=jaxlib_mismatch(old, scene.version, old))


def _two_plugins(platforms: str) -> Tell:
    def tell(scene: _Scene) -> Told:
        for plugin in _PLUGINS:
            scene.install(plugin, scene.version)
        exists = "ALREADY_EXISTS: PJRT_Api already exists for device type cuda"
        error = jax.errors.JaxRuntimeError(exists)
        return scene.start(**_gpus(scene), platforms=platforms, initialize=[error])

    return tell


def _library(name: str, platforms: str) -> Tell:
    def tell(scene: _Scene) -> Told:
        scene.unlike = "LD_LIBRARY_PATH"
        errors = _not_loaded(scene, scene.filled(name))[scene.pick(0, 1) :]
        return scene.start(visible=True, platforms=platforms, initialize=errors)

    return tell


def _foreign_library(platforms: str, folders: Sequence[str]) -> Tell:
    def tell(scene: _Scene) -> Told:
        scene.environment["LD_LIBRARY_PATH"] = scene.filled(scene.pick(*folders))
        errors = _not_loaded(scene, scene.filled(scene.pick(*_LIBRARIES)))
        return scene.start(visible=True, platforms=platforms, initialize=errors)

    return tell


def _not_loaded(scene: _Scene, name: str) -> list[Exception]:
    """What the plugin raises if a library cannot be loaded, after what its helpers raise."""
    asked = f"operation {name.lower()}GetProperty(MAJOR_VERSION, &major) failed"
    unable = RuntimeError(f"Unable to load {name}. Is it installed?")
    return [scene.helpers(f"{asked}: The {name} library was not found."), unable]


def _no_driver(scene: _Scene) -> Told:
    error = scene.helpers(
        "operation cuInit(0) failed: Unknown CUDA error 303; cuGetErrorName failed. This "
        "probably means that JAX was unable to load the CUDA libraries."
    )
    return scene.start(visible=True, initialize=[error], platforms=scene.pick(*_ASKED))


def _no_driver_later(scene: _Scene) -> Told:
    scene.before = [scene.cuinit("Failed call to cuInit: UNKNOWN ERROR (303)")]
    return scene.start(visible=True, connect=_NO_GPU, platforms=scene.pick(*_ASKED))


def _hidden(values: Sequence[str]) -> Tell:
    def tell(scene: _Scene) -> Told:
        scene.environment["CUDA_VISIBLE_DEVICES"] = scene.filled(scene.pick(*values))
        error = scene.helpers("operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE")
        return scene.start(visible=True, initialize=[error], platforms=scene.pick(*_ASKED))

    return tell


def _hidden_later(values: Sequence[str]) -> Tell:
    def tell(scene: _Scene) -> Told:
        scene.environment["CUDA_VISIBLE_DEVICES"] = scene.filled(scene.pick(*values))
        why = "Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
        scene.before = [scene.cuinit(why)]
        return scene.start(visible=True, connect=_NO_GPU, platforms=scene.pick(*_ASKED))

    return tell


def _no_node(platforms: str) -> Tell:
    return lambda scene: scene.start(connect="never asked", platforms=platforms)


def _platforms(*values: str) -> Tell:
    return lambda scene: scene.start(**_gpus(scene), platforms=scene.pick(*values))


def _in_capitals(scene: _Scene) -> Told:
    """A name of which one letter or more is a capital, perhaps beside one that is spelt right."""
    name = scene.pick("cuda", "cpu")
    capitals = scene.rng.permutation(len(name))[: scene.rng.integers(1, len(name) + 1)]
    written = "".join(c.upper() if n in capitals else c for n, c in enumerate(name))
    other = "cpu" if name == "cuda" else "cuda"
    platforms = scene.pick(f"{{}},{other}", f"{other},{{}}", "{}").format(written)
    return scene.start(**_gpus(scene), platforms=platforms)


def _mistyped(scene: _Scene, name: str, first: int, slip: str) -> str:
    """A name with two letters exchanged, or one left out, doubled or replaced by another one.

    It is mistyped after the `first` letters.
    """
    at = scene.pick(*(n for n in range(first, len(name) - 1) if name[n] != name[n + 1]))
    other = scene.pick(*(letter for letter in string.ascii_lowercase if letter != name[at]))
    letters = {"exchanged": name[at + 1] + name[at], "left out": name[at + 1]}
    letters["replaced"] = other + name[at + 1]
    return name[:at] + letters.get(slip, 2 * name[at] + name[at + 1]) + name[at + 2 :]


def _mistyped_platform(scene: _Scene) -> Told:
    return _unknown(scene, _mistyped(scene, "cuda", 0, scene.pick(*_SLIPS)))


def _unknown_platform(scene: _Scene) -> Told:
    known = ("gpus", "cudnn") if scene.letters == _LETTERS else ()
    return _unknown(scene, scene.filled(scene.pick("{word}", *known)))


def _unknown(scene: _Scene, name: str) -> Told:
    return scene.start(**_gpus(scene), platforms=scene.pick("{},cpu", "cpu,{}", "{}").format(name))


def _mistyped_flag(slip: str) -> Tell:
    def tell(scene: _Scene) -> Told:
        name, _, value = scene.pick(*_FLAGS).partition("=")
        return _flag(f"--{_mistyped(scene, name, 0, slip)}={value}")(scene)

    return tell


def _unknown_flag(scene: _Scene) -> Told:
    return _flag(scene.filled("--xla_{word}_{word}=true"))(scene)


def _flag(flag: str) -> Tell:
    def tell(scene: _Scene) -> Told:
        known = [f"--{one}" for one in scene.rng.permutation(_FLAGS)[: scene.pick(0, 1, 2)]]
        scene.environment["XLA_FLAGS"] = " ".join(scene.rng.permutation([*known, flag]))
        stamp = f"F1120 12:30:13.{scene.rng.integers(10**6):06d} {scene.rng.integers(500, 40000)}"
        line = f"{stamp} parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: {flag}"
        return Told([line], error="JAX was killed by SIGABRT before it named a device")

    return tell


def _beside(platforms: Sequence[str], tell: Tell) -> Tell:
    """A machine with one of these values of JAX_PLATFORMS, on which JAX fails before it asks."""

    def tell_all(scene: _Scene) -> Told:
        if asked := scene.pick(*platforms):
            scene.environment["JAX_PLATFORMS"] = asked
        return tell(scene)

    return tell_all


_SCENES: Mapping[str, tuple[Tell, ...]] = {
    "gpu in use": (
        _in_use(""),
        _in_use("cuda"),
        _in_use("cuda,cpu"),
        _loud(_in_use("")),
    ),
    "no gpu": (_no_gpu, _loud(_no_gpu)),
    "no plugin": (
        _no_plugin,
        _no_plugin_but_asked("cuda"),
        _no_plugin_but_asked("cuda,cpu", "cpu,cuda"),
    ),
    "plugin of another version": tuple(
        _plugin_version(platforms, sign, minor=minor)
        for platforms in _UNSET_OR_NOT
        for sign in (-1, 1)
        for minor in (True, False)
    ),
    "jaxlib of another version": tuple(
        _beside(platforms, tell)
        for platforms in _UNSET_OR_NOT
        for tell in (_jaxlib_too_old, _jaxlib_too_new)
    ),
    "two plugins": tuple(map(_two_plugins, _ASKED)),
    "library missing": tuple(
        _library(name, platforms) for name in _LIBRARIES for platforms in ("", "cuda,cpu")
    ),
    "foreign library": tuple(map(_foreign_library, _ASKED, cycle(_FOREIGN))),
    "no driver": (_no_driver, _no_driver_later),
    "gpu hidden": tuple(hide(values) for hide in (_hidden, _hidden_later) for values in _NONE),
    "no device node": tuple(map(_no_node, _ASKED)),
    "JAX_PLATFORMS is gpu": (
        _platforms("gpu"),
        _platforms("gpu,cpu", "cpu,gpu"),
        _platforms("gpu,cuda", "cuda,gpu"),
    ),
    "JAX_PLATFORMS is misspelt": (
        _platforms("CUDA", "CUDA,cpu"),
        _platforms("Cuda", "Cuda,cpu"),
        _platforms("cuda12", "cuda13"),
        _platforms("cuda, cpu", "cuda ,cpu", " cuda", "cpu, cuda"),
        _in_capitals,
        _in_capitals,
        _mistyped_platform,
        _unknown_platform,
        _platforms("nvidia", "cpu,nvidia"),
        _platforms("nvidia-gpu", "cuda:0", "cuda;cpu", "cuda-13,cpu"),
    ),
    "JAX_PLATFORMS is cpu": (_platforms("cpu"),),
    "XLA_FLAGS is misspelt": tuple(
        _beside(platforms, tell)
        for platforms in _UNSET_OR_NOT
        for tell in (*map(_mistyped_flag, _SLIPS), _unknown_flag)
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
                scene = _Scene(rng, plugin)
                found += [Report(cause, text) for text in _written(scene, tell(scene))]
    return [found[int(index)] for index in rng.permutation(len(found))] + _long(rng)


def _long(rng: Any) -> list[Report]:
    """A report of each spelling in each form that reaches what the file names, if it names numbers.

    That of one spelling of each cause has more lines, too. They come last, so that a mistake which
    others show is shown with those.
    """
    lines, letters = (
        beyond(rng, 3, _MOST_LINES, each=_OF_A_LINE / 4),
        beyond(rng, _LETTERS, _MOST_LETTERS),
    )
    found = list[Report]()
    for cause, tells in _SCENES.items() if (lines, letters) != (3, _LETTERS) else ():
        for number, index in enumerate(rng.permutation(len(tells))):
            plugin, printed = str(rng.choice(_PLUGINS)), 0 if number else lines
            scene = _Scene(rng, plugin, letters=letters, lines=printed)
            told = tells[int(index)](scene)
            found += [Report(cause, text) for text in _written(scene, told)]
    return found


def _written(scene: _Scene, told: Told) -> Iterator[str]:
    """One report as `grader doctor` writes it, one with its parts reversed, one of a terminal."""
    harmless = [name for name in _HARMLESS if name != scene.unlike]
    for name in map(str, scene.rng.permutation(harmless)[: scene.rng.integers(0, 4)]):
        value = scene.filled(scene.pick(*_HARMLESS[name]))
        scene.environment.setdefault(scene.filled(name), value)
    noise = [
        scene.filled(str(line)) for line in scene.rng.permutation(_NOISE)[: scene.pick(0, 1, 3)]
    ]
    if scene.lines:
        short = _Scene(scene.rng, scene.plugin)
        lines = scene.rng.choice(_NOISE, scene.lines)
        noise += [short.filled(str(line)) for line in lines]
    rest = beside(scene.rng)
    after = 0 if told.error else int(rest.integers(len(noise) + 1))
    printed = [*noise[after:], *scene.before, *told.lines, *noise[:after]]
    parts = _as_doctor(scene, told, printed)
    drawn = [parts[int(index)] for index in scene.rng.permutation(len(parts))]
    for lines in (chain(*drawn), chain(*drawn[::-1]), _as_terminal(scene, told, printed)):
        yield "\n".join(lines)


def _as_doctor(scene: _Scene, told: Told, printed: list[str]) -> list[list[str]]:
    """The parts of a report by `grader doctor`: versions, what was printed, variables."""
    backend = told.backend or f"FAILED: {told.error}"
    packages = beside(scene.rng).permutation([*scene.packages])
    versions = [*(f"{k:<9} {scene.packages[k]}" for k in packages), f"backend   {backend}"]
    shown = ["JAX printed while it started:", *(f"  {line}" for line in printed)]
    variables = [f"{name}={value}" for name, value in scene.environment.items()]
    return [versions, shown if printed else [], variables]


def _as_terminal(scene: _Scene, told: Told, printed: list[str]) -> Iterator[str]:
    """The lines of a terminal: the packages, a command, what it printed, and how it ended."""
    yield "$ pip list | grep jax"
    other = _Scene(beside(scene.rng), scene.plugin, letters=scene.letters)
    more = {one: other.version for one in _OTHERS if other.rng.integers(4) == 0}
    listed = sorted((scene.packages | more).items())  # as pip does
    yield from (f"{name:<22} {version}" for name, version in listed)
    variables = "".join(f"{name}='{value}' " for name, value in scene.environment.items())
    yield f"$ {variables}python {other.filled(other.pick(*_PROGRAMS))}"
    yield from printed
    if told.error:
        yield told.error
    else:
        yield f"devices {told.backend}"
        yield scene.filled(scene.pick(*_LAST))
        yield from map(other.filled, other.rng.choice(_LAST, other.rng.integers(3)).tolist())
