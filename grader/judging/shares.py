"""Finds which parts of a batch a step followed, from nothing but the step and the batch.

A step of gradient descent is a sum of the gradients of the batch's parts, each with a weight: a
mean gives all of them the same. The weights of a submission's step say which part it left out, or
counted twice. Here are the gradients of one small network, in NumPy, and the fit. Input: arrays
from records. No verdict is reached here; NumPy is imported inside functions, so that the command
line starts without it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from grader.judging.arrays import load
from grader.records.record import Leaf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating]

FITS = 0.02
"""The part of a step that may be left when the gradients are taken from it. Rounding of the params,
which are much longer than a step, leaves less."""
_ALIKE = 0.1
"""How far two weights may be apart, relative to the right one, and still be called the same."""
_APART, _NOTHING = 0.5, 0.02
"""From how far apart on weights are listed one by one, and below which one is called 0."""
KEYS = ("b1", "w1", "w2")
"""The params of the network in the order of `gradient`."""
RATE = 0.1
"""The rate of a step, as the starters have it."""


def numbers(leaf: Leaf) -> "Array":
    """The values of an array of the reference, float64."""
    return load(leaf.data or b"").astype("float64")


def params(leaves: Sequence[Leaf]) -> dict[str, "Array"]:
    """The arrays of a dict of params, by their names."""
    return {leaf.path[2:-2]: numbers(leaf) for leaf in leaves}


def gradient(old: Mapping[str, "Array"], inputs: "Array", targets: "Array") -> "Array":
    """The gradient of mean((tanh(inputs @ w1 + b1) @ w2 - targets) ** 2), as one vector.

    Inputs are (rows, features), targets (rows, outputs). The vector holds b1, w1 and w2, flat.
    """
    import numpy as np

    b1, w1, w2 = (old[key] for key in KEYS)
    hidden = np.tanh(inputs @ w1 + b1)
    apart = 2 / targets.size * (hidden @ w2 - targets)
    inner = apart @ w2.T * (1 - hidden**2)
    return np.concatenate([inner.sum(0), (inputs.T @ inner).ravel(), (hidden.T @ apart).ravel()])


def loss(old: Mapping[str, "Array"], inputs: "Array", targets: "Array") -> float:
    """The loss of which `gradient` is the gradient."""
    import numpy as np

    hidden = np.tanh(inputs @ old["w1"] + old["b1"])
    return float(np.mean((hidden @ old["w2"] - targets) ** 2))


def unraveled(flat: "Array", like: Mapping[str, "Array"]) -> dict[str, "Array"]:
    """The params, of the shapes of `like`, that a vector in the order of `gradient` holds."""
    import numpy as np

    ends = np.cumsum([like[key].size for key in KEYS])[:-1]
    parts = zip(KEYS, np.split(flat, ends), strict=True)
    return {key: part.reshape(like[key].shape) for key, part in parts}


def weights(step: "Array", parts: Sequence["Array"], right: float) -> list[float] | None:
    """By how much each of `parts` counts in a step, where 1 is `right` times the part.

    None if the step is no sum of them.
    """
    import numpy as np

    if not np.isfinite(step).all():
        return None
    basis = np.stack(parts, axis=1).astype(np.float64)
    found = np.linalg.lstsq(basis, step.astype(np.float64), rcond=None)[0]
    left = float(np.linalg.norm(basis @ found - step))
    if not left <= FITS * float(np.linalg.norm(step)):
        return None
    return [float(weight) / right for weight in found]


def of_devices(
    step: "Array", old: Mapping[str, "Array"], batch: Sequence["Array"], devices: int
) -> str:
    """What is wrong with how often the rows of each device count in a step; "" if nothing known.

    The rows of a batch, (inputs, targets), are cut into as many equal parts as there are devices.
    """
    import numpy as np

    blocks = zip(*(np.split(array, devices) for array in batch), strict=True)
    found = weights(step, [gradient(old, *rows) for rows in blocks], -RATE / devices)
    return "" if found is None else in_words(found, "devices")


def in_words(found: Sequence[float], part: str) -> str:
    """What is wrong with weights that are not all the same.

    `part` names them in words, such as "micro-batches". Returns "" where all weights are alike.
    """
    count = len(found)
    used = [n for n, weight in enumerate(found) if abs(weight) > _ALIKE]
    if len(used) == count and max(found) - min(found) < _ALIKE:
        return ""
    if len(used) == 1:
        return f"only the gradient of {which(used[0], count)} of {count} {part} is in the step"
    alike = max(found) - min(found[n] for n in used) < _APART if used else False
    if alike and len(used) < count and count - len(used) <= len(used):
        lost = [n for n in range(count) if n not in used]
        names = " and ".join(which(n, count) for n in lost)
        return f"the gradient of {names} of {count} {part} is not in the step"
    said = ", ".join(f"{weight if abs(weight) > _NOTHING else 0:.2g}" for weight in found)
    return f"the gradients of the {count} {part} count {said} times, in their order"


def which(index: int, count: int) -> str:
    """The one at `index` of `count` things, in words."""
    return {0: "the first", count - 1: "the last"}.get(index, f"number {index + 1}")
