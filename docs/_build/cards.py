"""Social cards: what a chat or a feed shows of a link to a page. Drawn here, without network.

Input: the built pages (their title and description). Output: one PNG of 1200 x 630 pixels a page
under `cards/` in the site, kept in the cache under the hash of what it shows.
"""

import hashlib
import shutil
import textwrap
from pathlib import Path, PurePosixPath

import matplotlib
from bs4 import BeautifulSoup, Tag
from PIL import Image, ImageDraw, ImageFont

FOLDER = "cards"
SIZE = (1200, 630)
_FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
_BACK, _FORE, _SOFT = "#00473f", "#ffffff", "#b6ddd6"


def uri(source: str) -> str:
    """Where the card of a page lies in the site; `source` is the page's path in docs/."""
    return f"{FOLDER}/{PurePosixPath(source).with_suffix('').as_posix().replace('/', '-')}.png"


def write(site: Path, cache: Path) -> None:
    """Draw the card of each page that names one."""
    for path in sorted(site.rglob("*.html")):
        head = BeautifulSoup(path.read_text("utf-8"), "html.parser").head
        image = head.find("meta", property="og:image") if head else None
        if head is None or image is None:
            continue
        texts = [_content(head, name) for name in ("og:site_name", "og:title", "og:description")]
        target = site / FOLDER / PurePosixPath(str(image["content"])).name
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(_kept(texts, cache), target)


def _content(head: Tag, name: str) -> str:
    found = head.find("meta", property=name)
    return str(found["content"]) if found else ""


def _kept(texts: list[str], cache: Path) -> Path:
    key = hashlib.sha256("\0".join(texts).encode() + Path(__file__).read_bytes()).hexdigest()[:20]
    kept = cache / FOLDER / f"{key}.png"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        draw(*texts).save(kept, optimize=True)
    return kept


def draw(site: str, title: str, description: str) -> Image.Image:
    """One card: the course, the page's title in large letters, and what the page is about."""
    card = Image.new("RGB", SIZE, _BACK)
    pen = ImageDraw.Draw(card)
    pen.text((80, 70), site, fill=_SOFT, font=_font("DejaVuSans.ttf", 34))
    size = 68 if len(title) < 50 else 54
    lines = textwrap.wrap(title, width=int(1750 / size), max_lines=4, placeholder=" ...")
    pen.multiline_text(
        (80, 160), "\n".join(lines), fill=_FORE, font=_font("DejaVuSans-Bold.ttf", size), spacing=16
    )
    about = "\n".join(textwrap.wrap(description, width=58, max_lines=3, placeholder=" ..."))
    pen.multiline_text((80, 470), about, fill=_SOFT, font=_font("DejaVuSans.ttf", 30), spacing=10)
    return card


def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_FONTS / name), size)
