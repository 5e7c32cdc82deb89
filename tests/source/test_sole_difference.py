"""The one place where a file parts from the reference solution."""

import ast
from pathlib import Path

import pytest

from grader.source.sole_difference import Parting, parting, sole_unlike

MODEL = '''\
"""A trainer."""

import jax
import jax.numpy as jnp


def loss_of(params, batch):
    """Return a float32 scalar."""
    errors = batch[0] @ params - batch[1]
    return jnp.mean(errors**2, axis=0)


def train(params, batches, rate):
    """Return (params, losses)."""
    losses = []
    for batch in batches:
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        params -= rate * grads
        losses.append(loss)
    if not losses:
        raise ValueError("no batch")
    return params, [float(loss) for loss in losses]
'''


def found(mine: str) -> str:
    """The first line of the difference, with its number."""
    node = parting(mine, MODEL).sole()
    text = ast.get_source_segment(mine, node) if node is not None else None
    return f"{node.lineno}: {text.splitlines()[0]}" if node is not None and text else ""


def changed(*pairs: tuple[str, str]) -> str:
    mine = MODEL
    for before, after in pairs:
        assert before in mine
        mine = mine.replace(before, after)
    return mine


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ("jnp.mean(", "jnp.sum(", "10: jnp.sum"),
        ("axis=0", "axis=1", "10: 1"),
        (", axis=0", "", "10: jnp.mean(errors**2)"),
        ("axis=0", "axis=0, keepdims=True", "10: keepdims=True"),
        ("errors**2", "batch", "10: batch"),
        ("errors**2", "errors**2.0", "10: 2.0"),
        ("batch[0] @", "batch[0] *", "9: batch[0] * params"),
        ("rate * grads", "grads", "18: grads"),
        ("rate *", "rate + rate *", "18: rate + rate * grads"),
        ("not losses", "losses", "20: losses"),
        ("append(loss)", "append(float(loss))", "19: float(loss)"),
        ("        losses.append(loss)\n", "    losses.append(loss)\n", ""),
        ("return params, [", "return [", "22: [float(loss) for loss in losses]"),
        (
            "(params, batch)\n",
            "(batch, params)\n",
            "17: jax.value_and_grad(loss_of)(batch, params)",
        ),
        ("    losses = []\n", "    losses = []\n    print(rate)\n", "16: print(rate)"),
        ("        losses.append(loss)\n", "", ""),
        ("    if not", "    a = 1\n    b = 2\n    if not", ""),
        (
            "(params, batches, rate)",
            "(params, batches, rate=0.1)",
            "13: 0.1",
        ),
        ("def loss_of", "@jax.jit\ndef loss_of", "7: jax.jit"),
        ('raise ValueError("no batch")', "return params, []", "21: return params, []"),
    ],
)
def test_one_difference(before: str, after: str, place: str) -> None:
    assert found(changed((before, after))) == place


def test_a_step_that_another_statement_uses_is_not_where_that_differs() -> None:
    model = "def place(x):\n    mesh = make()\n    return put(x, Sharding(mesh))\n"
    node = parting(model.replace("Sharding(mesh)", "mesh"), model).sole()
    assert node is not None
    assert (node.lineno, ast.unparse(node)) == (3, "mesh")


@pytest.mark.parametrize(
    "pairs",
    [
        [("errors", "e")],
        [("losses", "found"), ("grads", "slopes"), ("float(loss) for loss", "float(x) for x")],
        [("import jax.numpy as jnp", "from jax import numpy"), ("jnp.", "numpy.")],
        [("import jax.numpy as jnp", "from jax.numpy import mean"), ("jnp.mean", "mean")],
        [("import jax\nimport jax.numpy as jnp", "import jax"), ("jnp.", "jax.numpy.")],
        [("params -= rate * grads", "params = params - rate * grads")],
        [("losses = []", "losses: list[jax.Array] = []")],
        [("(params, batches, rate)", "(params: jax.Array, batches, rate: float) -> None")],
        [
            ("    errors = batch[0] @ params - batch[1]\n", ""),
            ("errors*", "(batch[0] @ params - batch[1])*"),
        ],
        [
            ("    return params, [", "    read = ["),
            ("in losses]", "in losses]\n    return params, read"),
        ],
        [('"""Return a float32 scalar."""', '"""Mean."""')],
    ],
)
def test_what_makes_no_difference(pairs: list[tuple[str, str]]) -> None:
    assert found(changed(*pairs)) == ""
    assert found(changed(*pairs, ("axis=0", "axis=1"))).endswith(": 1")


