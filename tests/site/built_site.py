"""The real site, built once for all tests that look at it, and served on a port of this machine.

A plugin of pytest: test modules name it in `pytest_plugins`. Nothing is tested here.
"""

import fcntl
import os
import shutil
from pathlib import Path

import pytest
from building import ROOT, mkdocs

import serving


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The real site: in the folder that `COURSE_TESTS_SITE` names, or in one of the tests' own.

    If it is not there, the first worker of pytest-xdist that needs it builds it for all. It is
    built with its own cache, so that a second run of the tests is quick.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = Path(os.environ.get("COURSE_TESTS_SITE") or shared / "site")
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            built = mkdocs(ROOT, folder)
            if built.returncode:
                shutil.rmtree(folder, ignore_errors=True)  # nobody takes it for a site
            assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="session")
def served(site):
    """The site on a port of this machine."""
    with serving.served(site) as address:
        yield address
