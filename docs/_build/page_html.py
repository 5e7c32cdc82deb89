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

    def linked(match: re.Match[str]) -> str:
        address = link(match[1])
        anchor = match[2] or ""
        if address is None:
            return match[0]
        return f'<a href="{address}{anchor}">{match[1]}/{anchor}</a>'

    return _LOCAL.sub(linked, content)


def with_our_search(output: str) -> str:
    """A whole page whose search box asks `assets/search.js`, and without MathJax's loader."""
    return _MATHJAX.sub("", _WORKER.sub(rf'"\1{OUR_SEARCH}"', output))
