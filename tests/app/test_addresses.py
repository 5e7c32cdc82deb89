"""Where a paragraph can be read: on a site that is named, on one that answers, or in a file."""

import http.server
import threading
from collections.abc import Iterator

import pytest
from conftest import ROOT

from grader.app import addresses

LESSON = "lessons/04-the-inner-loop#reading-stops-the-loop"
PATH = "/lessons/04-the-inner-loop/"


class Lessons(http.server.BaseHTTPRequestHandler):
    """A site that has one page."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == PATH else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A running site in the place of `make serve`."""
    for name in ("GRADER_SITE", "COURSE_SITE"):
        monkeypatch.delenv(name, raising=False)
    with http.server.HTTPServer(("127.0.0.1", 0), Lessons) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(addresses, "SERVED", found)
        monkeypatch.setattr(addresses, "PATIENCE", 20.0)
        yield found
        server.shutdown()
        thread.join()


def test_a_site_that_answers_is_named(site: str) -> None:
    assert addresses.address(LESSON) == f"{site}{PATH}#reading-stops-the-loop"


def test_another_program_at_its_port_is_not(site: str) -> None:
    assert addresses.address("lessons/99-none#top") == "lesson 99-none, paragraph top"


def test_a_site_that_is_set_is_not_asked(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_SITE", "https://course.example/")
    assert addresses.address(LESSON).startswith(
        "https://course.example/lessons/04-the-inner-loop/#"
    )
    monkeypatch.setenv("GRADER_SITE", "https://other.example")
    assert addresses.address(LESSON).startswith("https://other.example/lessons/")
    assert addresses.on("https://third.example", LESSON).startswith(
        "https://third.example/lessons/"
    )


def test_without_a_site_the_file_is_named(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "served", lambda _: False)
    monkeypatch.chdir(ROOT)
    shown = addresses.address(LESSON)
    assert shown == "docs/lessons/04-the-inner-loop.py, paragraph reading-stops-the-loop"
    assert addresses.link(shown) == (ROOT / "docs/lessons/04-the-inner-loop.py").as_uri()
    assert addresses.link("lesson 99-none, paragraph top") == ""
