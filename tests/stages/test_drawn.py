"""What several drives draw: rows that are lost, memory orders, and what a file names."""

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
    assert drawn.odd_batches(rng, None) == (None, None, None)
    assert drawn.copied({"w": 1.0}) == {"w": 1.0}


def test_odd_batches_lose_targets_or_inputs_or_have_an_infinite_loss(rng: Any) -> None:
    place = jax.devices()[-1]
    batch = jax.device_put((np.ones((5, 2), np.float32), np.ones((5, 3), np.float32)), place)
    without_targets, without_inputs, far = (
        [np.asarray(x) for x in odd] for odd in drawn.odd_batches(rng, batch)
    )
    assert [int(np.isnan(x).sum()) for x in (*without_targets, *without_inputs)] == [0, 3, 2, 0]
    assert np.isfinite(far[1]).all()
    with np.errstate(over="ignore"):
        assert np.isinf(far[1] ** 2).any()


def test_copies_are_other_arrays_where_the_first_ones_are() -> None:
    array = jax.device_put(np.arange(3.0, dtype=np.float32), jax.devices()[-1])
    copy = drawn.copied({"w": array})["w"]
    array.delete()
    assert copy.tolist() == [0, 1, 2]
    assert copy.devices() == {jax.devices()[-1]}


def test_the_first_rows_of_a_batch_stay_where_they_were() -> None:
    batch = jax.device_put((np.arange(6.0).reshape(3, 2), np.arange(3.0)), jax.devices()[-1])
    inputs, targets = drawn.with_rows(batch, 2)
    assert (inputs.shape, targets.tolist()) == ((2, 2), [0, 1])
    assert inputs.devices() == {jax.devices()[-1]}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_an_array_with_gaps_holds_the_same_and_lies_in_that_order(order: tuple[int, ...]) -> None:
    array = np.arange(24).reshape(2, 3, 4)
    found = drawn.with_gaps(array, order)
    assert np.array_equal(found, array)
    assert not found.flags.forc
    assert sorted(range(3), key=lambda axis: -found.strides[axis]) == list(order)


def test_what_reaches_numbers_gives_what_numpy_gives() -> None:
    ours, theirs = drawn.draw(7, [100]), np.random.default_rng(7)
    assert ours.integers(1 << 60, size=4).tolist() == theirs.integers(1 << 60, size=4).tolist()
    assert drawn.named(drawn.beside(ours)) == (100,)


def test_without_numbers_nothing_more_is_drawn(rng: Any) -> None:
    state = rng.bit_generator.state
    assert drawn.beyond(rng, 30, 1000) == 30
    assert drawn.one_of(rng, 30, range(1, 1000)) == 30
    assert drawn.far(rng, 1e9) == 0
    assert rng.bit_generator.state == state


@pytest.mark.parametrize("named", [[200.0], [3.0, 200.0, 199.5], [200.0, 1e6], [0.5, 200.0]])
def test_a_number_beyond_all_that_are_possible(named: list[float]) -> None:
    for seed in range(20):
        assert drawn.beyond(drawn.draw(seed, named), 30, 1000) in range(203, 216)
        assert drawn.beyond(drawn.draw(seed, named), 300, 1000) == 300
        assert drawn.beyond(drawn.draw(seed, named), 30, 204) in (203, 204)
        assert drawn.beyond(drawn.draw(seed, named), 30, 150) == 30


def test_sizes_and_bytes_are_reached_by_rows() -> None:
    assert drawn.beyond(drawn.draw(1, [1000]), 2, 95, each=16) in range(66, 71)
    assert drawn.beyond(drawn.draw(1, [1000]), 2, 40, each=16) in (19, 20)
    assert drawn.beyond(drawn.draw(1, [1000]), 2, 10, each=16) == 2


def test_a_named_number_comes_every_second_time() -> None:
    found = [drawn.one_of(drawn.draw(n, [64, 5000]), 7, range(1, 100)) for n in range(200)]
    assert {*found} == {7, 64}
    assert 60 < found.count(64) < 140


def test_odd_numbers_are_further_from_0_than_those_of_the_file() -> None:
    array = np.ones(40, np.float32)
    drawn.some_odd(drawn.draw(3, [1e6]), array)
    large = array[np.isfinite(array) & (abs(array) > 1)]
    assert sorted(np.sign(large)) == [-1, 1]
    assert (abs(large) > 1e6).all()


def test_what_no_half_precision_float_can_hold_is_not_drawn() -> None:
    array = np.ones(40, np.float16)
    drawn.some_odd(drawn.draw(3, [1e6, 500.0]), array)
    assert 500 < abs(array[np.isfinite(array)]).max() <= 1000
