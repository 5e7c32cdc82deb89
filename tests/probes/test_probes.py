"""What the probes see, line by line: a remark beside a line says what must be seen there.

`#: d2h` is one read, `#: 2 wait` two waits, `#: h2d/12` one transfer of 12 bytes in all.
On a line without a remark nothing may be seen. All files run in one process, which works as a
worker does (`probe_cases.py`); compiles and traces have tests of their own.
"""

import base64
import json
import re
import sys
from collections import Counter
from typing import Any

import pytest
from conftest import ROOT, python

from grader.course.catalog import Entry
from grader.judging.arrays import load
from grader.judging.judge import judge
from grader.probes.tally import MAX_EVENTS, Tally
from grader.records.record import POLLED, READY, decode_record

HEAD = "import jax, math, threading\nimport jax.numpy as jnp\nimport numpy as np\n"
REMARK = re.compile(r"#: (.*)$")
ITEM = re.compile(r"(?:(\d+) )?(\w+)(?:/(\d+))?")
LATE = "after copy_to_host_async in an earlier step"
STARTED = "after copy_to_host_async in this step"

FILES = {
    "free_arrays_that_jit_moves": """
add = jax.jit(lambda a, b: a + b)
def run(make):
    free = make((3,))
    there = jax.device_put(free, jax.devices()[1])  #: d2d/12
    for _ in range(4):
        add(there, free)  #: 4 d2d/48
    ahead = add.lower(there, there).compile()
    ahead(there, there)
    there + free  #: d2d/12
    there + free  #: d2d/12
""",
    "every_way_to_read": """
def run(make):
    float(make())  #: d2h/4
    int(make())  #: d2h/4
    bool(make())  #: d2h/4
    complex(make())  #: d2h/4
    make().item()  #: d2h/4
    make((3,)).tolist()  #: d2h/12
    make((3,)).tobytes()  #: d2h/12
    np.asarray(make((3,)))  #: d2h/12
    np.array(make((3,)))  #: d2h/12
    np.float32(make())  #: d2h/4
    np.from_dlpack(make((3,)))  #: d2h/12
    np.add(make((3,)), 1)  #: d2h/12
    np.stack([make(), make()])  #: 2 d2h/8
    memoryview(make((3,)))  #: d2h/12
    math.sqrt(make())  #: d2h/4
    [1, 2, 3][make((), "int32")]  #: d2h/4
    if make() > make():  #: d2h/1
        pass
    while make() > make():  #: d2h/1
        pass
    assert make() == make()  #: d2h/1
    not make()  #: d2h/4
    max(make(), make())  #: d2h/1
    str(make((3,)))  #: d2h/12
    repr(make())  #: d2h/4
    f"{make():.2f}"  #: d2h/4
    "%s" % make()  #: d2h/4
    make() in [make()]  #: d2h/1
    sum(float(make()) for _ in range(3))  #: 3 d2h/12
    np.testing.assert_allclose(make(), np.float32(1))  #: d2h/4
    np.asarray(make((4,), "bfloat16"))  #: d2h/8
    np.asarray(make((4,), "bool"))  #: d2h/4
""",
    "what_is_no_read": """
def run(make):
    a = make((3,))
    for x in a:
        x.shape, x.dtype, x.nbytes, x.sharding, x.is_deleted(), len(a)
    a + a
    jnp.sum(a)
    jnp.asarray(a)
    jnp.stack([a, a])
    np.mean(a)
    jnp.array_equal(a, a)
    jax.tree.map(lambda b: b * b, {"a": a})
    a[0]  #: h2d/4
    list(a)
    type(a), id(a), isinstance(a, jax.Array)
    jax.jit(lambda c: c * 2)(a)
    jax.device_get(np.zeros(3))
    float(np.float32(1))
""",
    "sharded": """
def run(make):
    spread = jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x"))
    y = jax.device_put(make((4,)), spread)  #: 2 d2d
    np.asarray(y)  #: d2h/16
    float(y.sum())  #: d2h/4
    y.addressable_shards[0].data.tolist()  #: d2h/8
    both = jax.device_put(make((4,)), jax.NamedSharding(spread.mesh, jax.P()))  #: 2 d2d
    np.asarray(both)  #: d2h/16
""",
    "waits": """
def run(make):
    make().block_until_ready()  #: wait
    jax.block_until_ready(make())  #: wait
    jax.block_until_ready((make(), [make()]))  #: wait
    jax.block_until_ready(x=make())  #: wait
    from jax import block_until_ready as wait
    wait(make())  #: wait
    make().copy_to_host_async()  #: async_copy/4
    jax.copy_to_host_async([make(), {"a": make()}, 3])  #: 2 async_copy/8
""",
    "host_to_device": """
@jax.jit
def double(x):
    return x * 2

def run(make):
    host = np.ones(3, np.float32)
    jax.device_put(host)  #: h2d/12
    jnp.asarray(host)  #: h2d/12
    jnp.array([1.0, 2.0, 3.0])  #: h2d/12
    jax.device_put({"a": host, "b": np.ones(2, np.int8)})  #: 2 h2d/14
    jax.device_put(host, jax.devices()[1])  #: h2d/12
    jax.device_put(np.ones((2, 2), bool))  #: h2d/4
    jax.device_put(np.ones(3, jnp.bfloat16))  #: h2d/6
    jax.device_put(np.ones(3, jnp.float8_e4m3fn))  #: h2d/3
    jax.device_put(np.ones((0, 3)))  #: h2d/0
    jax.device_put(np.ones(3, np.complex64))  #: h2d/24
    double(host)  #: h2d
    double(host)  #: h2d
    make((3,)) + host  #: h2d/12
    jnp.sum(host)  #: h2d/12
    jax.device_put(make((3,)))
    double(make((3,)))
""",
    "device_to_device": """
def run(make):
    first, second = jax.devices()
    jax.device_put(make((3,)), second)  #: d2d/12
    jax.device_put(make((3,)), first)
    make((3,)).to_device(second)  #: d2d/12
    jax.device_put(jax.device_put(make((3,)), second), first)  #: 2 d2d/24
""",
    "lines_of_helpers": """
def helper(x):
    y = float(x)  #: 2 d2h
    return jax.device_put(np.ones(3))  #: 2 h2d/24

class Log:
    def add(self, x):
        self.last = x.item()  #: d2h

def logged(function):
    def wrapper(x):
        result = function(x)
        bool(result)  #: d2h
        return result
    return wrapper

@logged
def same(x):
    return x

def countdown(x, n):
    return float(x) if n == 0 else countdown(x, n - 1)  #: d2h

def steps(make):
    for _ in range(2):
        yield jax.device_put(np.ones(2))  #: 2 h2d/16

def run(make):
    helper(make()), jnp.asarray(np.ones(4))  #: h2d/16
    (
        helper(make()),
        jnp.asarray(np.ones(5)),  #: h2d/20
    )
    Log().add(make())
    same(make())
    countdown(make(), 5)
    [float(make()) for _ in range(4)]  #: 4 d2h
    {k: v.item() for k, v in {"a": make()}.items()}  #: d2h
    list(map(lambda x: float(x), [make(), make()]))  #: 2 d2h
    for _ in steps(make): jax.device_put(np.ones(6))  #: 2 h2d/48
    sorted([make(), make()], key=lambda x: x.item())  #: 2 d2h
    try:
        float(make()), missing  #: d2h
    except NameError:
        float(make())  #: d2h
    with jax.default_device(jax.devices()[0]):
        jax.device_put(  #: h2d/12
            np.ones(3)
        )
""",
    "lines_of_traced_code": """
@jax.jit
def layer(x):
    y = x + 1
    return y * 2

def run(make):
    host = np.ones(3, np.float32)
    layer(host)  #: h2d
    layer(host), jnp.asarray(host)  #: 2 h2d
    jax.vmap(layer)(make((2, 3))), jax.device_put(host)  #: h2d/12
""",
    "threads": """
def work(make):
    float(make())  #: d2h
    jax.device_put(np.ones(3))  #: h2d/12

def run(make):
    thread = threading.Thread(target=work, args=(make,))
    thread.start()
    thread.join()
    jax.device_put(np.ones(4))  #: h2d/16
""",
    "nothing_was_read": """
def run(make):
    x = make()
    x.delete()
    for read in (float, np.asarray, str):
        try:
            read(x)
        except RuntimeError:
            pass
""",
}

