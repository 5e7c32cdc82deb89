"""Files and commands that are wrong: the message, the line, the exit code; nothing left.

In-process tests share one session; the others run the command line as a learner does.
What hostile code does is in test_isolation.py; what is wrong with the machine, and ends
from outside, are in test_bad_machine.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import fenced
import pytest
from fenced import FILE, Place

from grader.app.report import console, print_report
from grader.records.verdict import Verdict

STARTER = fenced.solution()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One session for all files."""
    with fenced.place(tmp_path_factory.mktemp("bad")) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A learner's folder."""
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / FILE).write_text(STARTER, "utf-8")
    return tmp_path


def first_failure(place: Place, text: str, *, policy: bool = True) -> tuple[Verdict, int]:
    """The first failed verdict of a file with this text, and the report's exit code."""
    _, report = place.grade(text, policy=policy)
    return next(v for v in report.verdicts if v.status == "fail"), report.exit_code


def returning(expression: str) -> str:
    """A submission that trains, and returns `expression`."""
    return fenced.submission(f"""{LAZY}{EQUAL}def train(step, params, batches):
    losses = []
    for batch in batches:
        params, loss = step(params, batch)
        losses.append(loss)
    read = jax.device_get(losses)
    floats = [float(loss) for loss in read]
    return {expression}
""")


# Files that are never run.

SOURCES = {
    "syntax error": (STARTER.replace("for batch in", "for batch"), "SyntaxError", 18),
    "indentation": (STARTER.replace("    losses = []", "  losses = []"), "IndentationError", 17),
    "empty": ("", "the file is empty", None),
    "only blanks": ("\n\n  \n", "the file is empty", None),
    "missing function": (STARTER.replace("def train", "def _train", 1), "no `train`", None),
    "renamed function": (STARTER.replace("def train", "def training"), "`training`", None),
    "wrong signature": (
        STARTER.replace("params, batches):", "batches, params):"),
        "batches, params",
        10,
    ),
    "async": (STARTER.replace("def train", "async def train"), "`async def train`", 10),
    "edited outside": (STARTER.replace("0.05", "0.06"), "`sgd_step` is changed", None),
    "statement at top level": (STARTER + "\nprint('hello')\n", "print('hello')", 39),
    "given function lost": (STARTER[: STARTER.index("@jax.jit")], "it is gone`def sgd_step", None),
    "deep nesting": (STARTER.replace("= []", "= " + "(" * 500 + ")" * 500), "too many nested", 17),
    "long chain": (STARTER.replace("losses = []", "losses = a" + ".b" * 20_000), "", None),
    "deep signs": (STARTER.replace("losses = []", "losses = " + "-" * 20_000 + "1"), "", None),
}


@pytest.mark.parametrize("name", SOURCES)
def test_source(name: str, place: Place) -> None:
    text, says, line = SOURCES[name]
    verdict, code = first_failure(place, text)
    assert (verdict.check, code) == ("source", 1)
    assert says in verdict.observed + verdict.expected
    assert verdict.expected
    if line is not None:
        assert verdict.culprits[0].line == line


BYTES = {
    "wrong encoding": (
        STARTER.replace("Keep", "Gör").encode("latin-1"),
        "save the file as UTF-8",
        20,
    ),
    "binary": (b"\x7fELF\0\0\0", "binary data", None),
    "utf-16": (STARTER.encode("utf-16"), "binary data", None),
    "too large": (b"#" * 2_000_000, "2,000,000 bytes", None),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str, folder: Path) -> None:
    raw, says, line = BYTES[name]
    (folder / "exercises" / FILE).write_bytes(raw)
    ran = fenced.run(folder, fenced.command("check", "ex07", "--format", "json"))
    assert (ran.returncode, ran.stderr) == (1, "")
    verdict = json.loads(ran.stdout)["reports"][0]["verdicts"][0]
    assert (verdict["check"], verdict["status"]) == ("source", "fail")
    assert says in verdict["observed"]
    if line is not None:
        assert verdict["culprits"][0]["line"] == line


# Files that run, and are wrong.

