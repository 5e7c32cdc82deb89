"""Other levels of isolation: without namespaces, without fork; and sockets of others."""

import json
import socket
import sys
import uuid
from pathlib import Path

import fenced
import pytest
from conftest import PATIENCE
from fenced import ATTACKS, FILE, ROOT, TOKEN

from grader.fences import namespaces

RIGHT = fenced.solution()
WRONG = fenced.submission("def train(step, params, batches):\n    return params, []\n")


@pytest.mark.alone
def test_strays_are_killed_without_namespaces(tmp_path: Path) -> None:
    files = fenced.files_left()
    text = (ATTACKS / "children_left.py").read_text("utf-8")
    with fenced.place(tmp_path, fenced=False) as opened:
        record, report = opened.grade(fenced.submission(text), policy=False)
        assert report.exit_code == 0
        assert record.machine is not None
        assert record.machine.refused == [
            "refused: namespaces, and a fence around files (not asked for)"
        ]
        assert opened.ended()
        for name in ("fork_bomb", "exit_past_python"):
            text = (ATTACKS / f"{name}.py").read_text("utf-8")
            opened.grade(fenced.submission(text), policy=False)
            assert opened.ended()
    assert fenced.files_left() == files


def test_a_check_where_namespaces_are_refused(tmp_path: Path) -> None:
    """Both forms of the report name the level, and the file is judged all the same."""
    (tmp_path / FILE).write_text(WRONG)
    token, files = f"token-{uuid.uuid4().hex}", fenced.files_left()
    refuse = [sys.executable, str(ROOT / "tests" / "fences" / "refuse_namespaces.py")]
    check = fenced.command("check", "ex07", "--device", "cpu", "--format")
    says = "refused: namespaces, and a fence around files (Operation not permitted)"
    for form in ("json", "text"):
        ran = fenced.run(tmp_path, [*refuse, *check, form], fenced.environ({TOKEN: token}))
        assert (ran.returncode, ran.stderr) == (1, "")
        if form == "json":
            machine = json.loads(ran.stdout)["reports"][0]["machine"]
            assert says in machine["isolation"]
        else:
            assert f"  fence  {says}" in ran.stdout.splitlines()
    assert not fenced.processes(token)
    assert fenced.files_left() == files


def test_spawned_workers_grade_the_same(tmp_path: Path) -> None:
    """Systems without a safe fork use them."""
    files = fenced.files_left()
    with fenced.place(tmp_path, spawn=True, seconds=PATIENCE) as opened:
        record, report = opened.grade(RIGHT)
        assert report.exit_code == 0
        assert record.machine is not None
        assert record.machine.refused == ["refused: fences (this system has no fork that is safe)"]
        text = (ATTACKS / "segmentation_fault.py").read_text("utf-8")
        record, _ = opened.grade(fenced.submission(text), policy=False)
        assert record.submission is not None
        assert record.submission.outcome.kind == "killed"
        assert record.submission.outcome.frames
        assert opened.ended()
    assert fenced.files_left() == files


def test_sockets_of_others_are_found(tmp_path: Path) -> None:
    path = tmp_path / "bus"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert str(path) in namespaces.sockets_of_others()


def test_sockets_of_others_cannot_be_reached(tmp_path: Path) -> None:
    """A session bus would start programs outside the fence for any process that asks."""
    path = tmp_path / "bus"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o777)
        listening.listen()
        listening.settimeout(0)
        text = fenced.submission(
            f"""import socket


def train(step, params, batches):
    with socket.socket(socket.AF_UNIX) as bus:
        bus.connect({str(path)!r})
"""
        )
        with fenced.place(tmp_path) as place:
            record, _ = place.grade(text, policy=False)
        assert record.submission is not None
        assert "ConnectionRefusedError" in record.submission.outcome.message
        with pytest.raises(BlockingIOError):
            listening.accept()
