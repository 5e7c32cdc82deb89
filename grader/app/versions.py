"""Says whether the installed jax and jaxlib are supported.

Only package metadata is read; neither package is imported.
"""

import re
from importlib.metadata import PackageNotFoundError, version

OLDEST, FIRST_UNSUPPORTED = (0, 11), (0, 13)
REMEDY = '`pip install "jax>=0.11,<0.13"`'


def unsupported() -> str:
    """One line that says what is wrong with the installed jax and jaxlib, or ""."""
    for package in ("jax", "jaxlib"):
        try:
            found = version(package)
        except PackageNotFoundError:
            return f"{package} is not installed; {REMEDY}"
        if not OLDEST <= _numbers(found) < FIRST_UNSUPPORTED:
            return f"{package} {found} is installed, this grader supports 0.11 and 0.12; {REMEDY}"
    return ""


def _numbers(text: str) -> tuple[int, ...]:
    """The major and minor number, or () if the text is not a version."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()
