"""The text of programs that JAX compiles in a block: where their arrays are, and what they hold.

A separate process imports JAX and compiles; the tests judge what it prints.
"""

import json

import pytest
from conftest import python

PROGRAM = """
import jax, jax.numpy as jnp, json, numpy as np
from grader.probes import dumped
jax.config.update("jax_num_cpu_devices", 2)
table = np.arange(12, dtype=np.float32).reshape(3, 4)
large = np.arange(40, dtype=np.float32).reshape(10, 4)
host = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
doubled = jax.jit(lambda x: x * 2)
runs = {
    "doubled": (doubled, jnp.ones((3, 4))),
    "scalar": (jax.jit(lambda x: x * 3), jnp.ones(())),
    "table": (jax.jit(lambda x: x + table), jnp.ones((3, 4))),
    "tables": (jax.jit(lambda x: x @ large + table), jnp.ones((3, 10))),
    "whole": (jax.jit(lambda x: x + np.arange(12).reshape(3, 4)), jnp.ones((3, 4))),
    "rates": (jax.jit(lambda x: x * 0.25 + 1.5 - x * 7.125), jnp.ones(2)),
    "rate": (jax.jit(lambda x: x * 0.25 + 2 - x * 0.25), jnp.ones(2)),
    "host": (jax.jit(lambda x: x + 1, out_shardings=host), jnp.ones((3, 4))),
    "loop": (lambda x: jax.lax.fori_loop(0, 700, lambda _, x: x + x, x), jnp.ones((3, 4))),
    "both": (lambda x: jax.jit(jnp.sin)(jax.jit(jnp.cos)(x)), jnp.ones((3, 4))),
}
before, found = jax.config.values["jax_dump_ir_to"], {}
for name, (function, x) in runs.items():
    with dumped.programs() as texts:
        function(x)
    found[name] = [
        [
            dumped.holds_arrays(t),
            dumped.uses_the_host(t),
            list(dumped.constants(t)),
            dumped.largest(t),
            dumped.name(t) == dumped.bare("jit(<lambda>)"),
            dumped.held([t]),
            dumped.rounds(t),
        ]
        for t in texts
    ]
with dumped.programs() as texts:
    doubled(jnp.ones((3, 4)))
found["again"] = texts
found["as it was"] = jax.config.values["jax_dump_ir_to"] == before
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    """Name -> for each program, what is said of it, in the order of the questions above."""
    ran = python("-c", PROGRAM)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_loop_has_as_many_rounds_as_a_number_of_its_text_says(found):
    assert [program[6] for program in found["loop"]] == [700]
    assert [program[6] for program in found["doubled"]] == [1]


def test_what_was_compiled_in_the_block_is_kept_and_nothing_else(found):
    assert [len(found[name]) for name in ("doubled", "both", "again")] == [1, 2, 0]
    assert found["as it was"], "the option of JAX is what it was before"


def test_an_array_is_told_from_a_scalar(found):
    assert (found["doubled"][0][0], found["scalar"][0][0]) == (True, False)


def test_an_array_in_host_memory_is_seen(found):
    assert (found["doubled"][0][1], found["host"][0][1]) == (False, True)


def test_the_bytes_of_a_table_are_counted_and_a_number_for_all_is_not(found):
    assert (found["table"][0][2], found["doubled"][0][2]) == ([3 * 4 * 4], [])


def test_tables_and_single_fractions_are_held_and_small_tables_of_whole_numbers_are_not(found):
    assert [found[name][0][5] for name in ("table", "tables")] == [48, (3 + 10) * 4 * 4]
    assert [found[name][0][5] for name in ("whole", "rates", "rate")] == [0, 3 * 4, 0]


def test_the_largest_array_and_the_name_are_read(found):
    assert (found["scalar"][0][3], found["table"][0][3]) == (1, 3 * 4)
    assert found["doubled"][0][4]
