"""What is said of a file before it is run: each finding with its line and words."""

from pathlib import Path

import pytest

from grader.checking import Exercise
from grader.record import Finding
from grader.source import MAX_BYTES, Unreadable, inspect_source, read

SOLUTION = '''"""A task."""

import jax
import jax.numpy as jnp


def total(values, scale=1):
    """Add up."""
    return jnp.sum(values) * scale


@jax.jit
def given(x):
    """Not to be touched."""
    return x + 1
'''
RULE = "only `total` changed, imports and helpers added"
EXERCISE = Exercise("", "", "", ("total",), drive=lambda submission, observe, rng: None)

ADDED = (
    "import functools",
    "from jax import lax as given_lax",
    "def helper(x):\n    return x",
    "class Sum:\n    pass",
    'if __name__ == "__main__":\n    print(total(jnp.ones(3)))',
)
REFUSED = {
    "jax = None": "`jax` is changed or bound again",
    "import numpy as jnp": "`jnp` is changed or bound again",
    "def given(x):\n    return x": "`given` is changed or bound again",
    "def print(x):\n    return x": "`print` is changed or bound again",
    "given, other = 1, 2": "`given` is changed or bound again",
    "from jax import *": "`from jax import *` may bind anything again",
    "print(1)": "a new statement at top level: `print(1)`",
    "for i in range(3):\n    pass": "a new statement at top level: `for i in range(3):`",
    'if __name__ == "submission":\n    pass': "a new statement at top level: "
    "`if __name__ == 'submission':`",
    "def helper():\n    global given": "`global given`",
    "def helper(x=(given := 1)):\n    pass": "`given :=`",
}


def inspected(source: str) -> list[Finding]:
    """All findings of a submission."""
    return inspect_source(source, SOLUTION, EXERCISE)


def replaced(old: str, new: str) -> list[Finding]:
    """All findings of the solution with one thing changed."""
    assert old in SOLUTION
    return inspected(SOLUTION.replace(old, new))


def test_the_solution_itself_is_whole() -> None:
    assert inspected(SOLUTION) == []


@pytest.mark.parametrize("added", ADDED)
def test_may_be_added(added: str) -> None:
    assert inspected(SOLUTION + added + "\n") == []
    assert inspected(added + "\n" + SOLUTION) == []


@pytest.mark.parametrize("added", REFUSED)
def test_may_not_be_added(added: str) -> None:
    findings = inspected(SOLUTION + added + "\n")
    offset = 1 if added.startswith("def helper():") else 0
    line = SOLUTION.count("\n") + 1 + offset
    assert findings[0] == Finding("edits", line, RULE, REFUSED[added])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("jnp.sum(values)", "values.sum()"),
        ("values, scale=1", "values: list, scale: int = 1"),
        ('    """Add up."""\n', ""),
        ('    """Not to be touched."""\n', ""),
        ('"""A task."""', '"""Another."""'),
        ("    return x + 1", "    # a remark\n    return (x + 1)"),
        ("def total(values, scale=1):", "@jax.jit\ndef total(values, scale=1):"),
    ],
)
def test_may_differ(old: str, new: str) -> None:
    assert replaced(old, new) == []


def test_a_changed_function_is_named_with_its_line() -> None:
    assert replaced("x + 1", "x + 2") == [
        Finding("edits", 13, RULE, "`given` is changed or bound again")
    ]


def test_a_missing_statement_is_named() -> None:
    assert replaced("import jax\n", "") == [
        Finding("edits", None, "`import jax` stays as it was", "it is gone")
    ]


def test_a_missing_function_and_a_new_name_for_it() -> None:
    expected = "the file defines `total`"
    assert replaced("def total", "def summed") == [
        Finding(
            "definitions",
            None,
            expected,
            "no `total` in the file; is `summed` a new name for it?",
        )
    ]
    assert inspected("import jax\n") == [
        Finding("definitions", None, expected, "no `total` in the file")
    ]


