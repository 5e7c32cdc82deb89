"""Drives ex31_dgx_trainer: `place`, `place_batch`, `train` and the step, each by itself.

The drive makes what each function gets, so a wrong `place` costs `make_step` and `train` nothing.
`place` and `place_batch` are called 4 to 6 times, each time with another mesh, but for the last two
calls: these have one mesh, and other numbers in arrays of the same names and sizes. `train` gets a
small step of the drive's own, and runs to the end, once with more than a hundred batches and once
with one to three, and until `stop` ends it; a `Book` writes down the order of its calls. The step
of `make_step` is traced and exported, for few blocks and for more, and never runs in this process.
For the target it is exported once more, with sizes of GiBs.

Drawn are, for each call of `place`, the number of blocks (1 to 6, 7 to 11 in one call, and 12 to 16
in another), their names and width, the rows of a batch, the size of the axis "model" (2 or 4), the
order of the axes, and that of the devices, and which matrices lie column by column in memory, alone
or as parts of larger ones; for the step, the number of blocks (1 to 5, and 6 to 8), their names and
width, the rows, and the axis "model", each number of blocks on a mesh of its own, and how many
steps each block's state has seen (none, some up to 99, 100, and some up to 10,000), of which some
averages are 0, as all are at first, and a feature that is 0 in all rows, so that some gradients
are, and one next to 0, and a block whose params are 0, and so its gradient; and the batches of each
run, and the steps at which `stop` ends three of them: among the first four, after them, and about
the hundredth or later. A step of `train` is held
on its device until the next batch is put, so that a loop that waits first is found by whatever
means it waits. In two of the runs, which are drawn, a step deletes the params and the state that it
gets, as one does that donates them; in three, the iterator is no generator. Params and state are
nested there as those of the file are. In one run more, the iterator raises an error after some
batches.

Where the file names numbers, each of these goes further than each of them that is below MOST_...:
the blocks of one call of `place`, the width of another one, and the rows of a third; the batches of
the long run, and the size of those of a short one; the blocks of the one program, and the width and
the rows of the other.
"""

import traceback
import weakref
from collections.abc import Iterator
from functools import partial, wraps
from itertools import chain
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path, tree_map_with_path

from grader.checks.ex31_dgx_trainer import facts
from grader.checks.ex31_dgx_trainer.facts import FEW, PLACED, STEP, block_shapes
from grader.judging.words import plural
from grader.probes import alive, exchanges
from grader.probes.describe import weakly_typed
from grader.probes.host_operations import host_operations
from grader.probes.observe import Misused, Observe, lacking_keys, left_alone, same_tree, unpack
from grader.records.record import PINNED
from grader.stages.ahead import Ahead
from grader.stages.drawn import beside, beyond, one_of, some_by_columns
from grader.stages.failing import Failed, returns
from grader.stages.loop import Book, odd_losses, with_losses

SPECS = {"up": jax.P(None, "model"), "down": jax.P("model", None)}
"""How each param of a block is split."""
PLACES = "`place` returns (params, state)"
STATES = "`place` returns a state for each block, as adam.init makes it"
EVERY = 97
"""One of so many numbers has averages of 0, and so have all that meet the first input."""
NEAR_ZERO = -7.5, -6.0
"""How large that input is, as a power of 10, so that some gradients are next to 0."""
MOST_BLOCKS, MOST_WIDTH, MOST_ROWS = 80, 256, 10_000
"""Up to where calls of `place` and `place_batch` reach the numbers that the file names,"""
MOST_BATCHES, MOST_STOPPED, MOST_NUMBERS = 1100, 300, 100_000
"""runs of `train`, of which the second one is of the last of those that `stop` ends,"""
MOST_STEP_BLOCKS, MOST_STEP_WIDTH, MOST_STEP_ROWS = 20, 96, 512
"""and the two programs. The rows are those of each part."""
SCALE = 512
"""Every dimension is this many times as long for the target. Such arrays are never allocated."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Drive each function by itself, on what the drive placed."""
    trainer = Trainer(submission, observe, rng)
    trainer.place_all()
    runs = _runs(rng)
    observe.fact("runs", {name: count for name, (count, _) in runs.items()})
    own = beside(rng)
    donated, chained = (own.permutation(list(runs))[:some].tolist() for some in (2, 3))
    for name, (count, last) in runs.items():
        large = name == next(iter(runs))
        trainer.train(
            name, count, last, large=large, donated=name in donated, chained=name in chained
        )
    trainer.trained()
    trainer.hides()
    # A GPU would otherwise round the products, and so what is compared.
    with jax.default_matmul_precision("highest"):
        trainer.step()


