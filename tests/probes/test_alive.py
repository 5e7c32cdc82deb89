"""Which arrays are alive: those to which weak references refer, also through JAX."""

import weakref

import jax
import numpy as np

from grader.probes import alive


def test_what_nothing_holds_does_not_count_and_a_cycle_is_nothing() -> None:
    kept, lost, circle = (np.ones(1000, np.float32) for _ in range(3))
    known = [weakref.ref(array) for array in (kept, lost, circle)]
    ring: list[object] = [circle]
    ring.append(ring)
    assert alive.held(known) == 12_000
    del lost, circle, ring
    assert alive.held(known) == kept.nbytes


def test_an_array_of_jax_that_uses_its_memory_holds_it() -> None:
    whole = np.ones(1 << 16, np.float32)
    data = whole[(-whole.ctypes.data % 64) // 4 :][: 1 << 15]  # aligned, so it is not copied
    known, size = [weakref.ref(whole)], whole.nbytes
    there = jax.device_put(data, jax.devices()[0])
    shares = there.unsafe_buffer_pointer() == data.ctypes.data
    del data, whole
    assert alive.held(known) == (size if shares else 0)
    del there
    assert alive.held(known) == 0
