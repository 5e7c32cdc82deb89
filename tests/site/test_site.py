"""The built site: strict, offline, readable; and builds that must fail.

The real site is built once (`built_site`), from the real lessons and the real grader. What only a
browser shows is in `test_in_a_browser`; `test_notebooks` tests the runner of a single lesson.
"""

import ast
import json
import os
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import jax
import jaxlib
import pytest
from bs4 import BeautifulSoup
from building import ROOT, mkdocs

import address as addresses
import descriptions
import exercise_pages
import lesson
import notebooks
import recordings
import speed_page

LESSONS = notebooks.lesson_paths()
CHECKS = sorted((ROOT / "grader" / "checks").glob("ex[0-9][0-9]_*"))
# Tag -> attribute with an address that a browser fetches as soon as it opens the page.
FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
    "embed": "src",
    "image": "href",
    "use": "href",
}
TRACES = (str(ROOT), str(Path.home()) + os.sep, sys.prefix, "ipykernel", "site-packages")
# Paths on the machines that ex10 makes up; its `reports.py` has the same.
MADE_UP = re.compile(r"(?:/home/ada/env|/opt/conda/envs/train|/srv/job/\.venv)/\S+")
FETCHING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "preconnect"}

pytest_plugins = ["built_site"]
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def pages(site):
    """Every page, parsed, by its path in the site."""
    found = {path.relative_to(site): parsed(path) for path in sorted(site.rglob("*.html"))}
    assert len(found) > len(LESSONS) + len(CHECKS)
    return found


def parsed(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def lesson_page(site, path):
    return parsed(site / "lessons" / path.stem / "index.html")


def outside(address):
    return bool(urlsplit(address).netloc)


def fetched(page):
    """The addresses that opening a page fetches."""
    for name, attribute in FETCHED.items():
        for tag in page.find_all(name):
            yield from filter(None, [tag.get(attribute), tag.get("xlink:href")])
    for link in page.find_all("link", href=True):
        if FETCHING_LINKS & set(link["rel"]):
            yield link["href"]
    for style in page.find_all("style"):
        yield from imported(style.get_text())


def imported(css):
    return re.findall(r"(?:@import\s+|url\()\s*[\"']?([^\"')\s]+)", css)


def test_the_test_for_other_hosts_can_fail():
    page = BeautifulSoup(
        '<script src="https://a.example/x.js"></script><link rel="stylesheet" href="//b.example">'
        '<style>@import "https://c.example/y.css"</style><a href="https://d.example">read</a>',
        "html.parser",
    )
    assert sorted(urlsplit(a).netloc for a in fetched(page) if outside(a)) == [
        "a.example",
        "b.example",
        "c.example",
    ]


def test_no_page_fetches_from_another_host(site, pages):
    for path, page in pages.items():
        addresses = list(fetched(page))
        assert addresses, path
        assert not [a for a in addresses if outside(a)], path
    for sheet in site.rglob("*.css"):
        assert not [a for a in imported(sheet.read_text(encoding="utf-8")) if outside(a)], sheet


def test_every_page_has_a_language_a_title_and_one_heading(pages):
    titles = set()
    for path, page in pages.items():
        assert page.html["lang"] == "en", path
        assert page.title.get_text().strip(), path
        titles.add(page.title.get_text())
        if path.name != "404.html":
            assert len(page.find_all("h1")) == 1, path
    assert len(titles) == len(pages), "two pages share a title"


def test_no_page_shows_a_path_of_this_machine_or_an_open_placeholder(pages):
    for path, page in pages.items():
        text = page.find("article").get_text() if page.find("article") else page.get_text()
        text = MADE_UP.sub("", text)
        for trace in TRACES:
            assert trace not in text, f"{path}: {trace}"
        if "writing-a-lesson" not in str(path):
            assert "{{" not in text.replace("${{", ""), path  # a workflow has its own


def test_ids_are_unique_on_every_page(pages):
    for path, page in pages.items():
        ids = [tag["id"] for tag in page.find_all(id=True)]
        assert len(ids) == len(set(ids)), f"{path}: {sorted(i for i in ids if ids.count(i) > 1)}"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.name)
