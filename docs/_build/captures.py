"""What the real `grader` prints, for pages: run once, kept, never typed.

A page says `{{ capture: check ex07 starter }}` or `{{ capture: check ex07 solution }}`. The key
of the cache holds the grader's sources, the exercise's own files, Python and every installed
version. What the output means is the grader's business; here only the exit code is looked at.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

import notebooks

MARKER = re.compile(r"^(?P<indent> *)\{\{ capture: (?P<command>[^{}]+?) \}\} *$", re.MULTILINE)
GRADER = (sys.executable, "-m", "grader")
SECONDS = 900
UNDECIDED = 3

_FOLDERS = {"starter": "exercises", "solution": "solutions"}
_EXPECTED = {"starter": (1,), "solution": (0, UNDECIDED)}
_CPU = ("--device", "cpu")
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

    def prepare(self) -> None:
        """Capture all exercises that the cache does not have, in one run a folder.

        A run of many costs a fraction of as many runs. What came out is kept as records, and
        printed by `grader judge`, which prints what `grader check` does, without the time.
        """
        for kind, folder in _FOLDERS.items():
            files = [
                Path(folder) / path.name for path in sorted((self.root / folder).glob("ex*.py"))
            ]
            missing = [file for file in files if not self._kept(file, kind).exists()]
            if len(missing) > 1:
                self._capture_many(missing, kind)

    def _capture_many(self, files: list[Path], kind: str) -> None:
        with tempfile.TemporaryDirectory() as records:
            names = [file.stem.split("_")[0] for file in files]
            self._run("check", *names, "--submission", _FOLDERS[kind], "--save", records, *_CPU)
            for file in files:
                code, text = self._run("judge", f"{records}/{file.stem}.json")
                if code in _EXPECTED[kind] and code != UNDECIDED:
                    self._keep(file, kind, text)

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
        kept = self._kept(file, words[2])
        if kept.exists():
            return shown, kept.read_text(encoding="utf-8")
        code, text = self._run("check", words[1], "--submission", str(file), *_CPU)
        if code not in _EXPECTED[words[2]]:
            raise CaptureError(f"{shown}: exit code {code} for the {words[2]}\n{text}")
        if code != UNDECIDED:
            self._keep(file, words[2], text)
        return shown, text

    def _file(self, exercise: str, kind: str) -> Path:
        """The exercise's file, relative to the root."""
        if _NUMBER.fullmatch(exercise):
            for path in sorted((self.root / _FOLDERS[kind]).glob(f"{exercise}_*.py")):
                return path.relative_to(self.root)
        raise CaptureError(f"capture: no {kind} for exercise {exercise!r}")

    def _key(self, file: Path) -> str:
        digest = hashlib.sha256("\0".join(notebooks.installed_versions()).encode())
        checks = self.root / "grader" / "checks"
        sources = [p for p in sorted((self.root / "grader").rglob("*.py")) if p.parent != checks]
        sources += checks.glob(file.name)
        pair = (self.root / folder / file.name for folder in _FOLDERS.values())
        for path in (*sources, *pair):
            digest.update(path.read_bytes() + b"\0")
        return digest.hexdigest()[:20]

    def _kept(self, file: Path, kind: str) -> Path:
        """Where the capture of this very file, by this very grader, is kept."""
        return self.cache / "captures" / f"{file.stem}-{kind}-{self._key(file)}.txt"

    def _run(self, *words: str) -> tuple[int, str]:
        """Exit code and output, as a learner without a terminal or a GPU sees them."""
        done = subprocess.run(
            [*self.command, *words],
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

    def _keep(self, file: Path, kind: str, text: str) -> None:
        notebooks.keep(self._kept(file, kind), f"{file.stem}-{kind}", text)
