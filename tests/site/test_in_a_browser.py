"""What only a browser shows: one Chromium opens the built site, and its pages are used.

Every page is looked at in light and dark, wide and narrow. The driver is `browser`.
"""

import gzip
import json
import random
import re
import zipfile
from html import unescape
from urllib.parse import unquote, urlsplit

import proving  # sets eight CPU devices before a backend starts
import pytest
from browser import CHROMIUM, NARROW, WIDE
from building import ROOT, paths

import offline
from figures import placement_table

pytest_plugins = ["built_site", "looking"]
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine"),
]

HEAVIEST = 150 * 1024  # bytes of a page with all that it fetches, gzipped, in an empty cache
TITLE = "document.querySelector('h1').textContent"


CUT = """[...document.querySelectorAll('.md-content pre > code')]
  .filter(code => code.clientWidth && code.scrollWidth > code.clientWidth)
  .map(code => code.textContent.slice(0, 80))"""
"""The blocks of code that are wider than their box."""


def weight(site, served, asked):
    """Bytes of these addresses, gzipped."""
    files = {site / address.removeprefix(f"{served}/").partition("?")[0] for address in asked}
    files = {file / "index.html" if file.is_dir() else file for file in files}
    return sum(len(gzip.compress(file.read_bytes())) for file in files)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("first", [0, 1])
def test_every_page_fits_is_light_asks_nobody_says_nothing_and_keeps_nobody_out(
    page, site, served, width, first
):
    """Each page is opened on a desk and on a phone, and seen there in light and in dark.

    In the dark, other colours are all that is new, and the button that leads back to light, which
    all pages share: so the first page is asked about everything, and the others about colours, on
    the desk, since a phone shows them in the same colours.
    Two tests share the pages of a width, every second one from `first` on, so that two workers can.
    """
    too_wide, too_heavy, barriers, cut = [], [], [], []
    for number, path in enumerate(paths(site)[first::2]):
        browser = page(path, width, forget=False)
        asked = {address for address in browser.asked if not address.startswith("data:")}
        if (size := weight(site, served, asked)) > HEAVIEST:
            too_heavy.append(f"{path}: {size} bytes")
        cut += [f"{path} at {width}: {line}" for line in browser.run(CUT)]
        for dark in (False, True):
            browser.look(width, dark=dark)
            how = f"{path} at {width}, {'dark' if dark else 'light'}"
            if (seen := browser.run("document.documentElement.scrollWidth")) > width:
                too_wide.append(f"{how} is {seen}")
            if dark and number > 0 and width == NARROW:
                continue
            found = browser.barriers(of_colour=dark and number > 0)
            barriers += [f"{how}: {barrier}" for barrier in found]
        assert all(each.startswith((f"{served}/", "data:")) for each in browser.asked)
        browser.asked.clear()
    assert not too_wide
    assert not too_heavy
    assert not cut
    assert not barriers


def test_what_makes_a_page_too_wide_is_seen(page):
    browser = page("/symptoms/", NARROW)
    browser.run("document.querySelector('h1').style.width = '500px'")
    assert browser.run("document.documentElement.scrollWidth") > NARROW


def test_a_barrier_is_found(page):
    browser = page("/symptoms/")
    assert browser.barriers() == []
    browser.run("document.querySelector('h1').style.color = '#eee'")
    assert [one.partition(":")[0] for one in browser.barriers()] == ["color-contrast"]
    assert browser.barriers(of_colour=True) == browser.barriers()
    browser.run("document.querySelector('h1').removeAttribute('style')")
    assert browser.barriers() == []
    browser.run("[...document.querySelectorAll('pre .s2')].at(-1).style.color = '#eee'")
    assert [one.partition(":")[0] for one in browser.barriers()] == ["color-contrast"]


