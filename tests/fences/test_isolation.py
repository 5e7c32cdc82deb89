"""Hostile submissions: the policy refuses them, and behind it the fence holds.

Each file of tests/attacks says in its first lines what the policy finds (`# policy:`), and how
the run ends with the policy switched off (`# outcome:`, `# says:`). `# here` marks the line that
the message must name.
"""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import fenced
import pytest
from fenced import ATTACKS, Place

NAMES = sorted(path.stem for path in ATTACKS.glob("*.py"))
STARVING = {"fork_bomb"}
REFUSED = [name for name in NAMES if "# policy" in (ATTACKS / f"{name}.py").read_text("utf-8")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One session for all attacks."""
    with fenced.place(tmp_path_factory.mktemp("attacks")) as opened:
        yield opened


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file that must outlive every attack."""
    path = tmp_path / "victim.txt"
    path.write_text("intact")
    yield path
    assert path.read_text() == "intact"


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    """A server on this machine that no attack may reach."""

    class Reached(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pytest.fail("the network was reached")

    with http.server.HTTPServer(("127.0.0.1", 0), Reached) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


def test_attacks_are_found() -> None:
    assert len(NAMES) > 30
    assert len(REFUSED) > 15


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.alone if n in STARVING else ()) for n in NAMES],
)
def test_the_fence_holds(
    name: str, place: Place, victim: Path, server: http.server.HTTPServer
) -> None:
    text = (ATTACKS / f"{name}.py").read_text("utf-8")
    wanted = fenced.header(text)
    text = text.replace("VICTIM", str(victim)).replace("PORT", str(server.server_port))
    text = fenced.submission(text)
    files, fds = fenced.files_left(), fenced.open_files()
    record, report = place.grade(text, policy=False)
    assert record.submission is not None
    outcome = record.submission.outcome
    assert outcome.kind == wanted["outcome"][0], (outcome.message, outcome.output)
    assert wanted.get("says", [""])[0] in outcome.message
    if lines := fenced.lines_of(text, "# here"):
        assert outcome.frames[-1].line in lines
    if outcome.kind != "finished":
        assert report.exit_code == 1
        assert [v.check for v in report.verdicts if v.status == "fail"] == ["runs"]
    else:
        assert {v.status for v in report.verdicts} == {"pass"}, report
    for word in ("Traceback", "grader/", "_drive"):
        assert word not in outcome.message + outcome.output
    assert place.ended()
    assert fenced.files_left() == files
    assert fenced.open_files() <= fds


@pytest.mark.parametrize("name", REFUSED)
def test_the_policy_refuses(name: str, place: Place) -> None:
    text = (ATTACKS / f"{name}.py").read_text("utf-8")
    record, report = place.grade(fenced.submission(text))
    assert record.submission is None
    found = record.findings[0]
    assert fenced.header(text)["policy"][0] in found.observed + found.expected
    assert found.line is not None
    assert report.exit_code == 1
