"""Splits a text into lines as Python counts them.

`str.splitlines` ends a line at a form feed and at Unicode's separators, too, which may stand in a
comment.
"""


def lines_of(source: str) -> list[str]:
    """The lines of a text, without what ends them."""
    return source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