QUESTIONS = {
    "is_ready": "lessons/04-the-inner-loop",
    "device_put": "lessons/02-arrays-live-somewhere",
    "why is my code not on the GPU": "lessons/05-who-decides-where-it-runs",
    "psum": "lessons/14-collectives-you-can-count",
    "NCCL": "lessons/16-more-than-one-process",
    "RESOURCE_EXHAUSTED": "symptoms#resource-exhausted",
    "No GPU found": "symptoms#no-gpu-found",
    "Falling back to cpu": "symptoms#no-gpu-found",
    "Received incompatible devices for jitted computation": "symptoms#incompatible-devices",
    "100 % memory at idle": "symptoms#memory-taken-at-idle",
    "slow first call": "symptoms#slow-first-call",
    "one GPU busy of eight": "symptoms#one-gpu-of-eight",
    "hangs at start": "symptoms#hangs-at-start",
    "donation": "lessons/09-what-jit-does-to-memory",
    "which exercise teaches donation": "exercises/ex14_donate",
    "which lesson explains donation": "lessons/09-what-jit-does-to-memory",
    "ragged batch": "lessons/12-meshes-and-shardings",
    "pinned memory": "lessons/15-host-memory-and-pinned-transfers",
    "prefetch": "exercises/ex27_prefetch",
    "grade a class": "instructors",
    "exit codes": "reference/grader",
    "make_array_from_callback": "exercises/ex20_from_callback",
    "ShardingTypeError": "symptoms#sharding-type-error",
    "roofline": "lessons/17-measure-before-you-tune",
    "memory leak": "lessons/11-leaks-that-are-and-are-not",
    "pmap": "lessons/13-pmap-and-after",
    "float(loss)": "lessons/04-the-inner-loop",
    "jax.live_arrays": "lessons/11-leaks-that-are-and-are-not",
    "install": "#start",
    "S3-22": "claims#s3-22",
    "devcie_put": "lessons/02-arrays-live-somewhere",
}
ASK = """(async () => {
  const box = document.querySelector('.md-search__input');
  const list = document.querySelector('.md-search-result__list');
  box.value = QUESTION;
  box.focus();
  await new Promise(r => setTimeout(r, 50));
  list.replaceChildren();
  box.dispatchEvent(new KeyboardEvent('keyup', { bubbles: true }));
  for (let n = 0; n < 40 * SECONDS && !list.children.length; n++)
    await new Promise(r => setTimeout(r, 25));
  await new Promise(r => setTimeout(r, 100));
  return [...list.children].slice(0, 3).map(item =>
    [...item.querySelectorAll('a')].map(a => new URL(a.href)).map(a => a.pathname + a.hash));
})()"""


def asked_for(browser, question, seconds=5):
    """The pages that the first three results lead to, each with the anchor of its best section.

    None of them where nothing is found after so many seconds. The same question can't be asked
    again at once: Material passes it on to its search when it changes.
    """
    asking = ASK.replace("QUESTION", json.dumps(question)).replace("SECONDS", str(seconds))
    found = browser.run(asking)
    short = [
        [re.sub(r"(/index\.html|\.html|/)(#|$)", r"\2", one) for one in each] for each in found
    ]
    return [one.lstrip("/") for each in short for one in each[:2]]


def test_the_search_answers_questions_with_the_right_page_among_the_first_three(page):
    browser = page("/")
    assert not [a for a in browser.asked if "course_index" in a], "the index comes when asked for"
    wrong = {}
    for question, right in QUESTIONS.items():
        found = asked_for(browser, question)
        if not any(one == right or one.startswith(f"{right}#") for one in found):
            wrong[question] = found
    assert not wrong
    assert len(QUESTIONS) >= 25
    assert asked_for(browser, "zzyzx quux") == []


def test_copied_commands_have_no_prompt(page):
    browser = page("/exercises/ex07_quiet_loop/")
    copied = browser.run("""(async () => {
      let said = '';
      document.execCommand = () => (said = [...document.querySelectorAll('textarea')].at(-1).value);
      document.querySelector('.gp').closest('.highlight').querySelector('[data-md-type=copy]').click();
      await new Promise(r => setTimeout(r, 300));
      return said;
    })()""")
    assert copied.startswith("grader check ex07")
    assert "$" not in copied


ANSWERS = "document.querySelectorAll('.quiz')[0]"


