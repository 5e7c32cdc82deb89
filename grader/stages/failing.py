"""Stages an error, and tells whether a submission hides it.

A step that raises, or batches that cannot be read, end a run. A submission may catch an error
because it takes it for one that it knows, and return as if all had been well.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Failed(FloatingPointError, OSError, RuntimeError, ValueError):
    """An error that each of the usual handlers catches, whatever it is written for."""


def returns(function: Callable[..., Any], *args: Any) -> bool:
    """Whether a function returns, though something that it calls raises `Failed`."""
    try:
        function(*args)
    except Exception:  # noqa: BLE001 (whatever it raises tells the caller that it failed)
        return False
    return True


def then_fail(items: Sequence[Any]) -> Iterator[Any]:
    """All items but the last, in the place of which `Failed` is raised."""
    yield from items[:-1]
    raise Failed
