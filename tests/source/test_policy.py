"""The source policy: what it refuses, with line and words, and what it must let through."""

import ast
import importlib
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import policy_cases
import pytest
from conftest import ROOT

from grader.course.catalog import Entry
from grader.records.record import Finding
from grader.source.allowed import ARRAY_ATTRIBUTES, HANDLES, MAKERS, RENAMED, Row, known, table
from grader.source.policy import MAX_FINDINGS, violations

PUBLIC = "public names: private ones change without notice"
WATCHED = "transfers and compiles are left to the grader to watch"
CONFIG = "JAX's configuration stays as it is"
LEFT = "attributes are set only on what the file itself makes"
DUNDER = "a solution without `__class__`"

ATTACKS, ANSWERS = policy_cases.attacks(), policy_cases.answers()

# `source|observed|expected`: the last line of the source is refused.
REFUSED = (
    "import os|`import os`|a solution without the module `os`",
    "import os.path as p|`import os.path as p`|a solution without the module `os`",
    "from sys import modules|`from sys import modules`|a solution without the module `sys`",
    "import grader|`import grader`|a solution without the module `grader`",
    "from contextlib import sys|`from contextlib import sys`|a solution without `contextlib.sys`",
    "import contextlib as c\nc.sys|`c.sys`|a solution without `contextlib.sys`",
    "from jax import monitoring|`from jax import monitoring`|" + WATCHED,
    "import jax.monitoring as m|`import jax.monitoring as m`|" + WATCHED,
    "import jax\njax.transfer_guard('allow')|`jax.transfer_guard`|" + WATCHED,
    "from jax._src import core|`from jax._src import core`|" + PUBLIC,
    "import jax as j\nj.config.update('a', 1)|`j.config.update`|" + CONFIG,
    "from jax import config\nconfig.update('a', 1)|`config.update`|" + CONFIG,
    "import jax\nf(jax)|`f(jax)`|a module is used only before a dot",
    "import jax\njax.device_put = 1|`jax.device_put` is assigned|" + LEFT,
    "import jax\ndel jax.device_put|`jax.device_put` is assigned|" + LEFT,
    "import jax\nsetattr(jax, 'jit', 1)|`jax.jit` is assigned|" + LEFT,
    "type(x).item = 1|`type(x).item` is assigned|" + LEFT,
    "import jax\ngetattr(jax, name)|`getattr(jax, name)`|attributes called by name",
    "x.__class__|`x.__class__`|" + DUNDER,
    "getattr(x, '__class__')|`x.__class__`|" + DUNDER,
    "'{0.__class__} and more'.format(x)|'{0.__class__} and more'|" + DUNDER,
    "match x:\n    case object(__class__=c): pass|`object.__class__`|" + DUNDER,
    "x._value|`x._value`|" + PUBLIC,
    "x.gi_frame|`x.gi_frame`|a solution without `gi_frame`",
    "eval('1')|`eval`|a solution without `eval`",
    "import numpy as np\nnp.memmap('f')|`np.memmap`|a solution without `numpy.memmap`",
    "def __array__(): pass|`__array__`|a solution without `__array__`",
)


def found(source: str, *allowed: str) -> list[Finding]:
    """All findings of a piece of source."""
    return list(violations(ast.parse(source), allowed))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.split("|")[1])
def test_this_is_refused_with_its_line_and_in_these_words(case: str) -> None:
    source, observed, expected = case.split("|")
    last = source.count("\n") + 1
    assert found(source) == [Finding("policy", last, expected, observed)]


def test_there_are_many_cases() -> None:
    assert len(ATTACKS) > 200
    assert len(ANSWERS) > 90


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_at_its_line(name: str) -> None:
    source = ATTACKS[name]
    (line,) = (n for n, text in enumerate(source.split("\n"), 1) if text.endswith("# here"))
    findings = found(source)
    assert findings
    assert findings[0].line == line
    assert findings[0].expected
    assert findings[0].observed


@pytest.mark.parametrize("name", ANSWERS)
def test_an_unusual_answer_is_let_through(name: str) -> None:
    assert found(ANSWERS[name]) == []


