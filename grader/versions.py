"""Which versions this grader supports, from package metadata alone: nothing imported."""

from importlib.metadata import PackageNotFoundError, version

OLDEST, FIRST_UNSUPPORTED = (0, 11), (0, 13)


def unsupported() -> str:
    """One line that says what is wrong with the installed jax and jaxlib, or nothing."""
    for package in ("jax", "jaxlib"):
        try:
            found = version(package)
        except PackageNotFoundError:
            return f'{package} is not installed; `pip install "jax>=0.11,<0.13"`'
        if not OLDEST <= _numbers(found) < FIRST_UNSUPPORTED:
            return f'{package} {found} is installed, this grader supports 0.11 and 0.12; `pip install "jax>=0.11,<0.13"`'
    return ""


def _numbers(text: str) -> tuple[int, int]:
    major, minor, *_ = text.split(".")
    return int(major), int(minor)
