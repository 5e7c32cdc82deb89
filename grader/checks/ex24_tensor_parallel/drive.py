"""Drives ex24_tensor_parallel: takes three steps in float32, exports them, and one in bfloat16.

Drawn are the order of the devices in each mesh, the number of blocks, the sizes of the network and
of the batch, and all numbers. The steps run on one mesh, and the bfloat16 program is exported for
another: they differ in the length of the axis "data" (2, or half of the devices) and in the order
of the axes, so that a layout must name its axes. `layout` is asked for three meshes more: one whose
axis "data" has a single device, one whose axis "model" has, and one of some of the devices, two by
two. The two programs differ in the number of blocks (2 to 7 in bfloat16; in the steps a single one,
or 8 or 9) and in the sizes, too: in one of them a block has more hidden units than features, in the
other less. One has one or two eights of rows on a device, the other 3 to 5. Some params are 0, as
biases are at first, and some rows of programs are. The bfloat16 program gets targets that are far
away, so that its step is large beside what bfloat16 rounds; in the last of the steps, they are
farther. In three more steps, the targets of a row are NaN, its inputs are, and targets are so far
away that the loss is infinite. A third program, in float32, has 2 to 7 blocks with as many hidden
units as features, and is made of the same step as that in bfloat16, for other rows. The hidden
units of all these are no multiple of 8, unless there are more than 8 devices. `layout` is asked for
shapes, and then for arrays of them. On the meshes for which it is asked alone, the last of two or
three blocks has other hidden units.

Where the file names numbers, the third program has more rows than each of these that is below
MOST_ROWS, two of the meshes for which `layout` is asked alone get more features and more hidden
units, numbers of blocks are such numbers, and the targets of the last step are further away.

The target's program has large sizes, so that the weights are most of what there is to split.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex24_tensor_parallel.facts import (
    AFTER,
    EXPORTED,
    IN_A_ROW,
    IN_FLOAT32,
    IN_SQUARE,
    LARGE,
    MODEL,
    ODD,
    OF_SOME,
    OF_SQUARE,
    ON_ITS_OWN,
    TARGET_DATA,
)
from grader.judging.words import plural
from grader.probes.observe import Misused, Observe, from_last, lacking, same_layout, unpack
from grader.stages.drawn import (
    beside,
    beyond,
    copied,
    far,
    odd_batches,
    one_of,
    some_blank_rows,
    some_zeros,
    with_targets,
)

ROWS = (1, 3), (3, 6)
"""Rows of a batch in eights on each device, from and below: the steps have one of these, and the
program in bfloat16 the other."""
BLOCKS = (1, 8, 9), (2, 3, 4, 5, 6, 7)
"""How many blocks the steps have, and that program. More of them round more."""
MOST_ROWS, MOST_SIZE, MOST_FAR, BESIDE = 20_000, 4096, 1e9, 1e3
"""Up to where rows, features and hidden units, and targets reach the numbers that the file names;
targets go further, as gradients are smaller."""
FAR, FARTHER = 8, 1e5
"""How many times as far away the targets of the program in bfloat16 are, and how far those of the
last step: some gradients are larger than 10."""
PROMISE = "`step` returns (params, loss)"
SMALL, LARGER = 0.08, 0.15
"""How large weights are: in the steps, so that rounding does not grow, and in that program."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Take the steps, and export the program for the devices here and for the target."""
    lengths = rng.permutation([2, jax.device_count() // 2]).tolist()
    names = rng.permutation(["model", "data"]).tolist()
    mesh, other = (_mesh(rng, *drawn) for drawn in zip(lengths, (names, names[::-1]), strict=True))
    step = submission.make_step(mesh)
    if not observe.jitted("step", step):
        return
    blocks = [int(rng.choice(counts)) for counts in BLOCKS]
    blocks[1] = one_of(rng, blocks[1], range(2, 8))
    farther = max(FARTHER, BESIDE * far(rng, MOST_FAR))
    eights = [int(rng.integers(*ROWS[n])) for n in rng.permutation(2)]
    unit = max(jax.device_count() // 2, 4)  # what "model" divides, on each mesh
    less, more = unit * (2 * int(rng.integers(3, 6)) + 1), unit * (4 * int(rng.integers(6, 9)) + 1)
    (features, hidden), second = rng.permutation([(less, more), (more + 32, less + 8)]).tolist()
    structs = _structs(features, hidden, "float32", blocks[0])
    layout, rows = _layout(submission, mesh, structs), 8 * mesh.size * eights[0]
    params, batch = _arguments(rng, mesh, layout, structs, rows, SMALL)
    same_layout("params", params, submission.layout(mesh, params))
    observe.value("params", params)
    observe.program(IN_FLOAT32, step, params, batch)
    before = params
    for when in AFTER:
        if when == AFTER[-1]:  # the step donates its params
            near, batch = copied(params), with_targets(batch, farther)
        # A GPU would otherwise round the products, and so what is compared.
        with (
            jax.default_matmul_precision("highest"),
            from_last("params", before, params, PROMISE),
        ):
            made = step(params, batch)
        before, (params, loss) = params, unpack(made, 2, PROMISE)
        observe.value(f"params after {when}", params)
        observe.value(f"loss of {when}", loss)
    _same_tree(structs, params)
    for when, odd in zip(ODD, odd_batches(beside(rng), batch), strict=True):
        with jax.default_matmul_precision("highest"):
            made, loss = unpack(step(copied(near), odd), 2, PROMISE)
        observe.value(f"params after {when}", made)
        observe.value(f"loss of {when}", loss)
    sizes = {"rows": 8 * mesh.size * eights[1], "blocks": blocks[1]}
    sizes |= dict(zip(("features", "hidden"), second, strict=True))
    first = {"rows": rows, "blocks": blocks[0], "features": features, "hidden": hidden}
    structs = _structs(sizes["features"], sizes["hidden"], "bfloat16", blocks[1])
    layout = _layout(submission, other, structs)
    apart = rng.spawn(1)[0]
    third = sizes | {"blocks": int(apart.choice(BLOCKS[1])), "hidden": second[0], "rows": rows}
    step_rows = 8 * mesh.size
    many = beyond(rng, third["rows"] // step_rows, MOST_ROWS // step_rows, each=step_rows)
    third["rows"] = step_rows * many
    square = _square(submission, apart, other, third)
    observe.value(OF_SQUARE, square[0])
    observe.fact("sizes", [first, sizes, third])
    observe.fact("data", [mesh.shape["data"], *[other.shape["data"]] * 2])
    models = {"params": mesh, EXPORTED: other, OF_SQUARE: other}
    models |= _placed(submission, observe, apart, names)
    observe.fact(MODEL, {name: placed.shape["model"] for name, placed in models.items()})
    arguments = _arguments(rng, other, layout, structs, sizes["rows"], LARGER, FAR)
    same_layout("params", arguments[0], submission.layout(other, arguments[0]))
    observe.value(EXPORTED, arguments[0])
    step = submission.make_step(other)
    if observe.jitted("step", step):
        observe.program("step", step, *arguments)
        observe.program(IN_SQUARE, step, *square)
        target = _mesh(rng, TARGET_DATA, names)
        large = _large(submission, target, blocks[1])
        observe.target("step", submission.make_step(target), *large)


def _same_tree(structs: Any, after: Any) -> None:
    """Nothing, if the new params, where they have the names of `structs`, are a tree like these.

    Raises:
      Misused: a list has become a tuple, say, so that no tree.map takes both.
    """
    paths = jax.tree_util.tree_leaves_with_path
    named = [[jax.tree_util.keystr(path) for path, _ in paths(tree)] for tree in (structs, after)]
    mine: Any = jax.tree.structure(after)
    if mine != jax.tree.structure(structs) and named[0] == named[1]:
        kinds = f"a {type(after).__name__}, each block in a {type(after[0]).__name__}"
        raise Misused(
            "the new params are a list of dicts, as the old ones are", f"they are {kinds}"
        )


def _placed(submission: ModuleType, observe: Observe, rng: Any, names: list[str]) -> Any:
    """Keep params of one or two blocks as they lie on three meshes more; returns these by name."""
    devices = rng.permutation(np.array(jax.devices()))
    long, some = len(devices), min(2, len(devices) // 2) or 1
    shapes = {IN_A_ROW: (1, long), ON_ITS_OWN: (long, 1), OF_SOME: (some, some)}
    meshes = {}
    for name, (data, model) in shapes.items():
        shape = [data if axis == "data" else model for axis in names]
        mesh = jax.sharding.Mesh(devices[: data * model].reshape(shape), names)
        features, hidden = (int(n) for n in rng.integers(3, 12, 2))
        most = MOST_SIZE // (data * model)
        if name == IN_A_ROW:
            features = beyond(rng, features, most, each=data * model)
        elif name == OF_SOME:
            hidden = beyond(rng, hidden, most, each=data * model)
        features, hidden = features * data * model, hidden * data * model
        structs = _structs(features, hidden, "float32", int(rng.integers(1, 3)))
        structs += _structs(features, hidden + data * model, "float32", 1)
        layout = _layout(submission, mesh, structs)
        arrays = jax.tree.map(lambda struct: np.zeros(struct.shape, struct.dtype), structs)
        observe.value(name, jax.device_put(arrays, layout), data=False)
        meshes[name] = mesh
    return meshes


def _square(submission: ModuleType, rng: Any, mesh: Any, sizes: dict[str, int]) -> tuple[Any, Any]:
    """Params in float32 of blocks that have as many hidden units as features, and a batch."""
    structs = _structs(sizes["features"], sizes["hidden"], "float32", sizes["blocks"])
    layout = _layout(submission, mesh, structs)
    return _arguments(rng, mesh, layout, structs, sizes["rows"], SMALL, FAR)


def _mesh(rng: Any, data: int, names: list[str]) -> Any:
    """A mesh of the axes `names`, "data" of the given length, with the devices in any order."""
    devices = rng.permutation(np.array(jax.devices()))
    shape = [data if name == "data" else -1 for name in names]
    return jax.sharding.Mesh(devices[: len(devices) // data * data].reshape(shape), names)


def _structs(features: int, hidden: int, dtype: str, blocks: int) -> list[dict[str, Any]]:
    """The params of each block, as shapes."""
    shapes = {
        "up": (features, hidden),
        "up_bias": (hidden,),
        "down": (hidden, features),
        "down_bias": (features,),
    }
    block = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in shapes.items()}
    return [dict(block) for _ in range(blocks)]


def _layout(submission: ModuleType, mesh: Any, structs: Any) -> Any:
    """The learner's layout.

    Raises:
      Misused: it is not a tree of shardings like `structs`.
    """
    names = [sorted(block) for block in structs]
    try:
        layout, trees = submission.layout(mesh, structs), jax.tree.structure
    except Exception as error:
        error.add_note("here, `params` are shapes: `layout` says how arrays lie, and places none")
        raise
    for number, (block, before) in enumerate(zip(structs, names, strict=False)):
        if lost := sorted({*before} - {*block}):
            done = f"it takes `{lost[0]}` out of `params[{number}]`"
            raise Misused("`layout` leaves the `params` that it is given as they are", done)
    kinds = sorted({type(leaf).__name__ for leaf in jax.tree.leaves(layout)})
    if kinds != ["NamedSharding"] or str(trees(structs)) != str(trees(layout)):
        promise = "`layout` returns a NamedSharding for each array, in a tree like `params`"
        size = f"{len(layout)} of " if isinstance(layout, list) else ""
        got = f"a {type(layout).__name__} of {size}{', '.join(kinds)}"
        got += "" if isinstance(layout, list) else ", where `params` is a list"
        got += lacking("params", structs, layout)
        raise Misused(promise, f"for {plural(len(structs), 'block')} it returned {got}")
    named = jax.tree_util.tree_leaves_with_path(structs)
    for (path, struct), place in zip(named, jax.tree.leaves(layout), strict=True):
        if len(place.spec) > struct.ndim:
            array = f"`params{jax.tree_util.keystr(path)}`"
            observed = f"it returned {place.spec} for {array}, which has {struct.ndim} dimension"
            raise Misused("each sharding that `layout` returns fits its array", observed)
        if list(place.mesh.devices.flat) != list(mesh.devices.flat):
            raise Misused("`layout` uses the mesh that it is given", f"it uses {place.mesh}")
    return layout


def _arguments(
    rng: Any, mesh: Any, layout: Any, structs: Any, rows: int, scale: float, far: int = 1
) -> tuple[Any, Any]:
    """Params as the layout says, and a batch of `rows` rows split over "data".

    The targets are at most `far` away from 0.
    """
    up = structs[0]["up"]

    def draw(struct: Any) -> Any:
        return some_zeros(rng, (scale * rng.standard_normal(struct.shape)).astype(struct.dtype))

    params = jax.tree.map(draw, structs)
    inputs = rng.standard_normal((rows, up.shape[0])).astype(up.dtype)
    targets = (far * np.tanh(inputs)).astype(up.dtype)
    if far > 1:
        some_blank_rows(rng.spawn(1)[0], inputs, targets)
    split = jax.NamedSharding(mesh, jax.P("data"))
    return jax.device_put(params, layout), jax.device_put((inputs, targets), split)


def _large(submission: ModuleType, mesh: Any, blocks: int) -> tuple[Any, Any]:
    """Arguments as `_arguments` gives them, as shapes, of the sizes for the target."""
    structs = _structs(LARGE["features"], LARGE["hidden"], "bfloat16", blocks)
    layout, split = _layout(submission, mesh, structs), jax.NamedSharding(mesh, jax.P("data"))
    params = jax.tree.map(lambda struct, place: struct.update(sharding=place), structs, layout)
    shape = LARGE["rows"], LARGE["features"]
    return params, (jax.ShapeDtypeStruct(shape, "bfloat16", sharding=split),) * 2
