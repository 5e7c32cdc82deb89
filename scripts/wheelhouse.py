"""Downloads into `wheelhouse/` the wheels that an air-gapped GPU node lacks.

The node has Python 3.12 on x86-64 Linux, with jax, jaxlib and their dependencies. What else
the course needs there (its base, `test` and `lessons` extras) comes from the wheelhouse, in the
versions of `constraints.txt`. The metadata of the packages in `.venv` says which packages these
are. `scripts/gpu.py` installs the wheels on the node, and says which packages are its own.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpu import is_nodes_own

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "where-does-my-array-live"
EXTRAS = frozenset({"test", "lessons"})
# flax requires these 40 MB, but imports them only to write checkpoints.
UNUSED = frozenset({"orbax-checkpoint", "tensorstore"})
NODE = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.12.0",
    "python_version": "3.12",
    "sys_platform": "linux",
}
OLDEST_GLIBC, NEWEST_GLIBC = 5, 34  # minor versions of the wheels' platform tags


def needed_by(name: str, extras: frozenset[str]) -> list[Requirement]:
    """The direct requirements of an installed package, on the node."""
    found = [Requirement(text) for text in requires(name) or []]
    return [
        need
        for need in found
        if need.marker is None
        or any(need.marker.evaluate(NODE | {"extra": extra}) for extra in {"", *extras})
    ]


def closure(root: str, extras: frozenset[str], without: Callable[[str], bool]) -> set[str]:
    """Names of all packages that `root[extras]` needs, directly or indirectly.

    A package for which `without` is true is left out, and so are its own requirements.
    """
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(str(canonicalize_name(root)), extras)]
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in seen or without(name):
            continue
        seen.add((name, wanted))
        todo += [
            (str(canonicalize_name(need.name)), frozenset(need.extras))
            for need in needed_by(name, wanted)
        ]
    return {name for name, _ in seen} - {root}


def pins(text: str) -> dict[str, str]:
    """`name -> name==version` from the text of a constraints file."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)
    names = {str(canonicalize_name(name)): version for name, version in found}
    return {name: f"{name}=={version}" for name, version in names.items()}


def download(wanted: list[str], folder: Path) -> str:
    """Download wheels for the node's platform; return why pip failed, or an empty text."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(OLDEST_GLIBC, NEWEST_GLIBC + 1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    command += ["--implementation", "cp", "--python-version", "3.12"]
    command += [f"--platform={platform}" for platform in platforms]
    pip = subprocess.run(command + wanted, capture_output=True, text=True, check=False)
    return "" if pip.returncode == 0 else (pip.stderr.strip() or "pip gave no reason")


def pin_of(wheel: Path) -> str:
    """`name==version` of a wheel, by its file name."""
    name, version, *_ = wheel.name.split("-")
    return f"{canonicalize_name(name)}=={version}"


def main() -> int:
    """Bring `wheelhouse/` up to date. Returns 0 if it holds exactly the needed wheels, else 1."""
    pinned = pins((ROOT / "constraints.txt").read_text("utf-8"))
    try:
        needed = closure(PROJECT, EXTRAS, lambda name: name in UNUSED or is_nodes_own(name))
        wanted = [pinned[name] for name in sorted(needed)]
    except (KeyError, PackageNotFoundError) as missing:
        print(f"wheelhouse: {missing}: not in .venv or not in constraints.txt", file=sys.stderr)
        return 1
    folder = ROOT / "wheelhouse"
    present = {pin_of(wheel): wheel for wheel in folder.glob("*.whl")}
    for pin in present.keys() - wanted:
        present[pin].unlink()
    absent = [pin for pin in wanted if pin not in present]
    if absent and (reason := download(absent, folder)):
        print(f"wheelhouse: {reason.splitlines()[-1]}", file=sys.stderr)
        return 1
    sizes = [wheel.stat().st_size for wheel in folder.glob("*.whl")]
    print(f"wheelhouse: {len(sizes)} wheels, {sum(sizes) / 2**20:.1f} MiB, in {folder.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
