"""What of a file never ran: found by running it, and by its text."""

import time

import pytest

from grader.probes.lines import Lines
from grader.records.verdict import Unrun
from grader.source.unrun import unrun

MODEL = """\
def run(xs):
    return sum(xs)


def given(x):
    if x > 1000:
        return 0
    return x
"""


def found(text: str, edits: tuple[str, ...] = ("run",), calls: str = "run([1, 2, 3])") -> list[str]:
    """Run a file and then `calls`; what never ran of its functions, with its lines."""
    code = compile(text, "file.py", "exec")
    with Lines(lambda _: None) as lines:
        lines.follow(code)
        names: dict[str, object] = {}
        exec(code, names)
        exec(calls, names)
    parts = unrun(text, lines.ran(), MODEL, edits)
    return [f"{part.line}-{part.last} {part.text}" for part in parts]


def run(*body: str) -> str:
    """A function of these lines, in a file."""
    return "def run(xs):\n" + "".join(f"    {line}\n" for line in body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (("if len(xs) > 9:", "    a = 1", "    b = 2", "return xs"), ["3-4 a = 1"]),
        (("if len(xs) > 9: xs = xs[1:]", "return xs"), ["2-2 xs = xs[1:]"]),
        (("return xs if len(xs) < 9 else float(xs[0])",), ["2-2 float(xs[0])"]),
        (("ok = len(xs) > 9 and float(xs[0])", "return ok"), ["2-2 float(xs[0])"]),
        (("ok = xs or list(xs)", "return ok"), ["2-2 list(xs)"]),
        (("return [x if x < 9 else float(x) for x in xs]",), ["2-2 float(x)"]),
        (("if xs:", "    return xs", "xs = 1", "return xs"), ["4-5 xs = 1"]),
        (("for x in xs[9:]:", "    print(x)", "return xs"), ["3-3 print(x)"]),
        (("while len(xs) > 9:", "    xs = 0", "return xs"), ["3-3 xs = 0"]),
        (("try:", "    a = 1", "except ValueError:", "    a = 2", "return a"), ["5-5 a = 2"]),
        (("try:", "    return 1", "finally:", "    a = 2"), []),
        (("match len(xs):", "    case 3: a = 1", "    case _: a = 2"), ["4-4 a = 2"]),
        (("def late():", "    return 1", "    return 2", "return xs"), []),
        (
            ("def late(x):", "    if x: return 1", "    return 2", "return late(0)"),
            ["3-3 return 1"],
        ),
        (("with open('/dev/null') as f:", "    if 0 in xs: f.read()"), ["3-3 f.read()"]),
        (("if len(xs) > 9:", "    pass", "for x in xs:", "    if x > 9: continue"), []),
        (("if len(xs) > 9:", "    raise ValueError('too long')", "return xs"), []),
        (("if len(xs) > 9:", "    text = 'too long'", "    raise ValueError(text)"), []),
        (("return xs if xs else None",), []),
        (("'''Words.'''", "x: int", "global y", "return xs"), []),
        (("return sorted(xs, key=lambda x: -x)",), []),
    ],
)
def test_what_never_ran_is_found(body: tuple[str, ...], expected: list[str]) -> None:
    assert found(run(*body)) == expected


def test_a_function_that_never_ran_is_another_ones_matter() -> None:
    assert found("def help(x):\n    return x\n\n\n" + run("return xs")) == []


def test_a_method_and_a_helper_are_the_learners() -> None:
    text = "class A:\n    def f(self, x):\n        return x if x < 9 else abs(x)\n"
    assert found(text + run("return A().f(1)")) == ["3-3 abs(x)"]


def test_what_the_course_gives_is_not_the_learners() -> None:
    assert found(MODEL, calls="given(1)") == []


def test_it_says_where_it_begins() -> None:
    text = run("ok = 'é' and len(xs) > 9 and float(xs[0])", "return ok")
    code = compile(text, "file.py", "exec")
    with Lines(lambda _: None) as lines:
        lines.follow(code)
        names: dict[str, object] = {}
        exec(code, names)
        exec("run([1])", names)
    line = text.splitlines()[1]
    where = Unrun(2, 2, line.index("float") + 1, "float(xs[0])")
    assert unrun(text, lines.ran(), MODEL, ["run"]) == [where]


def test_a_file_of_which_nothing_ran_has_no_parts() -> None:
    assert unrun(run("return xs"), [], MODEL, ["run"]) == []
    assert unrun("no Python", [(1, 0)], MODEL, ["run"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "def run(x):\n    return x" + ".a" * 2500,
        "def run(x):\n    return " + "x if x else " * 700 + "f(x)\n",
        "def run(x):\r    return x if x else f(x)\r",
    ],
)
def test_a_deep_text_and_one_of_other_line_ends_are_read(text: str) -> None:
    assert isinstance(unrun(text, [(2, 11)], MODEL, ["run"]), list)


def test_a_long_text_takes_no_longer_for_each_line() -> None:
    def seconds(lines: int) -> float:
        text = "def run(x):\n" + "    x = x if x else f(x)\n" * lines
        begin = time.process_time()
        assert len(unrun(text, [(n, 8) for n in range(2, lines + 2)], MODEL, ["run"])) == lines
        return time.process_time() - begin

    assert min(seconds(6000) for _ in range(3)) < 40 * min(seconds(300) for _ in range(3))
