"""Reads of array values on the host, and waits, seen at the methods that do them.

JAX's guard says nothing of reads on CPU devices, so the array type's own methods are
watched (`private`). A read counts once, at its outermost method.
"""

import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

import jax
import numpy as np

from grader.probes import private

if TYPE_CHECKING:
    from grader.probes.observer import Observer

PREFETCHED = "after copy_to_host_async in an earlier step"


class Reads:
    """While entered, reads, waits and started copies are reported to the observer."""

    name = "reads"

    def __init__(self, observer: "Observer") -> None:
        self._observer = observer
        self._depth = threading.local()
        self._started: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        array = private.array_type()
        with ExitStack() as stack:  # a name that is gone undoes those replaced before it
            stack.callback(private.wrap(array, private.READS, self._before_read))
            stack.callback(private.wrap(array, private.WAITS, self._before_wait))
            stack.callback(private.wrap(array, private.COPIES, self._before_copy))
            # Of several arrays, these two do not pass by the methods.
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
        """Report once the outermost of nested methods has done its work."""
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1

        def after(done: bool) -> None:
            self._depth.value = depth
            if done and depth == 0:
                report()

        return after

    def _before_read(self, array: Any) -> private.After:
        nbytes, detail = array.nbytes, self._detail(array)
        return self._outermost(lambda: self._observer.saw("d2h", nbytes=nbytes, detail=detail))

    def _detail(self, array: Any) -> str:
        started = self._started_in(array)
        return PREFETCHED if started is not None and started < self._observer.step else ""

    def _started_in(self, array: Any) -> int | None:
        """The step in which this array's copy to the host was first started."""
        reference, step = self._started.get(id(array), (None, 0))
        return step if reference is not None and reference() is array else None

    def _before_wait(self, _: Any) -> private.After:
        return self._outermost(lambda: self._observer.saw("wait"))

    def _before_copy(self, tree: Any) -> private.After:
        arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]

        def report() -> None:
            for array in arrays:
                if self._started_in(array) is None:  # device_get starts a copy of its own
                    self._started[id(array)] = (weakref.ref(array), self._observer.step)
                self._observer.saw("async_copy", nbytes=array.nbytes)

        return self._outermost(report)

    def prove(self, observer: "Observer") -> str:
        """See one read by each of the usual ways, and one wait; say which was not seen."""
        array = jax.device_put(np.ones((), np.float32))
        ways: dict[str, Callable[[], Any]] = {
            "float": lambda: float(array),
            "np.asarray": lambda: np.asarray(array),
            ".item": array.item,
            "jax.device_get": lambda: jax.device_get(array),
        }
        for name, read in ways.items():
            before = observer.total("d2h")
            read()
            if observer.total("d2h") != before + 1:
                return f"a known read by {name} was not seen once"
        array.block_until_ready()
        jax.block_until_ready((array, array))
        return "" if observer.total("wait") == 2 else "two known waits were not seen"
