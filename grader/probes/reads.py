"""Reads of array values on the host, and waits, seen at the methods that do them.

JAX's guard says nothing of reads on CPU devices, so the array type's own methods are
watched (`private`). A read counts once, at its outermost method.
"""

import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

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
        self._stack.callback(private.wrap_reads(array, self._before_read))
        wait = private.wrap_method(array, "block_until_ready", self._before_wait)
        self._stack.callback(wait)
        start = private.wrap_method(array, "copy_to_host_async", self._before_copy)
        self._stack.callback(start)
        self._wrap_block_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _wrap_block_until_ready(self) -> None:
        """`jax.block_until_ready` of several arrays does not pass by the method."""
        original = jax.block_until_ready

        def block_until_ready(x: Any) -> Any:
            after = self._before_wait(x)
            try:
                return original(x)
            finally:
                after()

        setattr(jax, "block_until_ready", block_until_ready)  # noqa: B010 (typed as final)
        self._stack.callback(setattr, jax, "block_until_ready", original)

    def _outermost(self, report: Callable[[], None]) -> Callable[[], None]:
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        if depth == 0:
            report()
        return lambda: setattr(self._depth, "value", depth)

    def _before_read(self, array: Any) -> Callable[[], None]:
        return self._outermost(
            lambda: self._observer.saw("d2h", nbytes=array.nbytes, detail=self._detail(array))
        )

    def _detail(self, array: Any) -> str:
        reference, step = self._started.get(id(array), (None, 0))
        known = reference is not None and reference() is array
        return PREFETCHED if known and step < self._observer.step else ""

    def _before_wait(self, _: Any) -> Callable[[], None]:
        return self._outermost(lambda: self._observer.saw("wait"))

    def _before_copy(self, array: Any) -> Callable[[], None]:
        def report() -> None:
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
