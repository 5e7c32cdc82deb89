"""One Chromium for the tests of a module, and a way to open pages of the built site in it.

A plugin of pytest, with `built_site`: test modules name both in `pytest_plugins`. Nothing is
tested here.
"""

import pytest
from browser import WIDE, Browser


@pytest.fixture(scope="module")
def chromium():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def page(chromium, served):
    """Opens a page in a browser that remembers nothing; at the end, no page has complained."""

    def opened(path, width=WIDE, *, dark=False, forget=True):
        chromium.look(width, dark=dark)
        if forget:
            chromium.open(f"{served}/symptoms/")
            chromium.run("localStorage.clear()")
        chromium.open(served + path)
        return chromium

    chromium.errors.clear()
    chromium.asked.clear()
    yield opened
    assert not chromium.errors
