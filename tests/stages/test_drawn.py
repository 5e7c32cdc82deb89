"""What several drives draw: rows that are lost, memory orders, meshes of three axes."""

from typing import Any

import jax
import numpy as np
import pytest

from grader.stages import drawn


@pytest.fixture
def rng() -> Any:
    return np.random.default_rng(7)


def test_a_generator_beside_another_leaves_that_one_as_it_is(rng: Any) -> None:
    same = np.random.default_rng(7)
    apart = drawn.beside(rng).integers(1 << 60, size=4)
    assert rng.integers(1 << 60, size=4).tolist() == same.integers(1 << 60, size=4).tolist()
    assert not set(apart.tolist()) & set(np.random.default_rng(7).integers(1 << 60, size=4))


def test_some_matrices_lie_by_columns_and_all_hold_the_same(rng: Any) -> None:
    tree = {str(n): np.arange(6.0).reshape(2, 3) + n for n in range(32)} | {"b": np.arange(3.0)}
    found = drawn.some_by_columns(rng, tree)
    assert all(np.array_equal(found[name], tree[name]) for name in tree)
    by_columns = sum(not found[name].flags.c_contiguous for name in tree)
    assert 0 < by_columns < 32


@pytest.mark.parametrize("count", range(1, 9))
def test_three_axes_hold_each_device_once(count: int) -> None:
    form = drawn.three_axes(np.arange(count))
    assert form.ndim == 3
    assert form.ravel().tolist() == list(range(count))
    assert count != 8 or form.shape == (2, 2, 2)


@pytest.mark.parametrize("committed", [True, False])
def test_one_row_of_the_targets_is_lost_and_stays_where_it_was(committed: bool, rng: Any) -> None:
    place = jax.devices()[-1] if committed else None
    batch = jax.device_put((np.ones((5, 2), np.float32), np.ones((5, 3), np.float32)), place)
    inputs, targets = drawn.with_lost_row(rng, batch)
    assert inputs is batch[0]
    assert np.isnan(np.asarray(targets)).all(axis=1).sum() == 1
    assert np.isnan(np.asarray(targets)).sum() == 3
    assert (targets.sharding, targets.committed) == (batch[1].sharding, committed)


def test_what_is_no_batch_stays_as_it_is(rng: Any) -> None:
    assert drawn.with_lost_row(rng, None) is None
