"""The statement inside a function that makes the value that a failure is about."""

from collections.abc import Callable

import pytest

from grader.records.record import Leaf, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File, reached
from grader.source.places import of_text

SOURCE = '''import jax


def train(step, params, batches):
    """Two values."""
    best, losses = params, []
    for batch in batches:
        params, loss = step(params, batch)
        losses.append(float(loss))
        best, lowest = params, loss
    return best, losses, "é", jax.device_put(params)


def place(flops):
    intensity = flops % 2
    found = {"intensity": intensity, "share": flops / 3}
    found["bound"] = "memory"
    return found


def make_step(mesh):
    def step(params):
        def add(total, row):
            return total + row, None

        grads = jax.lax.psum(jax.lax.psum(params, "a"), "data")
        return (
            grads,
            1,
        ), 2

    return jax.jit(step, donate_argnums=0)


@jax.jit(donate_argnums=0)
def two(x):
    if x:
        return 1
    return 2
'''
RECORD = Record(exercise="ex00_x", path="x.py", source=SOURCE, seed=1)


def marked(places: list[Culprit], source: str = SOURCE) -> str:
    """What is marked, `line: text`; the line alone where a whole definition is meant."""
    (place,) = places
    line = source.split("\n")[place.line - 1]
    part = line[place.column - 1 : place.end - 1] if place.column else ""
    return f"{place.line}: {part}" if part else f"{place.line}"


HELPED = """
def layer(key):
    return {"bias": zeros(16), "order": arange(3)}


def create(key):
    made = layer(key)
    return made


def other(key):
    return {"bias": 1}
"""


def test_what_a_function_leaves_to_a_helper_is_found_there() -> None:
    record = Record(exercise="ex00_x", path="x.py", source=HELPED, seed=1)
    assert [place.line for place in statements.entry(record, "create", "bias")] == [3]
    assert [place.line for place in statements.every(record, "create", "arange")] == [3]
    assert [place.line for place in statements.every(record, "other", "arange")] == [11]
    names = [getattr(node, "name", "") for node in reached(File(HELPED), "create")]
    assert names == ["create", "layer"]


def test_a_long_chain_of_names_is_reached() -> None:
    """It took minutes while each step asked again what the file defines."""
    chain = "".join(f"a{n + 1} = a{n}\n" for n in range(3000))
    file = File(f"a0 = 0\n{chain}def f():\n    return a3000\n")
    assert len(reached(file, "f")) == 3002


def test_several_items_are_taken_in_a_list_too() -> None:
    source = "def train(batches):\n    placed = put([1])\n    return device_put([1, *batches])\n"
    record = Record(exercise="ex00_x", path="x.py", source=source, seed=1)
    assert [place.line for place in statements.taken(record, "train", "batches")] == [3]


def test_the_only_call_of_a_name_is_found() -> None:
    assert marked(statements.call(RECORD, "make_step", "psum", "jit")) == (
        "32: jax.jit(step, donate_argnums=0)"
    ), "psum is called twice: the next name counts"
    assert marked(statements.call(RECORD, "two", "jit")) == "35: jax.jit(donate_argnums=0)"
    assert marked(statements.call(RECORD, "train", "scan")) == "4"
    assert statements.call(RECORD, "nothing", "scan") == []


def test_every_call_of_a_name_is_found() -> None:
    assert [place.line for place in statements.every(RECORD, "make_step", "psum")] == [26, 26]
    assert marked(statements.every(RECORD, "make_step", "ask")) == "21"


def test_a_call_that_hands_a_function_on_is_found_where_nothing_calls_it() -> None:
    source = "def train(batches, put):\n    queue = list(map(put, batches))\n    return queue\n"
    record = Record(exercise="ex00_x", path="x.py", source=source, seed=1)
    assert marked(statements.every(record, "train", "put"), source) == "2: map(put, batches)"


def test_what_reads_an_attribute_is_found() -> None:
    source = "def layout(mesh):\n    model = mesh.axis_names[1]\n    return model\n"
    record = Record(exercise="ex00_x", path="x.py", source=source, seed=1)
    assert (
        marked(statements.reading(record, "layout", "axis_names"), source) == "2: mesh.axis_names"
    )
    assert statements.reading(record, "layout", "shape") == []


