"""Slips of the pen that explain a failure without a line of its own."""

import pytest

from grader.source.file import File
from grader.source.slips import OTHER_ORDER, slips

MODEL = """\
def run(step, state, device):
    state = jax.device_put(state, device)
    for _ in range(3):
        state = step(state)
        report(state)
    return state


def loss(state):
    return state.sum()


def report(state):
    print(state)
"""


def found(mine: str) -> list[tuple[int, str]]:
    return [(slip.place.line, slip.words) for slip in slips(File(mine), MODEL, ["run"])]


def test_the_reference_has_no_slips() -> None:
    assert found(MODEL) == []


@pytest.mark.parametrize(
    ("right", "wrong", "line", "words"),
    [
        ("    state = jax.device_put(", "    jax.device_put(", 2, "what `jax.device_put` returns"),
        ("        state = step(", "        step(", 4, "what `step` returns"),
        ("        state = step(", "        new = step(", 4, "`state` is the same in each round"),
        ("        report(state)", "        return state", 5, "inside the loop"),
        ("state, device)\n    for", "state, jax.devices()[1])\n    for", 1, "use `device`"),
        ("        report(state)", "        loss(state)", 5, "what `loss` returns"),
        ("    return state", "    state = put(state)\n    return 0", 6, "uses the `state`"),
        ("        report(state)", "    new = jax.device_put(state)", 5, "uses the `new`"),
        ("report(state)", "a, new = halves(state); report(a)", 5, "uses the `new`"),
        ("report(state)", "for x in state: x = jax.device_put(x)", 5, "uses the `x`"),
        ("put(state, device)", "put(state); use(device)", 2, "`device_put` names no device"),
        (
            "    for",
            "    put = lambda x: jax.device_put(x, device); put(state)\n    for",
            3,
            "`put`",
        ),
        (
            "    state = jax",
            "    device = jax.devices()[0]\n    state = jax",
            2,
            "`device` is another value from this line on",
        ),
        (
            "        report(state)",
            "        if state:\n            return 1\n        else:\n            return 2",
            8,
            "inside the loop",
        ),
        ("report(state)", "if state == 1 or 2: report(state)", 5, "holds always: `2` alone"),
        ("report(state)", "report(state == 'a' or 'b')", 5, "holds always: `'b'` alone"),
        ("report(state)", "re.search(state, 'a')", 5, "its first argument, `state`, in its second"),
        ("report(state)", "state['w'].at[0].set(1)", 5, "what `state['w'].at[0].set` returns"),
        ("report(state)", "jax.tree.map(lambda x: jax.device_put(x), state)", 5, "`jax.tree.map`"),
        ("report(state)", "jax.tree.map(jax.device_put, state)", 5, "`jax.tree.map` returns"),
        ("report(state)", "nnx.merge(graph, state)", 5, "what `nnx.merge` returns"),
        ("report(state)", "new = [jax.device_put(x) for x in state]", 5, "uses the `new`"),
        ("report(state)", "new = {0: jax.device_put(x) for x in state}", 5, "uses the `new`"),
        ("report(state)", "seen = []; seen.append(seen)", 5, "puts the list `seen` into itself"),
        ("report(state)", "for a, b in zip(state, state): report(a)", 5, "uses the `b` of this"),
    ],
)
def test_a_slip_is_named_with_its_line(right: str, wrong: str, line: int, words: str) -> None:
    assert right in MODEL
    where, said = found(MODEL.replace(right, wrong, 1))[0]
    assert where == line
    assert words in said


def test_the_mark_is_on_what_the_slip_is_about() -> None:
    mine = MODEL.replace("device_put(state, device)", "device_put(state)")
    *_, slip = slips(File(mine), MODEL, ["run"])
    assert mine.splitlines()[0][slip.place.column - 1 : slip.place.end - 1] == "device"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("        report(state)", "        if state:\n            return state"),
        (
            "        report(state)",
            "        if not state:\n            continue\n        return state",
        ),
        ("        report(state)", "        for first in state:\n            return first"),
    ],
)
def test_a_return_that_a_loop_may_pass_by_is_none(right: str, wrong: str) -> None:
    assert found(MODEL.replace(right, wrong, 1)) == []


