"""Says where a paragraph of a lesson can be read: on a site, in a file, or by its name.

The site is the one that `GRADER_SITE` or `COURSE_SITE` names. Without them, it is the one that
`make serve` shows, if that answers. Else the lesson's file in a checkout is named, or the lesson.
"""

import os
import socket
from pathlib import Path

from grader.course import catalog

SERVED = "http://127.0.0.1:8000"
PATIENCE = 0.3
"""Seconds that `make serve` may take to answer; without it, the answer comes at once."""


def address(lesson: str) -> str:
    """Where `lessons/04-the-inner-loop#reading-stops-the-loop` can be read."""
    page, _, anchor = lesson.partition("#")
    path = f"{page}/#{anchor}" if anchor else f"{page}/"
    if named := os.environ.get("GRADER_SITE") or os.environ.get("COURSE_SITE"):
        return f"{named.rstrip('/')}/{path}"
    if served(f"/{page}/"):
        return f"{SERVED}/{path}"
    docs = catalog.course_root() / "docs"
    files = (docs / f"{page}{suffix}" for suffix in (".py", ".md"))
    file = next((path for path in files if path.is_file()), docs / page)
    kind = "lesson" if page.startswith("lessons/") else "page"
    where = _relative(file) if file.is_file() else f"{kind} {page.rpartition('/')[2]}"
    return f"{where}, paragraph {anchor}" if anchor else where


def on(site: str, lesson: str) -> str:
    """The address on a site that is known; where that is empty, as `address`."""
    page, _, anchor = lesson.partition("#")
    return f"{site.rstrip('/')}/{page}/#{anchor}" if site else address(lesson)


def link(shown: str) -> str:
    """What a terminal opens for an address: the address itself, or the file's; "" for a name."""
    if shown.startswith(("http://", "https://")):
        return shown
    file = Path(shown.partition(", paragraph ")[0])
    return file.resolve().as_uri() if file.is_file() else ""


def served(path: str) -> bool:
    """Whether `make serve` shows a page now. Another program at its port does not have it."""
    host, _, port = SERVED.rpartition("/")[2].partition(":")
    try:
        with socket.create_connection((host, int(port)), PATIENCE) as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            return b" 200 " in connection.recv(64).split(b"\r\n", 1)[0] + b" "
    except OSError:
        return False


def _relative(file: Path) -> str:
    """A path as a person types it: from here, if it lies below."""
    try:
        return str(file.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(file)
