"""The inspection of a file before it runs: each finding with its line and words."""

from pathlib import Path

import pytest

from grader.records.record import Finding
from grader.source.inspection import MAX_BYTES, Unreadable, inspect_source, read

SOLUTION = '''"""A task."""

import functools

import jax
import jax.numpy as jnp

AHEAD = 4
NAMES = {"a": [1]}


class Box:
    kept: int = 0


def total(values, scale=1):
    """Add up."""
    return jnp.sum(values) * scale


@jax.jit
def given(x):
    """Not to be touched."""
    return x + 1
'''
RULE = "only `total` changed, imports and helpers added"
EDITS = ("total",)

ADDED = (
    "import functools",
    "import jax.sharding",
    "import jax.experimental",
    "from jax import lax as given_lax",
    "from jax import numpy as jnp",
    "import jax.numpy",
    "def helper(x):\n    return x",
    "async def helper(x):\n    return x",
    "class Sum:\n    pass",
    "class Sum:\n    __slots__ = ('x',)",
    '__all__ = ["total"]',
    "type Tree = dict[str, jax.Array]",
    "def helper[T](x: T) -> T:\n    return x",
    "TABLE = {}\nfor i in range(3):\n    TABLE[i] = i",
    "TABLE = []\nTABLE.append(given(1))",
    "TABLE = [0]\nTABLE[0] += 1\nTABLE *= 2",
    "SQUARES = [i * i for i in range(3)]",
    "i = 0\nwhile i < 3:\n    i += 1\ndel i",
    "if AHEAD > 3:\n    MANY = True\nelse:\n    MANY = False",
    "try:\n    import optax\nexcept ImportError:\n    optax = None",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jax.typing import ArrayLike",
    "with jax.default_device(None):\n    ONE = jnp.ones(1)",
    "match AHEAD:\n    case 4:\n        FOUR = True",
    "@jax.custom_vjp\ndef f(x):\n    return x\nf.defvjp(lambda x: (x, x), lambda r, g: (g,))",
    "class Node:\n    pass\njax.tree_util.register_pytree_node(Node, given, given)",
    "given(1)",
    "def helper(x):\n    return [y for z in x if (y := z)]",
    "def helper(x):\n    if (total := x):\n        return total",
    "def helper(given, AHEAD):\n    AHEAD += 1\n    given[0] = 1",
    "def helper(vars, open):\n    locals = vars, open\n    return locals",
    "AHEAD = 2 + 2",
    "AHEAD: int = 4",
    'if __name__ == "__main__":\n    print(total(jnp.ones(3)))',
    'if __name__ == "__main__":\n    import os\n    AHEAD = 5\n    print(os.name)',
    "for box in [Box()]:\n    kept = box.kept",
    "assert AHEAD == 4",
    "import operator\nTABLE = dict(NAMES)\noperator.setitem(TABLE, 'a', 1)\nTABLE['a'] = 2",
    "import heapq\nQUEUE = [*NAMES['a']]\nheapq.heappush(QUEUE, NAMES['a'][0])",
    'if "__main__" == __name__:\n    import os\n    print(os.name)',
    '__author__ = "A"\n__version__ = "1"',
    'HELP = {"__main__": 1}',
)
REFUSED = {
    "jax = None": "`jax` is changed or bound again",
    "import numpy as jnp": "`jnp` is changed or bound again",
    "from numpy import random as jnp": "`jnp` is changed or bound again",
    "def given(x):\n    return x": "`given` is changed or bound again",
    "def print(x):\n    return x": "`print` is changed or bound again",
    "type len = int": "`len` is changed or bound again",
    "given, other = 1, 2": "`given` is changed or bound again",
    "from jax import *": "`from jax import *` may bind anything again",
    "print(1)": "a new statement at top level: `print(1)`",
    "if AHEAD:\n    print(1)": "a new statement at top level: `print(1)`",
    "for given in range(3):\n    pass": "`given` is changed or bound again",
    "with jax.default_device(None) as given:\n    pass": "`given` is changed or bound again",
    "import math as given": "`given` is changed or bound again",
    "try:\n    pass\nexcept ValueError as given:\n    pass": "`given` is changed or bound again",
    "match AHEAD:\n    case given:\n        pass": "`given` is changed or bound again",
    "match [AHEAD]:\n    case [*given]:\n        pass": "`given` is changed or bound again",
    "AHEAD = 5": "`AHEAD` is changed or bound again",
    "AHEAD = 4.0": "`AHEAD` is changed or bound again",
    "AHEAD = True": "`AHEAD` is changed or bound again",
    "AHEAD += 1": "`AHEAD` is changed or bound again",
    "if AHEAD:\n    AHEAD = 5": "`AHEAD` is changed or bound again",
    "del AHEAD": "`del AHEAD`",
    "def helper():\n    global given\n    given = 1": "`given` is changed or bound again",
    "def helper(x=(given := 1)):\n    pass": "`given` is changed or bound again",
    "X = [(given := y) for y in [1]]": "`given` is changed or bound again",
    "type given = int": "`given` is changed or bound again",
    "class given:\n    pass": "`given` is changed or bound again",
    "async def given(x):\n    pass": "`given` is changed or bound again",
    'NAMES["a"] = 2': "`NAMES['a']` changes what was given",
    'NAMES["a"][0] = 2': "`NAMES['a'][0]` changes what was given",
    "def helper():\n    NAMES.clear()": "`NAMES.clear` changes what was given",
    'NAMES.__setitem__("a", 1)': "`NAMES.__setitem__` changes what was given",
    'NAMES["a"].append(1)': "`NAMES['a'].append` changes what was given",
    "import operator\noperator.delitem(NAMES, 'a')": (
        "`operator.delitem(NAMES, 'a')` changes what was given"
    ),
    "from operator import ior as join\njoin(NAMES, {})": "`join(NAMES, {})` changes what was given",
    "import heapq\nheapq.heappush(NAMES['a'], 1)": (
        "`heapq.heappush(NAMES['a'], 1)` changes what was given"
    ),
    "dict.update(NAMES, a=1)": "`dict.update(NAMES, a=1)` changes what was given",
    "setattr(given, 'lower', 1)": "`setattr(given, 'lower', 1)` changes what was given",
    "Box.kept = 1": "`Box.kept` changes what was given",
    "del Box.kept": "`Box.kept` changes what was given",
    "given.lower = 1": "`given.lower` changes what was given",
}


