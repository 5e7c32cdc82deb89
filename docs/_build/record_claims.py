"""Records which proofs of claims passed on this machine's GPU, so that the ledger can show it.

    python docs/_build/record_claims.py --junit OUT/tests.xml --out OUT

Input: the JUnit file of a test run, and the source of the proofs. Output: `claims.<device>.json`,
where each proof that passed is stored under the hash of its code. `claims` reads that file.
"""

import argparse
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import claims
import recordings
from recordings import Device

ROOT = Path(__file__).resolve().parents[2]


def passed(junit: Path) -> set[str]:
    """The names of the tests that passed, according to a JUnit file."""
    cases = ElementTree.parse(junit).iter("testcase")
    return {case.get("name", "") for case in cases if not len(case.findall("*"))}


def write(out: Path, names: set[str], proofs: list[claims.Proof], on: Device) -> Path:
    """Write the recording of the GPU proofs among `names` into `out`; return its path."""
    path = out / f"claims.{on.slug}.json"
    kept = {proof.key: proof.name for proof in proofs if proof.gpu and proof.name in names}
    text = {"version": recordings.VERSION, "device": vars(on), "proofs": kept}
    path.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    return path


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code: 0, or 1 with one message on stderr."""
    parser = argparse.ArgumentParser(description="Record which proofs passed on this GPU.")
    parser.add_argument("--junit", type=Path, required=True, help="what pytest --junitxml wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder for the recording")
    chosen = parser.parse_args(arguments)
    try:
        device = recordings.device()
    except recordings.NoGpuError as error:
        print(error, file=sys.stderr)
        return 1
    print(write(chosen.out, passed(chosen.junit), claims.proofs(ROOT), device))
    return 0


if __name__ == "__main__":
    sys.exit(main())