def test_a_lesson_shows_all_code_with_outputs_and_its_parts(site, path):
    page = lesson_page(site, path)
    shown = [block.get_text().strip("\n") for block in page.select(".input code")]
    assert shown == [source.strip("\n") for source in lesson.read(path).code()]
    assert page.select(".output code")
    assert len(page.select(".quiz")) >= 5, "at least two predictions, and three questions"
    assert page.select(".admonition.quote"), "a claim of a source document"
    cards = [card for card in page.select(".admonition.example") if card.select(".capture")]
    follow = [source for source in CHECKS if exercise_pages.read(source).lesson.endswith(path.stem)]
    assert len(cards) == len(follow) > 0, "a card for each exercise"
    assert all(len(card.select(".capture")) == 2 for card in cards), "failing and passing"
    headings = [heading.get_text().rstrip("¶") for heading in page.find_all("h2")]
    assert headings[-3:] == ["Your turn", "Three questions", "Recap"]


def test_lessons_start_with_the_same_cell_and_ask_first():
    first = {lesson.read(path).code()[0] for path in LESSONS}
    assert len(first) == 1
    for path in LESSONS:
        text = path.read_text(encoding="utf-8")
        assert text.count("**Predict.**") >= 2, path
        assert "**Why care.**" in text, path


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.name)
def test_a_lesson_is_a_download_without_outputs(site, path):
    assert (site / "lessons" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("source", CHECKS, ids=lambda path: path.name)
def test_an_exercise_page_shows_checks_code_and_what_failing_and_passing_look_like(site, source):
    page = parsed(site / "exercises" / source.stem / "index.html")
    found = exercise_pages.read(source)
    names = [cell.code.get_text() for cell in page.select("table td:first-child")]
    assert names == [check.name for check in found.checks]
    text = page.get_text()
    for folder in ("exercises", "solutions"):
        assert (ROOT / folder / f"{source.name}.py").read_text().splitlines()[-1] in text
    failing, passing = (block.get_text() for block in page.select(".capture code"))
    assert failing.startswith(f"$ grader check {source.stem[:4]}")
    assert failing != passing


@pytest.mark.parametrize("source", CHECKS, ids=lambda path: path.name)
def test_every_paragraph_that_the_grader_links_to_exists(site, source):
    found = exercise_pages.read(source)
    page = parsed(site / found.lesson / "index.html")
    for anchor in {found.anchor, *(check.anchor or found.anchor for check in found.checks)}:
        assert page.find(id=anchor), f"{found.lesson}#{anchor}"


def test_instructors_read_how_each_exercise_is_driven(site):
    html = (site / "instructors" / "what-a-pass-proves" / "index.html").read_text("utf-8")
    page = _words(BeautifulSoup(html, "html.parser").get_text())
    drives = sorted((ROOT / "grader" / "checks").glob("ex*/drive.py"))
    assert len(drives) > 30
    for drive in drives:
        said = ast.get_docstring(ast.parse(drive.read_text("utf-8")))
        assert _words(drive.parent.name) in page
        assert _words(said.split("\n\n")[-1]) in page, drive


def _words(text):
    """A text without its marks, its line ends and what a renderer changes."""
    return " ".join(re.findall(r"\w+", text.replace("_", " ")))


def test_every_picture_has_words_and_scrolling_outputs_take_the_keyboard(pages):
    pictures = [p for page in pages.values() for p in page.select(".picture")]
    assert pictures
    assert all(len(picture["aria-label"]) > 20 for picture in pictures)
    assert all(image.get("alt") is not None for p in pages.values() for image in p.find_all("img"))
    assert all(box["tabindex"] == "0" for p in pages.values() for box in p.select(".output-html"))


def test_the_start_page_lists_every_lesson_by_its_title_and_every_exercise(site):
    start = parsed(site / "index.html").select_one("table")
    for path in LESSONS:
        title = parsed(site / "lessons" / path.stem / "index.html").h1.find(string=True).strip()
        assert start.find("a", string=title), title
    assert [a.string for a in start.find_all("a") if a.string.startswith("ex")] == [
        source.name.partition("_")[0] for source in CHECKS
    ]


def test_one_page_lists_every_exercise_with_its_time_and_what_is_edited(site):
    table = parsed(site / "exercises" / "index.html").select_one("table")
    rows = {a["href"].strip("/"): row for row in table.select("tr") for a in row.find_all("a")}
    assert list(rows) == [source.name for source in CHECKS]
    for row in rows.values():
        _, minutes, level, grounds, edits = (cell.text for cell in row.select("td"))
        assert minutes.endswith(" min")
        assert all((level, edits, grounds))


def test_every_link_of_the_site_leads_to_a_page_and_an_anchor_that_exist(site, pages):
    ids = {path: {tag["id"] for tag in page.find_all(id=True)} for path, page in pages.items()}
    broken, seen = [], 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its addresses start at the site's root
        here = f"/{path.parent.as_posix()}/" if path.parent.name else "/"
        for link in page.find_all("a", href=True):
            address = urlsplit(urljoin(here, link["href"]))
            if address.netloc or address.scheme:
                continue
            seen += 1
            target = Path(unquote(address.path).lstrip("/"))
            if (site / target).is_dir():
                target /= "index.html"
            known = (site / target).is_file()
            if not known or (address.fragment and unquote(address.fragment) not in ids[target]):
                broken.append(f"{path}: {link['href']}")
    assert seen > 5000
    assert not broken


def test_every_page_has_a_description_of_its_own(pages):
    found = {}
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        text = page.find("meta", attrs={"name": "description"})["content"]
        assert 20 < len(text) <= 200, path
        assert text not in found, f"{path} and {found.get(text)}"
        found[text] = path


@pytest.mark.parametrize(
    ("markdown", "description"),
    [
        ("# T\n\nOne [link](a.md) and `code`.\n\nMore.", "One link and code."),
        ("# T\n\n```text\nno\n```\n\n- no\n\nYes *this*.", "Yes this."),
        (
            "# T\n\n" + "A sentence of words. " * 20,
            "A sentence of words. " * 6 + "A sentence of words.",
        ),
        ("# T\n\n" + "word " * 100, "word " * 31 + "..."),
        ("# T", ""),
    ],
    ids=["plain", "first paragraph", "cut after a sentence", "cut after a word", "none"],
)
def test_a_description_is_the_first_paragraph(markdown, description):
    assert descriptions.of(markdown) == description
    assert len(description) <= descriptions.LONGEST


def test_reports_on_pages_link_to_this_sites_lessons(pages):
    links = [a for page in pages.values() for a in page.select(".capture a[href]")]
    assert len(links) > len(CHECKS)
    assert all(link.get_text().startswith("lessons/") for link in links)
    assert not [link for link in links if outside(link["href"])]
    for path, page in pages.items():
        assert "127.0.0.1:8000/lessons" not in page.get_text(), path


def test_pages_carry_no_script_that_they_do_not_use(site, pages):
    for path in pages:
        text = (site / path).read_text(encoding="utf-8")
        assert "quiz_progress_" not in text, path
        assert "mathjax" not in text.lower(), path
        assert "workers/search." not in text, path


def test_each_symptom_names_cause_lesson_and_words_that_jax_says(site):
    page = parsed(site / "symptoms" / "index.html")
    entries = page.find_all("h2")
    assert len(entries) > 15
    said = "".join(
        path.read_text(encoding="utf-8")
        for path in sorted(Path(jax.__file__).parent.rglob("*.py"))
        if "test" not in path.name
    )
    said = re.sub(r'"\s*\n\s*f?"', "", said)
    binary = (Path(jaxlib.__file__).parent / "libjax_common.so").read_bytes()
    for entry in entries:
        after = []
        for sibling in entry.find_next_siblings():
            if sibling.name == "h2":
                break
            after.append(sibling)
        text = " ".join(one.get_text() for one in after)
        assert "Cause." in text, entry.get_text()
        quoted = [one for one in after if one.name == "div" and "$" not in one.get_text()]
        for one in quoted:
            words = (
                one.get_text().strip().removesuffix(" cpu.").removeprefix("RESOURCE_EXHAUSTED: ")
            )
            assert words in said or words.encode() in binary, words
    linked = {a["href"].split("#")[0] for a in page.select("article a[href*='lessons/']")}
    assert len(linked) > 10


def test_starters_are_shown_with_the_lines_to_edit_marked():
    text = "import jax\n\nNAME = 1\n\n@jit\ndef one():\n    pass\n\n\ndef two():\n    pass\n"
    assert exercise_pages.marked_lines(text, ["one", "NAME"]) == ["3-3", "5-7"]
    assert exercise_pages.marked_lines(text, ["three"]) == []
    for source in CHECKS:
        found = exercise_pages.read(source)
        starter = (ROOT / "exercises" / f"{source.name}.py").read_text(encoding="utf-8")
        assert len(exercise_pages.marked_lines(starter, found.edits)) == len(found.edits) > 0


@pytest.mark.parametrize("source", CHECKS, ids=lambda path: path.name)
def test_an_exercise_page_says_why_how_long_and_how_hard_and_gives_one_hint(site, source):
    page = parsed(site / "exercises" / source.stem / "index.html")
    facts = page.select_one(".facts").get_text()
    assert re.match(r"About \d+ minutes · Difficulty: (easy|medium|hard) · Lesson: ", facts)
    assert "Why it matters." in page.get_text()
    order = [heading.get_text().rstrip("¶") for heading in page.find_all("h2")]
    assert order == ["Your file", "What decides", "A failing report", "A solution"]
    assert len(page.select("details.tip")) == 1
    starter = page.select_one(".highlight .hll")
    assert starter.find_parent("details") is None, "the starter is open"
    assert all(block.find_parent("details") for block in page.select("details.spoiler .capture"))


def test_pictures_of_exercises_show_a_starter_and_a_solution_that_differ(pages):
    pictures = [picture for page in pages.values() for picture in page.select(".before-after")]
    assert len(pictures) > 10
    for picture in pictures:
        starter, solution = picture.select(".picture")
        assert starter["aria-label"].startswith("The starter. ")
        assert starter["aria-label"].partition(". ")[2] != solution["aria-label"].partition(". ")[2]
        assert str(starter.svg) != str(solution.svg)


def test_a_lessons_notebook_is_there_as_executed_and_runs_alone(site):
    for path in LESSONS:
        page = lesson_page(site, path)
        links = {a.get_text(): a["href"] for a in page.select(".elsewhere a")}
        assert set(links) == {"Notebook", "Program"}, "Colab needs the repository's address"
        notebook = json.loads((site / "lessons" / f"{path.stem}.ipynb").read_text())
        sources = ["".join(cell["source"]) for cell in notebook["cells"]]
        assert sources[0].startswith("%pip install")
        assert f"jax=={jax.__version__}" in sources[0]
        for helper in lesson.read(path).helpers():
            assert any(source.startswith(f"%%writefile {helper.name}") for source in sources)
        assert any(cell.get("outputs") for cell in notebook["cells"])
        assert "{{" not in "".join(s for s in sources if not s.startswith("%%"))
        assert "<quiz>" not in "".join(sources)


def test_figures_of_the_bench_become_a_table(tmp_path):
    row = {"title": "a|b", "figures": "2 s", "limit": "3 s", "holds": False}
    facts = {"load": [0.5, 1], "machine": "M", "cores": 2, "python": "3", "jax": "0", "date": "D"}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({**facts, "quick": True, "rows": [row]}))
    shown = speed_page.table(path)
    assert shown.startswith("M, 2 cores, load 0.5 to 1.0, Python 3, jax 0, D, quick: few runs.")
    assert shown.endswith("| a\\|b | 2 s | 3 s | **no** |")
    assert "Not yet measured" in speed_page.table(tmp_path / "none.json")