STEPS = """
def run(make, observe):
    first, second, third, fourth = make(), make(), make(), make()
    first.copy_to_host_async()
    jax.copy_to_host_async((second, third))
    float(first)
    observe.mark()
    float(second)
    jax.device_get(third)
    float(fourth)
    fourth.copy_to_host_async()
    observe.mark()
"""

POLLS = """
def run(make, observe):
    there = make().block_until_ready()
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 30, lambda _, y: y @ y, x))
    late = slow(slow(make((600, 600))))  # what waits for another program is not run at once
    there.is_ready(), there.is_ready()
    float(there)
    late.is_ready()
    observe.mark()
    late.is_ready()
    late.is_ready()
    late.block_until_ready()
"""

PROGRAMS = """
@jax.jit
def layer(x):
    return x @ x

@jax.jit
def net(x):
    return layer(x) + 1

def run(make):
    net(make((3, 3)))
    net(make((3, 3)))
    for size in (4, 5):
        net(make((size, size)))
    for _ in range(3):
        jax.jit(lambda y: y - 1)(make())
"""


@pytest.fixture(scope="module")
def answer() -> Any:
    """What `probe_cases.py` printed about all files."""
    sources = {**FILES, "steps": STEPS, "polls": POLLS, "programs": PROGRAMS}
    sent = json.dumps({name: HEAD + source for name, source in sources.items()})
    ran = python(ROOT / "tests" / "probes" / "probe_cases.py", stdin=sent)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def wanted(source: str) -> Counter[tuple[int, str]]:
    """(line, kind) -> number of events that the remarks ask for."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate((HEAD + source).split("\n"), 1):
        for count, kind, _ in remarks(line):
            found[number, kind] += int(count or 1)
    return found


def remarks(line: str) -> list[tuple[str, str, str]]:
    """(count, kind, bytes) of each item of a line's remark."""
    remark = REMARK.search(line)
    return ITEM.findall(remark[1]) if remark else []


