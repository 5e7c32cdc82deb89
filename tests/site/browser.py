"""A browser that tests drive: Debian's Chromium, through Playwright.

Not here: what pages must do (`test_in_a_browser`).
"""

import json
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, sync_playwright

import serving

CHROMIUM = serving.chromium()
WIDE, NARROW = 1280, 390  # of a desk, and of a phone
MILLISECONDS = 60_000.0
GRAVE = ("serious", "critical")
"""What axe-core calls the findings that keep somebody from reading or using a page."""
OF_COLOUR = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""The rules of axe-core that ask about colours; those of level AAA are not asked."""
STILL = "* { transition: none !important; animation: none !important }"
ONE_OF_EACH_LOOK = """{
  const grounds = new Map(), seen = new Set();
  const ground = one => {
    if (!one) return "";
    if (!grounds.has(one)) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(one);
      const own = [backgroundColor, backgroundImage, opacity];
      grounds.set(one, [...own, ground(one.parentElement)].join());
    }
    return grounds.get(one);
  };
  for (const one of document.querySelectorAll("body *:not(:has(*))")) {
    const { color, fontSize, fontWeight, textShadow, visibility } = getComputedStyle(one);
    const look = [color, fontSize, fontWeight, textShadow, visibility, ground(one)].join();
    const { width } = one.getBoundingClientRect();
    one.toggleAttribute("data-twin", !width || seen.has(look));
    if (width) seen.add(look);
  }
  axe.configure({ rules: [{ id: "color-contrast", selector: "*:not([data-twin])" }] });
}"""
"""Marks the innermost elements whose colours, ground and size another has that stands before
them: the contrast of both is the same, and axe-core takes a millisecond for each of thousands."""


class Browser:
    """One browser with one page. `errors` are what pages wrote to the console or raised;
    `asked` are the addresses that they fetched."""

    def __init__(self) -> None:
        self._playwright = sync_playwright().start()
        self._chromium = self._playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        self.errors: list[str] = []
        self.asked: list[str] = []
        self._page = self._new_page()

    def _new_page(self, *, scripts: bool = True) -> Page:
        page = self._chromium.new_page(java_script_enabled=scripts)
        page.set_default_timeout(MILLISECONDS)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        return page

    def _hear(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.errors.append(f"{said.text} {said.location.get('url', '')}")

    def close(self) -> None:
        """End the browser."""
        self._chromium.close()
        self._playwright.stop()

    def open(self, address: str) -> None:
        """Open a page and wait until it is loaded."""
        self._page.goto(address)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        return self._page.evaluate(script)

    def run_without_scripts(self, address: str, script: str) -> Any:
        """The value of an expression in a page whose own scripts never run."""
        page = self._new_page(scripts=False)
        try:
            page.goto(address)
            return page.evaluate(script)
        finally:
            page.close()

    def wait(self, script: str) -> Any:
        """The value of an expression, as soon as it is true."""
        return self._page.wait_for_function(script).json_value()

    def press(self, *keys: str) -> None:
        """Press keys by their names: `Enter`, `Tab`, `ArrowDown`, or a letter."""
        for key in keys:
            self._page.keyboard.press(key)

    def look(self, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Take a width and a colour scheme."""
        self._page.set_viewport_size({"width": width, "height": height})
        self._page.emulate_media(color_scheme="dark" if dark else "light")

    def shoot(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of what is seen, or of the whole page."""
        self._page.screenshot(path=path, full_page=whole)

    def barriers(self, *, of_colour: bool = False) -> list[str]:
        """What axe-core finds that keeps somebody from using the page: rule, and the elements.

        With `of_colour`, only the rules that ask about colours. What moves on the page stops.
        """
        if not self.run("'axe' in window"):
            self._page.add_style_tag(content=STILL)
            self.run(Axe().axe_script)
        self.run(ONE_OF_EACH_LOOK)
        rules = f", runOnly: {json.dumps(OF_COLOUR)}" if of_colour else ""
        found = self.run(f"axe.run({{ resultTypes: ['violations']{rules} }})")
        return [
            f"{rule['id']}: {[node['html'][:100] for node in rule['nodes'][:3]]}"
            for rule in found["violations"]
            if rule["impact"] in GRAVE
        ]
