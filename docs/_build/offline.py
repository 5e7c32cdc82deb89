"""The copy of the site to read without a network or a server: one archive beside the pages.

Input: the built site. A browser that opens a file shows no folder, so in the copy each link to a
folder names the page in it; `assets/search.js` does the same for what it finds. The start page
links the archive where it holds `{{ offline copy }}`, with the size that the archive has.
"""

import re
import zipfile
from fnmatch import fnmatch
from pathlib import Path

MARK = "{{ offline copy }}"
NAME = "where-does-my-array-live"
_OFFER = (
    f'<p class="offline">Without a network: <a href="{NAME}.zip" download>the whole site in one '
    "archive</a><span data-search-exclude></span>. Unpack it and open <code>index.html</code>. "
    "The search works there, too.</p>"
)
_SIZE = "<span data-search-exclude></span>"
_OFFERED = re.compile(r'<p class="offline">.*?</p>')
_HERE = '<p class="offline">You are reading the copy that needs no network.</p>'
# A link to a folder: `.`, `../..`, `claims/`, `../lessons/04/#recap`, `claims/?verdict=false`.
_FOLDER = re.compile(r'(<(?:a|link)\b[^>]*? href=")((?:[^":?#]*/)?(?:\.{1,2})?)(?=[?#"])')
# What no reader of the copy opens: cards for links to a site, and what Material's own search needs.
_LEFT_OUT = ("404.html", "sitemap.xml*", f"{NAME}.zip", "cards/*", "*.map", "*/lunr/*")


def fill(markdown: str) -> str:
    """A page with its mark replaced by the link to the archive."""
    return markdown.replace(MARK, _OFFER)


def write(site: Path) -> None:
    """Write the archive into the site, and its size where the start page offers it."""
    archive = site / f"{NAME}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(path for path in site.rglob("*") if path.is_file()):
            inside = path.relative_to(site).as_posix()
            if any(fnmatch(inside, pattern) for pattern in _LEFT_OUT):
                continue
            data = path.read_bytes()
            if path.suffix == ".html":
                data = _from_files(data.decode()).encode()
            member = zipfile.ZipInfo(f"{NAME}/{inside}")  # of no date: builds are alike
            member.external_attr = 0o644 << 16
            packed.writestr(member, data, zipfile.ZIP_DEFLATED)
    start = site / "index.html"
    size = f" ({archive.stat().st_size / 1e6:.1f} MB)"
    start.write_text(start.read_text("utf-8").replace(_SIZE, size), "utf-8")


def _from_files(page: str) -> str:
    """A page whose links to folders name the page in each."""

    def named(match: re.Match[str]) -> str:
        folder = match[2]
        if not folder:
            return match[0]  # of this page
        return f"{match[1]}{folder.rstrip('/')}/index.html"

    return _OFFERED.sub(_HERE, _FOLDER.sub(named, page))
