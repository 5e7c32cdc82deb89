"""The probes of exercises about time: a staged clock, a count of launches, a count of work.

Each runs in a separate process, which imports JAX; the tests judge what it prints.
"""

import json
from typing import Any

import pytest
from conftest import python

LAUNCHES = """
import jax, jax.numpy as jnp, json
from grader.probes import launches
counter = launches.Counter()
x = jnp.ones(3)
loop = jax.jit(lambda x: jax.lax.fori_loop(0, 9, lambda _, y: y + 1, x))
@jax.jit
def outer(x):
    return jnp.cos(jnp.sin(x))
def eager():
    y = x
    for _ in range(9):
        y = jnp.sin(y)
    return y
runs = {"none": lambda: None, "one": lambda: loop(x), "nine": eager}
[run() for run in runs.values()]
runs["traced"] = lambda: outer(outer(x))
found = {name: list(counter.count(run)[1]) for name, run in runs.items()}
launches.NAMES = ("no such event",)
print(json.dumps({"problem": counter.problem, "found": found, "blind": launches.Counter().problem}))
"""
ENDED = """
import jax, jax.numpy as jnp, json
from grader.probes import launches, observe
counter, x = launches.Counter(), jnp.ones(3)
def ending():
    y = jnp.sin(x)
    jax.profiler.stop_trace()
    return jnp.sin(y)
def tried():
    said = []
    for run in (ending, lambda: jnp.sin(x)):
        try:
            said.append(counter.count(run)[1].total)
        except observe.Misused as error:
            said.append(str(error))
    return said
found = [tried()]
del jax.profiler.ProfileSession  # as in JAX 0.11
found.append(tried())
print(json.dumps(found))
"""
READ = """
import jax, jax.numpy as jnp, json, numpy as np
from grader.probes import launches
step = lambda x: 2 * jnp.sin(x)
named = jax.jit(step)
three = jax.jit(lambda x: named(named(named(x))))
def unrolled(x):
    for _ in range(4):
        x = three(x)
    return x
programs = {
    "loop": jax.jit(lambda x: jax.lax.fori_loop(0, 9, lambda _, y: step(y), x)),
    "unrolled": jax.jit(unrolled),
}
reader, x = launches.Reader(), np.ones(3, np.float32)
first = {name: reader.read(lambda: run(x))[1].operations for name, run in programs.items()}
again = {name: reader.read(lambda: run(x))[1].operations for name, run in programs.items()}
print(json.dumps({"problem": reader.problem, "first": first, "again": again}))
"""
PLACES = """
import jax, jax.numpy as jnp, json
jax.config.update("jax_num_cpu_devices", 3)
from grader.probes import launches
places, add = launches.Places(), jax.jit(lambda x: x + x)
x = jax.device_put(jnp.ones(3), jax.devices()[2])
add(x)
with places.seen() as ran:
    add(x)
with places.seen() as none:
    jax.device_put(x, jax.devices()[1])
with places.seen() as made:
    jnp.zeros(3)
given = []
with places.given(given.append):
    add(x)
    jax.device_put(x, jax.devices()[1])
found = [*map(sorted, (ran, none, made))]
sizes = [[array.size for array in arrays] for arrays in given]
print(json.dumps({"problem": places.problem, "found": found, "given": sizes}))
"""
CLOCK = """
import jax, json, numpy as np
from grader.stages.clock import Staged, rounds
cost = {"work": 8.0, "dispatch": 1.0, "compiling": 100.0, "copy": 1000.0}
busy = rounds()
def timed(place, warm, wait, calls=4):
    staged = Staged(cost, busy)
    args = staged.arguments(np.random.default_rng(0))
    if place:
        args = jax.block_until_ready(jax.device_put(args))
        staged.arrived(args)
    if warm:
        jax.block_until_ready(staged.program(*args))
    start = staged.clock()
    for _ in range(calls):
        result = staged.program(*args)
    if wait:
        jax.block_until_ready(result)
    took = staged.clock() - start
    jax.block_until_ready(result)
    return took
stopwatch = Staged(cost, busy, begins=0.0)
stopwatch.program(*stopwatch.arguments(np.random.default_rng(0)))
begun = stopwatch.clock()
print(json.dumps({
    "begun": begun, "honest": timed(True, True, True), "cold": timed(True, False, True),
    "copying": timed(False, True, True), "impatient": timed(True, True, False),
}))
"""
WORK = """
import jax, json
from grader.probes import roofline
struct = jax.ShapeDtypeStruct
def counted(function, *args):
    closed = jax.make_jaxpr(function)(*args)
    return [roofline.count_flops(closed.jaxpr), roofline.count_bytes(closed)]
product = jax.jit(lambda x, y: x @ y)
found = {
    "product": counted(product, struct((3, 5), "float32"), struct((5, 7), "float32")),
    "half": counted(product, struct((3, 5), "bfloat16"), struct((5, 7), "bfloat16")),
    "sum": counted(lambda x: x * x + 1, struct((11,), "float32")),
}
matrix = jax.numpy.ones((64, 64))
kernel = roofline.Kernel(2.0 * 64**3, 12.0 * 64**2, product, (matrix, matrix))
boast = kernel._replace(flops=1e18)  # more than any ceiling that was known
spans, peaks = roofline.measure([kernel, boast])
shares = [k.flops / span / peaks.flops for k, span in zip([kernel, boast], spans)]
print(json.dumps({"found": found, "peaks": list(peaks), "shares": shares}))
"""


