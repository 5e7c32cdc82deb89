"""The last touch to a page's HTML: what plugins write into every page, reports' links, the search.

Input: the HTML that MkDocs and its plugins made. mkdocs-quiz writes 55 kB of script and style into
every page, also into those without a quiz; `assets/course.js` and `course.css` do that work, so
it is taken out. mkdocs-jupyter writes a loader for MathJax, from another host.
"""

import re
from collections.abc import Callable

from mkdocs_quiz import plugin as quiz

_SETTINGS = re.compile(
    r"<script[^>]*>\s*window\.mkdocsQuiz(?:Translations|Config) = .*?</script>", re.DOTALL
)
_PROGRESS = re.compile(r'<div id="quiz-progress-sidebar".*?</nav>', re.DOTALL)
_MATHJAX = re.compile(r"<script data-mkdocs-jupyter-mathjax=.*?</script>", re.DOTALL)
_LOCAL = re.compile(r"http://127\.0\.0\.1:8000/(lessons/[\w-]+)/(#[\w-]+)?")
_REPORT = re.compile(r'<div class="([^"]*\bcapture\b[^"]*)">')
_WORKER = re.compile(r'"([^"]*)assets/javascripts/workers/search\.\w+\.min\.js"')
_ASKS = re.compile(
    r'<div class="quiz"(?=[^>]*>\s*<a[^>]*>#</a>\s*<div[^>]*>\s*<p><strong>Predict\.</strong>)'
)
_ON_COLOUR = re.compile(
    r'(<span style=")color: #\w{6}; text-decoration-color: #\w{6}; background-color: #(\w{6})"'
)
OUR_SEARCH = "assets/search.js"


def mended(content: str, link: Callable[[str], str | None]) -> str:
    """A page's content without what it does not use; `link` gives the address of a lesson.

    In reports, the address of `make serve` becomes a link to the lesson of this site.
    """
    for unused in (quiz.style, quiz.js_script):
        content = content.replace(unused, "")
    for pattern in (_SETTINGS, _PROGRESS):
        content = pattern.sub("", content)
    content = _ASKS.sub('<div class="quiz predict"', content)
    content = _REPORT.sub(r'<div class="\1" data-search-exclude>', content)
    content = _ON_COLOUR.sub(_readable, content)

    def linked(match: re.Match[str]) -> str:
        address = link(match[1])
        anchor = match[2] or ""
        if address is None:
            return match[0]
        return f'<a href="{address}{anchor}">{match[1]}/{anchor}</a>'

    return _LOCAL.sub(linked, content)


def _readable(match: re.Match[str]) -> str:
    """Text on a coloured block of `visualize_array_sharding`: black on light, white on dark.

    JAX draws white on some light blocks. By WCAG 2.2, black has the higher contrast from a
    relative luminance of 0.179 on.
    """
    parts = (int(match[2][start : start + 2], 16) / 255 for start in (0, 2, 4))
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179
    return f'{match[1]}color: {"#000000" if light else "#ffffff"}; background-color: #{match[2]}"'


def with_our_search(output: str) -> str:
    """A whole page whose search box asks `assets/search.js`, and without MathJax's loader."""
    return _MATHJAX.sub("", _WORKER.sub(rf'"\1{OUR_SEARCH}"', output))