def _runs(rng: Any) -> dict[str, tuple[int, int]]:
    """The name of each run of `train`, its batches, and the step after which `stop` ends it."""
    some, many, late = map(int, rng.integers((6, 100, 106), (16, 131, 140)))
    early, later = map(int, rng.choice(range(20, 100), 2, replace=False))
    some, later = one_of(rng, some, range(6, 16)), one_of(rng, later, range(20, 100))
    many, late = beyond(rng, many, MOST_BATCHES), one_of(rng, late, range(106, MOST_STOPPED))
    runs = {plural(count, "batch"): (count, count) for count in (some, many)}
    runs[f"{early} batches, stopped early"] = early, int(rng.integers(4))
    runs[f"{later} batches, stopped later"] = later, int(rng.integers(4, later - 4))
    runs[f"{late} batches, stopped late"] = late, 95 + int((late - 96) ** rng.uniform())
    few = int(rng.integers(1, 4))
    return runs | {plural(few, "batch"): (few, few)}


def _model_sizes() -> list[int]:
    """How long the axis "model" can be."""
    return [size for size in (2, 4) if jax.device_count() >= 2 * size] or [1]


def _width(rng: Any, most: int = 0) -> int:
    """A width of eights, which reaches the numbers that the file names, up to `most`."""
    return 8 * beyond(rng, int(rng.integers(1, 4)), most // 8, each=8)


class Trainer:
    """Drives one submission, on a mesh with the axes "data" and "model"."""

    def __init__(self, submission: ModuleType, observe: Observe, rng: Any) -> None:
        self._submission, self._observe, self._rng = submission, observe, rng
        self._nbytes: dict[str, list[int]] = {}
        self._results: dict[str, tuple[Any, ...]] = {}
        model = int(self._rng.choice(_model_sizes()))
        self._mesh = self._drawn_mesh(model)
        blocks, rows = int(rng.integers(6, 9)), int(rng.integers(3, 10))
        width, few = _width(rng), int(rng.integers(1, 6))
        wide = 8 * beyond(rng, width // 8, MOST_STEP_WIDTH // 8, each=8)
        large = {"width": wide, "rows": beyond(rng, rows, MOST_STEP_ROWS, each=width)}
        blocks, few = beyond(rng, blocks, MOST_STEP_BLOCKS), one_of(rng, few, range(1, 6))
        usual = {"blocks": blocks, "width": width, "rows": rows}
        self._sizes = {STEP: usual, FEW: large | {"blocks": few}}
        observe.fact("sizes", self._sizes)
        observe.fact("model", model)

    def _drawn_mesh(self, model: int) -> Any:
        """A mesh with the axes "data" and "model", the latter of this size."""
        devices = np.array(jax.devices()[: jax.device_count() // model * model])
        names = [str(name) for name in self._rng.permutation(["data", "model"])]
        shape = [model if name == "model" else -1 for name in names]
        return jax.sharding.Mesh(self._rng.permutation(devices).reshape(shape), names)

    def _params(self, blocks: int, width: int) -> dict[str, Any]:
        """NumPy float32 params of so many blocks, whose names are drawn."""
        word = self._rng.choice(["block", "layer", "part"])
        names = sorted(self._rng.choice(max(90, blocks), blocks, replace=False) + 10)

        def draw(*shape: int) -> Any:
            return self._rng.standard_normal(shape).astype("float32") / shape[0] ** 0.5

        return {
            f"{word}{index}": {n: draw(*shape) for n, shape in block_shapes(width).items()}
            for index in names
        }

    def _batch(self, rows: int, width: int) -> Any:
        """NumPy float32 inputs and targets, (rows, width)."""
        shape = (2, rows, width)
        return tuple(self._rng.standard_normal(shape).astype("float32"))

    def _fresh(self, params: Any) -> Any:
        """Adam's state before the first step."""
        return {name: self._submission.adam.init(block) for name, block in params.items()}

    def _used_state(self, params: Any) -> Any:
        """Adam's state as it is after some steps, in NumPy."""

        def used(path: Any, array: Any) -> Any:
            if not array.ndim:
                return next(counts)
            drawn = self._rng.random(array.shape, "float32")
            for some in (drawn.ravel()[::EVERY], drawn[0]):
                some[:] = 0.5 * (".nu" not in keystr(path))
            return (drawn if ".nu" in keystr(path) else 2 * drawn - 1) / 100

        late, more = self._rng.integers(101, 10_000), self._rng.integers(0, 100, len(params))
        first = [late, *self._rng.permutation([0, 100]), *more][: len(params)]
        drawn = self._rng.permutation(first).astype("int32")
        # The first block has had no step, if one is so: some of its gradients are small.
        counts = iter(sorted(drawn, key=bool))
        return tree_map_with_path(used, self._fresh(params))

    def _placed(self, tree: Any, kind: str = "device") -> Any:
        """Params or state where they belong, in memory of the given kind.

        The name at the end of each path decides how an array is split.
        """

        def place(path: Any, array: Any) -> Any:
            spec = SPECS.get(getattr(path[-1], "key", ""), jax.P())
            return jax.device_put(array, jax.NamedSharding(self._mesh, spec, memory_kind=kind))

        return tree_map_with_path(place, tree)

    def place_all(self) -> None:
        """Call `place` and `place_batch` several times, each time with another mesh."""
        spans = [(1, 7)] * int(self._rng.integers(1, 4)) + [(7, 12), (12, 17)]
        self._observe.fact(PLACED, len(spans) + 1)
        models = self._rng.permutation((_model_sizes() * len(spans))[: len(spans)])  # each comes
        order = self._rng.permutation(spans).tolist()
        for call, span in enumerate(order):
            deep, long, wide = span[0] == 12, span[0] == 7, call == order.index([1, 7])
            mesh = self._drawn_mesh(int(models[call]))
            width = _width(self._rng, MOST_WIDTH if wide else 0)
            blocks = int(self._rng.integers(*span))
            blocks = beyond(self._rng, blocks, MOST_BLOCKS) if deep else blocks
            params = self._params(blocks, width)
            params = some_by_columns(beside(self._rng), params)
            rows = int(self._rng.integers(1, 6))
            rows = beyond(self._rng, rows, MOST_ROWS // mesh.size, each=mesh.size) if long else rows
            self._place(
                call, mesh, params, (mesh.size * rows, width)
            )  # a wrong axis must not raise
        again = jax.tree.map(lambda array: array[::-1] + 1, params)
        rows = int(np.lcm(*mesh.shape.values())) * (2 * int(self._rng.integers(1, 6)) + 1)
        self._place(len(spans), mesh, again, (rows, width))

    def _place(self, call: int, mesh: Any, params: Any, shape: tuple[int, int]) -> None:
        """Keep what `place` and `place_batch` return for params, and for a batch of a shape."""
        before = alive.both()
        with (
            left_alone("place", params),
            self._observe.phase(facts.params(call)),
            exchanges.programs() as told,
        ):
            placed = self._submission.place(mesh, params)
        self._observe.fact(facts.programs(facts.params(call)), told)
        both = unpack(placed, 2, PLACES)
        with self._observe.unwatched():
            right = params, jax.eval_shape(self._fresh, params)
        structures = [[str(jax.tree.structure(tree)) for tree in trees] for trees in (both, right)]
        if structures[0] == structures[1][::-1]:
            raise Misused(PLACES, "it returned the state first, and then the params")
        if isinstance(both[1], dict) and (missing := lacking_keys(params, both[1])):
            raise Misused(STATES, missing)
        promises = ("`place` returns a tree of params like its own", STATES)
        for promise, name, *trees in zip(promises, ("params", "state"), right, both, strict=True):
            same_tree(promise, name, *trees)
        self._observe.fact(facts.twice(call), alive.in_one_memory(both[1]))
        self._observe.fact(facts.weak(call), weakly_typed(both[1]))
        self._observe.value(facts.params(call), both[0])
        self._observe.value(facts.state(call), both[1])
        del placed, both, trees
        self._observe.fact(facts.left(call), alive.left_behind(before))
        self._place_batch(call, mesh, shape)

    def _place_batch(self, call: int, mesh: Any, shape: tuple[int, int]) -> None:
        """Keep what `place_batch` returns for a batch of a shape."""
        self._observe.fact(facts.axes(call), list(mesh.axis_names))
        drawn = some_by_columns(beside(self._rng), self._batch(*shape))
        known = [weakref.ref(array) for array in drawn]
        before = alive.nbytes(scalars=True)
        with self._observe.phase(facts.batch(call)), exchanges.programs() as told:
            batch = self._submission.place_batch(mesh, drawn)
        self._observe.fact(facts.programs(facts.batch(call)), told)
        self._observe.value(facts.batch(call), batch)
        del batch, drawn
        left = alive.left_beside((), before, scalars=True) or alive.held(known)
        self._observe.fact(facts.left_of_batch(call), left)

    def train(
        self, name: str, count: int, last: int, *, large: bool, donated: bool, chained: bool
    ) -> None:
        """Run the loop around a small step; facts and values are named after the run.

        If batches may be `large`, they reach the numbers that the file names. If params and state
        are `donated`, nothing is left of them once the step was called. If batches are `chained`,
        they come from an iterator that is no generator.

        `stop` ends it after step number `last`, if there are so many batches.
        """
        usual = int(self._rng.integers(150, 400))
        size = 2, beyond(self._rng, usual, MOST_NUMBERS, each=1) if large else usual
        batches = [tuple(self._rng.random(size, "float32")) for _ in range(count)]
        params, state = jax.device_put(tuple(self._rng.random(size, "float32")))
        start = {"block": {"up": params}}, {"block": (state,)}
        del params, state
        before = alive.nbytes()
        odd = odd_losses(self._rng, min(count, last))
        small = with_losses(_donating if donated else _small_step, odd)
        ahead = Ahead(small, jax.device_put, count)
        book = Book(
            self._observe, batches, ahead.step, ahead.place, partial(alive.nbytes, scalars=True)
        )
        stop = book.stopping(last)
        leaves = map(jax.tree.leaves, (batches[0], start))
        self._nbytes[name] = [sum(array.nbytes for array in each) for each in leaves]
        self._observe.fact("bytes of a batch and of params", self._nbytes)
        reads = chain(book.reads()) if chained else book.reads()
        with self._observe.phase(name):
            trained = self._submission.train(book.step, *start, reads, book.put, stop)
        results = unpack(trained, 3, "`train` returns (params, state, losses)")
        self._results[name] = *results, book.last
        book.keep(name)
        self._observe.fact(f"waited in {name}", ahead.waited())
        ahead.end()
        del ahead, book, reads, stop  # what they hold is not what the loop keeps
        left = alive.left_beside(self._results[name], before)
        self._observe.fact(f"left after {name}", left)

    def hides(self) -> None:
        """Keep whether `train` returns though its iterator raises an error after some batches."""
        start = jax.device_put(np.float32(0))
        own = beside(self._rng)
        batch, good = tuple(own.random((2, 1), "float32")), int(own.integers(1, 9))

        def reads() -> Iterator[Any]:
            yield from [batch] * good
            raise Failed

        def step(params: Any, state: Any, batch: Any) -> Any:
            return params, state, start

        given = step, start, start, reads(), jax.device_put, lambda _: False
        with self._observe.unwatched():
            self._observe.fact(facts.HIDES, returns(self._submission.train, *given))

    def trained(self) -> None:
        """Keep what all runs returned: a list may have been filled again in a later one."""
        for name, (params, state, losses, last) in self._results.items():
            self._observe.value(f"losses of {name}", losses)
            self._observe.value(f"params and state after {name}", (params, state))
            self._observe.value(f"last in {name}", tuple(last))

    def step(self) -> None:
        """Trace what `make_step` returns, and export it for few blocks and for more.

        A step that takes no state from host memory is exported for a state on the device, so
        that everything else about it can be judged.
        """
        step = self._submission.make_step(self._mesh)
        if not self._observe.jitted("step", step):
            return
        mesh = self._mesh
        devices = beside(self._rng).permutation(mesh.devices.ravel()).reshape(mesh.devices.shape)
        self._mesh = jax.sharding.Mesh(devices, mesh.axis_names)
        self._exported(FEW, self._submission.make_step(self._mesh))
        self._mesh = mesh
        self._observe.target(STEP, step, *_larger(self._exported(STEP, step)))

    def _exported(self, name: str, step: Any) -> Any:
        """The arguments for which the step was exported under this name."""
        blocks, width, rows = (self._sizes[name][key] for key in ("blocks", "width", "rows"))
        params = self._params(blocks, width)
        if name == STEP:  # this block's gradient is 0
            params[str(beside(self._rng).choice(list(params)))] = {
                key: np.zeros(shape, "float32") for key, shape in block_shapes(width).items()
            }
        state = self._used_state(params)
        drawn = self._batch(rows * self._mesh.shape["data"], width)
        drawn[0][:, int(self._rng.integers(width)) or 1] = 0
        drawn[0][:, 0] *= 10 ** self._rng.spawn(1)[0].uniform(*NEAR_ZERO)
        batch = jax.device_put(drawn, jax.NamedSharding(self._mesh, jax.P("data")))
        placed = self._placed(params)
        for kind in (PINNED, "device"):
            arguments = placed, self._placed(state, kind), batch
            if self._traced(name, step, arguments):
                break
        self._observe.fact(facts.told("paths", name), _names(arguments[:2]))
        self._observe.program(name, step, *arguments)
        return arguments

    def _traced(self, name: str, step: Any, arguments: Any) -> bool:
        """Whether the step can be traced. Keeps facts of the trace, or why there is none."""
        try:
            traced = step.trace(*arguments)
        except (TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
            stack = traceback.extract_tb(error.__traceback__)
            path = self._submission.__file__
            self._observe.fact(facts.told("not from the host", name), problem)
            lines = [at.lineno for at in stack if at.filename == path]
            self._observe.fact(facts.told("refused at", name), lines)
            return False
        self._observe.fact(facts.told("on host", name), host_operations(traced.jaxpr.jaxpr))
        self._observe.fact(facts.told("results", name), _names(traced.out_info))
        named = [*_names(arguments[:2]), *["batch"] * len(arguments[2])]
        asked = zip(named, jax.tree.leaves(traced.args_info), strict=False)
        donated = [path for path, info in asked if info.donated]
        self._observe.fact(facts.told("donated", name), donated)
        return True


@jax.jit
def _small_step(params: Any, state: Any, batch: Any) -> Any:
    """A step of params and state, each a tree of one float32 array (n,), on inputs and targets."""
    inputs, targets = batch
    loss = ((jax.tree.leaves(params)[0] * inputs - targets) ** 2).mean()
    new = jax.tree.map(lambda param: param - 0.01 * loss * inputs, params)
    return new, jax.tree.map(lambda moment: moment + 1, state), loss


@wraps(_small_step)
def _donating(params: Any, state: Any, batch: Any) -> Any:
    """The same step, which deletes the params and the state that it gets."""
    results = _small_step(params, state, batch)
    for array in jax.tree.leaves((params, state)):
        array.delete()
    return results


def _names(trees: Any) -> list[str]:
    """`state['block0'][0].mu['up']` for each array of (params, state, ...)."""
    named = zip(("params", "state", "loss"), trees, strict=False)
    return [name + keystr(path) for name, tree in named for path, _ in tree_leaves_with_path(tree)]


def _larger(tree: Any) -> Any:
    """The same arguments as shapes alone, with every dimension `SCALE` times as long."""

    def shape(array: Any) -> Any:
        sizes = tuple(size * SCALE for size in array.shape)
        return jax.ShapeDtypeStruct(sizes, array.dtype, sharding=array.sharding)

    return jax.tree.map(shape, tree)
