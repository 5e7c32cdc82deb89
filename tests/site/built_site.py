"""The real site, built once for all tests that look at it, and served on a port of this machine.

A plugin of pytest: test modules name it in `pytest_plugins`. Nothing is tested here.
"""

import fcntl
import os

import pytest
from building import ROOT, mkdocs

import serving


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The real site, built with its own cache: a second run of the tests is quick.

    The first worker of pytest-xdist that needs it builds it for all.
    """
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
