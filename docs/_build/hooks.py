"""MkDocs events: where lessons, captures and exercise pages enter the site.

Only glue: notebooks are made in `lesson_pages`, captures in `captures`, exercise pages in
`exercise_pages`. MkDocs calls the functions by name and gives them its own objects.
"""

import html
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import captures
import claims
import exercise_pages
import lesson_pages
import navigation
import notebooks
import programs
import speed_page
from lesson import LessonError

_log = logging.getLogger("mkdocs.hooks.course")
_STYLE = "<style>"
_ERRORS = (
    captures.CaptureError,
    claims.ClaimError,
    exercise_pages.ExerciseError,
    LessonError,
    programs.ProgramError,
)
BEFORE_PLUGINS = 150
AFTER_JUPYTER = 50


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the nav from the lessons and exercises that are there, and read the ledger."""
    docs = Path(config.docs_dir)
    config.extra["ledger"] = claims.Ledger(docs.parent)
    if any(navigation.entries(docs)):
        config.nav = navigation.nav(docs, config.extra["last_nav"])
    return config


@event_priority(BEFORE_PLUGINS)
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add one executed notebook for each lesson; the lesson's own file stays a download.

    What the other pages show is run meanwhile: a lesson seldom keeps more than one core busy.
    """
    docs, cache = Path(config.docs_dir), _cache(config)
    with ThreadPoolExecutor(1) as beside:
        others = beside.submit(_prepare, docs.parent, cache)
        try:
            for path in notebooks.lesson_paths(docs / "lessons"):
                notebook, stale = lesson_pages.build(path, docs / "recorded", cache)
                for line in stale:
                    _log.info("GPU recording %s", line)
                uri = f"lessons/{path.stem}.ipynb"
                files.append(File.generated(config, uri, abs_src_path=str(notebook)))
            others.result()
        except _ERRORS as error:
            raise PluginError(str(error)) from None
    return files


def _prepare(root: Path, cache: Path) -> None:
    """Run what exercise pages and document pages show."""
    captures.Grader(root, cache).prepare()
    programs.Programs(root, cache).prepare()


@event_priority(AFTER_JUPYTER)
def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in exercise pages and captures; take from a notebook what mkdocs-jupyter added.

    That is the escapes (`notebook.md.j2` says why) and a style sheet that we don't use.
    """
    root = Path(config.docs_dir).parent
    if page.file.src_uri.endswith(".ipynb"):
        markdown = html.unescape(markdown[: markdown.rindex(_STYLE)])
    try:
        if exercise := page.meta.get("exercise"):
            markdown += exercise_pages.page(root, exercise)
        markdown = speed_page.fill(markdown, Path(config.docs_dir))
        markdown = navigation.fill(markdown, Path(config.docs_dir))
        markdown = config.extra["ledger"].fill(markdown, page.file.src_uri)
        markdown = programs.Programs(root, _cache(config)).fill(markdown)
        return captures.Grader(root, _cache(config)).fill(markdown)
    except _ERRORS as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from None


def _cache(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent / ".cache" / "site"
