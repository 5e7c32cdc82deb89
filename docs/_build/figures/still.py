"""Tables that stand for figures where a page's scripts do not run.

Input: heads and rows of text. Nothing of one figure is here.
"""

from collections.abc import Iterable, Sequence
from html import escape

MORE = "With JavaScript, you can set all of this here."


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], said: str) -> str:
    """An HTML table, and a sentence below it."""
    body = "".join(_row("td", row) for row in rows)
    return (
        f"<table><thead>{_row('th', heads)}</thead><tbody>{body}</tbody></table>"
        f"<p>{escape(said)} {MORE}</p>"
    )


def _row(tag: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"
