"""Which parts of a batch a step followed: each weight is found, and a foreign step has none."""

import numpy as np
import pytest

from grader.judging import shares

RNG = np.random.default_rng(7)
PARAMS = {"b1": RNG.normal(size=6), "w1": RNG.normal(size=(4, 6)), "w2": RNG.normal(size=(6, 3))}
BATCHES = [(RNG.normal(size=(5, 4)), RNG.normal(size=(5, 3))) for _ in range(3)]
PARTS = [shares.gradient(PARAMS, *batch) for batch in BATCHES]


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    vector = PARTS[0]
    begin = 0
    for key in shares.KEYS:
        for index in np.ndindex(PARAMS[key].shape):
            ends = [{**PARAMS, key: PARAMS[key].copy()} for _ in range(2)]
            for params, change in zip(ends, (1e-6, -1e-6), strict=True):
                params[key][index] += change
            up, down = (shares.loss(params, *BATCHES[0]) for params in ends)
            assert (up - down) / 2e-6 == pytest.approx(vector[begin], rel=1e-4, abs=1e-7)
            begin += 1
    assert begin == len(vector)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((1, 1, 1), ""),
        ((2, 2, 2), ""),
        ((0, 0, 1), "only the gradient of the last of 3 micro-batches is in the step"),
        ((1, 0, 1), "the gradient of number 2 of 3 micro-batches is not in the step"),
        ((2, 1, 1), "the gradients of the 3 micro-batches count 2, 1, 1 times, in their order"),
    ],
)
def test_a_part_that_counts_otherwise_is_named(counts: tuple[int, ...], words: str) -> None:
    step = -0.1 * (np.array(counts) @ np.stack(PARTS))
    found = shares.weights(step, PARTS, -0.1)
    assert found is not None
    assert found == pytest.approx(counts)
    assert shares.in_words(found, "micro-batches") == words


def test_what_is_no_sum_of_the_parts_has_no_weights() -> None:
    assert shares.weights(RNG.normal(size=len(PARTS[0])), PARTS, -0.1) is None


def test_a_step_that_is_no_number_follows_no_part() -> None:
    assert shares.weights(np.full_like(PARTS[0], np.nan), PARTS, 1.0) is None
