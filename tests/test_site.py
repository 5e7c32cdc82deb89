"""The site as built: strict, offline, readable; and a build that refuses what it should.

The real site is built once for this module, from the real lessons and the real grader. What the
runner does with a single lesson is in `test_notebooks`.
"""

import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bs4 import BeautifulSoup

import exercise_pages
import lesson
import notebooks
import recordings
import speed_page

ROOT = Path(__file__).resolve().parents[1]
LESSONS = notebooks.lesson_paths()
CHECKS = sorted((ROOT / "grader" / "checks").glob("ex[0-9][0-9]_*.py"))
# What makes a browser fetch something as soon as a page is opened.
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
# Pythons of the machines that ex10 makes up; `grader.probes.broken` has the same list.
MADE_UP = re.compile(r"(?:/home/ada/env|/opt/conda/envs/train|/srv/job/\.venv)/\S+")
FETCHING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "preconnect"}

pytestmark = pytest.mark.timeout(900)


def mkdocs(folder, site):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The real site, built with its own cache: a second run of the tests is quick.

    Built once, by the worker of pytest-xdist that comes first.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder, done = shared / "site", shared / "site.built"
        if not done.is_file():
            built = mkdocs(ROOT, folder)
            assert built.returncode == 0, built.stderr
            done.touch()
    return folder


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
            assert "{{" not in text, path


def test_ids_are_unique_on_every_page(pages):
    for path, page in pages.items():
        ids = [tag["id"] for tag in page.find_all(id=True)]
        assert len(ids) == len(set(ids)), f"{path}: {sorted(i for i in ids if ids.count(i) > 1)}"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_shows_all_code_with_outputs_and_its_parts(site, path):
    page = lesson_page(site, path)
    shown = [block.get_text().strip("\n") for block in page.select(".input code")]
    assert shown == [source.strip("\n") for source in lesson.read(path).code()]
    assert page.select(".output code")
    assert len(page.select(".quiz")) >= 5, "two predictions at least, and three questions"
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


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_is_a_download_without_outputs(site, path):
    assert (site / "lessons" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("source", CHECKS, ids=lambda path: path.stem)
def test_an_exercise_page_shows_checks_code_and_what_failing_and_passing_look_like(site, source):
    page = parsed(site / "exercises" / source.stem / "index.html")
    found = exercise_pages.read(source)
    names = [cell.code.get_text() for cell in page.select("table td:first-child")]
    assert names == [check.name for check in found.checks]
    text = page.get_text()
    for folder in ("exercises", "solutions"):
        assert (ROOT / folder / source.name).read_text().splitlines()[-1] in text
    failing, passing = (block.get_text() for block in page.select(".capture code"))
    assert failing.startswith(f"$ grader check {source.stem[:4]}")
    assert failing != passing


@pytest.mark.parametrize("source", CHECKS, ids=lambda path: path.stem)
def test_every_paragraph_that_the_grader_links_to_exists(site, source):
    found = exercise_pages.read(source)
    page = parsed(site / found.lesson / "index.html")
    for anchor in {found.anchor, *(check.anchor or found.anchor for check in found.checks)}:
        assert page.find(id=anchor), f"{found.lesson}#{anchor}"


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
        source.stem.partition("_")[0] for source in CHECKS
    ]


def test_figures_of_the_bench_become_a_table(tmp_path):
    row = {"title": "a|b", "figures": "2 s", "limit": "3 s", "holds": False}
    facts = {"load": [0.5, 1], "machine": "M", "cores": 2, "python": "3", "jax": "0", "date": "D"}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({**facts, "quick": True, "rows": [row]}))
    shown = speed_page.table(path)
    assert shown.startswith("M, 2 cores, load 0.5 to 1.0, Python 3, jax 0, D, quick: few runs.")
    assert shown.endswith("| a\\|b | 2 s | 3 s | **no** |")
    assert "Not yet measured" in speed_page.table(tmp_path / "none.json")


# A build that must fail. A small site with our hooks and one lesson.


@pytest.fixture
def small(tmp_path):
    (tmp_path / "docs" / "lessons").mkdir(parents=True)
    shutil.copytree(ROOT / "docs" / "_build", tmp_path / "docs" / "_build")
    shutil.copytree(ROOT / "docs" / "assets", tmp_path / "docs" / "assets")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
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


# In a browser, where one is installed.

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), "")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--virtual-time-budget=60000",
    "--dump-dom",
]
# One page opens the others, each in a frame as wide as a phone, and says which are wider.
MEASURE = """<!doctype html><title>measure</title><pre></pre><script>
const wide = [];
(async () => {
  for (const address of PAGES) {
    const frame = document.createElement("iframe");
    frame.style.cssText = "width:390px;height:900px;border:0";
    frame.src = address;
    document.body.append(frame);
    await new Promise(done => frame.onload = done);
    await new Promise(done => setTimeout(done, 200));
    const width = frame.contentDocument.documentElement.scrollWidth;
    if (width > 390) wide.push(address + " is " + width);
    frame.remove();
  }
  document.querySelector("pre").textContent = PAGES.length + " pages, too wide: " + wide;
})();
</script>"""


@pytest.fixture
def address(site):
    """The site on a port of this machine."""
    handler = functools.partial(SilentHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        """Say nothing."""


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_no_page_scrolls_sideways_or_asks_another_host(
    site, address, pages, tmp_path, scheme
):
    names = [f"/{path.parent.as_posix()}/" for path in pages if path.name == "index.html"]
    text = MEASURE.replace("PAGES", json.dumps([name.replace("/./", "/") for name in names]))
    measure = site / f"measure-{scheme}.html"
    measure.write_text(text)
    log = tmp_path / "net.json"
    told = subprocess.run(
        [
            CHROMIUM,
            *QUIET,
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--log-net-log={log}",
            f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
            f"{address}/{measure.name}",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    ).stdout
    measure.unlink()
    assert f"<pre>{len(names)} pages, too wide: </pre>" in told
    by_pages = [row for row in log.read_text().splitlines() if f'"initiator":"{address}"' in row]
    asked = {host for row in by_pages for host in re.findall(r'"url":"(\w+://[^"/]+)', row)}
    assert asked == {address}
