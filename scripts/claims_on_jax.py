"""Runs the proofs of all claims on another version of JAX, and says whose verdict differs there.

    python scripts/claims_on_jax.py 0.11.2          (make claims JAX=0.11.2)

The version gets an environment of its own in `build/`, with all other packages in the versions of
`constraints.txt`. Input: `docs/claims/claims.json` and the proofs in `tests/site`. A claim differs
if a proof of it fails there. What the ledger says of that version (`differs`) is compared with what
came out: exit code 0 if it is the same, 1 if not, and 2 if the environment could not be made.
Imports nothing outside the standard library.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / "docs" / "claims" / "claims.json"
PROOFS = ROOT / "tests" / "site"
OF_JAX = ("jax", "jaxlib", "jax-cuda13-pjrt", "jax-cuda13-plugin", "ml-dtypes")
"""What has another version beside another JAX."""


def wanted(jax: str) -> list[str]:
    """What pip shall install: the course's own needs and those of its tests, with that jax."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    return [f"jax=={jax}", f"jaxlib=={jax}", *(need for need in needs if need[:3] != "jax")]


def constraints() -> str:
    """The pins, without those that belong to one version of JAX."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if line.partition("==")[0] not in OF_JAX)


def environment(jax: str, folder: Path) -> Path:
    """The Python of an environment with that jax, which is made if it is not there.

    Raises subprocess.CalledProcessError if it cannot be made.
    """
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.is_file():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        (folder / "constraints.txt").write_text(constraints(), "utf-8")
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "-c", str(folder / "constraints.txt"), *wanted(jax)], check=True)
        install = [str(python), "-m", "grader", "install-target"]
        subprocess.run(install, check=True, cwd=ROOT, env=_ours())
        ready.touch()
    return python


def _ours() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def run(python: Path, report: Path) -> set[str]:
    """Runs all proofs that need no GPU; the names of those that failed."""
    tests = [str(path) for path in sorted(PROOFS.glob("test_claims_*.py"))]
    command = [str(python), "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}", *tests]
    subprocess.run([*command, "-p", "no:cacheprovider"], check=False, cwd=ROOT, env=_ours())
    cases = list(ElementTree.parse(report).iter("testcase"))
    if not cases:
        raise RuntimeError(f"no proof has run: {report}")
    bad = ("failure", "error")
    return {c.get("name", "") for c in cases if any(c.find(kind) is not None for kind in bad)}


def claims_of() -> dict[str, list[str]]:
    """The claims that each proof is bound to, by its name."""
    found = {}
    for path in sorted(PROOFS.glob("test_claims_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and (bound := _bound(node)):
                found[node.name] = bound
    return found


def _bound(proof: ast.FunctionDef) -> list[str]:
    """The claims in its mark `@pytest.mark.proves("S0-07: false")`."""
    return [
        ast.literal_eval(text).partition(":")[0]
        for mark in proof.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proves"
        for text in mark.args
    ]


def differing(failed: set[str], bound: dict[str, list[str]]) -> set[str]:
    """The claims of the proofs that failed."""
    return {claim for name in failed for claim in bound[name]}


def told(jax: str) -> set[str]:
    """The claims of which the ledger says that their verdict differs on that version."""
    rows = json.loads(LEDGER.read_text("utf-8"))
    return {row["id"] for row in rows if jax in row.get("differs", {})}


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code is 0, 1 or 2."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("jax", help="a version of JAX: 0.11.2")
    options.add_argument("--folder", type=Path, help="of the environment; in build/ by default")
    chosen = options.parse_args(arguments)
    folder = (chosen.folder or ROOT / "build" / f"claims-{chosen.jax}").resolve()
    try:
        python = environment(chosen.jax, folder)
    except subprocess.CalledProcessError as error:
        print(f"claims: no environment with jax {chosen.jax}: {error}", file=sys.stderr)
        return 2
    failed = run(python, folder / "proofs.xml")
    found, known = differing(failed, claims_of()), told(chosen.jax)
    for name in sorted(failed):
        print(f"claims: failed on jax {chosen.jax}: {name} ({', '.join(claims_of()[name])})")
    for claim in sorted(found ^ known):
        why = (
            "fails, which the ledger does not say"
            if claim in found
            else "passes, against the ledger"
        )
        print(f"claims: {claim} on jax {chosen.jax}: its proof {why}")
    print(f"claims: on jax {chosen.jax}, {len(found)} verdicts differ")
    return int(found != known)


if __name__ == "__main__":
    sys.exit(main())
