"""Drives ex25_sharded_state: some steps on arrays, then the step as programs of two sizes.

Drawn are the sizes of the network, the rows of a batch, the count of the steps before (0 or 1 for
the steps, more for the second program, any for the wide one), the order of the devices in each
mesh, and all numbers. The number of devices divides neither the features nor the outputs of the
states that are stepped, so no rule about one fixed dimension fits every array. One of these two,
which is drawn, is longer than the width, so none about the longest does. `layout` is asked three
times more, for meshes of some of the devices, which are drawn: for an odd number of them, and then
twice for one even number of them, first with a state whose every dimension can be divided, one
array of which is as long as there are devices. What was kept for one of these two meshes is wrong
on the other. A layout that counts the machine's devices goes wrong in the first, and so does one
that splits over powers of 2 alone. One that knows the arrays by their names goes wrong in the
second. Each time, it is asked for shapes, and then for arrays of them. One exported program is
wide, so that one share of its state is more than a few activations; the other is for some of the
devices, and narrow or wide, which is drawn. Both have so many rows that their params are the least
that can travel, and some numbers whose moments are 0, as all are at first. Their targets are far
away, so that gradients that were rounded on their way show, or cut off. One feature is 0 in all
rows of each batch, and another one next to 0, so that some gradients are 0, and some less than a
millionth. In one more step, of another state, the targets of a drawn row are NaN. For a mesh of one
device, the step is traced. What the steps, whose network is narrow, exchange is written down. The
program for the target has large sizes, so that gradients outweigh everything else that travels.
Where the file names numbers, the states that are placed alone are wider than each of these that is
below MOST_WIDTH, or have more features, the program on some devices has more rows, and the counts
of some states are such numbers, or higher.
"""

import math
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex25_sharded_state.facts import (
    AFTER,
    AGAIN,
    DONATED,
    EVEN,
    EXCHANGED,
    LARGE,
    LARGE_ROWS,
    LOST,
    ON,
    OTHER,
    PROGRAMS,
    SOME,
    STEP,
    STEPPED,
    Program,
    Sizes,
)
from grader.checks.ex25_sharded_state.training_state import drawn, shapes
from grader.probes import exchanges
from grader.probes.observe import Observe, from_last, same_layout, unpack
from grader.stages.drawn import beside, beyond

