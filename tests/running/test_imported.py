"""Whether a process still holds what is on disk: every way in which the disk may change."""

import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.running.imported import Imported


def edited(site: Path) -> None:
    """Another text of the same length."""
    (site / "mine" / "inner.py").write_text("X = 2\n")


def edited_and_backdated(site: Path) -> None:
    """As a tool leaves a file whose dates it sets."""
    path = site / "mine" / "inner.py"
    before = path.stat()
    path.write_text("X = 2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def removed(site: Path) -> None:
    """A file less."""
    (site / "mine" / "inner.py").unlink()


def folder_swapped(site: Path) -> None:
    """Another folder of the same name, whose files are older than the process."""
    shutil.move(site / "mine", site / ".old")
    shutil.move(site / ".new", site / "mine")


def package_installed(site: Path) -> None:
    """What an installation leaves beside the package."""
    (site / "other-2.0.dist-info").mkdir()


def path_file_edited(site: Path) -> None:
    """A file that puts other folders on the import path."""
    (site / "more.pth").write_text("/elsewhere\n")


def module_in_front(site: Path) -> None:
    """A module that would be found first."""
    (site / "numpy.py").write_text("")


CHANGES = [
    edited,
    edited_and_backdated,
    removed,
    folder_swapped,
    package_installed,
    path_file_edited,
    module_in_front,
]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the import path with a package that is imported."""
    for name in ("mine", ".new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "inner.py").write_text("X = 1\n")
    (tmp_path / "more.pth").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    time.sleep(0.05)  # the kernel's dates are coarse
    return tmp_path


def noted() -> Imported:
    """The state after an import of the package, as a process that starts now would note it."""
    imported = Imported(time.time_ns())
    importlib.import_module("mine.inner")
    imported.note()
    return imported


@pytest.fixture(autouse=True)
def _forget() -> None:
    for name in ("mine", "mine.inner"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen(change: Callable[[Path], None], site: Path) -> None:
    imported = noted()
    assert imported.unchanged()
    change(site)
    assert not imported.unchanged()


def test_what_was_changed_while_it_was_imported_is_not_trusted(site: Path) -> None:
    imported = Imported(time.time_ns())
    importlib.import_module("mine.inner")
    time.sleep(0.05)
    edited(site)
    imported.note()
    assert not imported.unchanged()


def test_a_later_import_is_noted(site: Path) -> None:
    imported = Imported(time.time_ns())
    imported.note()
    importlib.import_module("mine.inner")
    assert not imported.unchanged()
    imported.note()
    assert imported.unchanged()


def test_notes_and_caches_beside_the_code_do_not_count(site: Path) -> None:
    imported = noted()
    for name in (".grader", "__pycache__"):
        (site / name).mkdir(exist_ok=True)
    (site / "notes.md").write_text("")
    (site / "mine" / "__pycache__").mkdir(exist_ok=True)
    assert imported.unchanged()
