"""Counts reads of array values on the host, and waits, at the methods that do them.

To ask once more whether an array is ready, in the step that has heard that it is not, is a wait.

JAX's transfer guard says nothing of reads on CPU devices, so the array type's own methods are
watched (`grader.probes.private`). A read counts once, at its outermost method. Copies to
devices are counted in `grader.probes.transfers`.
"""

import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, Self
from unittest import mock

import jax
import numpy as np

from grader.probes import private
from grader.probes.tally import Tally
from grader.records.record import POLLED, PREFETCHED, READY, STARTED

Seeing = Callable[[], AbstractContextManager[None]]
"""Makes a block in which a second witness knows that a read or a wait is seen here."""
Told = Callable[[list[Any]], None]
"""Gets the arrays for which a wait has ended."""


class Reads:
    """While entered, reads, waits and started copies are counted."""

    name = "reads"

    def __init__(self, tally: Tally, seeing: Seeing = nullcontext) -> None:
        self._tally, self._seeing = tally, seeing
        self._depth = threading.local()
        self._started: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._told_no: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._there: dict[int, weakref.ref[Any]] = {}
        self._is_ready: Callable[[Any], bool] = bool
        self._stack = ExitStack()
        self.told: Told | None = None
        """Who is told of each wait, poll and read, when it has ended."""

    def __enter__(self) -> Self:
        array = private.array_type()
        with ExitStack() as stack:  # where a name is gone, those replaced before it are restored
            stack.callback(private.wrap(array, private.READS, self._before_read))
            stack.callback(private.wrap(array, private.WAITS, self._before_wait))
            stack.callback(private.wrap(array, private.COPIES, self._before_copy))
            self._is_ready = getattr(array, *private.POLLS)
            stack.callback(private.wrap(array, private.POLLS, self._before_poll))
            # Given several arrays, these two functions do not call the methods.
            self._wrap_function(stack, "block_until_ready", self._before_wait)
            self._wrap_function(stack, "copy_to_host_async", self._before_copy)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _wrap_function(self, stack: ExitStack, name: str, before: private.Before) -> None:
        wrapper = private.watched(getattr(jax, name), before)
        stack.enter_context(mock.patch.object(jax, name, wrapper))

    def _outermost(self, report: Callable[[], None]) -> private.After:
        """Report only when the outermost of nested methods has done its work; not while paused."""
        if self._tally.paused:
            return _nothing
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        seeing = self._seeing() if depth == 0 else nullcontext()
        seeing.__enter__()

        def after(done: bool) -> None:
            seeing.__exit__(None, None, None)
            self._depth.value = depth
            if done and depth == 0:
                report()

        return after

    def _before_read(self, array: Any) -> private.After:
        nbytes, detail = array.nbytes, self._detail(array)
        report = partial(self._tally.saw, "d2h", nbytes=nbytes, detail=detail)
        return self._telling(array, self._outermost(report))

    def _telling(self, tree: Any, after: private.After) -> private.After:
        """Also tell of a wait for `tree`, which ends when `after` is called."""
        told = self.told
        if told is None or self._tally.paused:
            return after
        arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]

        def ended(done: bool) -> None:
            after(done)
            if done:
                told(arrays)

        return ended

    def _detail(self, array: Any) -> str:
        if (reference := self._there.get(id(array))) and reference() is array:
            return READY
        started = self._started_in(array)
        if started is None:
            return ""
        return PREFETCHED if started < self._tally.step else STARTED

    def _started_in(self, array: Any) -> int | None:
        """The step in which this array's copy to the host was first started."""
        reference, step = self._started.get(id(array), (None, 0))
        return step if reference is not None and reference() is array else None

    def _before_wait(self, tree: Any) -> private.After:
        return self._telling(tree, self._outermost(lambda: self._tally.saw("wait")))

    def _before_poll(self, array: Any) -> private.After:
        if self._tally.paused:  # the drive may ask as often as it likes
            return _nothing
        reference, step = self._told_no.get(id(array), (None, -1))
        again = reference is not None and reference() is array and step == self._tally.step

        def report() -> None:
            if again:
                self._tally.saw("wait", detail=POLLED)
            if self._is_ready(array):
                self._there[id(array)] = weakref.ref(array)
            else:
                self._told_no[id(array)] = (weakref.ref(array), self._tally.step)

        return self._telling(array, self._outermost(report))

    def _before_copy(self, tree: Any) -> private.After:
        if self._tally.paused:  # what the drive starts is no learner's foresight
            return _nothing
        arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]

        def report() -> None:
            for array in arrays:
                if self._started_in(array) is None:  # device_get starts a copy of its own
                    self._started[id(array)] = (weakref.ref(array), self._tally.step)
                self._tally.saw("async_copy", nbytes=array.nbytes)

        return self._outermost(report)

    def prove(self) -> str:
        """Read in each of the usual ways, and wait in two; returns what was not seen, or ""."""
        array = jax.device_put(np.ones((), np.float32))
        ways: dict[str, Callable[[], Any]] = {
            "float": lambda: float(array),
            "np.asarray": lambda: np.asarray(array),
            ".item": array.item,
            "jax.device_get": lambda: jax.device_get(array),
        }
        for name, read in ways.items():
            before = self._tally.total("d2h")
            read()
            if self._tally.total("d2h") != before + 1:
                return f"a known read by {name} was not seen once"
        array.block_until_ready()
        jax.block_until_ready((array, array))
        return "" if self._tally.total("wait") == 2 else "two known waits were not seen"


def _nothing(_: bool) -> None:
    """What a paused probe does after a call."""