def test_a_quiz_by_keyboard_submits_by_its_button_and_can_be_taken_back(page):
    browser = page("/lessons/04-the-inner-loop/")
    said = f"{ANSWERS}.querySelector('.quiz-feedback').textContent"
    folded = "document.querySelector('details.predicted').open"
    wrong = f"{ANSWERS}.querySelector('input:not([data-correct])')"
    browser.run(f"{wrong}.focus()")
    browser.press(" ", "ArrowDown", "ArrowDown", "ArrowUp")
    assert browser.run(f"{ANSWERS}.querySelectorAll('input:checked').length") == 1
    assert not browser.run(said), "an arrow key chooses, and submits nothing"
    assert browser.run(folded) is False
    browser.run(f"{wrong}.checked = true; {wrong}.focus()")
    browser.press("Enter")
    assert browser.run(said).startswith("Not right yet")
    assert browser.run(folded) is True, "an answer opens the output that it is about"
    mark = f"getComputedStyle({ANSWERS}.querySelector('.wrong label'), '::after').content"
    assert "not right" in browser.run(mark), "not by colour alone"
    browser.run(f"{ANSWERS}.querySelector('[data-correct]').click()")
    browser.run(f"{ANSWERS}.querySelector('button[type=submit]').focus()")
    browser.press("Enter")
    assert browser.run(said) == "Right."
    page("/lessons/04-the-inner-loop/", forget=False)
    assert browser.run(said) == "Right.", "remembered"
    browser.run("document.querySelector('.tools button').click()")
    assert not browser.run(said)
    page("/lessons/04-the-inner-loop/", forget=False)
    assert not browser.run("document.querySelectorAll('.quiz input:checked').length")


def test_without_scripts_answers_outputs_and_the_still_picture_are_there(chromium, served):
    found = chromium.run_without_scripts(
        f"{served}/lessons/12-meshes-and-shardings/",
        """({ root: document.documentElement.className,
             answer: getComputedStyle(document.querySelector('.answer-feedback')).display,
             still: document.querySelector('.placement-still svg rect') !== null })""",
    )
    assert (found["root"], found["still"]) == ("no-js", True)
    assert found["answer"] != "none"


def test_progress_is_kept_shown_and_taken_from_what_grader_status_prints(page):
    browser = page("/lessons/04-the-inner-loop/")
    tick = """[...document.querySelectorAll('.md-nav--primary .tick')].map(one =>
      one.closest('a').textContent.trim().split(' ')[0])"""
    assert browser.run(tick) == []
    browser.run("document.getElementById('recap').scrollIntoView()")
    browser.wait(f"({tick}).includes('04')")
    page("/", forget=False)
    assert "Continue: 04 The inner loop" in browser.run(
        "document.getElementById('continue').textContent"
    )
    said = json.dumps(
        {"exercises": [{"id": "ex07", "status": "solved"}, {"id": "ex08", "status": "open"}]}
    )
    browser.run(f"""(() => {{ const text = document.getElementById('status-text');
      text.value = {json.dumps(said)}; text.dispatchEvent(new Event('input')); }})()""")
    assert "1 of 2 solved" in browser.run("document.querySelector('#continue output').value")
    page("/exercises/ex07_quiet_loop/", forget=False)
    assert browser.run(tick) == ["04", "ex07"]
    assert browser.run("document.querySelector('.tools input').checked")
    page("/", forget=False)
    browser.run("""(() => { const text = document.getElementById('status-text');
      text.value = 'nonsense'; text.dispatchEvent(new Event('input')); })()""")
    assert "not what" in browser.run("document.querySelector('#continue output').value")


def test_the_ledger_is_filtered_by_verdict_word_and_gpu_and_its_rows_have_addresses(page):
    browser = page("/claims/?verdict=false")
    shown = "[...document.querySelectorAll('.ledger tbody tr:not([hidden])')]"
    all_rows = browser.run("document.querySelectorAll('.ledger tbody tr').length")
    false = browser.run(f"{shown}.map(row => row.cells[0].textContent.trim())")
    assert set(false) == {"false"}
    assert 0 < len(false) < all_rows == 117
    assert (
        browser.run("[...document.querySelector('select[name=verdict]').options].map(o => o.text)")[
            0
        ]
        == "all"
    )
    assert (
        browser.run("document.querySelector('option[value=false]').text") == f"false ({len(false)})"
    )
    browser.run("""(() => { const word = document.querySelector('input[name=text]');
      word.value = 'PinneD'; word.dispatchEvent(new Event('input')); })()""")
    found = browser.run(f"{shown}.map(row => row.textContent.toLowerCase().includes('pinned'))")
    assert found
    assert all(found)
    page("/claims/?GPU=not+yet+recorded", forget=False)
    texts = browser.run(f"{shown}.map(row => row.textContent)")
    assert texts
    assert all("not yet recorded" in text for text in texts)
    page("/claims/#s3-22", NARROW, forget=False)
    assert browser.run("document.getElementById('s3-22').closest('tr').className") == "open"
    assert browser.run("document.documentElement.scrollHeight") < 20_000
    wide = "[...document.querySelectorAll('.ledger, .ledger *')].filter(one => one.scrollWidth >"
    assert not browser.run(f"{wide} innerWidth).map(one => one.outerHTML.slice(0, 80))")