def test_a_name_that_is_gone_or_misspelt_comes_with_the_right_one() -> None:
    (gone,) = found("import jax\njax.tree_map(f, x)")
    assert gone.observed == "`jax.tree_map`: JAX took it away; it is `jax.tree.map` now"
    (typed,) = found("import jax\njax.device_coutn()")
    assert typed.observed == "`jax.device_coutn`: did you mean `jax.device_count`?"
    (far,) = found("import jax\njax.whatever()")
    assert far.observed == "`jax.whatever`"


def _reached(path: str) -> object:
    """What a dotted name of JAX stands for, or None."""
    parts, value = path.split("."), jax
    for part in parts[1:]:
        value = getattr(value, part, None)
    return value


@pytest.mark.parametrize("path", [p for p, said in RENAMED.items() if "took it away" in said])
def test_what_is_said_to_be_gone_is_gone(path: str) -> None:
    assert _reached(path) is None
    now = RENAMED[path].split("`")[1]
    assert now.startswith("x.at") or callable(_reached(now))


def test_an_exercise_may_ask_for_a_module() -> None:
    assert found("import os\nimport sys\nos.environ['A'] = '1'", "os") == [
        Finding("policy", 2, "a solution without the module `sys`", "`import sys`")
    ]
    assert found("import time\ntime.perf_counter()", "time") == []
    assert found("import threading as t\nt.Thread(target=f)", "threading") == []
    (finding,) = found("import os\nos.system('ls')", "os")
    assert finding == Finding("policy", 2, "a solution without `os.system`", "`os.system`")


def test_the_environment_may_be_updated_where_os_is_asked_for() -> None:
    source = "import os\nos.environ |= {'A': '1'}\nos.environ = {}\nos.environ &= 1\nos.name |= 1"
    assert [finding.line for finding in found(source, "os")] == [3, 4, 5]
    assert [finding.line for finding in found(source)] == [1, 2, 3, 4, 5]


def test_a_model_may_be_changed_where_the_exercise_is_about_models() -> None:
    source = "def f(model):\n    model.w.value = 1\n    model.rate = 0"
    assert found(source, "flax.nnx") == []
    assert [finding.line for finding in found(source)] == [2, 3]
    assert len(found("def f(kind):\n    kind.item = 1", "flax.nnx")) == 1
    assert len(found("import jax\njax.rate = 1", "flax.nnx")) == 1


def test_findings_come_in_the_order_of_lines() -> None:
    source = "def f():\n    def g():\n        import os\n    return eval('1')\nimport sys"
    assert [finding.line for finding in found(source)] == [3, 4, 5]


def test_a_file_full_of_findings_does_not_take_long() -> None:
    assert len(found("import jax\n" + "f(jax)\n" * 5000)) == MAX_FINDINGS
    assert len(found("import jax\nf(" + "jax, " * 5000 + ")")) == 1


def test_names_are_followed_however_long_the_way_is() -> None:
    """Each step doubles the ways to the module: they are not walked one by one."""
    steps = "\n".join(f"x{n + 1} = x{n} if x{n} else x{n}" for n in range(3000))
    (finding,) = found(f"import jax\nx0 = jax\n{steps}\nx3000.config.update('a', 1)")
    assert (finding.line, finding.expected) == (3003, CONFIG)