def transfers(found: Any) -> list[Any]:
    """The events of the run, without compiles and traces."""
    events = [event for event in found["events"] if event["phase"] == "run"]
    return [event for event in events if event["kind"] not in ("compile", "trace")]


def test_the_remarks_ask_for_every_kind_of_event() -> None:
    kinds = Counter(kind for source in FILES.values() for _, kind in wanted(source))
    assert set(kinds) == {"d2h", "h2d", "d2d", "wait", "async_copy"}
    assert wanted(FILES["every_way_to_read"]).total() > 30


@pytest.mark.parametrize("name", FILES)
def test_every_event_is_seen_once_and_at_its_line(name: str, answer: Any) -> None:
    found = answer["found"][name]
    assert found.get("missing_probes", {}) == {}
    seen: Counter[tuple[int, str]] = Counter()
    for event in transfers(found):
        seen[event.get("line", 0), event["kind"]] += event.get("count", 1)
    assert seen == wanted(FILES[name])


@pytest.mark.parametrize("name", FILES)
def test_every_event_has_its_bytes(name: str, answer: Any) -> None:
    seen: Counter[tuple[int, str]] = Counter()
    for event in transfers(answer["found"][name]):
        size = (event.get("nbytes") or 0) * event.get("count", 1)
        seen[event.get("line", 0), event["kind"]] += size
    for number, line in enumerate((HEAD + FILES[name]).split("\n"), 1):
        for _, kind, size in remarks(line):
            assert not size or seen[number, kind] == int(size), line


def test_what_the_drive_does_has_no_line(answer: Any) -> None:
    for name in FILES:
        after = [e for e in answer["found"][name]["events"] if e["phase"] == "after"]
        assert [(e["kind"], e["nbytes"], "line" in e) for e in after if e["kind"] == "h2d"] == [
            ("h2d", 5, False)
        ]


