"""Which line a failure points at, what is marked there, and which `return` was forgotten."""

import ast

import pytest

from grader.records.record import EventKind, Frame
from grader.records.verdict import Culprit
from grader.source.file import File
from grader.source.places import (
    led_to,
    of_call,
    of_cause,
    of_decorators,
    of_definitions,
    of_frames,
    of_only_statement,
    of_return,
    of_words,
    own_first,
    shown,
)
from grader.source.returns import missing

SOURCE = '''import jax


def given(x):
    return x


@jax.jit
def step(x):
    """One step."""

    def loss_fn(x):
        return given(x), 1

    value = loss_fn(x)
    return value, x


def train(step, batches):
    losses = []
    for batch in batches:
        losses.append(float(step(batch)))  # é
    return losses
'''
FILE = File(SOURCE)
LINES = SOURCE.split("\n")


def marked(text: str, *kinds: EventKind) -> str:
    """What is marked on the line that holds `text`."""
    number = next(n for n, line in enumerate(LINES, 1) if text in line)
    column, end = FILE.marked(number, kinds)
    return LINES[number - 1][column - 1 : end - 1]


def test_the_expression_that_can_have_done_it_is_marked() -> None:
    assert marked("losses.append", "d2h") == "float(step(batch))"
    assert marked("losses.append") == "losses.append(float(step(batch)))"
    assert marked("def train") == "train"
    assert marked("value = ") == "value = loss_fn(x)"


def test_a_place_has_its_function_and_the_lines_around() -> None:
    place = shown(FILE, Culprit(13, ""))
    assert (place.function, place.text, place.first) == ("step.loss_fn", "return given(x), 1", 12)
    assert place.excerpt == LINES[11:13]
    assert shown(FILE, Culprit(99, "")) == Culprit(99, "")


def test_a_value_of_another_form_is_placed_where_it_is_returned() -> None:
    assert [place.line for place in of_return(FILE, Culprit(9, ""))] == [16]
    two = File("def f(x):\n    if x:\n        return 1\n    return 2\n")
    assert of_return(two, Culprit(1, "")) == [Culprit(1, "")], "either may be the wrong one"


def test_a_place_in_given_code_comes_after_the_line_that_led_there() -> None:
    place = Culprit(5, "return x")
    assert [one.line for one in led_to(FILE, place, ["step"], ["given"])] == [13, 5]
    assert [one.line for one in led_to(FILE, place, ["step"], [])] == [5]
    renamed = SOURCE.replace("given(", "same(").replace("def same(", "def given(")
    through = File(f"{renamed}\n\nsame = jit(given)\n")
    assert [one.line for one in led_to(through, place, ["step"], ["given"])] == [13, 5]
    inside = Culprit(22, "losses.append(float(step(batch)))  # é")
    assert [one.line for one in led_to(FILE, inside, ["step"], ["given", "train"])] == [16, 22]


def test_a_call_that_jit_refuses_is_placed_at_the_decorator() -> None:
    assert [place.line for place in of_decorators(FILE, ["train", "step"], "")] == [8]
    assert of_decorators(FILE, ["train"], "") == []
    named = "argument to <function train at 0x7f>"
    assert [place.line for place in of_decorators(FILE, ["step", "train"], named)] == [19]


def test_the_one_call_of_a_function_is_found() -> None:
    assert [place.line for place in of_call(FILE, Culprit(19, ""), "step")] == [22]
    assert of_call(FILE, Culprit(19, ""), "given") == [Culprit(19, "")]


def test_the_only_statement_of_a_function_is_what_a_failure_is_about() -> None:
    lines = (
        ("return a + 1", "return 2"),
        ("made = a", "return made"),
        ("made = a", "return a"),
        ("with a:", "    return 1"),
    )
    expected = (None, 3, None, None)
    for body, line in zip(lines, expected, strict=True):
        text = "\n    ".join(("def f(a):", '"""Docs."""', *body))
        found = of_only_statement(File(text), Culprit(1, ""))
        assert found[0].line == (line or 1), text
    alone = File('def f(a):\n    """Docs."""\n    return a + 1\n')
    assert of_only_statement(alone, Culprit(1, "")) == [Culprit(3, "return a + 1", 1, 5, 17)]


