"""Splits a text into lines as Python counts them.

`str.splitlines` ends a line at a form feed and at Unicode's separators, too, which may stand in a
comment.
"""

Cached = tuple[int, None, list[str], str]
"""An entry of `linecache`: size, no time of a file, the lines with what ends them, the path."""


def cached(source: str, path: str) -> Cached:
    """What `linecache` is to hold for a text that is run as the file at `path`."""
    return len(source), None, [f"{line}\n" for line in lines_of(source)], path


def lines_of(source: str) -> list[str]:
    """The lines of a text, without what ends them."""
    return source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