@pytest.mark.parametrize("division", ["flops // nbytes", "divmod(flops, nbytes)"])
def test_what_made_a_divisor_0_is_found(division: str) -> None:
    source = f"def place(flops, nbytes):\n    intensity = {division}\n    return 1 / intensity\n"
    record = Record(exercise="ex00_x", path="x.py", source=source, seed=1)
    found = statements.of_zero(record, ["place"], "ZeroDivisionError: division by zero")
    assert marked(found, source) == f"2: {division}"
    assert statements.of_zero(record, ["place"], "ValueError") == []


def test_the_only_remainder_is_found() -> None:
    assert marked(statements.remainder(RECORD, "place")) == "15: flops % 2"
    assert marked(statements.remainder(RECORD, "train")) == "4"


def test_an_entry_of_a_dict_is_found() -> None:
    assert marked(statements.entry(RECORD, "place", "share")) == "16: flops / 3"
    assert marked(statements.entry(RECORD, "place", "intensity")) == "15: intensity = flops % 2"
    assert marked(statements.entry(RECORD, "place", "bound")) == '17: "memory"'
    assert marked(statements.entry(RECORD, "place", "attainable")) == "14"


def test_what_a_dict_gets_under_the_keys_of_a_text_is_found() -> None:
    def found(text: str) -> list[int]:
        return [at.line for at in statements.of_keys(File(SOURCE), "place", text)]

    assert found("`place(...)['share']` has dtype float32") == [16]
    assert found("`['share']` on cpu:0, `['bound']` on cpu:0") == [16, 17]
    assert found("`found['intensity']['share']` is 1") == [16], "the inner key first"
    assert found("`found['share']['b']` is 1") == [16], "nothing is called b"
    assert found("`share` is 1, and ['share'] is no value") == []


def test_the_statement_that_makes_a_result_is_found() -> None:
    assert marked(statements.result(RECORD, "train", 0, 4)) == "10: best, lowest = params, loss"
    assert marked(statements.result(RECORD, "train", 1, 4)) == "9: losses.append(float(loss))"
    assert marked(statements.result(RECORD, "train", 3, 4)) == "11: jax.device_put(params)"
    assert marked(statements.result(RECORD, "train", 0, 2)) == "4", "it returns four values"
    assert marked(statements.result(RECORD, "place")) == '17: found["bound"] = "memory"'
    assert marked(statements.result(RECORD, "two")) == "36", "it returns in two places"
    assert marked(statements.result(RECORD, "make_step")) == "32: jax.jit(step, donate_argnums=0)"
    assert marked(statements.result(RECORD, "make_step", 1, 2, inner=True)) == "30: 2"
    assert marked(statements.result(RECORD, "make_step", 0, 2, inner=True)) == "27: ("


def test_a_result_is_made_where_a_mapped_function_returns_it() -> None:
    source = """def place(batch):
    def shard(x):
        return put(x)
    batch = jax.tree.map(shard, batch)
    return batch
"""
    record = Record(exercise="ex00_x", path="x.py", source=source, seed=1)
    assert marked(statements.result(record, "place"), source) == "3: put(x)"


def test_what_was_promised_is_found_where_it_is_returned() -> None:
    edits = ("place", "make_step")
    assert marked(statements.of_promise(RECORD, edits, "`step` returns (params, loss)")) == "27: ("
    assert marked(statements.of_promise(RECORD, edits, "`place` returns a dict")) == "18: found"
    assert statements.of_promise(RECORD, edits, "`best` returns x") == []
    assert statements.of_promise(RECORD, edits, "no exception") == []


def test_what_changes_an_argument_is_found_if_it_is_left_alone_by_promise() -> None:
    source = "def layout(mesh, params):\n    for block in params:\n        block.pop('b')\n"
    record = Record(exercise="ex00_x", path="x.py", source=source, seed=1)
    promise = "`layout` leaves the `params` that it is given as they are"
    assert marked(statements.of_promise(record, ["layout"], promise), source) == "3: block.pop('b')"
    twice = Record("ex", "", f"{source}        block['a'] = 1\n", 0)
    assert statements.of_promise(twice, ["layout"], promise) == [], "it may be either"


STACKED = """def part(x, rates):
    def body(x, rate):
        x = x / rate
        return x, x * 2
    return scan(body, x, rates)
def mean(x, rates):
    return scan(lambda x, rate: (part(x, rate)[0] / 3, None), x, rates)
"""