def test_of_several_definitions_of_a_name_the_last_one_holds() -> None:
    file = File("def step(x):\n    pass\n\n\nfirst = step\n\n\ndef step(x):\n    return first(x)\n")
    assert [place.line for place in of_definitions(file, ["step"])] == [8]
    model = "def step(x):\n    return x\n"
    assert missing(file, model, ("step",)) == []
    turned = File("def step(x):\n    return x\n\n\ndef step(x):\n    pass\n")
    assert [one.line for one in missing(turned, model, ("step",))] == [5]


def test_calls_are_found_by_the_end_of_what_is_called() -> None:
    file = File("import jax\n\njax.debug.print('x')\nprint('y')\njax.pure_callback(f, x)\n")
    assert file.calls(("debug.print", "pure_callback")) == [3, 5]


def test_a_frame_in_given_code_leads_to_the_call() -> None:
    frames = [Frame(15, "step", "value = loss_fn(x)"), Frame(5, "given", "return x")]
    assert of_frames(FILE, frames, ["given"])[0].line == 15
    assert of_frames(FILE, frames[1:], ["given"])[0].line == 5


def test_a_function_that_is_named_is_found() -> None:
    assert of_words(FILE, ["step", "train"], "x", "`train` returns None")[0].line == 19
    assert of_words(FILE, ["step"], "`train` returns None") == []
    assert [place.line for place in of_definitions(FILE, ["step", "train", "none"])] == [9, 19]


@pytest.mark.parametrize("source", ["def (", "\0", "(" * 500])
def test_a_file_that_is_no_python_has_lines_all_the_same(source: str) -> None:
    place = shown(File(source), Culprit(1, "x"))
    assert place.excerpt == [source]
    assert place.function == ""


EDITS = ("step", "train")


def forgotten(old: str, new: str) -> list[str]:
    """The functions that are said to return nothing after a change of the file."""
    assert old in SOURCE
    return [one.expected for one in missing(File(SOURCE.replace(old, new)), SOURCE, EDITS)]


def test_a_forgotten_return_is_found() -> None:
    assert forgotten("    return losses", "    losses") == ["`train` returns `losses`"]
    assert forgotten("    return value, x", "    value, x") == ["`step` returns (value, x)"]
    assert forgotten("return given(x), 1", "given(x), 1") == ["`loss_fn` returns 2 values"]
    assert forgotten("    return losses", "    return") == ["`train` returns `losses`"]


def test_a_value_that_goes_nowhere_is_a_forgotten_return_in_a_function_of_the_learners() -> None:
    inner = "    def read(index):\n        losses[index]\n\n    return losses"
    assert forgotten("    return losses", inner) == ["`read` returns a value"]
    assert forgotten("    return losses", inner.replace("losses[index]", "print(index)")) == []


def test_no_other_return_is_missed() -> None:
    assert missing(FILE, SOURCE, EDITS) == []
    assert forgotten("    return x\n", "    x\n") == [], "given code is not the learner's"
    assert forgotten("    return losses", "    yield losses") == []
    assert forgotten("    return losses", "    raise NotImplementedError") == []
    assert forgotten("    return losses", "    if losses:\n        return losses") == []
    assert forgotten("@jax.jit", "@keep") == []
    assert forgotten("@jax.jit\ndef step(x):", "@keep\ndef step(x):") == []


COUNTED = """def counted(function):
    @wraps(function)
    def counting(*given):
        return function(*given)

    return counting


@counted
def f(x):
    return x
"""


@pytest.mark.parametrize("decorator", ["@counted", "@counted()", "@jax.jit\n@counted"])
@pytest.mark.parametrize(
    ("right", "wrong", "blamed"),
    [
        ("return function(", "function(", "counting"),
        ("return counting", "counting", "counted"),
        ("return function(*given)", "print(*given)", ""),
        ("    return function(*given)", "    yield function(*given)", ""),
        ("return x", "x", ""),
        ("return x", "return x", ""),
    ],
)
def test_a_return_may_be_forgotten_in_a_decorator(
    decorator: str, right: str, wrong: str, blamed: str
) -> None:
    mine = COUNTED.replace("@counted", decorator).replace(right, wrong)
    found = missing(File(mine), "def f(x):\n    return x\n", ("f",))
    assert [(one.name, one.promise, one.decorates) for one in found] == (
        [(blamed, "`x`", "f")] if blamed else []
    )