def inspected(source: str) -> list[Finding]:
    """All findings of a submission."""
    return inspect_source(source, SOLUTION, EDITS)


def replaced(old: str, new: str) -> list[Finding]:
    """All findings of the solution with one thing changed."""
    assert old in SOLUTION
    return inspected(SOLUTION.replace(old, new))


def test_the_solution_itself_has_no_findings() -> None:
    assert inspected(SOLUTION) == []


@pytest.mark.parametrize("added", ADDED)
def test_this_may_be_added(added: str) -> None:
    assert inspected(SOLUTION + added + "\n") == []
    assert inspected(added + "\n" + SOLUTION) == []


@pytest.mark.parametrize("added", REFUSED)
def test_this_may_not_be_added(added: str) -> None:
    finding = inspected(SOLUTION + added + "\n")[0]
    assert (finding.check, finding.expected, finding.observed) == ("edits", RULE, REFUSED[added])
    first = SOLUTION.count("\n") + 1
    at = first <= (finding.line or 0) <= first + added.count("\n")
    assert at or (finding.line is None and added.startswith("del AHEAD"))


def test_what_is_wrong_with_a_name_is_said_at_its_line() -> None:
    helper = "def helper():\n    global given\n    given = 1\n"
    assert inspected(SOLUTION + helper)[0].line == SOLUTION.count("\n") + 3


@pytest.mark.parametrize(
    ("form", "observed"),
    [
        (
            'if __name__ == "__main__" and AHEAD:\n    print(1)',
            "__name__ == '__main__' and AHEAD:`",
        ),
        (
            'if __name__ == "__main__":\n    import os\nelse:\n    print(1)',
            "__name__ == '__main__':` with `else`",
        ),
        ('if "__main__" in __name__:\n    print(1)', "'__main__' in __name__:`"),
    ],
)
def test_what_a_learner_runs_has_one_form(form: str, observed: str) -> None:
    expected = 'only `if __name__ == "__main__":`, without a second condition or `else`'
    last = SOLUTION.count("\n") + 1
    assert inspected(SOLUTION + form) == [Finding("edits", last, expected, f"`if {observed}")]


