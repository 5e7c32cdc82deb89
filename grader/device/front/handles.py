"""What the parts of a session need of it: arrays by their handles, and replies."""

from collections.abc import Callable
from typing import Any, Protocol

from grader.device.front.arrays import Array
from grader.device.messages.errors import Failed

ALWAYS_COPY, REUSE, DONATE = 1, 2, 3
"""What a request says of the arrays that it is given."""

Fill = Callable[[Any], None]


class Handles(Protocol):
    """A session, as its parts see it (see `grader.device.front.session`)."""

    def get(self, handle: int) -> Array:
        """An array.

        Raises:
          Failed: there is none, it is deleted, or making it failed.
        """
        ...

    def keep(self, handle: int, array: Array) -> None:
        """Give an array a handle; what had it before is forgotten."""
        ...

    def fail(self, handle: int, error: Failed) -> None:
        """Say why the array of this handle could not be made."""
        ...

    def new_handle(self) -> int:
        """A handle of the server's own."""
        ...

    def reply(self, op: int, fill: Fill | None = None, error: Failed | None = None) -> None:
        """Answer a request: with a response that `fill` fills in, or with an error."""
        ...