@pytest.mark.parametrize(
    "around", ["if True:", "try:", "with quiet():", "if 1:\n        pass\n    else:"]
)
def test_a_definition_may_stand_in_an_if(around: str) -> None:
    tail = "    except KeyError:\n        pass\n" if around == "try:" else ""
    inner = "        def f(x):\n            return x\n"
    text = f"a = 1\nif b:\n    {around}\n{inner}{tail}if __name__ == '__main__':\n    c = 2\n"
    file = File(text)
    assert isinstance(defined := file.defined("f"), ast.FunctionDef)
    assert (file.names, file.top_level_at(defined.lineno + 1)) == (["a", "f"], "f")
    assert [place.line for place in of_definitions(file, ["f"])] == [defined.lineno]


CAUSE = "def f(x):\n    y = [\n        a(x),\n    ]\n    z = b(c(x))\n    return z\n"


@pytest.mark.parametrize(
    ("cause", "places", "expected"),
    [
        ("c(x)", [1], [(5, 11)]),
        ("c(x)", [6], [(5, 11)]),
        ("c(x)", [3, 6], [(5, 11), (3, 0)]),
        ("c(x)", [5], [(5, 11)]),
        ("b(c(x))", [5], [(5, 9)]),
        ("[\n        a(x),\n    ]", [3], [(3, 0)]),
        ("[\n        a(x),\n    ]", [6], [(2, 9)]),
        ("c(x)", [], [(5, 11)]),
    ],
)
def test_the_cause_stands_before_what_it_led_to(
    cause: str, places: list[int], expected: list[tuple[int, int]]
) -> None:
    file = File(CAUSE)
    nodes = (node for node in ast.walk(file.tree) if isinstance(node, ast.expr))
    node = next(node for node in nodes if ast.get_source_segment(CAUSE, node) == cause)
    found = of_cause(file, [Culprit(line, "") for line in places], node)
    assert [(place.line, place.column) for place in found] == expected


def test_a_step_that_is_joined_to_a_cause_lies_inside_it() -> None:
    file = File(CAUSE)
    cause, step = (node for node in ast.walk(file.tree) if isinstance(node, ast.Assign))
    cause.value = ast.List([cause.value, step.value])
    assert of_cause(file, [Culprit(5, "")], cause) == [Culprit(5, "")]


def test_what_happened_several_times_in_a_return_is_still_told() -> None:
    file = File(CAUSE)
    node = next(node for node in ast.walk(file.tree) if isinstance(node, ast.List))
    found = of_cause(file, [Culprit(6, "", 7)], node)
    assert [(place.line, place.count) for place in found] == [(2, 1), (6, 7)]


def test_a_place_keeps_what_is_marked_more_closely_than_its_cause() -> None:
    file = File(CAUSE)
    node = next(node for node in ast.walk(file.tree) if isinstance(node, ast.Assign))
    place = Culprit(2, "", 3, 9, 10)
    assert of_cause(file, [place], node) == [place]
    assert of_cause(file, [Culprit(1, "")], file.tree.body[0]) == [Culprit(1, "")]


@pytest.mark.parametrize(
    ("own", "places", "lines"),
    [
        ([5], [1], [5]),
        ([5], [6], [5]),
        ([5], [3, 5], [5, 3]),
        ([2, 5], [6], [5, 2]),
        ([2, 5], [3, 1], [3, 1]),
        ([2], [6, 3], [3, 6]),
        ([2, 5, 6], [1], [1]),
        ([9], [1], [1]),
        ([], [6, 3], [6, 3]),
        ([5], [], []),
    ],
)
def test_statements_of_the_files_own_come_before_those_of_the_reference(
    own: list[int], places: list[int], lines: list[int]
) -> None:
    file = File(CAUSE + "\n\ng = [1]\n")
    nodes = [node for node in ast.walk(file.tree) if isinstance(node, ast.stmt)]
    mine = [node for node in nodes if node.lineno in own]
    given = [Culprit(n, "") for n in places]
    assert [place.line for place in own_first(file, given, mine, complete=True)] == lines
    lacking = [place.line for place in own_first(file, given, mine, complete=False)]
    assert sorted(lacking) == sorted(places)
    assert lacking[:1] == [line for line in lines if line in places][:1] or lacking == places
