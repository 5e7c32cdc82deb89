"""ex16_remat: the compiled gradients keep less for the backward pass, and redo little work."""

import math
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, Result, Unable
from grader.evidence import compiled_program, definition, differing_output, seen, wanted
from grader.record import Measured, Record

ARRAYS, PRODUCTS = 4.5, 10.5
"""Budgets of a layer: arrays (n, h) kept or in use, and matrix products (n, d) x (d, h)."""
SAVE = "what-a-policy-saves"


def _sizes(rng: Any) -> tuple[int, int, int, int]:
    """Rows, width, hidden units and layers; on a GPU large beside a library's workspace."""
    import jax

    rows, width, hidden = (int(rng.integers(*ends)) * 4 for ends in ((24, 41), (15, 19), (56, 73)))
    if jax.default_backend() != "cpu":
        rows, width, hidden = rows * 32, width * 2, hidden * 4
    return rows, width, hidden, int(rng.integers(5, 8))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Trace and export the gradients for fresh sizes; they run where the file never was."""
    import jax

    rows, width, hidden, layers = _sizes(rng)

    def draw(*shape: int) -> Any:
        return jax.device_put((rng.standard_normal(shape) / 8).astype("float32"))

    shapes = {"up": (width, hidden), "gate": (width, hidden), "down": (hidden, width)}
    params = [{name: draw(*shape) for name, shape in shapes.items()} for _ in range(layers)]
    inputs, targets = draw(rows, width), draw(rows, width)
    observe.fact("array bytes", 4 * rows * hidden)
    observe.fact("product flops", 2 * rows * width * hidden)
    observe.fact("layers", layers)
    traced = jax.make_jaxpr(submission.gradients)(params, inputs, targets)
    observe.fact("traced flops", sum(_products(traced.jaxpr)))
    observe.program("gradients", submission.gradients, params, inputs, targets)


def _products(jaxpr: Any) -> Iterator[int]:
    """FLOPs of each matrix product, as often as it runs: a compiler counts a loop once."""
    import jax

    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            length = math.prod(shape[axis] for axis in contracted)
            yield 2 * length * math.prod(equation.outvars[0].aval.shape)
        times = int(equation.params.get("length", 1))
        inner = jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        )
        for found in inner:
            body = getattr(found, "jaxpr", found)
            if hasattr(body, "eqns"):
                yield times * sum(_products(body))


EXERCISE = Exercise(
    title="Fit a deep network's backward pass in a budget",
    lesson="lessons/10-memory-for-compute",
    anchor="compute-it-again",
    edits=("thrifty",),
    drive=drive,
    hints=(
        "The backward pass uses what the forward pass computed. What of it is cheap to compute "
        "once more, and what is not?",
        "jax.checkpoint forgets all of a function but its arguments; its `policy` says what to "
        "keep. Matrix products are the expensive part.",
        "Call jax.checkpoint(layer, policy=...), with a policy of jax.checkpoint_policies that "
        "saves dots.",
    ),
)


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
        "What is not forgotten is kept. Each layer here makes several arrays (n, h): products, "
        "gelu, sigmoid, the norm.",
        "A compiler that may join what is computed twice with what was computed first keeps all "
        "again: leave prevent_cse as it is.",
    ),
)
def within_memory(record: Record) -> Result:
    """The program's intermediate results take at most 4.5 arrays (n, h) a layer."""
    program = compiled_program(record, "gradients")
    if not isinstance(program, Measured):
        return program
    if program.memory is None:
        return Unable("this backend does not say how much memory a program needs")
    facts = wanted(record).facts
    layers, array = int(facts["layers"]), int(facts["array bytes"])
    found = program.memory.temporaries
    if found <= ARRAYS * layers * array:
        return None
    return Failure(
        f"at most {ARRAYS} arrays (n, h) for each of {layers} layers: "
        f"{ARRAYS * layers * array:,.0f} bytes of intermediate results",
        f"{found / layers / array:.1f} arrays a layer: {found:,} bytes",
        definition(record, "thrifty"),
    )


@EXERCISE.check(
    ground="program",
    after=("within_memory",),
    hints=(
        "Without a policy, jax.checkpoint computes the whole layer again: 3 more products.",
        "The results of the products are worth keeping; what is done to them element by element "
        "is not. A policy that saves names saves what jax.ad_checkpoint.checkpoint_name named so: "
        "a name that no array has saves nothing.",
    ),
    anchor=SAVE,
)
def within_work(record: Record) -> Result:
    """The program's work is at most that of 10.5 matrix products a layer."""
    program = compiled_program(record, "gradients")
    if not isinstance(program, Measured):
        return program
    facts = wanted(record).facts
    one = int(facts["layers"]) * int(facts["product flops"])
    # Where products are calls of a library, as on GPUs, a compiler may not count them.
    found = max(program.flops, float(seen(record).facts["traced flops"]))
    if found <= PRODUCTS * one:
        return None
    return Failure(
        f"work of at most {PRODUCTS} matrix products a layer: {PRODUCTS * one:,.0f} FLOPs",
        f"work of {found / one:.1f} products a layer: {found:,.0f} FLOPs",
        definition(record, "thrifty"),
    )
