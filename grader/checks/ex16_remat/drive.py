"""Drives ex16_remat: exports the gradients of two networks of drawn sizes, and a layer.

Drawn for each network are the rows n (144 to 240), the width d (60 to 96), the hidden units h
(3.4 to 4.2 times d; all in fours), the layers (5 to 7 of one network, 10 to 14 of the other, in any
order), the scale of the inputs (0.03 to 0.1 in one, 0.1 to 3 in the other) and of each array of
weights, and all numbers, of which a weight in a hundred is 0. The inputs are small enough in one
network that the 1e-6 of the norm counts, and one row of them is so large in the other that nothing
may be cut off: the targets of that row are near its inputs. All inputs of one row are 0.

Memory and work are read from the exported programs, as compiled where the learner's file never
was. What stands in a loop counts as often as it runs.
"""

import math
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex16_remat import facts
from grader.checks.ex16_remat.facts import NETWORKS, Network
from grader.probes.observe import Observe

ROWS, WIDTHS, HIDDEN = (36, 61), (15, 25), (3.4, 4.2)
"""Rows and widths in fours; hidden units as multiples of the width."""
ZEROS = 0.01
"""The part of the weights that are 0."""
LAYERS = ((5, 8), (10, 15))
INPUTS, WEIGHTS = ((0.03, 0.1), (0.1, 3.0)), (0.4, 1.6)
FAR = 1000
"""How large the inputs of one row are."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export the gradients of each network, and `thrifty` as the last one calls it."""
    networks = []
    scales = rng.permutation(INPUTS)
    for number, (span, ends) in enumerate(zip(rng.permutation(LAYERS), scales, strict=True), 1):
        rows, width, hidden = _sizes(rng)
        networks.append(
            Network(
                layers=int(rng.integers(*span)),
                array_bytes=4 * rows * hidden,
                product_flops=2 * rows * width * hidden,
            )
        )
        shapes = {"up": (width, hidden), "gate": (width, hidden), "down": (hidden, width)}
        params = [
            {name: _weights(rng, shape) for name, shape in shapes.items()}
            for _ in range(networks[-1].layers)
        ]
        scale = math.exp(rng.uniform(*map(math.log, ends)))
        inputs, targets = (_array(rng, (rows, width), scale) for _ in range(2))
        blank, far = map(int, rng.permutation(rows)[:2])
        inputs = inputs.at[blank].set(0)
        if ends[0] == INPUTS[1][0]:
            inputs = inputs.at[far].multiply(FAR / scale)
            targets = targets.at[far].add(inputs[far])
        observe.program(facts.program(number), submission.gradients, params, inputs, targets)
    observe.program(facts.RESULT, jax.jit(submission.thrifty), inputs, params[0])
    observe.fact(NETWORKS, msgspec.to_builtins(networks))


def _sizes(rng: Any) -> tuple[int, int, int]:
    """Rows n, width d and hidden units h.

    On a GPU rows and hidden units are more, so that the arrays are large beside a library's
    workspace, and the weights few enough to be sent.
    """
    rows, width = (4 * int(rng.integers(*ends)) for ends in (ROWS, WIDTHS))
    hidden = 4 * round(width * rng.uniform(*HIDDEN) / 4)
    if jax.default_backend() != "cpu":
        rows, hidden = rows * 64, hidden * 2
    return rows, width, hidden


def _weights(rng: Any, shape: tuple[int, int]) -> Any:
    drawn = _drawn(rng, shape, rng.uniform(*WEIGHTS) / math.sqrt(shape[0]))
    return jax.device_put(np.where(rng.random(shape) < ZEROS, np.float32(0), drawn))


def _array(rng: Any, shape: tuple[int, int], scale: float) -> Any:
    return jax.device_put(_drawn(rng, shape, scale))


def _drawn(rng: Any, shape: tuple[int, int], scale: float) -> Any:
    return (scale * rng.standard_normal(shape)).astype("float32")
