"""Errors as a client gets them: a code of absl's and a message."""

INVALID, NOT_FOUND, EXHAUSTED, PRECONDITION = 3, 5, 8, 9
UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 12, 13, 14


class Failed(Exception):
    """What a client asked for failed; `code` is one of the above."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Lost(Failed):
    """The executor has died, and with it all that was on the device."""

    def __init__(self, why: str) -> None:
        super().__init__(UNAVAILABLE, f"the device was lost: {why}")