def test_what_a_scan_stacks_is_found_and_a_division_apart_from_a_given_function() -> None:
    record = Record(exercise="ex00_x", path="x.py", source=STACKED, seed=1)
    assert marked(statements.stacked(record, "mean"), STACKED) == "4: x * 2"
    assert marked(statements.division(record, "part", "mean"), STACKED) == "3: x / rate"
    helper = STACKED.replace("[0] / 3", "[0]")
    record = Record(exercise="ex00_x", path="x.py", source=helper, seed=1)
    assert marked(statements.division(record, "mean"), helper) == "3: x / rate"
    assert statements.division(record, "mean", "part") == []


def test_the_last_statement_that_gives_a_name_its_value_is_found() -> None:
    assert marked(statements.assigned(RECORD, "train", "mask", "losses")) == (
        "9: losses.append(float(loss))"
    )
    assert marked(statements.assigned(RECORD, "train", "mask")) == "4"


def test_what_is_put_into_a_name_is_found() -> None:
    assert marked(statements.filled(RECORD, "losses")) == "9: losses.append(float(loss))"
    assert marked(statements.filled(RECORD, "found")) == '17: found["bound"] = "memory"'
    assert marked(statements.filled(RECORD, "intensity")) == "15: intensity = flops % 2"
    assert statements.filled(RECORD, "mask") == []


def test_what_was_jitted_is_found_for_an_error_of_its_call() -> None:
    edits = ("train", "make_step")
    message = "ValueError: jit requires a mesh for in_shardings"
    assert marked(statements.of_jit(RECORD, edits, message)) == (
        "32: jax.jit(step, donate_argnums=0)"
    )
    assert statements.of_jit(RECORD, (*edits, "two"), message) == [], "two of them jit"
    assert statements.of_jit(RECORD, edits, "KeyError: 'w1'") == [], "raised by no such call"


def test_what_is_filled_and_never_emptied_or_returned_is_found() -> None:
    text = (
        "def train(step, batches):\n"
        "    losses, waiting, kept = [], list(batches), {}\n"
        "    while waiting:\n"
        "        waiting.append(waiting.pop(0))\n"
        "        losses.append(step())\n"
        "        kept[len(losses)] = waiting\n"
        "    return losses\n"
    )
    found = Record("ex", "", text, 0)
    assert [place.line for place in statements.piled(found, "train")] == [6]
    assert marked(statements.piled(RECORD, "train")) == "4", "it returns what it fills"


def test_all_that_fills_one_list_is_found() -> None:
    source = """def train(batches):
    kept, losses = [], []
    kept.append(batches[0])
    for batch in batches:
        losses.append(batch)
        kept.append(batch)
    return kept[-1], losses
"""
    found = Record(exercise="ex00_x", path="x.py", source=source, seed=1)
    assert [place.line for place in statements.piled(found, "train")] == [3, 6]


def test_a_result_that_is_made_with_others_is_found() -> None:
    source = "def place(mesh, both):\n    moved = put(both, mesh)\n    return moved\n"
    found = Record(exercise="ex00_x", path="x.py", source=source, seed=1)
    assert [place.line for place in statements.result(found, "place", 1, 2)] == [2]


def test_where_an_array_is_laid_is_found_by_its_name_or_by_its_spec() -> None:
    source = """def layout(mesh, params):
    if mesh:
        return {"up": P("model", None), "down": P("model", None)}
    return {key: P("data") for key in params}
"""
    found = Record(exercise="ex00_x", path="x.py", source=source, seed=1)

    def laid(path: str, spec: str) -> list[int]:
        leaf = Leaf(path=path, kind="jax", type="ArrayImpl", spec=spec)
        return [place.line for place in statements.laid(found, "layout", leaf)]

    assert laid("[0]['up']", "P('model', None)") == [3]
    assert laid("[0]['up']", "P('data',)") == [4], "what stands under its name is another spec"
    assert laid("[0]['bias']", "P('data',)") == [4]
    assert laid("[0]['bias']", "P('model', None)") == [], "two are like it"


def test_keys_that_a_function_does_not_write_are_named() -> None:
    assert statements.unnamed(RECORD, "place", ("intensity", "attainable")) == ["attainable"]
    assert statements.unnamed(RECORD, "train", ("intensity", "share")) == [], "it names none"