# Small sites, with our hooks and one lesson: what a build must keep, and when it must fail.


@pytest.fixture
def small(tmp_path):
    (tmp_path / "docs" / "lessons").mkdir(parents=True)
    shutil.copytree(ROOT / "docs" / "_build", tmp_path / "docs" / "_build")
    shutil.copytree(ROOT / "docs" / "assets", tmp_path / "docs" / "assets")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "grader" / "program").mkdir(parents=True)
    shutil.copy(ROOT / "grader" / "program" / "machines.toml", tmp_path / "grader" / "program")
    (tmp_path / "docs" / "index.md").write_text("# Start\n\n[one](lessons/01-one.ipynb#here)\n")
    return tmp_path


ONE = '# %% [markdown]\n"""\n# One\n\n## Here { #here }\n"""\n\n# %%\nprint("a <b> & \'c\' &lt;")\n'


def build(small, text):
    (small / "docs" / "lessons" / "01-one.py").write_text(text)
    return mkdocs(small, small / "site")


def test_outputs_reach_the_page_unchanged(small):
    built = build(small, ONE)
    assert built.returncode == 0, built.stderr
    page = lesson_page(small / "site", Path("01-one.py"))
    assert page.select_one(".output code").get_text() == "a <b> & 'c' &lt;\n"
    assert not list((small / "docs").rglob("*.ipynb")), "nothing generated lies in docs/"