def test_drawers_are_inert_while_closed_and_open_by_key(page):
    browser = page("/lessons/04-the-inner-loop/", NARROW)
    drawer = "document.querySelector('.md-sidebar--primary').inert"
    assert browser.run(drawer) is True
    assert browser.run("document.querySelector('.md-search__inner').inert") is True
    browser.run("document.querySelector('[for=__drawer].md-icon').focus()")
    browser.press(" ")
    browser.wait(f"!{drawer}")
    browser.press("Enter")
    browser.wait(drawer)
    browser.look(WIDE)
    browser.wait(f"!{drawer}")


def test_what_scrolls_can_be_reached_by_key(page):
    for path in ("/lessons/14-collectives-you-can-count/", "/claims/", "/documents/dgx/"):
        for width in (WIDE, NARROW):
            browser = page(path, width, forget=False)
            browser.run("dispatchEvent(new Event('resize'))")
            unreached = browser.run("""[...document.querySelectorAll('.md-typeset *')].filter(one =>
              one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0
              && ['auto', 'scroll'].includes(getComputedStyle(one).overflowX)
              && one.tabIndex < 0 && !one.querySelector('a, button, input, [tabindex]'))
              .map(one => one.outerHTML.slice(0, 80))""")
            assert not unreached, (path, width)


def test_print_opens_what_is_folded(page):
    browser = page("/exercises/ex07_quiet_loop/")
    folded = "document.querySelectorAll('details:not([open])').length"
    before = browser.run(folded)
    assert before
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run(folded) == 0
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(folded) == before


def test_the_colour_scheme_is_the_systems_until_one_is_chosen(page):
    scheme = "document.body.getAttribute('data-md-color-scheme')"
    assert page("/", dark=True).run(scheme) == "slate"
    browser = page("/", dark=False)
    assert browser.run(scheme) == "default"
    browser.run("document.querySelector('label[title=\"Switch to light\"]').click()")
    page("/", dark=True, forget=False)
    assert browser.run(scheme) == "default", "chosen"


def test_code_of_78_columns_fits_beside_the_sidebars(page):
    browser = page("/lessons/04-the-inner-loop/")
    room = browser.run("""(() => {
      const code = document.querySelector('.input code'), line = document.createElement('span');
      code.style.whiteSpace = 'pre';
      line.textContent = 'x'.repeat(78);
      code.append(line);
      const width = line.getBoundingClientRect().width, style = getComputedStyle(code);
      line.remove();
      const padding = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
      return code.clientWidth - padding - width;
    })()""")
    assert room >= 0


def test_starters_fit_beside_the_sidebar(page):
    longest = sorted(
        (ROOT / "exercises").glob("ex*.py"),
        key=lambda path: max(map(len, path.read_text("utf-8").splitlines())),
    )[-3:]
    code = "document.querySelector('.highlight:has(.hll) code')"
    for path in longest:
        browser = page(f"/exercises/{path.stem}/", forget=False)
        browser.run(f"{code}.style.whiteSpace = 'pre'")
        assert browser.run(f"{code}.clientWidth - {code}.scrollWidth") >= 0, path


# The figure that moves.