def test_a_read_after_an_earlier_copy_is_marked(answer: Any) -> None:
    """Only a copy that was started in an earlier step has had time to run."""
    reads = [e for e in answer["found"]["steps"]["events"] if e["kind"] == "d2h"]
    text = (HEAD + STEPS).split("\n")
    seen = {text[e["line"] - 1].strip(): (e.get("step", 0), e.get("detail", "")) for e in reads}
    assert seen == {
        "float(first)": (0, STARTED),
        "float(second)": (1, LATE),
        "jax.device_get(third)": (1, LATE),
        "float(fourth)": (1, ""),
    }


def test_a_second_question_is_a_wait_and_what_is_there_is_read_without_one(answer: Any) -> None:
    """Asked once in a step, or of what is there, a question is no wait."""
    found = [e for e in answer["found"]["polls"]["events"] if e["kind"] in ("wait", "d2h")]
    details = [(e["kind"], e.get("step", 0), e["detail"]) for e in found if "detail" in e]
    assert sorted(details) == [("d2h", 0, READY), ("wait", 1, POLLED)]


def test_compiles_and_traces_by_function_and_line(answer: Any) -> None:
    text = (HEAD + PROGRAMS).split("\n")
    counts: Counter[tuple[str, str, str]] = Counter()
    for event in answer["found"]["programs"]["events"]:
        if "line" in event:
            line = text[event["line"] - 1].strip()
            counts[event["kind"], event["detail"], line] += event.get("count", 1)
    compiles = {key[1:]: n for key, n in counts.items() if key[0] == "compile"}
    assert compiles == {
        ("jit(net)", "net(make((3, 3)))"): 1,
        ("jit(net)", "net(make((size, size)))"): 2,
        ("jit(<lambda>)", "jax.jit(lambda y: y - 1)(make())"): 3,
    }
    traces = {key[1:]: n for key, n in counts.items() if key[0] == "trace"}
    assert traces["net", "net(make((3, 3)))"] == 1
    assert traces["net", "net(make((size, size)))"] == 2


def test_the_probes_leave_jax_as_it_was(answer: Any) -> None:
    assert answer["restored"] is True


GONE = """
import os, sys
import jax
from grader.probes import devices, private
from grader.worker.observer import Observer
from grader.records.record import Outcome
from probe_cases import state
devices.start("cpu", 2)
before = state()
{change}
observer = Observer()
with observer.watching("exercises/ex.py"):
    float(jax.device_put(1.0))
print(observer.observed(Outcome("finished")).missing_probes)
{undo}
assert state() == before, "something stayed replaced"
print("passed on", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("change", "undo", "missing"),
    [
        (
            "names, private.READS = private.READS, (*private.READS, 'gone')",
            "private.READS = names",
            {"reads": "Gone: ArrayImpl.gone"},
        ),
        (
            "names, private.READS = private.READS, private.READS[:1]",
            "private.READS = names",
            {"reads": "a known read by np.asarray was not seen once"},
        ),
        (
            "names, private.COPIES = private.COPIES, ('gone',)",
            "private.COPIES = names",
            {"reads": "Gone: ArrayImpl.gone"},
        ),
        (
            "wait = jax.block_until_ready; del jax.block_until_ready",
            "jax.block_until_ready = wait",
            {"reads": "AttributeError: module 'jax' has no attribute 'block_until_ready'"},
        ),
        (
            "make = os.memfd_create; del os.memfd_create",
            "os.memfd_create = make",
            {},
        ),
        (
            "from grader.probes import compiles; compiles._KINDS.clear()",
            "",
            {"compiles": "a known compile was seen as (0, 0)"},
        ),
        ("", "", {}),
    ],
)
def test_a_probe_that_does_not_work_is_named(
    change: str, undo: str, missing: dict[str, str]
) -> None:
    code = GONE.format(change=change, undo=undo)
    ran = python("-c", code, PYTHONPATH=f"{ROOT}:{ROOT / 'tests' / 'probes'}")
    assert (ran.returncode, ran.stderr) == (0, "passed on\n")
    assert ran.stdout == f"{missing}\n"


def test_a_check_without_its_probe_could_not_check() -> None:
    saved = ROOT / "tests" / "golden" / "records" / "ex07_starter.json"
    record = decode_record(saved.read_bytes())
    assert record.submission is not None
    record.submission.events = []
    record.submission.missing_probes = {"reads": "Gone: ArrayImpl._value"}
    report = judge(record, Entry(record.exercise).exercise)
    verdict = next(v for v in report.verdicts if v.check == "no_reads_in_loop")
    assert verdict.status == "could not check"
    assert verdict.reason == "the reads probe is not working: Gone: ArrayImpl._value"
    assert report.exit_code == 3


def test_what_is_printed_to_stderr_is_passed_on() -> None:
    """The log of transfers takes over stderr; everything but the log still reaches stderr."""
    source = (
        "import sys\n"
        "def run(make):\n"
        "    print('a whole line', file=sys.stderr)\n"
        "    make().delete()\n"
        "    sys.stderr.write('a part')\n"
    )
    ran = python(ROOT / "tests" / "probes" / "probe_cases.py", stdin=json.dumps({"x": source}))
    assert (ran.returncode, ran.stderr) == (0, "a whole line\na part")


def test_an_exception_under_the_probes_is_still_printed() -> None:
    source = "def run(make):\n    raise ValueError('why')\n"
    ran = python(ROOT / "tests" / "probes" / "probe_cases.py", stdin=json.dumps({"x": source}))
    assert ran.returncode == 1
    assert ran.stderr.endswith("ValueError: why\n")


VALUES = """
class Lazy:
    def __array__(self, *_, **__):
        raise AssertionError("its own method was called")

