"""Captures: the real output of `grader check`, run once, kept in a cache and put into pages.

A page says `{{ capture: check ex07 starter }}` or `{{ capture: check ex07 solution }}`. With the
text, the record is kept, without the values of arrays: `before_after` draws from it. The cache key
is a hash of the grader's sources, the exercise's own files, Python and the version of every
installed package. The text is not interpreted here; only the exit code is checked. Programs of
the document pages are in `programs`, cells of lessons in `notebooks`.
"""

import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import notebooks

MARKER = re.compile(r"^(?P<indent> *)\{\{ capture: (?P<command>[^{}]+?) \}\} *$", re.MULTILINE)
GRADER = (sys.executable, "-m", "grader")
SITE = "http://127.0.0.1:8000"
"""What reports call the site; `page_html` makes links of it that stay on the site."""
SECONDS = 900
UNDECIDED = 3

_FOLDERS = {"starter": "exercises", "solution": "solutions"}
_EXPECTED = {"starter": (1,), "solution": (0, UNDECIDED)}
_GRADING = ("--device", "cpu", "--seed", "7")
"""Where, and on which inputs: of others, a picture may show two sides that are alike by chance."""
_HEAVY = {"blob", "data", "inputs", "programs", "source", "targeted"}
"""What of a record is not kept: values, and programs as they were exported."""
_NUMBER = re.compile(r"ex\d\d")


class CaptureError(Exception):
    """A request is unknown, a starter passes or a solution fails."""


@dataclass(frozen=True)
class Grader:
    """Where the grader, the exercises and the cache are, and how the grader is called.

    The grader's sources are read once: one build has one of these.
    """

    root: Path
    cache: Path
    command: tuple[str, ...] = GRADER

    def fill(self, markdown: str) -> str:
        """Markdown with every capture marker replaced by a block of the real output."""
        return MARKER.sub(self._block, markdown)

    def prepare(self) -> None:
        """Capture all exercises that the cache lacks: one run of `grader check` for each folder.

        One run over many exercises is much quicker than one run for each. It saves records, and
        `grader judge` prints each of them as `grader check` would, without the time.
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
            self._run("check", *names, "--submission", _FOLDERS[kind], "--save", records, *_GRADING)
            for file in files:
                record = Path(records) / f"{file.stem}.json"
                code, text = self._run("judge", str(record))
                if code in _EXPECTED[kind] and code != UNDECIDED:
                    self._keep(file, kind, text, record)

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
        _, exercise, kind = words
        file = self._file(exercise, kind)
        shown = f"grader check {exercise}"
        if kind == "solution":
            shown += f" --submission {file}"
        kept = self._kept(file, kind)
        if kept.exists():
            return shown, json.loads(kept.read_text(encoding="utf-8"))["text"]
        with tempfile.TemporaryDirectory() as records:
            asked = (exercise, "--submission", str(file), *_GRADING, "--save", records)
            code, text = self._run("check", *asked)
            if code not in _EXPECTED[kind]:
                raise CaptureError(f"{shown}: exit code {code} for the {kind}\n{text}")
            if code != UNDECIDED:
                self._keep(file, kind, text, Path(records) / f"{file.stem}.json")
        return shown, text

    def record(self, exercise: str) -> dict[str, Any]:
        """What was observed of the starter of `exNN`, and of the solution on the same inputs.

        It is the record of the starter's check, without values. Raises CaptureError as `capture`.
        """
        self.capture(f"check {exercise} starter")
        kept = self._kept(self._file(exercise, "starter"), "starter")
        record: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))["record"]
        return record

    def _file(self, exercise: str, kind: str) -> Path:
        """The exercise's file, relative to the root."""
        if _NUMBER.fullmatch(exercise):
            for path in sorted((self.root / _FOLDERS[kind]).glob(f"{exercise}_*.py")):
                return path.relative_to(self.root)
        raise CaptureError(f"capture: no {kind} for exercise {exercise!r}")

    @functools.cached_property
    def _sources(self) -> list[tuple[str, bytes]]:
        """The grader's sources in order: the exercise that each belongs to, or "", and its text."""
        folder = self.root / "grader"
        found = []
        for path in sorted(folder.rglob("*.py")):
            first, second, *_ = (*path.relative_to(folder).parts, "")
            own = second if first == "checks" and second.startswith("ex") else ""
            found.append((own, path.read_bytes()))
        return found

    def _key(self, file: Path) -> str:
        """A hash of all that the output depends on: not the checks of other exercises."""
        digest = hashlib.sha256("\0".join((*notebooks.installed_versions(), *_GRADING)).encode())
        for own, source in self._sources:
            if own in ("", file.stem):
                digest.update(source + b"\0")
        for folder in _FOLDERS.values():
            digest.update((self.root / folder / file.name).read_bytes() + b"\0")
        return digest.hexdigest()[:20]

    def _kept(self, file: Path, kind: str) -> Path:
        """The cache's file for this output: another state of file or grader has another name."""
        return self.cache / "captures" / f"{file.stem}-{kind}-{self._key(file)}.json"

    def _run(self, *words: str) -> tuple[int, str]:
        """Exit code and output, as a learner without a terminal or a GPU sees them."""
        done = subprocess.run(
            [*self.command, *words],
            cwd=self.root,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80", "GRADER_SITE": SITE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout.replace(f"{self.root}{os.sep}", "").strip("\n")

    def _keep(self, file: Path, kind: str, text: str, record: Path) -> None:
        seen = _light(json.loads(record.read_text(encoding="utf-8")))
        whole = json.dumps({"text": text, "record": seen})
        notebooks.keep(self._kept(file, kind), f"{file.stem}-{kind}", whole)


def _light(part: Any) -> Any:
    """A record, or a part of one, without what is heavy."""
    if isinstance(part, dict):
        return {name: _light(one) for name, one in part.items() if name not in _HEAVY}
    return [_light(one) for one in part] if isinstance(part, list) else part