def test_a_file_is_told_from_the_reference_in_any_order_of_its_functions() -> None:
    head, loss, train = MODEL.split("\n\n\n")
    mine = "\n\n\n".join((head, train.rstrip(), loss))
    assert found(mine) == ""
    assert found(mine.replace("axis=0", "axis=1")) == "22: 1"


def test_what_stands_in_an_if_that_always_holds_is_compared() -> None:
    function = MODEL[MODEL.index("def loss_of") : MODEL.index("def train")].rstrip("\n")
    inside = "if True:\n\n" + "\n".join(f"    {line}" for line in function.split("\n"))
    assert found(MODEL.replace(function, inside)) == ""
    assert parting(MODEL.replace(function, inside), MODEL).own == []
    mine = MODEL.replace(function, inside).replace("jnp.mean(", "jnp.sum(")
    assert found(mine).endswith(": jnp.sum")


def test_of_two_differences_none_is_the_cause() -> None:
    assert found(changed(("axis=0", "axis=1"), ("rate *", "2 *"))) == ""


def test_of_two_differences_in_one_statement_it_is_the_statement() -> None:
    place = found(changed(("batch[0] @", "batch[1] @"), ("- batch[1]", "- batch[0]")))
    assert place == "9: batch[1] @ params - batch[0]"


def test_two_differences_in_one_loop_are_two() -> None:
    assert found(changed(("rate *", "2 *"), ("append(loss)", "append(params)"))) == ""


def test_a_variable_stands_for_one_other_variable() -> None:
    mine = changed(("errors = ", "e = "), ("errors**2", "params**2"))
    assert found(mine) == "10: params"


def test_a_function_of_its_own_is_a_difference_beside_its_call() -> None:
    assert found(changed(("import jax\n", "import jax\n\n\ndef f(x):\n    return x\n")))
    mine = changed(
        ("jnp.mean(", "f("), ("import jax\n", "import jax\n\n\ndef f(x):\n    return x\n")
    )
    assert found(mine) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def (",
        "x = 1",
        "\x00",
        "1" + " + 1" * 20_000,
        "(" * 90 + ")" * 90,
        f"x = 0x{'f' * 9999}",
    ],
)
def test_any_text_is_read(text: str) -> None:
    assert parting(text, MODEL).sole() is None or text == "x = 1"
    parting(MODEL + "\n" + text, MODEL)


def test_solutions_do_not_differ_from_themselves() -> None:
    for path in sorted((Path(__file__).parents[2] / "solutions").glob("ex*.py")):
        assert parting(path.read_text(), path.read_text()) == Parting([], [])


def own(mine: str) -> list[str]:
    nodes = parting(mine, MODEL).own
    return [(ast.get_source_segment(mine, node) or "").split("\n")[0] for node in nodes]


def test_a_file_has_statements_of_its_own() -> None:
    assert own(MODEL) == []
    mine = changed(
        ("in batches:", "in list(batches):"),
        ("append(loss)", "append(\n            float(loss)\n        )"),
    )
    assert own(mine) == ["for batch in list(batches):", "losses.append("]
    assert own(changed(("    losses = []\n", "    a = 1\n    losses = []\n    b = 1\n"))) == [
        "a = 1",
        "losses = []",
        "b = 1",
    ]
    assert own(changed(("axis=0", "axis=1"), ("rate *", "2 *"))) == [
        "return jnp.mean(errors**2, axis=1)",
        "params -= 2 * grads",
    ]


