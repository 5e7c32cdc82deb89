"""Drives ex16_remat: traces and exports the gradients of a network of drawn sizes.

The memory is what the compiler needs for the exported program, where the learner's file
never was. The work is counted twice: by the compiler, and here, over the matrix products
of the traced program. A compiler counts what stands in a loop only once, and products
that are calls of a library not at all.
"""

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax
import msgspec

from grader.checks.ex16_remat.facts import TRACED, Traced
from grader.probes.observe import Observe


def _sizes(rng: Any) -> tuple[int, int, int, int]:
    """Rows n, width d, hidden units h and layers.

    On a GPU they are larger, so that the arrays are large beside a library's workspace.
    """
    rows, width, hidden = (int(rng.integers(*ends)) * 4 for ends in ((24, 41), (15, 19), (56, 73)))
    if jax.default_backend() != "cpu":
        rows, width, hidden = rows * 32, width * 2, hidden * 4
    return rows, width, hidden, int(rng.integers(5, 8))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Trace the gradients, count their matrix products, and export them."""
    rows, width, hidden, layers = _sizes(rng)

    def draw(*shape: int) -> Any:
        return jax.device_put((rng.standard_normal(shape) / 8).astype("float32"))

    shapes = {"up": (width, hidden), "gate": (width, hidden), "down": (hidden, width)}
    params = [{name: draw(*shape) for name, shape in shapes.items()} for _ in range(layers)]
    inputs, targets = draw(rows, width), draw(rows, width)
    program = jax.make_jaxpr(submission.gradients)(params, inputs, targets)
    traced = Traced(
        layers=layers,
        array_bytes=4 * rows * hidden,
        product_flops=2 * rows * width * hidden,
        flops=sum(_products(program.jaxpr)),
    )
    observe.fact(TRACED, msgspec.to_builtins(traced))
    observe.program("gradients", submission.gradients, params, inputs, targets)


def _products(jaxpr: Any) -> Iterator[int]:
    """The floating-point operations of each matrix product, with every turn of a loop."""
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
