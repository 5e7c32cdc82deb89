"""The real site, built once for all tests that look at it, and served on a port of this machine.

A plugin of pytest: test modules name it in `pytest_plugins`. Nothing is tested here.
"""

import fcntl
import os
from pathlib import Path

import pytest
from building import ROOT, mkdocs

import serving


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The real site: the one that `COURSE_TESTS_SITE` names, if a build was just made.

    Else the first worker of pytest-xdist that needs it builds it for all. It is built with its
    own cache, so that a second run of the tests is quick.
    """
    if built := os.environ.get("COURSE_TESTS_SITE"):
        return Path(built)
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder, done = shared / "site", shared / "site.built"
        if not done.is_file():
            built = mkdocs(ROOT, folder)
            assert built.returncode == 0, built.stderr
            done.touch()
    return folder


@pytest.fixture(scope="session")
def served(site):
    """The site on a port of this machine."""
    with serving.served(site) as address:
        yield address