def test_a_statement_that_reads_something_else_is_not_the_models() -> None:
    mine = changed(("params -= rate * grads", "new = params - rate * grads"))
    reading = [ast.unparse(node) for node in parting(mine, MODEL).reading]
    assert "loss, grads = jax.value_and_grad(loss_of)(params, batch)" in reading
    assert not parting(changed(("params -= rate", "params -= 2")), MODEL).reading


def test_it_is_known_whether_a_file_lacks_a_statement() -> None:
    shorter = changed(("axis=0", "axis=1"), ("        losses.append(loss)\n", ""))
    assert parting(shorter, MODEL).lacks
    assert own(shorter) == ["return jnp.mean(errors**2, axis=1)"]
    assert not parting(changed(("axis=0", "axis=1")), MODEL).lacks
    assert own(MODEL + "\nx = " + "-" * 20_000 + "1") in ([], ["x = " + "-" * 20_000 + "1"])


def test_of_a_function_only_its_own_difference_counts() -> None:
    mine = changed(("axis=0", "axis=1"), ("rate * grads", "grads"))
    assert parting(mine, MODEL).sole() is None
    nodes = [parting(mine, MODEL).sole(name) for name in ("loss_of", "train")]
    assert [ast.unparse(node) for node in nodes if node] == ["1", "grads"]
    assert parting(f"{mine}\n\ndef other():\n    pass\n", MODEL).sole("train") is None


def test_a_variable_may_be_used_again_for_a_new_value() -> None:
    pairs = ("    errors = batch[0]", "    batch = batch[0]"), ("errors**2", "batch**2")
    assert found(changed(*pairs)) == ""
    assert found(changed(*pairs, ("axis=0", "axis=1"))) == "10: 1"


GIVEN = """\
def given(x, w):
    up, gate = x @ w["up"], x @ w["gate"]
    hidden = jnp.sin(up) * jnp.cos(gate)
    hidden = hidden / (hidden + 1e-6)
    return x + jnp.tanh(hidden)


"""
ANEW = """\
def anew(x, w):
    def mix(a, b):
        h = jnp.sin(a) * jnp.cos(b)
        return h / (h + 1e-6)

    up, gate = x @ w["up"], x @ w["gate"]
    return x + jnp.tanh(mix(up, gate))
"""
"""The same, where other variables stand for other parts."""
APART = """return jnp.tanh(mixed(up, gate))


def mixed(a, b):
    h = jnp.sin(a) * jnp.cos(b)
    return h / (h + 1e-6)
"""


@pytest.mark.parametrize(
    ("before", "after", "unlike"),
    [
        ("", "", ""),
        ("jnp.sin(a)", "jnp.cos(a)", "jnp.cos"),
        ('w["gate"]', 'w["up"]', "'up'"),
        ("x + jnp", "x - jnp", "x - jnp.tanh(mix(up, gate))"),
        ("return x + jnp.tanh(mix(up, gate))", "return mix(up, gate)", "mix(up, gate)"),
        ("x @ w", "w @ x", ""),
        ('x @ w["up"], x @', 'x @ w["up"], 2 * x @', "2 * x"),
        ("return x + jnp.tanh(mix(up, gate))", APART, "jnp.tanh(mixed(up, gate))"),
    ],
)
def test_where_a_given_function_is_written_anew(before: str, after: str, unlike: str) -> None:
    mine = ANEW.replace(before, after) if before else ANEW
    node = sole_unlike(GIVEN + mine, "given")
    assert (ast.unparse(node) if node else "") == unlike


def test_a_function_that_is_not_there_or_not_written_anew() -> None:
    assert sole_unlike(ANEW, "given") is None
    assert sole_unlike(f"{GIVEN}def other(x):\n    return 2 * x + 1\n", "given") is None


def test_what_is_much_larger_than_a_solution_is_not_compared() -> None:
    mine = changed(("axis=0", "axis=1"))
    assert parting(mine, MODEL).sole() is not None
    assert parting(mine + "\nx = 1" * 3000, MODEL) == Parting([], [])