@pytest.mark.parametrize("name", ["__name__", "__file__"])
def test_a_file_does_not_ask_where_it_runs(name: str) -> None:
    """What runs here and nowhere else would be no answer."""
    findings = inspected(SOLUTION + f"if {name} == 'submission':\n    HERE = True\n")
    assert [finding.expected for finding in findings] == [f"a solution without `{name}`"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("jnp.sum(values)", "values.sum()"),
        ("values, scale=1", "values: list, scale: int = 1"),
        ('    """Add up."""\n', ""),
        ('    """Not to be touched."""\n', ""),
        ('"""A task."""', '"""Another."""'),
        ("    return x + 1", "    # a remark\n    return (x + 1)"),
        ("def given(x):", "def given(x: jax.Array) -> jax.Array:"),
        ("import jax.numpy as jnp", "from jax import numpy as jnp"),
        ("import functools\n", ""),
        ("AHEAD = 4", "AHEAD = 2 * 2"),
        ("def total(values, scale=1):", "@jax.jit\ndef total(values, scale=1):"),
    ],
)
def test_this_may_differ(old: str, new: str) -> None:
    assert replaced(old, new) == []


def test_a_changed_function_is_named_with_its_line() -> None:
    assert replaced("x + 1", "x + 2") == [
        Finding("edits", 22, RULE, "`given` is changed or bound again")
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
        Finding("definitions", 16, "`def total(values, scale)`", observed)
    ]


def test_a_decorator_of_the_files_own_may_give_other_parameters() -> None:
    helper = "def with_rows(function):\n    return function\n\n\n"
    wrapped = f"{helper}@with_rows\ndef total(rows, values, scale=1)"
    assert replaced("def total(values, scale=1)", wrapped) == []


@pytest.mark.parametrize("more", ["values, scale=1, lag=2", "values, scale=1, *, lag=2"])
def test_more_parameters_may_have_defaults(more: str) -> None:
    assert replaced("values, scale=1", more) == []


def test_an_async_function() -> None:
    assert replaced("def total", "async def total") == [
        Finding("definitions", 16, "a plain function", "`async def total`")
    ]


def test_a_syntax_error_has_its_line() -> None:
    assert replaced("def total(values, scale=1):", "def total(values, scale=1)") == [
        Finding("file", 16, "valid Python", "SyntaxError: expected ':'")
    ]
    (finding,) = replaced("    return x + 1", "    return x + 1\n      y")
    assert (finding.line, finding.observed) == (25, "IndentationError: unexpected indent")


@pytest.mark.parametrize(
    "deep",
    ["(" * 5000 + ")" * 5000, "+".join(["1"] * 20_000), "-" * 50_000 + "1"],
    ids=["brackets", "sum", "signs"],
)
@pytest.mark.parametrize("at_top", [True, False], ids=["top", "edited"])
def test_deep_nesting_breaks_nothing(deep: str, at_top: bool) -> None:
    source = SOLUTION + f"x = {deep}\n" if at_top else SOLUTION.replace("jnp.sum(values)", deep)
    assert {finding.check for finding in inspected(source)} <= {"file", "edits"}


def test_deep_nesting_is_named_with_its_line() -> None:
    finding = inspected(SOLUTION + "\nAHEAD = " + "-" * 1500 + "1\n")[0]
    assert (finding.check, finding.line) == ("file", SOLUTION.count("\n") + 2)


def test_a_long_chain_of_calls_is_read() -> None:
    chain = "text" + ".replace('a', 'b')" * 300
    assert inspected(SOLUTION + f"def helper(text):\n    return {chain}\n") == []


def test_warnings_are_left_to_the_run(recwarn: pytest.WarningsRecorder) -> None:
    assert replaced("jnp.sum(values)", r"len('\d')") == []
    assert not recwarn.list


def test_findings_stop_at_the_first_kind() -> None:
    """A learner who renamed the function is not told about the import at the same time."""
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
def test_byte_order_marks_and_line_ends_are_read_as_python_does(tmp_path: Path, raw: bytes) -> None:
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
            "byte 0xe9 is not UTF-8; save the file as UTF-8",
        ),
        (
            b"\n# coding: utf-16\nx = 1\n",
            2,
            "Python source in UTF-8",
            "Python cannot read the file with this encoding; save it as UTF-8, without this line",
        ),
        (
            b"\xef\xbb\xbf# -*- coding: latin-1 -*-\nx = 1\n",
            1,
            "Python source in UTF-8",
            "Python cannot read the file with this encoding; save it as UTF-8, without this line",
        ),
        (b"#" * (MAX_BYTES + 1), None, "at most 100,000 bytes", "100,001 bytes"),
    ],
    ids=["empty", "blank", "binary", "latin", "utf-16", "mark and latin", "large"],
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