@pytest.mark.parametrize(
    "kept",
    [
        "for x in state: x = jax.device_put(x, device); report(x)",
        "report(state or 'none')",
        "report(state == 'a' or state == 'b' or report('c'))",
        "report(re.search('a', state))",
        "total = add(total, state)",
        "norm = jnp.linalg.norm(state)",
        "_ = jax.device_put(state, device)",
        "a, b = halves(state); report(a)",
        "a, new = halves(state); report(a + new)",
        "new = jax.device_put(state, device); report(lambda: new)",
        "jax.tree.map(lambda x: x.delete(), state)",
        "for a, b in zip(state, state): report(a, b)",
    ],
)
def test_a_value_that_is_used_or_may_be_left_is_no_slip(kept: str) -> None:
    assert found(MODEL.replace("report(state)", kept, 1)) == []


def test_a_result_that_is_rounded_down_is_a_slip_where_the_reference_divides() -> None:
    model = "def mean(total, count):\n    return total / count\n"
    mine = model.replace("/", "//")
    (slip,) = slips(File(mine), model, ["mean"])
    assert slip.words == "`//` rounds down to a whole number"
    for right in (model, "def mean(total, count):\n    return total / (count // 1)\n"):
        assert not list(slips(File(right), model, ["mean"]))
    assert not list(slips(File(mine), mine, ["mean"]))


ORDERED = """\
def run(step, params, batch):
    return step(params, batch), step(batch, batch)
"""


@pytest.mark.parametrize(("given", "slipped"), [("batch, params", 1), ("params, batch", 0)])
def test_arguments_in_an_order_that_no_call_of_the_reference_has_are_a_slip(
    given: str, slipped: int
) -> None:
    mine = f"def run(step, params, batch):\n    return step({given})\n"
    words = [slip.words for slip in slips(File(mine), ORDERED, ["run"])]
    assert words == ["`step` gets its arguments in another order than it takes them"] * slipped


@pytest.mark.parametrize(
    ("right", "given", "slipped"),
    [
        ("nnx.update(model, put(batch))", "nnx.update(put(batch), model)", 1),
        ("normal(key, (2, 3))", "normal((2, 3), key)", 1),
        ("jnp.where(mask, batch, 0)", "jnp.where(mask, 0, batch)", 1),
        ("max(batch, 1)", "max(1, batch)", 0),
        ("jnp.dot(batch, params)", "jnp.dot(params, batch)", 0),
        ("f(batch, 1) + f(1, batch)", "f(1, batch)", 0),
        ("f(batch, 1)", "f(1, params)", 0),
    ],
)
def test_so_are_other_things_but_where_any_order_is_right(
    right: str, given: str, slipped: int
) -> None:
    model, mine = (f"def run(params, batch):\n    return {each}\n" for each in (right, given))
    words = [slip.words for slip in slips(File(mine), model, ["run"])]
    assert len([each for each in words if each.endswith(OTHER_ORDER)]) == slipped


def test_functions_that_may_not_be_edited_have_none() -> None:
    assert list(slips(File(MODEL.replace("state = step", "step")), MODEL, ["other"])) == []


def test_only_what_is_always_a_mistake_has_a_hint() -> None:
    dropped = MODEL.replace("    state = jax.device_put(", "    jax.device_put(")
    called_to_warm_up = MODEL.replace("    for _", "    step(state)\n    for _")
    hints = [
        slip.hint
        for mine in (dropped, called_to_warm_up)
        for slip in slips(File(mine), MODEL, ["run"])
    ]
    assert hints == [
        "The call does not change what it gets. Use what it returns.",
        "",
    ]


ITERATED = '''\
def run(step, batches):
    """Run `step` for each batch; `batches` is an iterator."""
    kept = []
    for batch in batches:
        kept.append(step(batch))
    return kept
'''


def test_an_append_below_the_loop_is_a_slip_where_the_reference_has_it_inside() -> None:
    below = ITERATED.replace(
        "        kept.append(step(batch))", "        new = step(batch)\n    kept.append(new)"
    )
    also = ITERATED.replace("    return kept", "    kept.append(0)\n    return kept")
    found = [
        [(slip.place.line, slip.words) for slip in slips(File(mine), ITERATED, ["run"])]
        for mine in (below, also)
    ]
    assert found == [[(6, "this `append` comes after the loop, and runs once")], []]