def test_the_call_that_is_not_about_one_result_alone_is_found() -> None:
    def text(*lines: str) -> Record:
        body = "".join(f"    {line}\n" for line in lines)
        return Record("ex", "", f"def update(loss, grads):\n{body}", 0)

    first, second = "loss = pmean(loss, 'x')", "grads = pmax(grads, 'x')"
    names = ("pmean", "pmax")
    apart = text(first, second, "return grads, loss")
    assert [p.line for p in statements.apart_from(apart, "update", 1, 2, names)] == [3]
    inside = text(second, "return grads, pmean(loss, 'x')")
    assert [p.line for p in statements.apart_from(inside, "update", 1, 2, names)] == [2]
    assert statements.apart_from(text(second, second, "return 1, 2"), "update", 1, 2, names) == []


def test_what_a_function_names_at_the_top_level_is_searched_if_it_has_no_such_call_itself() -> None:
    def text(body: str) -> Record:
        helper = "def mean(x):\n    return pmean(x / 2, 'x')\n"
        table = "RULES = {'up': 1}\n"
        return Record("ex", "", f"{helper}{table}def update(x):\n    RULES\n    {body}\n", 0)

    named = text("return mean(x)")
    assert [p.line for p in statements.call(named, "update", "pmean")] == [2]
    assert [p.line for p in statements.division(named, "update")] == [2]
    assert [p.line for p in statements.entry(named, "update", "up")] == [3]
    assert [p.line for p in statements.sending(named, "update", "all-reduce")] == [2]
    own = text("return pmean(mean(x), 'x')")
    assert [p.line for p in statements.call(own, "update", "pmean")] == [6]
    either = text("return mean(x) if x else x")
    assert [p.line for p in statements.call(either, "update", "pmean")] == [4], "the way is its own"


def test_a_helper_that_only_moves_a_value_did_not_compute_it() -> None:
    moving = "def put(x):\n    return device_put(x, 1)\n"
    body = (
        "    def step(x):\n        new = x + 1\n        return put(new), 2\n    return jit(step)\n"
    )
    record = Record("ex", "", f"{moving}def make_step(mesh):\n{body}", 0)
    assert [p.line for p in statements.computed(record, "make_step", 0, 2)] == [5]


WRAPPED = """import jax


class Rounds:
    def left(self, carry):
        return carry[0] < 3

    def __call__(self, index):
        return index


def body(_, carry):
    return carry / 2


def _run(x, f):
    return jax.lax.{loop}, x


run = jax.jit(_run)


def again(x):
    return run(x, body)
"""


@pytest.mark.parametrize(
    ("loop", "finder", "found"),
    [
        ("fori_loop(0, 3, body, x)", statements.each_round, "carry / 2"),
        ("fori_loop(0, 3, lambda i, c: c + 1, x)", statements.each_round, "c + 1"),
        ("while_loop(Rounds().left, body, x)", statements.condition, "carry[0] < 3"),
        ("scan(lost, x, x)", statements.each_round, ""),
        ("scan(body, x, x)", statements.condition, ""),
        ("make_array_from_callback(x, x, Rounds())", statements.callback, "index"),
        ("make_array_from_callback(x, x, partial(body, 1))", statements.callback, "carry / 2"),
        ("make_array_from_callback(x, x, data_callback=body)", statements.callback, "carry / 2"),
    ],
)
def test_what_a_loop_calls_is_found_behind_a_function_that_only_calls_another(
    loop: str, finder: Callable[[Record, str], list[Culprit]], found: str
) -> None:
    source = WRAPPED.replace("{loop}", loop)
    places = finder(Record(exercise="ex00_x", path="x.py", source=source, seed=1), "again")
    lines = source.split("\n")
    assert [lines[at.line - 1][at.column - 1 : at.end - 1] for at in places] == [found] * bool(
        found
    )


def test_a_result_is_found_behind_a_function_that_only_calls_another() -> None:
    source = WRAPPED.replace("{loop}", "scan(body, x, x)")
    record = Record(exercise="ex00_x", path="x.py", source=source, seed=1)
    assert [place.line for place in statements.result(record, "again", 1, 2)] == [17]
    assert [place.line for place in statements.division(record, "body")] == [13]
    assert [place.line for place in statements.division(record, "again")] == [13]
    assert statements.division(record, "Rounds") == []


