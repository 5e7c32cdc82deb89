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
millionth. There are some steps more, of other states. In two, the targets of a drawn row are NaN,
or one of its inputs. In another one, its targets are so far away that the loss is infinite; and in
one, params and targets are 0, and so is the loss. For a mesh of one device, the step is traced, and
taken once. A step is also made, and never taken, for the other mesh of as many devices.
What the steps, whose network is narrow, exchange is written down. The program for the target has
large sizes, so that gradients outweigh everything else that travels. Where the file names numbers,
the states that are placed alone are wider than each of these that is below MOST_WIDTH, or have more
features, the program on some devices has more rows, and the counts of some states are such numbers,
or higher.
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
    ALONE,
    BLANK,
    DONATED,
    EVEN,
    EXCHANGED,
    FAR_AWAY,
    GONE,
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
TOO_FAR = 1e20
"""A target whose square is infinite in float32. The squares of its gradients are not."""
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
    submission.make_step(again)  # what is kept of it is wrong for the next mesh of as many devices
    observe.program(OTHER, submission.make_step(others), *placed)
    observe.target(STEP, step, *shapes(submission, mesh, LARGE, LARGE_ROWS))
    structs = shapes(submission, mesh, small, rows * mesh.size)
    for when in (LOST, GONE, FAR_AWAY, BLANK):
        state, batch = drawn(rng.spawn(1)[0], structs)
        _odd_step(step, observe, when, *_odd(rng.spawn(1)[0], when, state, batch))
    alone = _mesh(beside(rng), 1)
    structs = shapes(submission, alone, small, rows)
    on_one = submission.make_step(alone)
    _trace(on_one, observe, *structs)
    _odd_step(on_one, observe, ALONE, *drawn(rng.spawn(1)[0], structs))


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


def _odd_step(step: Any, observe: Observe, when: str, state: Any, batch: Any) -> None:
    """Keep what one more step makes of a state and a batch."""
    state, loss = unpack(step(state, batch), 2, PROMISE)
    observe.value(f"state after {when}", state)
    observe.value(f"loss of {when}", loss)


def _odd(rng: Any, when: str, state: Any, batch: Any) -> Any:
    """The state and the batch of such a step. Of an odd batch, one row is so, which is drawn."""
    arrays = list(map(np.array, batch))
    row = int(rng.integers(len(arrays[0])))
    if when == GONE:
        arrays[0][row, int(rng.integers(arrays[0].shape[1]))] = np.nan
    elif when == BLANK:
        state = state | {"params": jax.tree.map(_zeros_like, state["params"])}
        arrays[1][:] = 0
    else:
        arrays[1][row] = np.nan if when == LOST else TOO_FAR
    return state, tuple(
        jax.device_put(a, old.sharding) for a, old in zip(arrays, batch, strict=True)
    )


def _zeros_like(array: Any) -> Any:
    """Zeros where an array lies."""
    return jax.device_put(np.zeros(array.shape, array.dtype), array.sharding)


def _mesh(rng: Any, count: int) -> Any:
    """A mesh of so many devices, drawn, in an order that is drawn."""
    return jax.sharding.Mesh(rng.permutation(np.array(jax.devices()))[:count], ("data",))


def _sizes(rng: Any, devices: int, low: int, high: int) -> Sizes:
    """Sizes of which `devices` divide the width alone, which is `low` to `high` times 16 or so."""
    width = devices * math.ceil(max(16, devices) * int(rng.integers(low, high)) / devices)
    features, outputs = devices * int(rng.integers(2, 4)), devices * int(rng.integers(1, 3))
    odd = rng.integers(1, max(devices, 2), 2) if devices > 2 else (1, 1)
    return Sizes(features + int(odd[0]), width, outputs + int(odd[1]))
