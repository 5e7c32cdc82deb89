"""MkDocs events: where lessons, captures and exercise pages enter the site.

Only glue: MkDocs calls the functions by name and gives them its own objects. The work is done by
the other modules of this folder:

    lessons    lesson, notebooks, lesson_pages, published, recordings
    exercises  exercise_pages, before_after, captures, failing_reports, drives
    claims     claims, claims_schema, record_claims, programs
    on a GPU   gpu_figures, gpu_statements
    figures/   what a reader can move
    the site   navigation, front_page, speed_page, page_html, descriptions, search_index, cards,
               address, offline
"""

import html
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from mkdocs.utils.templates import TemplateContext

import address
import before_after
import captures
import cards
import claims
import descriptions
import drives
import exercise_pages
import failing_reports
import front_page
import gpu_statements
import lesson_pages
import navigation
import notebooks
import offline
import page_html
import programs
import published
import recordings
import search_index
import speed_page
from figures import moving, placement, roofline_figure, step_in_time, who_decides, whose_memory
from lesson import LessonError

_log = logging.getLogger("mkdocs.hooks.course")
_STYLE = "<style>"
_ERRORS = (
    address.AddressError,
    before_after.PictureError,
    captures.CaptureError,
    claims.ClaimError,
    exercise_pages.ExerciseError,
    failing_reports.FailureError,
    front_page.FrontPageError,
    gpu_statements.UnboundError,
    LessonError,
    moving.FigureError,
    programs.ProgramError,
    recordings.RecordingError,
)
_FIGURES = (
    placement.FIGURE,
    step_in_time.FIGURE,
    whose_memory.FIGURE,
    roofline_figure.FIGURE,
    who_decides.FIGURE,
)
BEFORE_PLUGINS = 150
AFTER_JUPYTER = 50
AFTER_PLUGINS = -50


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the nav from the lessons and exercises that are there; read the ledger and address."""
    docs = Path(config.docs_dir)
    try:
        config.extra["ledger"] = claims.Ledger(docs.parent)
        gpu_statements.check(docs.parent, config.extra["ledger"])
        config.extra["address"] = address.configure(config)
    except _ERRORS as error:
        raise PluginError(str(error)) from None
    config.extra["grader"] = captures.Grader(docs.parent, _cache(config))
    config.extra["course_version"] = published.version(docs.parent)
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
        others = beside.submit(_prepare, config)
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


def _prepare(config: MkDocsConfig) -> None:
    """Run what exercise pages and document pages show."""
    config.extra["grader"].prepare()
    root = Path(config.docs_dir).parent
    programs.Programs(root, _cache(config)).prepare()
    for figure in _moving(config):
        if figure.wanted():
            figure.text()


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Let a lesson's page stand for its section; write the links of the page for lost readers."""
    for page in nav.pages:
        if page.file.src_uri.startswith("lessons/"):
            page.__class__ = navigation.LessonPage
    base = urlsplit(config.site_url or "/").path
    config.extra["questions"] = front_page.questions(
        Path(config.docs_dir), lambda uri: base + _url(uri, files)
    )
    return nav


@event_priority(AFTER_JUPYTER)
def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in exercise pages and captures; take from a notebook what mkdocs-jupyter added.

    That is the escapes (`notebook.md.j2` says why) and a style sheet that we don't use.
    """
    docs, cache, here = Path(config.docs_dir), _cache(config), page.file.src_uri
    course: address.Address = config.extra["address"]

    def link(uri: str) -> str:
        return get_relative_url(_url(uri, files), page.url)

    base = f"{get_relative_url('.', page.url).rstrip('/')}/"
    if here.endswith(".ipynb"):
        markdown = html.unescape(markdown[: markdown.rindex(_STYLE)])
        markdown = published.links(markdown, Path(here).stem, link, course)
        if course.repository:
            source = Path(here).with_suffix(".py")
            page.edit_url = f"{course.repository}/edit/main/docs/{source}"
    try:
        if exercise := page.meta.get("exercise"):
            page.meta["hide"] = ["toc"]  # so that a starter's lines fit beside the sidebar
            record = config.extra["grader"].record
            markdown = exercise_pages.page(docs.parent, exercise, markdown, page.meta, record)
        markdown = front_page.fill(markdown, docs, cache, link)
        for figure in _moving(config):
            markdown = figure.fill(markdown, here, base)
        markdown = speed_page.fill(markdown, docs)
        markdown = drives.fill(markdown, docs.parent)
        markdown = failing_reports.fill(markdown, docs.parent)
        markdown = offline.fill(course.fill(navigation.fill(markdown, docs)))
        markdown = gpu_statements.fill(markdown, docs.parent, config.extra["ledger"], link)
        markdown = config.extra["ledger"].fill(markdown, here)
        markdown = programs.Programs(docs.parent, cache).fill(markdown)
        page.meta.setdefault("description", descriptions.of(markdown))
        return str(config.extra["grader"].fill(markdown))
    except _ERRORS as error:
        raise PluginError(f"{here}: {error}") from None


@event_priority(AFTER_PLUGINS)
def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take out what plugins write into every page, and give reports their links."""

    def link(uri: str) -> str | None:
        found = files.get_file_from_path(f"{uri}.ipynb")
        return get_relative_url(found.url, page.url) if found else None

    return page_html.mended(content, link)


def on_page_context(
    context: TemplateContext, page: Page, config: MkDocsConfig, nav: Navigation
) -> TemplateContext:
    """Name the page's card, if pages have addresses for others to show one."""
    if config.site_url:
        page.meta["card"] = cards.uri(page.file.src_uri)
    return context


@event_priority(AFTER_PLUGINS)
def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Put our search in place of Material's, which ranks code and questions badly."""
    return page_html.with_our_search(output)


@event_priority(AFTER_PLUGINS)
def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for the page that is not there."""
    return page_html.with_our_search(output) if template_name.endswith(".html") else output


@event_priority(AFTER_PLUGINS)
def on_post_build(config: MkDocsConfig) -> None:
    """Write what is no page: the search's index, notebooks, figures' tables, cards, the archive."""
    docs, site, cache = Path(config.docs_dir), Path(config.site_dir), _cache(config)
    search_index.write(site, config.extra["ledger"])
    published.write(docs, site, cache)
    for figure in _moving(config):
        figure.write(site)
    if config.site_url:
        cards.write(site, cache)
    offline.write(site)


def _url(uri: str, files: Files) -> str:
    """The address of a page under the site's root; its path where there is no such page."""
    found = files.get_file_from_path(uri)
    return found.url if found else uri


def _cache(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent / ".cache" / "site"


def _moving(config: MkDocsConfig) -> list[moving.Moving]:
    """The figures that move."""
    root = Path(config.docs_dir).parent
    return [moving.Moving(figure, root, _cache(config)) for figure in _FIGURES]
