"""What the real `grader` prints, for pages: run once, kept, never typed.

A page says `{{ capture: check ex07 starter }}` or `{{ capture: check ex07 solution }}`. The key
of the cache holds the grader's sources, the exercise's files, Python and every installed
version. What the output means is the grader's business; here only the exit code is looked at.
"""

import hashlib
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import notebooks

MARKER = re.compile(r"^(?P<indent> *)\{\{ capture: (?P<command>[^{}]+?) \}\} *$", re.MULTILINE)
GRADER = (sys.executable, "-m", "grader")
SECONDS = 300
UNDECIDED = 3

_FOLDERS = {"starter": "exercises", "solution": "solutions"}
_EXPECTED = {"starter": (1,), "solution": (0, UNDECIDED)}
_NUMBER = re.compile(r"ex\d\d")


class CaptureError(Exception):
    """A capture cannot be made, or shows something else than its page says."""


@dataclass(frozen=True)
class Grader:
    """Where the grader, the exercises and the cache are, and how the grader is called."""

    root: Path
    cache: Path
    command: tuple[str, ...] = GRADER

    def fill(self, markdown: str) -> str:
        """Markdown with every capture marker replaced by a block of the real output."""
        return MARKER.sub(self._block, markdown)

    def _block(self, match: re.Match[str]) -> str:
        shown, text = self.capture(match["command"])
        block = f"```{{ .console .no-copy .capture }}\n$ {shown}\n{text}\n```"
        return textwrap.indent(block, match["indent"])

    def capture(self, request: str) -> tuple[str, str]:
        """The command line as a learner types it, and its output with stderr merged.

        `request` is `check exNN starter` or `check exNN solution`. Raises CaptureError for
        another form, and where a starter does not fail or a solution does not pass.
        """
        words = request.split()
        if len(words) != 3 or words[0] != "check" or words[2] not in _FOLDERS:
            raise CaptureError(f"capture {request!r}: want 'check exNN starter|solution'")
        file = self._file(words[1], words[2])
        shown = f"grader check {words[1]}"
        if words[2] == "solution":
            shown += f" --submission {file}"
        kept = self.cache / "captures" / f"{file.stem}-{words[2]}-{self._key(file)}.txt"
        if kept.exists():
            return shown, kept.read_text(encoding="utf-8")
        code, text = self._run(words[1], file)
        if code not in _EXPECTED[words[2]]:
            raise CaptureError(f"{shown}: exit code {code} for the {words[2]}\n{text}")
        if code != UNDECIDED:
            self._keep(kept, f"{file.stem}-{words[2]}-*.txt", text)
        return shown, text

    def _file(self, exercise: str, kind: str) -> Path:
        """The exercise's file, relative to the root."""
        if _NUMBER.fullmatch(exercise):
            for path in sorted((self.root / _FOLDERS[kind]).glob(f"{exercise}_*.py")):
                return path.relative_to(self.root)
        raise CaptureError(f"capture: no {kind} for exercise {exercise!r}")

    def _key(self, file: Path) -> str:
        digest = hashlib.sha256("\0".join(notebooks.installed_versions()).encode())
        sources = sorted((self.root / "grader").rglob("*.py"))
        pair = (self.root / folder / file.name for folder in _FOLDERS.values())
        for path in (*sources, *pair):
            digest.update(path.read_bytes() + b"\0")
        return digest.hexdigest()[:20]

    def _run(self, exercise: str, file: Path) -> tuple[int, str]:
        """Exit code and output, as a learner without a terminal or a GPU sees them."""
        done = subprocess.run(
            [*self.command, "check", exercise, "--submission", str(file), "--device", "cpu"],
            cwd=self.root,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout.replace(f"{self.root}{os.sep}", "").strip("\n")

    def _keep(self, kept: Path, older: str, text: str) -> None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        for old in kept.parent.glob(older):
            old.unlink(missing_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        part.replace(kept)
