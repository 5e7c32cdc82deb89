"""Checks of ex16_remat: the gradients, and the budgets for memory and for work."""

from dataclasses import replace

import msgspec

from grader.checks.ex16_remat import EXERCISE
from grader.checks.ex16_remat.facts import TRACED, Traced
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import compiled_program, definition, differing_output, seen, wanted
from grader.judging.record import Measured, Observed, Record

ARRAYS = 4.5
"""The budget for memory: arrays (n, h) a layer, kept or in use."""
PRODUCTS = 10.5
"""The budget for work: matrix products (n, d) x (d, h) a layer."""


def _traced(observed: Observed) -> Traced:
    return msgspec.convert(observed.facts[TRACED], Traced)


@EXERCISE.check(ground="program")
def same_gradients(record: Record) -> Result:
    """The gradients are the reference's."""
    program = compiled_program(record, "gradients")
    if not isinstance(program, Measured):
        return program
    failure = differing_output(record, "gradients", rtol=1e-3, atol=1e-5)
    return replace(failure, culprits=definition(record, "thrifty")) if failure else None


@EXERCISE.check(
    ground="program",
    after=("same_gradients",),
    hints=(
        "What jax.checkpoint does not drop is kept. Each layer here makes several arrays (n, h): "
        "products, gelu, sigmoid, the norm.",
        "The compiler can join a second computation with the first one, and then all is kept "
        "again. prevent_cse keeps it from that: leave it as it is.",
    ),
)
def within_memory(record: Record) -> Result:
    """The program's intermediate results take at most 4.5 arrays (n, h) a layer."""
    program = compiled_program(record, "gradients")
    if not isinstance(program, Measured):
        return program
    if program.memory is None:
        return Unable("this backend does not say how much memory a program needs")
    network = _traced(wanted(record))
    one = network.layers * network.array_bytes
    found = program.memory.temporaries
    if found <= ARRAYS * one:
        return None
    return Failure(
        f"at most {ARRAYS} arrays (n, h) for each of {network.layers} layers: "
        f"{ARRAYS * one:,.0f} bytes of intermediate results",
        f"{found / one:.1f} arrays a layer: {found:,} bytes",
        definition(record, "thrifty"),
    )


@EXERCISE.check(
    ground="program",
    after=("within_memory",),
    hints=(
        "Without a policy, jax.checkpoint computes the whole layer again: 3 more products.",
        "The results of the products are worth keeping. What is computed from them element by "
        "element is not. A policy that saves names saves the arrays that "
        "jax.ad_checkpoint.checkpoint_name has given these names; a name that no array has saves "
        "nothing.",
    ),
    anchor="what-a-policy-saves",
)
def within_work(record: Record) -> Result:
    """The program's work is at most that of 10.5 matrix products a layer."""
    program = compiled_program(record, "gradients")
    if not isinstance(program, Measured):
        return program
    network = _traced(wanted(record))
    one = network.layers * network.product_flops
    # If products are calls of a library, as on GPUs, a compiler may not count them.
    found = max(program.flops, float(_traced(seen(record)).flops))
    if found <= PRODUCTS * one:
        return None
    return Failure(
        f"work of at most {PRODUCTS} matrix products a layer: {PRODUCTS * one:,.0f} FLOPs",
        f"work of {found / one:.1f} products a layer: {found:,.0f} FLOPs",
        definition(record, "thrifty"),
    )
