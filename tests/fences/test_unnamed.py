"""Files without a name: with and without the call that makes them in memory."""

import os
from pathlib import Path

import pytest

from grader.fences.unnamed import unnamed


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_is_written_can_be_read_and_no_name_is_left(
    in_memory: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    file = unnamed("grader-test")
    try:
        assert not os.get_inheritable(file)
        os.write(file, b"kept")
        assert os.pread(file, 10, 0) == b"kept"
        assert list(tmp_path.iterdir()) == []
    finally:
        os.close(file)


def test_where_there_is_no_room_it_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(OSError, match="No such file"):
        unnamed("grader-test")
