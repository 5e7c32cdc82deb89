"""The source policy: each refusal with its line and words, and what it must let through."""

import ast
from pathlib import Path

import pytest
from conftest import ROOT

from grader.catalog import Entry
from grader.policy import MODULES, violations
from grader.record import Finding

PUBLIC = "public names: private ones change without notice"
WATCHED = "transfers and compiles are left to the grader to watch"
CONFIG = "JAX's configuration stays as it is"
LEFT = "modules and types stay as they are"
DUNDER = "a solution without `__class__`"

# What follows the bar is refused: `source|observed|expected`. The last line is at fault.
REFUSED = (
    "import os|`import os`|a solution without the module `os`",
    "import os.path as p|`import os.path as p`|a solution without the module `os`",
    "from sys import modules|`from sys import modules`|a solution without the module `sys`",
    "import grader|`import grader`|a solution without the module `grader`",
    "from contextlib import sys|`from contextlib import sys`|a solution without the module `sys`",
    "import contextlib as c\nc.sys|`c.sys`|a solution without the module `sys`",
    "from jax import monitoring|`from jax import monitoring`|" + WATCHED,
    "import jax.monitoring as m|`import jax.monitoring as m`|" + WATCHED,
    "from jax.monitoring import f|`from jax.monitoring import f`|" + WATCHED,
    "import jax\njax.transfer_guard('allow')|`jax.transfer_guard`|" + WATCHED,
    "from jax._src import core|`from jax._src import core`|" + PUBLIC,
    "import jax as j\nj.config.update('a', 1)|`j.config.update`|" + CONFIG,
    "from jax import config\nconfig.update('a', 1)|`config.update`|" + CONFIG,
    "import jax\nc = jax.config\nc.update('a', 1)|`c.update`|" + CONFIG,
    "import jax\njax.device_put = 1|`jax.device_put` is assigned|" + LEFT,
    "import jax\ndel jax.device_put|`jax.device_put` is assigned|" + LEFT,
    "import jax\nsetattr(jax, 'jit', 1)|`jax.jit` is assigned|" + LEFT,
    "from jax import Array as A\nA.item = 1|`A.item` is assigned|" + LEFT,
    "type(x).item = 1|`type(x).item` is assigned|" + LEFT,
    "setattr(type(x), 'item', 1)|`type(x).item` is assigned|" + LEFT,
    "import jax\ngetattr(jax, name)|`getattr(jax, name)`|attributes called by name",
    "x.__class__|`x.__class__`|" + DUNDER,
    "getattr(x, '__class__')|`x.__class__`|" + DUNDER,
    "hasattr(x, '__class__')|`x.__class__`|" + DUNDER,
    "attrgetter('a.__class__')|'a.__class__'|" + DUNDER,
    "'{0.__class__} and more'.format(x)|'{0.__class__} and more'|" + DUNDER,
    "match x:\n    case object(__class__=c): pass|`object.__class__`|" + DUNDER,
    "x._value|`x._value`|" + PUBLIC,
    "self.loss._value|`self.loss._value`|" + PUBLIC,
    "getattr(x, '_value')|`x._value`|" + PUBLIC,
    "eval('1')|`eval`|a solution without `eval`",
    "x = open|`open`|a solution without `open`",
    "input('?')|`input`|a solution without `input`",
    "__builtins__|`__builtins__`|a solution without `__builtins__`",
    "__loader__|`__loader__`|a solution without `__loader__`",
    "import numpy as np\nnp.memmap('f')|`np.memmap`|a solution without `memmap`",
)

ALLOWED = (
    "import jax.numpy as jnp\njnp.trace(x) + jnp.linalg.trace(x)",
    "import jax\njax.profiler.trace('x')",
    "from jax.scipy import signal\nsignal.convolve(a, b)",
    "from __future__ import annotations",
    "state = state._replace(count=0)",
    "class Log:\n    def add(self, x):\n        self._kept = [x]\n        super().__init__()",
    "def loss(params, input):\n    return input @ params",
    "compile = jax.jit(f).lower(x).compile()\ncompile(x)",
    'def f(x):\n    """An object with __array__, or with __class__."""',
    "model.weight = model.weight.at[0].set(1)",
    "model.w.value = 1",
    "for name in ('w1', 'b1'):\n    getattr(params, name)",
    "if __name__ == '__main__':\n    print(__doc__)",
    "raise TypeError('an object with __array__ is no array')",
    "'%s__%s' % (a, b)",
    "type(x).__name__",
)


def found(source: str, *allowed: str) -> list[Finding]:
    """All findings of a piece of source."""
    return list(violations(ast.parse(source), allowed))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.split("|")[1])
def test_is_refused_with_its_line(case: str) -> None:
    source, observed, expected = case.split("|")
    last = source.count("\n") + 1
    assert found(source) == [Finding("policy", last, expected, observed)]


@pytest.mark.parametrize("source", ALLOWED)
def test_is_let_through(source: str) -> None:
    assert found(source) == []


def test_every_module_of_the_list_is_refused() -> None:
    assert len(MODULES) > 50
    for module in MODULES:
        assert len(found(f"import {module}")) == 1


def test_an_exercise_may_allow_a_module() -> None:
    assert found("import os\nimport sys\nos.environ", "os") == [
        Finding("policy", 2, "a solution without the module `sys`", "`import sys`")
    ]


def test_the_environment_may_be_updated_where_os_is_allowed() -> None:
    source = "import os\nos.environ |= {'A': '1'}\nos.environ = {}\nos.environ &= 1\nos.name |= 1"
    assert [finding.line for finding in found(source, "os")] == [3, 4, 5]
    assert [finding.line for finding in found(source)] == [1, 3, 4, 5]


def test_findings_come_in_the_order_of_lines() -> None:
    source = "def f():\n    def g():\n        import os\n    return eval('1')\nimport sys"
    assert [finding.line for finding in found(source)] == [3, 4, 5]


@pytest.mark.parametrize("folder", ["exercises", "solutions", "tests/variants"])
def test_no_exercise_needs_what_is_refused(folder: str) -> None:
    paths = [path for path in sorted((ROOT / folder).rglob("*.py")) if _is_honest(path)]
    assert paths
    assert {path.name: refused(path) for path in paths} == {path.name: [] for path in paths}


def refused(path: Path) -> list[Finding]:
    """What the policy finds in a file of an exercise, which may allow a module."""
    stem = path.parent.parent.name if "variants" in path.parts else path.stem
    return found(path.read_text("utf-8"), *Entry(stem).exercise.allowed_modules)


def _is_honest(path: Path) -> bool:
    return not path.read_text("utf-8").startswith("# expect: source")