class Equal:
    def __eq__(self, _):
        return True
    __hash__ = None

class Number(float):
    pass

class Matrix(np.ndarray):
    pass

def run(make, observe):
    first, second = jax.devices()
    spread = jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x"))
    gone = make()
    gone.delete()
    observe.value("placed", {
        "committed": jax.device_put(np.ones(3, np.float32), second),
        "uncommitted": jnp.ones(3),
        "spread": jax.device_put(np.ones((4, 2), np.float32), spread),
        "pinned": jax.device_put(np.ones(3), jax.sharding.SingleDeviceSharding(
            first, memory_kind="pinned_host")),
        "deleted": gone,
        "brain": jnp.ones(2, jnp.bfloat16),
    })
    observe.value("hosted", [np.ones(2), np.float32(2), 3, True, 4.5, 1j, "text", None])
    observe.value("others", [
        Lazy(), Equal(), Number(1), np.ones(2).view(Matrix), jax.random.key(0), int, {1, 2}
    ])
    observe.value("large", {"a": np.ones((1 << 24) + 1, np.int8), "b": np.array([None])})
    observe.value("unkept", jnp.ones(2), data=False)
    whole = jax.NamedSharding(spread.mesh, jax.P())
    def copies(*values):
        parts = [jax.device_put(x, d) for x, d in zip(values, (first, second))]
        return jax.make_array_from_single_device_arrays(parts[0].shape, whole, parts)
    one = np.float32
    observe.value("copies", {
        "equal": copies(one([1, np.nan]), one([1, np.nan])),
        "rounded": copies(one([1000, 1]), one([1000, 1.0001])),
        "differing": copies(one([1, 2]), one([1, 2.5])),
        "unsigned": copies(np.uint8([1]), np.uint8([2])),
        "bools": copies(np.array([True]), np.array([False])),
        "brain": copies(jnp.ones(2, jnp.bfloat16), jnp.zeros(2, jnp.bfloat16)),
        "lost": copies(one([1]), one([np.nan])),
    })
    observe.fact("said", {"a": [1, None]})