FIGURE = """(async state => {
  const figure = document.querySelector('.placement');
  const selects = [...figure.querySelectorAll('select')];
  const set = (select, value) => {
    select.value = value;
    select.dispatchEvent(new Event('input', { bubbles: true }));
  };
  [0, 1].forEach(n => set(selects[n], state[n]));
  [2, 3, 4, 5].forEach(n => set(selects[n], state[n]));
  return {
    chosen: selects.map(select => select.value),
    rows: [...figure.querySelectorAll('tbody tr')].map(row =>
      [...row.cells].map(cell => cell.textContent)),
    drawn: [...figure.querySelectorAll('svg text')].map(one => one.textContent),
    said: figure.querySelector('.placement-said').textContent,
    sum: [...figure.querySelectorAll('.placement-sum p')].map(one => one.textContent),
  };
})"""


def ready(browser):
    browser.run("document.querySelector('.placement').scrollIntoView()")
    browser.wait("document.querySelector('.placement.ready') !== null")


def test_the_figure_moves_by_key_alone(page):
    browser = page("/")
    ready(browser)
    said = "document.querySelector('.placement-said').textContent"
    before = browser.run(said)
    assert "P('data')" in before
    browser.run("document.querySelectorAll('.placement select')[2].focus()")
    browser.press("m")  # a native list: a letter chooses the option that begins with it
    assert "P('model')" in browser.wait(f"{said} !== {json.dumps(before)} && {said}")
    names = browser.run("""[...document.querySelectorAll('.placement select')].map(one =>
      one.labels[0].textContent.trim().length > 0
      && one.closest('fieldset').querySelector('legend').textContent.length > 0)""")
    assert names == [True] * 6
    assert browser.run("document.querySelector('.placement-said').getAttribute('role')") == "status"


def random_states(count):
    """Mesh, shape, and for each of two arrays a way for rows and for columns: any, also wrong."""
    draw = random.Random()
    for _ in range(count):
        mesh = draw.choice(list(placement_table.MESHES))
        axes = placement_table.AXES[: len(placement_table.MESHES[mesh])]
        ways = ["", *axes, *([",".join(axes)] if len(axes) > 1 else [])]
        shape = draw.choice(placement_table.SHAPES)
        yield mesh, shape, *(draw.choice(ways) for _ in range(4))


def test_two_hundred_random_states_of_the_figure_agree_with_jax(page, jax_on_eight):
    browser = page("/")
    ready(browser)
    placed = refused = 0
    for mesh, shape, *ways in random_states(200):
        state = [mesh, " x ".join(map(str, shape)), *ways]
        shown = browser.run(f"{FIGURE}({json.dumps(state)})")
        assert shown["chosen"] == state
        a, b = (ways[0], ways[1]), (ways[2], ways[3])
        held = jax_on_eight.held(mesh, shape, a)
        if isinstance(held, str):
            refused += 1
            assert not shown["rows"], state
            assert not shown["drawn"], state
            continue
        placed += 1
        rows = [
            [str(n), f"{r.start}:{r.stop}", f"{c.start}:{c.stop}", str(nbytes)]
            for n, (r, c, nbytes) in enumerate(held)
        ]
        assert shown["rows"] == rows, state
        assert len(shown["drawn"]) == len({(row[1], row[2]) for row in rows}), state
        if isinstance(jax_on_eight.held(mesh, shape, b), str):
            assert len(shown["sum"]) == 1, state
            continue
        auto, explicit = shown["sum"]
        refusal = jax_on_eight.refusal(mesh, shape, a, b)
        assert (refusal or "").partition(":")[0] in ("ShardingTypeError", ""), refusal
        assert ("ShardingTypeError" in explicit) == (refusal is not None), state
        assert (refusal or "the sum lies as") in explicit, state
        assert ("no collective" in auto) == (not jax_on_eight.moves(mesh, shape, a, b)), state
    assert placed > 20
    assert refused > 20