def test_a_recording_becomes_linked_tabs_and_a_stale_one_a_line_of_the_build(small):
    made_up = recordings.Device("Made-up GPU", "1.2.3", "0.0", "2000-01-01")
    path = small / "docs" / "lessons" / "01-one.py"
    path.write_text(ONE)
    outputs = [{"output_type": "stream", "name": "stdout", "text": "said <by> the GPU\n"}]
    recordings.write(small / "docs" / "recorded", lesson.read(path), [outputs], made_up)
    built = build(small, ONE)
    assert built.returncode == 0, built.stderr
    page = lesson_page(small / "site", path)
    assert [label.get_text() for label in page.select(".tabbed-labels label")] == ["CPU", "GPU"]
    cpu, gpu = page.select(".tabbed-block")
    assert cpu.select_one(".output code").get_text() == "a <b> & 'c' &lt;\n"
    assert gpu.select_one(".output code").get_text() == "said <by> the GPU\n"
    assert "Made-up GPU, driver 1.2.3, jax 0.0, 2000-01-01" in gpu.get_text()
    assert not (small / "site" / "recorded").exists()
    built = build(small, ONE.replace("print(", "print(1, "))
    assert "GPU recording 01-one.made-up-gpu.json: 1 stale outputs dropped" in built.stderr
    assert not lesson_page(small / "site", path).select(".tabbed-labels")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ONE + "\n# %%\n1 / 0\n", r"01-one\.py:12: cell 3 raised"),
        (ONE.replace("# One", "# One {{ two }}"), r"01-one\.py:3: figure \{\{ two \}\}"),
        (ONE.replace("#here", "#there"), r"does not contain an anchor '#here'"),
        (ONE.replace("# One", "# One\n\n[x](no-such-page.md)"), r"no-such-page\.md"),
        (ONE.replace("# One", "# One\n\n{{ capture: check ex99 starter }}"), r"ex99"),
        (ONE.replace("# One", '# One\n\n--8<-- "no_such_file.py"'), r"no_such_file\.py"),
    ],
    ids=["raising cell", "unknown figure", "lost anchor", "lost page", "capture", "include"],
)
def test_a_build_fails_and_says_where(small, text, message):
    built = build(small, text)
    assert built.returncode != 0
    assert re.search(message, built.stderr), built.stderr