LONG = {
    "attributes": "def f(x):\n" + f"    x{'.a' * 400}\n" * 100,
    "texts": "t = '" + "{0.a}" * 5000 + "'\n" + "t.format(x)\n" * 4000,
    "names of attributes": f"for n in {tuple('abcdefghij') * 3}:\n" + "    getattr(x, n)\n" * 2000,
    "one class again": "class A: pass\n" * 3000 + "A().x\n" * 3000,
    "one object again": "class A: pass\n" + "a = A()\n" * 3000 + "a._x\n" * 3000,
    "parts": "class A:\n def f(self):\n  self.a = A()\n" + f"  self{'.a' * 300}._x\n" * 100,
    "a chain of classes": "".join(f"class A{n + 1}(A{n}): pass\n" for n in range(3000)),
    "methods": "class A:\n def f(self): self.x = 1\n" * 1500 + "x.f()\n" * 3000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_file_is_read_once_and_not_once_for_each_of_its_lines(name: str) -> None:
    """Each takes many times as long where something is asked anew for each line."""
    assert found("class A0: pass\n" + LONG[name]) == []


@pytest.mark.parametrize("folder", ["exercises", "solutions", "tests/variants"])
def test_no_exercise_needs_what_is_refused(folder: str) -> None:
    paths = [path for path in sorted((ROOT / folder).rglob("*.py")) if _is_honest(path)]
    assert paths
    assert {path.name: refused(path) for path in paths} == {path.name: [] for path in paths}


def refused(path: Path) -> list[Finding]:
    """What the policy finds in a file of an exercise, which may ask for a module."""
    stem = path.parent.parent.name if "variants" in path.parts else path.stem
    return found(path.read_text("utf-8"), *Entry(stem).exercise.allowed_modules)


def _is_honest(path: Path) -> bool:
    return not path.read_text("utf-8").startswith("# expect: source")


# The table itself, held against what is installed.

REQUESTED = tuple(row.module for row in known() if row.on_request)


def test_the_reference_names_every_module_that_stands_on_its_own() -> None:
    page = (ROOT / "docs" / "reference" / "what-a-file-may-hold.md").read_text("utf-8")
    tops = {row.module for row in known() if "." not in row.module} - {"__future__"}
    inner = {row.module for row in known() if row.module.count(".") == 1}
    shown = inner - {"collections.abc", "jax.config"}
    shown = {module for module in shown if module.split(".")[0] == "jax"}
    assert {module for module in tops | shown if f"`{module}`" not in page} == set()


def test_each_module_has_one_row_with_its_reason_and_its_package() -> None:
    modules = [row.module for row in known()]
    assert len(modules) == len(set(modules))
    for row in known():
        assert row.reason
        parent = row.module.rpartition(".")[0]
        assert not parent or parent in modules


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", [r for r in known() if r.names is None], ids=lambda r: r.module)
def test_no_module_hides_behind_a_row_that_allows_every_name(row: Row) -> None:
    module, rows = _load(row.module), table(REQUESTED)
    names = {name for name in dir(module) if not name.startswith("_")}
    assert names
    hidden = {name for name in names if isinstance(getattr(module, name), types.ModuleType)}
    hidden = {name for name in hidden if f"{row.module}.{name}" not in rows}
    assert hidden - row.but == set()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", [r for r in known() if r.names], ids=lambda r: r.module)
def test_no_listed_name_is_a_module(row: Row) -> None:
    module, rows = _load(row.module), table(REQUESTED)
    values = {name: getattr(module, name, None) for name in row.names}
    assert any(value is not None for value in values.values())
    modules = {name for name, value in values.items() if isinstance(value, types.ModuleType)}
    assert {name for name in modules if f"{row.module}.{name}" not in rows} == set()


def _load(path: str) -> object:
    """A module, or an attribute of one."""
    try:
        return importlib.import_module(path)
    except ImportError:
        parent, _, name = path.rpartition(".")
        found: object = getattr(_load(parent), name)
        return found


def test_the_array_attributes_are_those_of_jax() -> None:
    public = {name for name in dir(type(jnp.ones(1))) if not name.startswith("_")}
    public |= {name for name in dir(jax.jit(len)) if not name.startswith("_")}
    assert public - ARRAY_ATTRIBUTES == set()


def test_a_client_of_jax_offers_nothing_that_starts_work() -> None:
    client = jax.devices()[0].client
    harmless = (
        "device_count device_from_local_hardware_id devices get_default_layout host_id is_c_api "
        "local_device_count local_devices platform platform_version process_index runtime_type "
        "task_id compile"
    )
    offered = {name for name in dir(client) if not name.startswith("_")}
    assert offered - HANDLES - set(harmless.split()) == set()


def test_makers_are_names_of_the_table() -> None:
    rows = table()
    for maker in MAKERS:
        module, _, name = maker.rpartition(".")
        row = rows[module]
        assert name in row.names if row.names is not None else name not in row.but
