"""A browser that tests drive: Debian's Chromium over its debugging pipe, and nothing between.

Not here: what pages must do (`test_in_a_browser`). No package is needed: Chromium reads commands
from one file descriptor and writes answers and events to another, each a JSON text with a zero
byte at its end.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), "")
SECONDS = 60
WIDE, NARROW = 1280, 390  # of a desk, and of a phone
_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--remote-debugging-pipe",
    "about:blank",
)
# Chromium reads from descriptor 3 and writes to 4; this puts ours there and becomes Chromium.
_PLACED = """
import fcntl, os, sys
high = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for number, one in enumerate(high, 3):
    os.dup2(one, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
# What Input.dispatchKeyEvent needs beside a key's name.
_KEYS = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "Escape": (27, ""),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowLeft": (37, ""),
    "Home": (36, ""),
    "End": (35, ""),
    " ": (32, " "),
}


class BrowserError(Exception):
    """The browser refused a command, or a script of a test raised in the page."""


class Browser:
    """One browser with one page. `errors` are what pages wrote to the console or raised;
    `asked` are the addresses that they fetched."""

    def __init__(self, profile: Path) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", "-c", _PLACED, str(theirs_in), str(theirs_out)),
                *(CHROMIUM, f"--user-data-dir={profile}", *_QUIET),
            ],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in (theirs_in, theirs_out):
            os.close(descriptor)
        self._in, self._out = ours_in, ours_out
        self._rest, self._number, self._session = b"", 0, ""
        self._loaded = ""
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.bytes: dict[str, int] = {}
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Page.setLifecycleEventsEnabled", enabled=True)

    def close(self) -> None:
        """End the browser; a second call does nothing."""
        if self._process.poll() is None:
            with contextlib.suppress(BrowserError, OSError):
                self._session = ""
                self.send("Browser.close")
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            os.close(self._in)
            os.close(self._out)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Run one command of the DevTools protocol and give its result. Raises BrowserError."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        number = self._number
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _next(self, seconds: float = SECONDS) -> dict[str, Any]:
        """The next message; events are noted on the way. Raises BrowserError after `seconds`."""
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], seconds)[0]:
                raise BrowserError(f"the browser said nothing for {seconds} s")
            read = os.read(self._in, 1 << 20)
            if not read:
                raise BrowserError("the browser has ended")
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, said: dict[str, Any]) -> None:
        if event == "Page.lifecycleEvent" and said["name"] == "load":
            self._loaded = said["loaderId"]
        elif event == "Runtime.exceptionThrown":
            self.errors.append(str(said["exceptionDetails"].get("exception", said)))
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.errors.append(str([one.get("value") for one in said["args"]]))
        elif event == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            self.asked.append(said["request"]["url"])
        elif event == "Network.loadingFinished":
            self.bytes[said["requestId"]] = said["encodedDataLength"]

    def open(self, address: str) -> None:
        """Open a page and wait until it is loaded."""
        self.bytes.clear()
        opened = self.send("Page.navigate", url=address)
        end = time.monotonic() + SECONDS
        # An address on the page that is shown loads nothing.
        while self._loaded != opened.get("loaderId", self._loaded) and time.monotonic() < end:
            self._next()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited. Raises BrowserError."""
        found = self.send(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in found:
            raise BrowserError(str(found["exceptionDetails"].get("exception", found)))
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = SECONDS) -> Any:
        """The value of an expression, as soon as it is true. Raises BrowserError if it never is."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.run(script):
                return value
            time.sleep(0.05)
        raise BrowserError(f"never true: {script}")

    def press(self, *keys: str) -> None:
        """Press keys by their names: `Enter`, `Tab`, `ArrowDown`, or a letter."""
        for key in keys:
            code, text = _KEYS.get(key, (ord(key[0].upper()), key))
            common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            down = "keyDown" if text else "rawKeyDown"
            self.send("Input.dispatchKeyEvent", type=down, text=text, **common)
            self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Write a text into what has the focus."""
        self.send("Input.insertText", text=text)

    def look(self, width: int, *, dark: bool = False, media: str = "", height: int = 900) -> None:
        """Take a width, a colour scheme and a medium (`print`)."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def shoot(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of what is seen, or of the whole page."""
        taken = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))