LAZY = """class Lazy:
    def __init__(self, value):
        self.value = value

    def __array__(self, dtype=None, copy=None):
        return jax.device_get(self.value)

    def __float__(self):
        return float(self.value)

    def __len__(self):
        return 1


"""
EQUAL = """class Equal:
    def __eq__(self, other):
        return True

    def __float__(self):
        return 0.0


"""
RETURNED = {
    "nothing": ("None", "runs", "`train` returned None"),
    "one value": ("params", "runs", "it returned a dict"),
    "three values": ("params, [], 1", "runs", "it returned 3 values, not 2"),
    "NaN": ('params, [float("nan") for _ in losses]', "same_losses", "NaN"),
    "float16": ("params, [x.astype(jnp.float16) for x in read]", "same_losses", "is a NumPy array"),
    "one too few": ("params, [float(x) for x in read[1:]]", "same_losses", " values"),
    "wrong shape": ("jax.tree.map(lambda p: p[None], params), floats", "same_params", "shape"),
    "wrong dtype": ("jax.tree.map(jnp.int32, params), floats", "same_params", "dtype int32"),
    "lazy": ("params, [Lazy(x) for x in losses]", "same_losses", "is a Lazy"),
    "lazy as a whole": ("params, Lazy(losses[0])", "same_losses", "is a Lazy"),
    "equal": ("params, [Equal() for _ in losses]", "same_losses", "is an Equal"),
    "equal parameters": ("Equal(), floats", "same_params", "of type `Equal`"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_returned(name: str, place: Place) -> None:
    expression, check, says = RETURNED[name]
    verdict, code = first_failure(place, returning(expression), policy=False)
    assert (verdict.check, code) == (check, 1), verdict
    assert says in verdict.observed, verdict
    assert place.ended()


def test_the_policy_refuses_the_methods_of_a_lazy_object(place: Place) -> None:
    verdict, _ = first_failure(place, returning("params, floats"))
    assert (verdict.check, verdict.observed) == ("source", "`__array__`")


def test_an_object_in_the_name_of_a_float(place: Place) -> None:
    text = returning("params, [Equal() for _ in losses]")
    text = text.replace("class Equal:", 'class Equal:\n    __qualname__ = "float"')
    _, report = place.grade(text, policy=False)
    verdict = next(v for v in report.verdicts if v.status == "fail")
    assert verdict.check == "same_losses"
    assert verdict.observed == "an object of type `float`"


def test_report_of_an_exception(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Their traceback, their lines only."""
    text = (fenced.ATTACKS / "exception.py").read_text("utf-8")
    _, report = place.grade(fenced.submission(text))
    print_report(report, console(), "https://site")
    shown = capsys.readouterr().out
    assert "observed  ValueError: no batch is good enough" in shown
    assert f"--> {FILE}:20" in shown
    assert f"called by {FILE}:16 (train)" in shown
    assert "site-packages" not in shown
    assert "grader/" not in shown


# Commands.

COMMANDS = {
    "missing file": (("check", "ex07", "--submission", "no.py"), "no file no.py"),
    "folder without it": (("check", "ex07", "--submission", "."), f"no {FILE} in the folder ."),
    "unknown exercise": (("check", "ex07_quite_loop"), "did you mean ex07_quiet_loop?"),
    "unlike any": (("check", "zzz"), "`grader list` shows them all"),
    "nothing named": (("check",), "which exercise?"),
    "no such option": (("check", "ex07", "--fast"), "No such option"),
    "bad device": (("check", "ex07", "--device", "tpu"), "'tpu' is not one of"),
    "not a record": (("judge", f"exercises/{FILE}"), "is no record"),
    "no record": (("judge", "none.json"), "No such file"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command(name: str, folder: Path) -> None:
    arguments, says = COMMANDS[name]
    ran = fenced.run(folder, fenced.command(*arguments))
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert says in ran.stderr
    assert len(ran.stderr.splitlines()) <= 4  # click puts the usage before a wrong option
    assert "Traceback" not in ran.stderr


def test_no_exercise_here(tmp_path: Path) -> None:
    ran = fenced.run(tmp_path, fenced.command("check", "ex07"))
    assert ran.returncode == 2
    assert "`grader reset ex07` writes a fresh one" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_nowhere_fails_as_any_link_does(folder: Path) -> None:
    (folder / "exercises" / FILE).unlink()
    (folder / "exercises" / FILE).symlink_to(folder / "nowhere")
    ran = fenced.run(folder, fenced.command("check", "ex07", "--submission", "exercises"))
    assert (ran.returncode, ran.stderr) == (1, "")
    assert f"`{FILE}` is a link" in ran.stdout
