"""A page's description for search engines and previews: its front matter's, or its first paragraph.

Input: the Markdown of a page. Output: plain text of at most `LONGEST` characters.
"""

import re

LONGEST = 160
_BLOCK = re.compile(r"(?ms)^(```|~~~).*?^\1[^\n]*$")
_SKIPPED = re.compile(r"^(#|<|\||\{|!!!|\?\?\?|=== |- |\* |\*(?!\*)|\d+\. |    )")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def of(markdown: str) -> str:
    """The first paragraph that is no aside in italics, as plain text, cut after a sentence."""
    for block in _BLOCK.sub("", markdown).split("\n\n"):
        paragraph = block.strip("\n")
        if paragraph and not _SKIPPED.match(paragraph):
            return _cut(_plain(paragraph))
    return ""


def _plain(paragraph: str) -> str:
    text = re.sub(r"<[^>]+>|\{ [#.:][^}]*\}", "", _LINK.sub(r"\1", paragraph))
    return " ".join(re.sub(r"[*`]", "", text).split())


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    ends = [match.end() for match in re.finditer(r"[.?!](?= )", text[:LONGEST])]
    if ends and ends[-1] > LONGEST // 3:
        return text[: ends[-1]]
    return text[: LONGEST - 4].rpartition(" ")[0] + " ..."