class JaxOnEight:
    """What JAX says in this process, asked anew: nothing of the figure's table is used."""

    def __init__(self):
        self.jax = proving.jax
        assert len(self.jax.devices()) >= 8
        self.known = {}

    def sharding(self, mesh, spec, kind):
        from jax.sharding import AxisType, NamedSharding, PartitionSpec

        lengths = placement_table.MESHES[mesh]
        names = ("data", "model")[: len(lengths)]
        made = self.jax.make_mesh(
            lengths,
            names,
            axis_types=(getattr(AxisType, kind),) * len(lengths),
            devices=self.jax.devices()[:8],
        )
        parts = [tuple(way.split(",")) if way else None for way in spec]
        return NamedSharding(made, PartitionSpec(*parts))

    def held(self, mesh, shape, spec):
        """For each device rows, columns and bytes; or the refusal's text."""
        try:
            sharding = self.sharding(mesh, spec, "Auto")
            index = sharding.devices_indices_map(shape)
            nbytes = self.jax.numpy.zeros(sharding.shard_shape(shape)).nbytes
        except Exception as error:
            if type(error).__name__ not in ("DuplicateSpecError", "IndivisibleError"):
                raise
            return str(error)
        whole = [
            tuple(slice(*part.indices(size)[:2]) for part, size in zip(one, shape, strict=True))
            for _, one in sorted(index.items(), key=lambda item: item[0].id)
        ]
        return [(rows, columns, nbytes) for rows, columns in whole]

    def arguments(self, mesh, shape, kind, *specs):
        return [
            self.jax.ShapeDtypeStruct(shape, "float32", sharding=self.sharding(mesh, spec, kind))
            for spec in specs
        ]

    def refusal(self, mesh, shape, a, b):
        try:
            self.jax.eval_shape(self.jax.numpy.add, *self.arguments(mesh, shape, "Explicit", a, b))
        except Exception as error:  # noqa: BLE001 (ShardingTypeError has no public name)
            return f"{type(error).__name__}: {error}"
        return None

    def moves(self, mesh, shape, a, b):
        """Whether the compiled sum holds a collective."""
        key = (mesh, shape, a, b)
        if key not in self.known:
            arguments = self.arguments(mesh, shape, "Auto", a, b)
            text = self.jax.jit(self.jax.numpy.add).lower(*arguments).compile().as_text()
            names = (
                r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\("
            )
            self.known[key] = re.search(names, text) is not None
        return self.known[key]


@pytest.fixture(scope="module")
def jax_on_eight():
    return JaxOnEight()


# The copy for readers without a network.


@pytest.fixture(scope="module")
def copy(site, tmp_path_factory):
    """The copy as a reader unpacks it."""
    folder = tmp_path_factory.mktemp("copy")
    with zipfile.ZipFile(site / f"{offline.NAME}.zip") as archive:
        archive.extractall(folder)
    return folder / offline.NAME


def test_the_start_page_offers_the_copy_with_its_size(page, site):
    offer = "document.querySelector('.offline')"
    browser = page("/")
    size = (site / f"{offline.NAME}.zip").stat().st_size
    assert f"({size / 1e6:.1f} MB)" in browser.run(f"{offer}.textContent")
    assert browser.run(f"{offer}.querySelector('a').getAttribute('href')") == f"{offline.NAME}.zip"


def test_each_link_of_the_copy_leads_to_a_file(copy):
    seen = 0
    pages = sorted(copy.rglob("*.html"))
    for path in pages:
        links = re.findall(r'<(?:a|link|script)\b[^>]*? (?:href|src)="([^"]*)"', path.read_text())
        for address in links:
            parts = urlsplit(unescape(address))
            if not parts.scheme and parts.path:
                seen += 1
                assert (path.parent / unquote(parts.path)).is_file(), f"{path}: {address}"
    assert len(pages) > 60
    assert seen > 5000


def test_the_copy_is_read_searched_and_moved_from_files(chromium, copy):
    chromium.errors.clear()
    chromium.asked.clear()
    chromium.look(WIDE)
    chromium.open((copy / "index.html").as_uri())
    assert "no network" in chromium.run("document.querySelector('.offline').textContent")
    ready(chromium)
    chromium.run("document.querySelector('.md-header__button[for=__search]').click()")
    found = asked_for(chromium, "RESOURCE_EXHAUSTED", seconds=60)  # it builds its index first
    assert "symptoms#resource-exhausted" in " ".join(found)
    chromium.run("document.querySelector('.md-search-result__link').click()")
    chromium.wait("document.querySelector('h1')?.textContent.startsWith('What do you see')")
    chromium.run("document.querySelector('.md-content a[href*=ex14]').click()")
    chromium.wait("document.querySelector('h1')?.textContent.startsWith('ex14')")
    assert all(address.startswith(("file:", "data:")) for address in chromium.asked)
    assert not chromium.errors