def ran(script: str) -> Any:
    """What a script printed on its last line, as JSON."""
    done = python("-c", script, JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_launches_are_counted_and_a_blind_counter_says_so() -> None:
    found = ran(LAUNCHES)
    assert found["problem"] == ""
    assert {name: count for name, (count, _) in found["found"].items()} == {
        "none": 0,
        "one": 1,
        "nine": 9,
        "traced": 2,
    }
    assert found["found"]["traced"][1] == {"outer": 2}
    assert found["found"]["nine"][1] == {"sin": 9}
    assert "3 known launches" in found["blind"]


def test_a_session_of_the_profiler_that_a_submission_ends_is_missed() -> None:
    said = "your function ended it: by `jax.profiler.stop_trace`?"
    assert ran(ENDED) == [[said, 1], [said, 1]]


def test_a_program_is_read_when_it_is_compiled_and_calls_count_as_often_as_they_stand() -> None:
    found = ran(READ)
    assert found["problem"] == ""
    assert found["first"]["unrolled"] == 2 * 12
    assert 2 < found["first"]["loop"] < 8
    assert found["again"] == {"loop": 0, "unrolled": 0}


def test_programs_are_seen_where_they_run() -> None:
    found = ran(PLACES)
    assert found["problem"] == ""
    assert found["found"] == [["cpu:2"], [], ["cpu:0"]]
    assert found["given"] == [[3]]


def test_the_staged_clock_shows_what_a_timer_includes() -> None:
    found = ran(CLOCK)
    assert found["begun"] == 0
    assert found["honest"] == pytest.approx(4 * (8 + 1))
    assert found["cold"] == pytest.approx(4 * (8 + 1) + 100)
    assert found["copying"] == pytest.approx(4 * (8 + 1) + 4 * 3 * 1000)
    assert found["impatient"] < found["honest"] - 4


def test_work_is_counted_in_the_jaxpr() -> None:
    found = ran(WORK)
    assert found["found"] == {
        "product": [2 * 3 * 5 * 7, 4 * (15 + 35 + 21)],
        "half": [2 * 3 * 5 * 7, 2 * (15 + 35 + 21)],
        "sum": [2 * 11, 4 * 2 * 11],
    }
    assert min(found["peaks"]) > 0
    assert 0 < found["shares"][0] < found["shares"][1] == 1, "a kernel raises its ceiling"