REPOSITORY = "https://github.com/someone/course"


def test_one_address_gives_every_link_to_the_repository_and_cards(small):
    (small / "docs" / "index.md").write_text(
        "# Start\n\nA page of this course.\n\n{{ get the course }}\n```\n\n"
        "```console\n{{ install }}\n```\n"
    )
    (small / "docs" / "lessons" / "01-one.py").write_text(ONE)
    built = mkdocs(small, small / "site", COURSE_REPOSITORY=f"{REPOSITORY}.git")
    assert built.returncode == 0, built.stderr
    start = parsed(small / "site" / "index.html")
    site = "https://someone.github.io/course/"
    assert start.find("link", rel="canonical")["href"] == site
    assert f"git clone {REPOSITORY}\n" in start.get_text()
    assert f"pip install git+{REPOSITORY}" in start.get_text()
    assert start.find("a", href=f"{REPOSITORY}/edit/main/docs/index.md")
    card = start.find("meta", property="og:image")["content"]
    drawn = (small / "site" / card.removeprefix(site)).read_bytes()
    assert drawn.startswith(b"\x89PNG")
    page = lesson_page(small / "site", Path("01-one.py"))
    assert page.find("a", href=f"{REPOSITORY}/edit/main/docs/lessons/01-one.py")
    links = {a.get_text(): a["href"] for a in page.select(".elsewhere a")}
    colab = "https://colab.research.google.com/github/someone/course/blob/gh-pages/"
    assert links["Colab"] == f"{colab}lessons/01-one.ipynb"
    assert site in (small / "site" / "sitemap.xml").read_text()
    assert not [a for a in fetched(start) if outside(a)], "a link asks nobody before it is followed"


def test_without_an_address_pages_say_how_to_start_from_an_archive(small):
    (small / "docs" / "index.md").write_text("# Start\n\n{{ get the course }}\n```\n")
    built = build(small, ONE.replace("{ #here }", ""))
    assert built.returncode == 0, built.stderr
    start = parsed(small / "site" / "index.html")
    assert "Unpack the archive" in start.get_text()
    assert not start.find("meta", property="og:image")
    assert not start.select("a[href*='/edit/']")


@pytest.mark.parametrize(
    ("repository", "message"),
    [
        ("git@github.com:someone/course.git", "want https://HOST/OWNER/NAME"),
        ("https://github.com/", "want https://HOST/OWNER/NAME"),
        ("https://token@github.com/someone/course", "take the password or token out"),
    ],
    ids=["not https", "no name", "a token"],
)
def test_a_wrong_address_stops_the_build(repository, message):
    with pytest.raises(addresses.AddressError, match=message):
        addresses.checked(repository)


def test_another_host_than_github_gives_no_colab_and_no_pages():
    elsewhere = addresses.checked("https://git.example/someone/course")
    assert elsewhere.site() == elsewhere.colab("x.ipynb") == ""
    own = addresses.checked("https://github.com/Someone/someone.github.io")
    assert own.site() == "https://someone.github.io/"