ROWS = (288, 448)
"""Rows of a batch on all devices, from and below: more than any program is wide, or the compiler
would gather its activations in place of its params."""
MOST_WIDTH, MOST_FEATURES, MOST_ROWS = 768, 4096, 8192
"""Up to where states and the batch of one program reach the numbers that the file names."""
WIDTHS = (3, 6), (12, 17)
"""Of the second program, its width in sixteens or so, from and below: one of these."""
FAR, FARTHER = 64, 1e6
"""How many times as far from 0 the targets of the exported programs are, of the wide one and of the
other: their gradients are large."""
PROMISE = "`step` returns (state, loss)"


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Place states by `layout`, run some steps, and export the step twice."""
    # A GPU would otherwise round the products, and so what is compared.
    with jax.default_matmul_precision("highest"):
        _drive(submission, observe, rng)


def _drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    mesh = _mesh(rng, jax.device_count())
    step = submission.make_step(mesh)
    if not observe.jitted("step", step):
        return
    rows = int(rng.integers(*ROWS)) // mesh.size

    def arguments(sizes: Sizes, mesh: Any, **asked: Any) -> Any:
        placed = drawn(rng, shapes(submission, mesh, sizes, rows * mesh.size), **asked)
        same_layout("state", placed[0], submission.layout(mesh, placed[0]))
        return placed

    some, others = (
        _mesh(rng, int(rng.choice(range(fewest, mesh.size, 2) or (1,)))) for fewest in (3, 2)
    )
    observe.fact(ON, {"state": mesh.size, SOME: some.size, EVEN: others.size, AGAIN: others.size})
    again = _mesh(beside(rng), others.size)
    for name, other in ((SOME, some), (EVEN, others), (AGAIN, again)):
        times = rng.permutation((1, 2, 3))
        times = np.roll(times, 1) if times[0] == 1 else times  # one array is as long as the mesh
        even = Sizes(*(int(n) * other.size for n in times))
        even = _far(rng, even, other.size, of_features=name == EVEN)
        odd = even._replace(features=even.features + 1, outputs=even.outputs + 1)
        observe.value(name, arguments(even if name == EVEN else odd, other)[0], data=False)
    small = _sizes(rng, mesh.size, 3, 6)
    longer = str(rng.choice(["features", "outputs"]))
    small = small._replace(**{longer: getattr(small, longer) + small.width})
    state, batch = arguments(small, mesh, count=int(rng.integers(2)))
    observe.value("state", state, data=observe.reference)
    before, sent = state, list[Any]()
    for when in AFTER:
        with from_last("state", before, state, PROMISE), exchanges.launched() as found:
            made = step(state, batch)
        sent.append(msgspec.to_builtins(found))
        before, (state, loss) = state, unpack(made, 2, PROMISE)
        observe.value(f"state after {when}", state)
        observe.value(f"loss of {when}", loss)
    observe.fact(EXCHANGED, sent)
    observe.fact(STEPPED, msgspec.to_builtins(Program(small, rows, mesh.size)))
    large, other = _sizes(rng, mesh.size, 14, 18), _sizes(rng, others.size, *rng.choice(WIDTHS))
    each = beyond(rng, rows * mesh.size // others.size, MOST_ROWS // others.size, each=others.size)
    programs = {STEP: Program(large, rows, mesh.size), OTHER: Program(other, each, others.size)}
    observe.fact(PROGRAMS, msgspec.to_builtins(programs))
    count = int(rng.integers(3)) if rng.integers(2) else None
    observe.program(STEP, step, *arguments(large, mesh, count=count, far=FAR, fresh=True))
    structs = shapes(submission, others, other, each * others.size)
    placed = drawn(rng, structs, far=FARTHER, fresh=True)
    observe.program(OTHER, submission.make_step(others), *placed)
    observe.target(STEP, step, *shapes(submission, mesh, LARGE, LARGE_ROWS))
    state, batch = drawn(rng.spawn(1)[0], shapes(submission, mesh, small, rows * mesh.size))
    state, loss = unpack(step(state, _lost(rng.spawn(1)[0], batch)), 2, PROMISE)
    observe.value(f"state after {LOST}", state)
    observe.value(f"loss of {LOST}", loss)
    alone = _mesh(beside(rng), 1)
    _trace(submission.make_step(alone), observe, *shapes(submission, alone, small, rows))


def _far(rng: Any, sizes: Sizes, devices: int, *, of_features: bool) -> Sizes:
    """The same sizes, but for one that reaches the numbers that the file names."""
    size, most = (sizes.features, MOST_FEATURES) if of_features else (sizes.width, MOST_WIDTH)
    large = devices * beyond(rng, size // devices, most // devices, each=devices)
    return sizes._replace(features=large) if of_features else sizes._replace(width=large)


def _trace(step: Any, observe: Observe, state: Any, batch: Any) -> None:
    """Keep whether a step donates the arrays of its state, counts aside."""
    if not observe.jitted("step", step):
        return
    asked = jax.tree.leaves(step.trace(state, batch).args_info)
    arrays = zip(jax.tree.leaves(state), asked, strict=False)
    observe.fact(DONATED, all(info.donated for array, info in arrays if array.ndim))


def _lost(rng: Any, batch: Any) -> Any:
    """The batch, but for the targets of one row, which are NaN."""
    inputs, targets = batch
    numbers = np.array(targets)
    numbers[int(rng.integers(len(numbers)))] = np.nan
    return inputs, jax.device_put(numbers, targets.sharding)


def _mesh(rng: Any, count: int) -> Any:
    """A mesh of so many devices, drawn, in an order that is drawn."""
    return jax.sharding.Mesh(rng.permutation(np.array(jax.devices()))[:count], ("data",))


def _sizes(rng: Any, devices: int, low: int, high: int) -> Sizes:
    """Sizes of which `devices` divide the width alone, which is `low` to `high` times 16 or so."""
    width = devices * math.ceil(max(16, devices) * int(rng.integers(low, high)) / devices)
    features, outputs = devices * int(rng.integers(2, 4)), devices * int(rng.integers(1, 3))
    odd = rng.integers(1, max(devices, 2), 2) if devices > 2 else (1, 1)
    return Sizes(features + int(odd[0]), width, outputs + int(odd[1]))