def test_blocks_are_placed_where_the_callback_returns_them_or_where_they_are_put() -> None:
    source = """def load(f, s):
    def read(i):
        f[i]
    put = [jax.device_put(f[i]) for i in s]
    return make_array_from_callback(f.shape, s, read)
"""
    record = Record(exercise="ex00_x", path="x.py", source=source, seed=1)

    def lines(message: str) -> list[int]:
        return [place.line for place in statements.of_blocks(record, ["load"], message)]

    assert lines("ValueError: Expected shard shape (2, 4)") == [2]
    assert lines("the input arrays must be from distinct devices") == [4]
    assert lines("another error") == []


BUILT = """\
class Bucket:
    def __init__(self, rows):
        self.rows = pad(rows)

    @property
    def mask(self):
        return ones(self.rows)


def padded(rows):
    size = up(rows)
    return size, flags(size)


def whole(model, rows):
    bucket = Bucket(rows)
    return model(bucket.rows, bucket.mask)


def spread(model, rows):
    if rows:
        rows = rows[1:]
    return model(rows, *padded(rows))


def tracked(rows):
    best = Best()
    for row in rows:
        if row < 0:
            last = row
        best.offer(row)
    return best.top[1], last


def descend(loss, params):
    def total(params):
        return loss(params).sum()

    value, _ = value_and_grad(total)(params)
    return value
"""
"""Files that are built in other ways than a solution."""


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (lambda of: statements.argument(of, "whole", "model", 0), 3),
        (lambda of: statements.argument(of, "whole", "model", 1), 7),
        (lambda of: statements.argument(of, "spread", "model", 2), 12),
        (lambda of: statements.assigned(of, "spread", "mask"), 7),
        (lambda of: statements.result(of, "tracked", 0, 2), 31),
        (lambda of: statements.choosing(of, "tracked", 1, 2), 29),
        (lambda of: statements.choice(of, "spread"), 21),
        (lambda of: statements.rounds(of, "tracked"), 28),
        (lambda of: statements.differentiated(of, "descend"), 37),
        (lambda of: statements.discarding(of, "descend"), 39),
    ],
)
def test_what_made_a_value_is_found_in_classes_helpers_and_loops(
    found: Callable[[Record], list[Culprit]], line: int
) -> None:
    record = Record(exercise="ex00_x", path="x.py", source=BUILT, seed=1)
    assert [place.line for place in found(record)] == [line]


def test_a_text_is_found_in_what_a_function_names() -> None:
    file = File("NAMES = {'share': 1}\n\n\ndef start():\n    return NAMES\n")
    start = file.place(file.tree.body[1])
    assert [place.line for place in of_text(file, start, "share")] == [1]
    assert of_text(file, start, "grow") == [start]


def test_what_a_function_uses_is_asked_of_its_helpers_too() -> None:
    record = Record(exercise="ex00_x", path="x.py", source=BUILT, seed=1)
    assert statements.reaches(record, "spread", "flags")
    assert not statements.reaches(record, "whole", "flags")


def test_where_a_layout_asks_for_the_size_is_found() -> None:
    text = "def layout(mesh, state):\n    if state.size < 256:\n        return P()\n"
    record = Record("ex", "", text, 0)
    assert [place.line for place in statements.by_size(record, "layout")] == [2]
    twice = Record("ex", "", f"{text}    return P() if 3 > 2 else mesh\n", 0)
    assert statements.by_size(twice, "layout") == []


def test_a_list_that_stands_where_a_tuple_is_expected_is_found() -> None:
    text = (
        "def walk(node):\n    if node is list:\n        return [walk(x) for x in node]\n"
        "    return node\ndef to_host(tree):\n    return walk(tree)\n"
    )
    record, said = Record("ex", "", text, 0), "`tree` is a list, where a tuple is expected"
    assert [p.line for p in statements.of_other_node(record, ["to_host"], said)] == [3]
    assert statements.of_other_node(record, ["to_host"], "`tree` is a dict") == []


def test_a_step_that_subtracts_is_found() -> None:
    text = "def step(params, updates):\n    return params - updates\n"
    record = Record("ex", "", text, 0)
    assert [place.line for place in statements.subtraction(record, "step")] == [2]