def used_up(mine: str, model: str = ITERATED) -> list[int]:
    told = [slip for slip in slips(File(mine), model, ["run"]) if "takes all of" in slip.words]
    assert all(slip.hint for slip in told)
    return [slip.place.line for slip in told]


@pytest.mark.parametrize(
    "taken",
    ["count = len(list(batches))", "count = sum(1 for _ in batches)", "for _ in batches: pass"],
)
def test_an_iterator_that_is_used_up_before_its_loop_is_a_slip(taken: str) -> None:
    mine = ITERATED.replace("kept = []", f"kept = []\n    {taken}")
    assert used_up(mine) == [4]
    assert used_up(mine, ITERATED.replace("an iterator", "a list")) == []


@pytest.mark.parametrize(
    "taken",
    [
        "batches = list(batches)",
        "first = next(batches)",
        "for first in batches: break",
        "if step is None:\n        return [put(batch) for batch in batches]",
        "doubled = list(step)",
    ],
)
def test_a_loop_that_still_gets_something_is_none(taken: str) -> None:
    assert used_up(ITERATED.replace("kept = []", f"kept = []\n    {taken}")) == []


def test_a_dtype_of_few_digits_is_a_slip_where_the_reference_names_none() -> None:
    def said(mine: str, model: str = MODEL) -> list[tuple[int, str]]:
        told = [slip for slip in slips(File(mine), model, ["run"]) if "few digits" in slip.words]
        return [(slip.place.line, slip.about) for slip in told]

    half = MODEL.replace("step(state)", "step(state.astype(jnp.bfloat16))")
    assert said(half) == [(4, "value")]
    assert said(half.replace("jnp.bfloat16", '"float16"')) == [(4, "value")]
    assert said(half.replace("bfloat16", "float32")) == said(half, half) == []


PLACING = """\
def place(tree, device):
    return jax.tree.map(lambda leaf: jax.device_put(leaf, device), tree)
"""


@pytest.mark.parametrize(
    ("mine", "line"),
    [
        ("def put(x, device):\n    return jax.device_put(x, device) if x.ndim else x\n", 2),
        (
            "def put(x, device):\n    if x.ndim < 1:\n        return x\n    return go(x, device)\n",
            0,
        ),
        (
            "def put(x, device):\n    if not x.ndim:\n        return x\n"
            "    return jax.device_put(x, device)\n",
            2,
        ),
        (
            "def put(x, device):\n"
            "    return x if x.devices() == {device} else jax.device_put(x, device)\n",
            0,
        ),
        (
            "class Put:\n    def put(self, x, device):\n        for device in jax.devices():\n"
            "            pass\n        return jax.device_put(x, device)\n\n\nput = Put().put\n",
            3,
        ),
    ],
)
def test_what_the_file_adds_is_searched_too_and_a_condition_that_looks_at_the_place_is_none(
    mine: str, line: int
) -> None:
    edited = "\n\ndef place(tree, device):\n    return [put(leaf, device) for leaf in tree]\n"
    found = list(slips(File(mine + edited), PLACING, ["place"]))
    assert [(slip.place.line, slip.function, slip.about) for slip in found] == (
        [(line, "place", "device")] if line else []
    )


def test_none_is_looked_for_in_what_is_much_larger_than_a_solution() -> None:
    """What compares each statement with all others would take minutes there."""
    dropped = MODEL.replace("    state = jax.device_put(", "    jax.device_put(")
    assert found(dropped)
    lines = "".join(f"    x{i} = x\n" for i in range(600))
    assert found(dropped.replace("    for _", f"{lines}    for _")) == []
    others = "".join(f"def f{i}(a):\n    return a\n\n" for i in range(1200))
    assert found(others + dropped) == []


def test_of_a_function_with_many_conditions_none_decides() -> None:
    one = "    if step:\n        return jax.device_put(state, device)\n"
    text = "def run(step, state, device):\n{}    return state\n"
    assert found(text.format(one))
    assert found(text.format(one * 30)) == []
