"""Puts an exception in words, whatever it is: it may be of a learner's class, and say anything."""

import traceback

LONGEST = 4000
"""The most characters that are kept."""


def in_words(error: BaseException) -> str:
    """What Python prints of an exception, without its stack; of an exit, its code.

    One that cannot be printed is named by its type.
    """
    try:
        words = _exit(error) if isinstance(error, SystemExit) else _printed(error)
    except BaseException:  # noqa: BLE001 (what a learner's class does when it is asked)
        words = f"{type(error).__name__}: Python cannot print what it says"
    return written(words)


def written(words: str) -> str:
    """The beginning of a text, with what is no character, as half of a pair, by its number."""
    return words[:LONGEST].encode("utf-8", "backslashreplace").decode("utf-8")


def _exit(error: SystemExit) -> str:
    code = error.code if type(error.code) in (int, str, type(None)) else "an object"
    return f"SystemExit: {code}"


def _printed(error: BaseException) -> str:
    # With the stack, it asks "Did you mean: 'loss'?" of a name that is unknown.
    told = traceback.TracebackException.from_exception(error, lookup_lines=False)
    text = "".join(told.format_exception_only()).strip()
    return text.partition("\n=== Source Location Trace")[0]  # lines of XLA's own code
