"""The published starters: what `grader reset` writes, whatever a checkout's own files hold by now.

Each exercise keeps its starter in the package, `grader/checks/exNN_slug/starter.txt`, with its
checksum beside it. `python scripts/starters.py` publishes anew what lies in `exercises/`: for
whoever changes an exercise. The build of a wheel (`Wheel`, for hatchling) refuses a checkout
whose exercises were edited, so that no edit is ever published as a starter. An editable
installation takes a checkout as it is, and copies no solution anywhere.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA = {"constraints.txt": "grader/_data/constraints.txt", "solutions": "grader/_data/solutions"}
"""What only a wheel needs, for it has no checkout beside it."""


def checksum(content: bytes) -> str:
    """SHA-256 of a text; the kind of its line ends makes no difference."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def edited(root: Path) -> Iterator[str]:
    """The files of a checkout that are not the published starters, or no longer match them."""
    for folder in sorted((root / "grader" / "checks").glob("ex*/")):
        published, own = folder / "starter.txt", root / "exercises" / f"{folder.name}.py"
        known = (folder / "starter.sha256").read_text("utf-8").strip()
        for path in (published, own):
            if not path.is_file() or checksum(path.read_bytes()) != known:
                yield str(path.relative_to(root))


def publish(root: Path) -> Iterator[str]:
    """Make what lies in `exercises/` the published starters; yields the names that changed."""
    for path in sorted((root / "exercises").glob("ex*.py")):
        folder, content = root / "grader" / "checks" / path.stem, path.read_bytes()
        known, text = folder / "starter.sha256", checksum(content)
        if known.is_file() and known.read_text("utf-8").strip() == text:
            continue
        (folder / "starter.txt").write_bytes(content.replace(b"\r\n", b"\n"))
        known.write_text(f"{text}\n", "utf-8", newline="\n")
        yield path.stem


class Wheel(BuildHookInterface[Any]):
    """Refuses to build a wheel of an edited checkout; see the module."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version == "editable":
            return
        if found := list(edited(Path(self.root))):
            raise SystemExit(
                f"no wheel is built from an edited checkout: {', '.join(found)} is not the "
                "published starter; build from a fresh clone, or publish what you changed with "
                "`python scripts/starters.py`"
            )
        build_data["force_include"].update(DATA)


if __name__ == "__main__":
    for name in publish(Path(__file__).resolve().parent.parent):
        print(f"published {name}")
