"""Stages an error, and tells whether a submission hides it.

A step that raises, or batches that cannot be read, end a run. A submission may catch an error
because it takes it for one that it knows, and return as if all had been well.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

_Function = Callable[..., Any]


class Failed(
    FloatingPointError, OSError, RuntimeError, ValueError, KeyError, IndexError, TypeError
):
    """An error that each of the usual handlers catches, whatever it is written for."""


def returns(function: _Function, *args: Any) -> bool:
    """Whether a function returns, though something that it calls raises `Failed`."""
    try:
        function(*args)
    except Exception:  # noqa: BLE001 (whatever it raises tells the caller that it failed)
        return False
    return True


def hidden(
    train: Callable[..., Any], step: Callable[..., Any], batches: Sequence[Any]
) -> list[str]:
    """Of which a loop, `train(step, batches)`, hides an error: of "step", of "batches"."""
    runs = {
        "step": (failing_at_second(step), iter(batches)),
        "batches": (step, _then_fail(batches)),
    }
    return [name for name, given in runs.items() if returns(train, *given)]


def failing_at_second(step: _Function) -> _Function:
    """`step`, but its second call raises `Failed`."""
    calls = count(1)

    def failing(*given: Any, **named: Any) -> Any:
        if next(calls) == 2:
            raise Failed
        return step(*given, **named)

    return failing


def _then_fail(items: Sequence[Any]) -> Iterator[Any]:
    """All items but the last, in the place of which `Failed` is raised."""
    yield from items[:-1]
    raise Failed