"""


@pytest.fixture(scope="module")
def described() -> Any:
    """What is recorded of values of every kind."""
    ran = python(
        ROOT / "tests" / "probes" / "probe_cases.py", stdin=json.dumps({"values": HEAD + VALUES})
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)["found"]["values"]


def test_where_arrays_are_is_recorded(described: Any) -> None:
    leaves = {leaf["path"][2:-2]: leaf for leaf in described["values"]["placed"]}
    committed, uncommitted = leaves["committed"], leaves["uncommitted"]
    assert (committed["kind"], committed["dtype"]) == ("jax", "float32")
    assert (committed["platform"], committed["devices"], committed["committed"]) == (
        "cpu",
        [1],
        True,
    )
    assert (uncommitted["devices"], uncommitted["committed"]) == ([0], False)
    spread = leaves["spread"]
    assert (spread["devices"], spread["shard_shape"], spread["replicated"]) == (
        [0, 1],
        [2, 2],
        False,
    )
    assert "'x'" in spread["spec"]
    assert "buffer" not in spread, "it has two"
    assert committed["buffer"] != uncommitted["buffer"]
    assert leaves["pinned"]["memory_kind"] == "pinned_host"
    assert committed["memory_kind"] != "pinned_host"
    assert leaves["deleted"]["deleted"]
    assert not {"data", "buffer"} & set(leaves["deleted"])


def test_which_device_holds_which_part_is_recorded(described: Any) -> None:
    leaves = {leaf["path"][2:-2]: leaf for leaf in described["values"]["placed"]}
    assert leaves["spread"]["parts"] == {"0": [[0, 2], [0, 2]], "1": [[2, 4], [0, 2]]}
    assert "parts" not in leaves["committed"]


def test_copies_of_a_part_that_differ_are_recorded(described: Any) -> None:
    leaves = {leaf["path"][2:-2]: leaf for leaf in described["values"]["copies"]}
    assert leaves["differing"]["replicated"], "so it says"
    assert {name: leaf.get("unlike") for name, leaf in leaves.items()} == {
        "equal": None,
        "rounded": [1, pytest.approx(1e-4, rel=1e-2)],
        "differing": [1, 0.5],
        "unsigned": [1, 1.0],
        "bools": [1, 1.0],
        "brain": [1, 1.0],
        "lost": [1, sys.float_info.max],
    }


def test_values_are_kept_as_plain_arrays(described: Any) -> None:
    leaves = {leaf["path"][2:-2]: leaf for leaf in described["values"]["placed"]}
    brain = load(base64.b64decode(leaves["brain"]["data"]))
    assert (leaves["brain"]["dtype"], str(brain.dtype), brain.tolist()) == (
        "bfloat16",
        "float32",
        [1, 1],
    )
    hosted = [
        load(base64.b64decode(leaf["data"])).tolist() for leaf in described["values"]["hosted"]
    ]
    assert hosted == [[1, 1], 2, 3, True, 4.5, 1j, "text", "None"]
    kinds = [leaf["kind"] for leaf in described["values"]["hosted"]]
    assert kinds == ["numpy"] * 2 + ["python"] * 6
    assert described["facts"] == {"said": {"a": [1, None]}}


def test_only_exact_types_are_looked_into(described: Any) -> None:
    kinds = {leaf["type"]: leaf["kind"] for leaf in described["values"]["others"]}
    assert len(kinds) == 7
    assert set(kinds.values()) == {"other"}
    assert {"Lazy", "Equal", "Number", "Matrix"} <= set(kinds)
    assert all("data" not in leaf for leaf in described["values"]["others"])


def test_values_that_are_too_large_are_not_kept(described: Any) -> None:
    for name in ("large", "unkept"):
        assert described["values"][name]
        assert all("data" not in leaf for leaf in described["values"][name])


def test_describing_a_value_is_not_counted_as_a_read(described: Any) -> None:
    reads = [event for event in described["events"] if event["kind"] in ("d2h", "wait")]
    assert reads == []


def test_a_function_that_is_watched_keeps_its_name() -> None:
    look = "from grader.probes.private import watched; f = watched(jax.device_get, print)"
    ran = python(
        "-c", f"import jax; {look}; print(f.__name__, f.__module__ == jax.device_get.__module__)"
    )
    assert ran.stdout == "device_get True\n"


def test_events_that_the_tally_leaves_out_are_known() -> None:
    tally = Tally(lambda _: 0)
    tally.paused = False
    for nbytes in [*range(MAX_EVENTS), 0]:
        tally.count("h2d", 1, nbytes)
    assert (tally.total("h2d"), tally.is_full) == (MAX_EVENTS + 1, False)
    tally.count("h2d", 1, MAX_EVENTS)
    assert (tally.total("h2d"), tally.is_full) == (MAX_EVENTS + 1, True)
