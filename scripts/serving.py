"""A built site on a port of this machine, and the browser that looks at it.

What is looked for is in `lighthouse` and in `tests/site`.
"""

import functools
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The path of a Chromium on this machine; empty where there is none."""
    return next(filter(None, map(shutil.which, _BROWSERS)), "")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's files, without a slash at its end, while the block runs."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
