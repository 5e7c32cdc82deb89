"""The programs of the document pages: each runs once, and its page shows code and output.

A page says `{{ program: haiku_gpu_1 }}` alone on a line, and gets the code of
`docs/documents/programs/haiku_gpu_1.py` and its output on eight simulated CPU devices. Outputs are
cached; the key is a hash of the program, Python and the version of every installed package.
"""

import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import notebooks

MARKER = re.compile(r"(?m)^\{\{ program: (\w+) \}\}$")
FOLDER = Path("docs") / "documents" / "programs"
SECONDS = 120
_STEERING = ("JAX_", "XLA_", "TF_", "CUDA_VISIBLE_DEVICES", "PYTHON")


class ProgramError(Exception):
    """A program of a page is missing, fails, warns or prints nothing."""


@dataclass(frozen=True)
class Programs:
    """Where the programs and the cache are."""

    root: Path
    cache: Path

    def fill(self, markdown: str) -> str:
        """Markdown with every marker replaced by the program's code and output."""
        return MARKER.sub(lambda match: self._block(match[1]), markdown)

    def prepare(self) -> None:
        """Run all programs that the cache lacks, one on each core at a time."""
        names = sorted(path.stem for path in (self.root / FOLDER).glob("*.py"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self.output, names))

    def _block(self, name: str) -> str:
        printed = self.output(name)
        code = self._path(name).read_text("utf-8").strip("\n")
        return (
            f'```python title="{FOLDER / name}.py"\n{code}\n```\n\n'
            f"```{{ .text .no-copy .capture }}\n{printed}\n```"
        )

    def _path(self, name: str) -> Path:
        path = self.root / FOLDER / f"{name}.py"
        if not path.is_file():
            raise ProgramError(f"no program {FOLDER / name}.py")
        return path

    def output(self, name: str) -> str:
        """What a program prints. Raises ProgramError if it fails, warns or prints nothing."""
        path = self._path(name)
        versions = "\0".join(notebooks.installed_versions())
        key = hashlib.sha256(path.read_bytes() + versions.encode()).hexdigest()[:20]
        kept = self.cache / "programs" / f"{name}-{key}.txt"
        if kept.exists():
            return kept.read_text("utf-8")
        ended = run(path)
        if ended.returncode or ended.stderr or not ended.stdout.strip():
            raise ProgramError(f"{path}: exit code {ended.returncode}\n{ended.stderr}")
        notebooks.keep(kept, name, ended.stdout.strip("\n"))
        return ended.stdout.strip("\n")


def run(path: Path, devices: int = 8) -> subprocess.CompletedProcess[str]:
    """Run one program on simulated CPU devices, in a fresh Python without steering variables."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_STEERING)}
    return subprocess.run(
        [sys.executable, str(path)],
        env={**kept, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