@pytest.mark.parametrize(
    ("new", "observed"),
    [
        ("values", "`def total(values)`"),
        ("scale, values", "`def total(scale, values)`"),
        ("values, scale, *rest", "`def total(values, scale, *rest)`"),
        ("values, *, scale=1", "`def total(values, scale=)`"),
        ("values, scale, **more", "`def total(values, scale, **more)`"),
    ],
)
def test_a_wrong_signature(new: str, observed: str) -> None:
    assert replaced("values, scale=1", new) == [
        Finding("definitions", 7, "`def total(values, scale)`", observed)
    ]


def test_an_async_function() -> None:
    assert replaced("def total", "async def total") == [
        Finding("definitions", 7, "a plain function", "`async def total`")
    ]


def test_a_syntax_error_has_its_line() -> None:
    assert replaced("def total(values, scale=1):", "def total(values, scale=1)") == [
        Finding("file", 7, "valid Python", "SyntaxError: expected ':'")
    ]
    (finding,) = replaced("    return x + 1", "    return x + 1\n      y")
    assert (finding.line, finding.observed) == (16, "IndentationError: unexpected indent")


@pytest.mark.parametrize(
    "deep",
    ["(" * 5000 + ")" * 5000, "+".join(["1"] * 20_000), "-" * 50_000 + "1"],
    ids=["brackets", "sum", "signs"],
)
@pytest.mark.parametrize("at_top", [True, False], ids=["top", "edited"])
def test_deep_nesting_breaks_nothing(deep: str, at_top: bool) -> None:
    source = SOLUTION + f"x = {deep}\n" if at_top else SOLUTION.replace("jnp.sum(values)", deep)
    assert {finding.check for finding in inspected(source)} <= {"file", "edits"}


def test_warnings_are_left_to_the_run(recwarn: pytest.WarningsRecorder) -> None:
    assert replaced("jnp.sum(values)", r"len('\d')") == []
    assert not recwarn.list


def test_findings_stop_at_the_first_kind() -> None:
    """Whoever renamed the function is not told of the import as well."""
    source = SOLUTION.replace("def total", "import os\ndef summed")
    assert {finding.check for finding in inspected(source)} == {"definitions"}
    assert {
        finding.check for finding in replaced("    return jnp", "    import os\n    return jnp")
    }


def content(tmp_path: Path, raw: bytes) -> str:
    """Read a file of these bytes."""
    path = tmp_path / "file.py"
    path.write_bytes(raw)
    return read(path)


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbfx = 1\n", b"x = 1\r\n", b"x = 1\r"])
def test_marks_and_line_ends_are_read_as_python_does(tmp_path: Path, raw: bytes) -> None:
    assert content(tmp_path, raw) == "x = 1\n"


@pytest.mark.parametrize(
    ("raw", "line", "expected", "observed"),
    [
        (b"", None, "Python source", "the file is empty"),
        (b" \n\t\n", None, "Python source", "the file is empty"),
        (b"x = 1\n\0", None, "Python source in UTF-8", "the file holds binary data"),
        (
            "x = 1\n# caf\xe9\n".encode("latin-1"),
            2,
            "Python source in UTF-8",
            "byte 0xe9 is no UTF-8; save the file as UTF-8",
        ),
        (b"#" * (MAX_BYTES + 1), None, "at most 1,000,000 bytes", "1,000,001 bytes"),
    ],
    ids=["empty", "blank", "binary", "latin", "large"],
)
def test_unreadable_files(
    tmp_path: Path, raw: bytes, line: int | None, expected: str, observed: str
) -> None:
    with pytest.raises(Unreadable) as caught:
        content(tmp_path, raw)
    assert caught.value.finding == Finding("file", line, expected, observed)


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as caught:
        read(tmp_path)
    assert caught.value.finding.observed == f"Is a directory: {tmp_path}"
