"""Builds a site as `make site` does, for the tests that look at one, and lists its pages."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def mkdocs(folder, site, **environment):
    """Build a site as `make site` does; the result of the process."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def paths(site):
    """The address of each page under the site's root."""
    found = sorted(path.parent.relative_to(site).as_posix() for path in site.rglob("index.html"))
    assert len(found) > 50
    return ["/" if path == "." else f"/{path}/" for path in found]
