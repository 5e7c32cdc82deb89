"""Stages a step of a timed loop whose CPU device is busy for as long as a GPU would be.

A GPU takes none of the host's cores, but a CPU device does: the same loop would be fast on one
machine, and slow on another that is busy. So the staged device only waits. Drives of exercises
with a timed loop use it; the times are compared in `grader.judging.timing`.
"""

import time
from collections.abc import Callable
from typing import Any

import jax

SECONDS = 0.006
"""How long a CPU device is busy with a staged step."""


def staged(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step, (params, batch) -> (params, loss), whose CPU device is busy for SECONDS.

    Give it a small step. After its work, a program waits for SECONDS in a callback.
    """

    def longer(params: Any, batch: Any) -> Any:
        return _after_work(*step(params, batch))

    return longer


def _busy(loss: Any) -> Any:
    time.sleep(SECONDS)
    return loss


@jax.jit
def _after_work(params: Any, loss: Any) -> Any:
    held = jax.pure_callback(_busy, jax.ShapeDtypeStruct(loss.shape, loss.dtype), loss)
    return jax.lax.optimization_barrier((params, held))
