"""Drives ex16_remat: exports the gradients of three networks of drawn sizes, and a layer.

Drawn for each network are the rows n (144 to 240), the width d (60 to 96), the hidden units h (3.4
to 4.2 times d; all in fours), the layers (5 to 7 of one network, 10 to 14 of the other, in any
order), the scale of the inputs (0.03 to 0.1 in one, 0.1 to 3 in the other) and of each array of
weights, and all numbers, of which a weight in a hundred is 0. The inputs are small enough in one
network that the 1e-6 of the norm counts, and one row of them is so large in the other that nothing
may be cut off: the targets of that row are near its inputs. All inputs of one row are 0. A third
network, of 5 to 7 layers, has as many rows as its width, or fewer, down to half as many; on a GPU,
where such arrays are small beside a library's workspace, it is left out. The layer gets as many
rows as its width, and it is looked at whether its dict of weights is as it was. Where the file
names numbers, the deeper network has more layers than each of them that is below MOST_LAYERS, and
three more networks of 5 to 7 layers follow: one has more rows, up to MOST_ROWS, one is wider, up to
MOST_WIDTH, and one has a few rows less than a number says.

Memory and work are read from the exported programs, as compiled where the learner's file never
was. What stands in a loop counts as often as it runs.
"""

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from grader.checks.ex16_remat import facts
from grader.checks.ex16_remat.facts import NETWORKS, Network
from grader.probes.observe import Observe, other_entries
from grader.stages.drawn import beside, beyond, far, named

ROWS, WIDTHS, HIDDEN = (36, 61), (15, 25), (3.4, 4.2)
"""Rows and widths in fours; hidden units as multiples of the width."""
ZEROS = 0.01
"""The part of the weights that are 0."""
LAYERS = ((5, 8), (10, 15))
INPUTS, WEIGHTS = ((0.03, 0.1), (0.1, 3.0)), (0.4, 1.6)
FAR = 1000
"""How large the inputs of one row are."""
MORE_ROWS = 32
"""So many times as many rows on a GPU."""
MOST_ROWS, MOST_WIDTH, MOST_LAYERS, MOST_FAR = 7996, 256, 30, 3000
"""Up to where rows, width, layers and that row reach the numbers that the file names."""
FEWEST_ROWS = 48
"""So many rows at least has a network that has less than a number says."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export the gradients of each network, and `thrifty` as the last of the first two calls it."""
    apart, scales = beside(rng), rng.permutation(INPUTS)
    networks = list[Network]()

    def export(sizes: tuple[int, int, int], span: Any, ends: Any, rng: Any = rng) -> Any:
        """Export the gradients of one network; returns an input to its first layer, and that layer.

        The input has as many rows as the width, the one of zeros among them.
        """
        rows, width, hidden = sizes
        layers = int(rng.integers(*span))
        if span[0] == LAYERS[-1][0]:
            layers = beyond(rng, layers, MOST_LAYERS)
        one, product = 4 * rows * hidden, 2 * rows * width * hidden
        networks.append(Network(layers, (rows, width), one, product))
        shapes = {"up": (width, hidden), "gate": (width, hidden), "down": (hidden, width)}
        params = [
            {name: _weights(rng, shape) for name, shape in shapes.items()} for _ in range(layers)
        ]
        scale = math.exp(rng.uniform(*map(math.log, ends)))
        inputs, targets = (_array(rng, (rows, width), scale) for _ in range(2))
        blank, row = map(int, rng.permutation(rows)[:2])
        inputs = inputs.at[blank].set(0)
        if ends[0] == INPUTS[1][0]:
            inputs = inputs.at[row].multiply(max(FAR, far(rng, MOST_FAR)) / scale)
            targets = targets.at[row].add(inputs[row])
        name = facts.program(len(networks))
        observe.program(name, submission.gradients, params, inputs, targets)
        return jnp.roll(inputs, -1 - blank, axis=0)[-width:], params[0]

    for span, ends in zip(rng.permutation(LAYERS), scales, strict=True):
        square, layer = export(_sizes(rng), span, ends)
    if jax.default_backend() == "cpu":
        export(_of_few_rows(apart), LAYERS[0], INPUTS[1], apart)
    for sizes in _more_sizes(rng):
        export(sizes, LAYERS[0], INPUTS[1])
    changed = list[str]()

    def thrifty(x: Any, weights: Any) -> Any:
        own = {**weights}
        result = submission.thrifty(x, own)
        changed.extend(other_entries(own, weights))
        return result

    observe.program(facts.RESULT, jax.jit(thrifty), square, layer)
    observe.fact(facts.CHANGED, changed)
    observe.fact(NETWORKS, msgspec.to_builtins(networks))


def _sizes(rng: Any) -> tuple[int, int, int]:
    """Rows n, width d and hidden units h.

    On a GPU rows and hidden units are more, so that the arrays are large beside a library's
    workspace, and the weights few enough to be sent.
    """
    rows, width = (4 * int(rng.integers(*ends)) for ends in (ROWS, WIDTHS))
    hidden = 4 * round(width * rng.uniform(*HIDDEN) / 4)
    if jax.default_backend() != "cpu":
        rows, hidden = rows * MORE_ROWS, hidden * 2
    return rows, width, hidden


def _of_few_rows(rng: Any) -> tuple[int, int, int]:
    """The sizes of a network whose inputs are square, or have fewer rows than columns."""
    _, width, hidden = _sizes(rng)
    return _in_fours(width * rng.choice((1, rng.uniform(0.5, 1))), MOST_ROWS), width, hidden


def _more_sizes(rng: Any) -> Iterator[tuple[int, int, int]]:
    """The sizes of networks by which the numbers of the file are reached: three, or none.

    One has more rows than each of them, one is wider, and has more rows, too, so that the weights
    are few beside them, and one has a few rows less than one of them, and is as much narrower.
    """
    if not named(rng):
        return
    rows, width, _ = _sizes(rng)
    many = _in_fours(beyond(rng, rows, MOST_ROWS, each=width), MOST_ROWS)
    yield many, width, 4 * width
    wide = _in_fours(beyond(rng, width, MOST_WIDTH), MOST_WIDTH)
    yield max(rows, 5 * wide // 8 * 4), wide, 4 * wide
    meant = [number for number in named(rng) if FEWEST_ROWS < number <= rows]
    few = _in_fours(rng.choice(meant), MOST_ROWS) - 4 if meant else rows
    small = min(4 * max(4, few // 10), width)
    yield few, small, 4 * small


def _in_fours(number: float, most: int) -> int:
    """The next multiple of 4, up to `most`."""
    return min(4 * math.ceil(number / 4), most)


def _weights(rng: Any, shape: tuple[int, int]) -> Any:
    drawn = _drawn(rng, shape, rng.uniform(*WEIGHTS) / math.sqrt(shape[0]))
    return jax.device_put(np.where(rng.random(shape) < ZEROS, np.float32(0), drawn))


def _array(rng: Any, shape: tuple[int, int], scale: float) -> Any:
    return jax.device_put(_drawn(rng, shape, scale))


def _drawn(rng: Any, shape: tuple[int, int], scale: float) -> Any:
    return (scale * rng.standard_normal(shape)).astype("float32")
