"""What a file leaves to helpers is read in the place of the call, with its lines."""

import ast
import textwrap

import pytest

from grader.source.file import File
from grader.source.inlined import inlined, with_lambdas


def form(source: str, *kept: str) -> str:
    return ast.unparse(inlined(ast.parse(textwrap.dedent(source)), kept))


STRAIGHT = """def train(step, params, batches):
    losses = []
    for batch in batches:
        params, loss = step(params, batch)
        losses.append(loss)
    return (params, losses)"""
OTHERS = {
    "a function of the file": """
        def work(step, params, batches):
            losses = []
            for batch in batches:
                params, loss = step(params, batch)
                losses.append(loss)
            return params, losses

        def train(step, params, batches):
            return work(step, params, batches)
        """,
    "in it, with names of its own": """
        def train(step, params, batches):
            def work(f, items):
                nonlocal params
                losses = []
                for batch in items:
                    params, loss = f(params, batch)
                    losses.append(loss)
                return params, losses

            return work(items=batches, f=step)
        """,
    "a static method": """
        class Loop:
            @staticmethod
            def run(f, params, batches):
                losses = []
                for batch in batches:
                    params, loss = f(params, batch)
                    losses.append(loss)
                return params, losses

        def train(step, params, batches):
            return Loop.run(step, params, batches)
        """,
    "one round, and a statement": """
        def train(step, params, batches):
            def one(params, batch):
                params, loss = step(params, batch)
                keep(loss)
                return params

            def keep(value):
                losses.append(value)

            losses = []
            for batch in batches:
                params = one(params, batch)
            return params, losses
        """,
    "in blocks that change nothing": """
        def train(step, params, batches):
            with jax.named_scope("train"):
                losses = []
                if True:
                    for batch in batches:
                        params, loss = step(params, batch)
                        losses.append(loss)
                return params, losses
        """,
}


@pytest.mark.parametrize("how", OTHERS)
def test_a_helper_is_read_in_place(how: str) -> None:
    found = form(OTHERS[how], "train").replace("    nonlocal params\n", "")
    assert found == STRAIGHT


def test_a_generator_is_read_where_all_of_it_is_yielded() -> None:
    source = """
        def items(n):
            for i in range(n):
                yield i

        def load(n):
            yield from items(n)
        """
    assert form(source, "load") == "def load(n):\n    for i in range(n):\n        yield i"


def test_values_that_are_given_are_bound() -> None:
    source = """
        def load(x, n):
            def part(y, *, k=3, m):
                y = y + k
                return y * m
            return part(x.T, m=n)
        """
    wanted = "def load(x, n):\n    y = x.T\n    k = 3\n    y = y + k\n    return y * n"
    assert form(source, "load") == wanted


@pytest.mark.parametrize(
    "helper",
    [
        "def part(y):\n    return y\n\ndef load(x):\n    return part(x) + part(x)",
        "def part(y):\n    return part(y - 1) if y else y\n\ndef load(x):\n    return part(x)",
        "@jax.jit\ndef part(y):\n    return y\n\ndef load(x):\n    return part(x)",
        "def part(*y):\n    return y\n\ndef load(x):\n    return part(x)",
        "def part(y):\n    return y\n\ndef load(x):\n    return part(*x)",
        "def part(y, z):\n    return y\n\ndef load(x):\n    return part(x)",
        "def part(y):\n    yield y\n\ndef load(x):\n    return part(x)",
        "def part(y):\n    if y:\n        return 1\n    return 2\n\ndef load(x):\n    z = part(x)",
        "def part(y):\n    return y\n\ndef load(x):\n    part(x)\n    return x",
        "def load(x):\n    return other(x)",
    ],
)
def test_what_cannot_be_read_so_stays(helper: str) -> None:
    assert form(helper, "load") == ast.unparse(ast.parse(helper))


def test_what_is_kept_stays() -> None:
    source = "def given(y):\n    return y\n\ndef load(x):\n    return given(x)"
    assert form(source, "given", "load") == source


def test_each_line_is_its_own() -> None:
    source = OTHERS["a static method"]
    (loop,) = inlined(ast.parse(textwrap.dedent(source)), ["train"]).body
    assert isinstance(loop, ast.FunctionDef)
    lines = textwrap.dedent(source).split("\n")
    assert [lines[node.lineno - 1].strip() for node in loop.body] == [
        "losses = []",
        "for batch in batches:",
        "return params, losses",
    ]


def test_a_function_that_only_returns_is_a_lambda_where_its_name_stands() -> None:
    source = """
        def load(tree, k):
            def each(x):
                return x * k

            def twice(x):
                return x + x
            return jax.tree.map(each, tree), twice(k)
        """
    tree = with_lambdas(ast.parse(textwrap.dedent(source)), ["load"])
    found = ast.unparse(tree)
    assert "jax.tree.map(lambda x: x * k, tree)" in found
    assert "def twice(x)" in found, "it is called by its name"


def test_a_definition_is_found_with_what_it_leaves_to_others() -> None:
    file = File(textwrap.dedent(OTHERS["a static method"]))
    found = file.defined("train")
    assert isinstance(found, ast.FunctionDef)
    assert found.lineno == 11
    assert found.body[-1].lineno == 9


def test_a_text_that_is_no_program_has_no_definitions() -> None:
    assert File("def train(:\n").defined("train") is None


@pytest.mark.parametrize("text", [" + ".join("1" * 900), "a" + ".b" * 900, "(" * 90 + ")" * 90])
def test_what_is_too_deep_stays(text: str) -> None:
    found = File(f"def train(a):\n    return {text}\n").defined("train")
    assert isinstance(found, ast.FunctionDef)


def test_what_is_too_large_stays() -> None:
    lines = "\n".join(f"    x{i} = a.b + x{i}" for i in range(1000))
    source = f"def train(a):\n    def f(b):\n        return b\n{lines}\n    return f(a)\n"
    assert form(source, "train") == ast.unparse(ast.parse(source))
