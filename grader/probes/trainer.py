"""The drive of a whole trainer: each of its functions meets what is right, whatever the others do.

For an exercise whose file defines `adam`, `place`, `place_batch`, `make_step` and `train`.
Runs in a worker; what is right and what is wrong is for the checks to say.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path, tree_map_with_path

from grader.checking import Misused, Observe, unpack
from grader.looping import Book
from grader.memories import PINNED, arithmetic_on_host

WIDTH, ROWS = 16, 4
SPECS = {"up": jax.P(None, "model"), "down": jax.P("model", None)}


class Trainer:
    """Drives one submission. The model has blocks "up" (d, 4 d) and "down" (4 d, d)."""

    def __init__(self, submission: ModuleType, observe: Observe, rng: Any, blocks: int) -> None:
        self._submission, self._observe, self._rng, self._blocks = submission, observe, rng, blocks
        even = jax.device_count() // 2 * 2
        devices = np.array(jax.devices()[:even]).reshape(-1, 2)
        self._mesh = jax.sharding.Mesh(devices, ("data", "model"))

    def _params(self, more: int = 0) -> dict[str, Any]:
        """NumPy float32 blocks, `more` than the model has."""

        def draw(*shape: int) -> Any:
            return self._rng.standard_normal(shape).astype("float32") / shape[0] ** 0.5

        count = self._blocks + more
        kinds = {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
        return {f"block{i}": {k: draw(*s) for k, s in kinds.items()} for i in range(count)}

    def _batch(self) -> Any:
        """NumPy float32 inputs and targets, some rows for each part of "data"."""
        shape = (2, ROWS * self._mesh.shape["data"], WIDTH)
        return tuple(self._rng.standard_normal(shape).astype("float32"))

    def _fresh(self, params: Any) -> Any:
        return {name: self._submission.adam.init(block) for name, block in params.items()}

    def _used_state(self, params: Any) -> Any:
        """NumPy state as it is after some steps."""

        def used(array: Any) -> Any:
            return self._rng.random(array.shape, "float32") / 100 if array.ndim else np.int32(4)

        return jax.tree.map(used, self._fresh(params))

    def _placed(self, tree: Any, kind: str = "device") -> Any:
        """Params or state where they belong, by the name at the end of each path."""

        def place(path: Any, array: Any) -> Any:
            spec = SPECS.get(getattr(path[-1], "key", ""), jax.P())
            return jax.device_put(array, jax.NamedSharding(self._mesh, spec, memory_kind=kind))

        return tree_map_with_path(place, tree)

    def place(self) -> None:
        """Keep what `place` and `place_batch` return: values `params`, `state`, `batch`.

        The blocks are more than those of the step: their number is for the params to say.
        """
        params = self._params(more=int(self._rng.integers(1, 3)))
        placed = self._submission.place(self._mesh, params)
        both = unpack(placed, 2, "`place` returns (params, state)")
        fresh = params, self._fresh(params)
        for name, tree, like in zip(("params", "state"), both, fresh, strict=True):
            found, promised = str(jax.tree.structure(tree)), str(jax.tree.structure(like))
            if found != promised:
                raise Misused(f"the {name} from `place` are {promised}", found)
            self._observe.value(name, tree)
        self._observe.value("batch", self._submission.place_batch(self._mesh, self._batch()))

    def train(self, name: str, count: int, *, stopped: bool) -> None:
        """Run the loop around a step of our own; facts and values are named after the run."""

        @jax.jit
        def step(params: Any, state: Any, batch: Any) -> Any:
            loss = (params * batch).sum()
            return params - 0.1 * loss, state + 1, loss

        batches = [self._rng.random(4, "float32") for _ in range(count)]
        book = Book(self._observe, batches, step, jax.device_put)
        stop = book.stopping(int(self._rng.integers(3, 7)) if stopped else count)
        start = jax.device_put(tuple(self._rng.random((2, 4), "float32")))
        with self._observe.phase(name):
            trained = self._submission.train(book.step, *start, book.reads(), book.put, stop)
        promise = "`train` returns (params, state, losses)"
        params, state, losses = unpack(trained, 3, promise)
        self._observe.value(f"losses of {name}", losses)
        self._observe.value(f"params and state after {name}", (params, state))
        book.keep(name)

    def step(self, scale: int) -> None:
        """Export what `make_step` returns; for the target, every dimension `scale` times as long.

        Where the step takes no state from the host, it is exported for one on the device, so
        that all else of it can be judged.
        """
        step = self._submission.make_step(self._mesh)
        if not self._observe.jitted("step", step):
            return
        params = self._params()
        state = self._used_state(params)
        batch = jax.device_put(self._batch(), jax.NamedSharding(self._mesh, jax.P("data")))
        placed = self._placed(params)
        for kind in (PINNED, "device"):
            arguments = placed, self._placed(state, kind), batch
            if self._traced(step, arguments):
                break
        self._observe.fact("sizes", (ROWS, WIDTH))
        self._observe.fact("paths", names(arguments[:2]))
        self._observe.program("step", step, *arguments)
        self._observe.target("step", step, *larger(arguments, scale))

    def _traced(self, step: Any, arguments: Any) -> bool:
        """Whether it can be traced; facts of the trace, or why there is none."""
        try:
            traced = step.trace(*arguments)
        except (TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
            self._observe.fact("not from the host", problem)
            return False
        self._observe.fact("on host", arithmetic_on_host(str(traced.jaxpr)))
        self._observe.fact("results", names(traced.out_info))
        asked = zip(names(arguments[:2]), jax.tree.leaves(traced.args_info), strict=False)
        self._observe.fact("donated", [name for name, info in asked if info.donated])
        return True


def names(trees: Any) -> list[str]:
    """`state['block0'][0].mu['up']` for each array of (params, state, ...)."""
    named = zip(("params", "state", "loss"), trees, strict=False)
    return [name + keystr(path) for name, tree in named for path, _ in tree_leaves_with_path(tree)]


def larger(tree: Any, scale: int) -> Any:
    """The same arguments as shapes alone, every dimension `scale` times as long."""

    def shape(array: Any) -> Any:
        sizes = tuple(size * scale for size in array.shape)
        return jax.ShapeDtypeStruct(sizes, array.dtype, sharding=array.sharding)

    return jax.tree.map(shape, tree)
