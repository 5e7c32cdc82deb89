"""What would explain a difference: each explanation fits its own mistake, and no other."""

import ml_dtypes
import numpy as np
import pytest

from grader.judging.differences import explanation

RNG = np.random.default_rng(7)
VALUES = RNG.normal(size=(5, 5)).astype(np.float32)
ROW = RNG.normal(size=7).astype(np.float32)

MISTAKES = {
    "all of it is 0": (0 * ROW, ROW),
    "it has the other sign": (-ROW, ROW),
    "8 times as much, as a sum over 8 in place of a mean would be": (8 * ROW, ROW),
    "1/7 of it, as a mean over 7 in place of a sum would be": (ROW.mean(), ROW.sum()),
    "10 times as much, as a factor of 10 or a sum over 10 in place of a mean would be": (
        10 * ROW,
        ROW,
    ),
    "each is 1 too large": (np.arange(1, 8), np.arange(7)),
    "each is 2 too small": (np.arange(-2, 5), np.arange(7)),
    "0.9 times as much everywhere": (np.float32(0.9) * ROW, ROW),
    "rounded as bfloat16 would round it": (ROW.astype(ml_dtypes.bfloat16).astype("f4"), ROW),
    "rounded at digit 2 after the point": (np.round(ROW, 2), ROW),
    "rounded at digit 4 after the point": (np.array(0.4514), np.float32(0.451447)),
    "rounded down to whole numbers": (np.floor(9 * ROW), 9 * ROW),
    "rounded to whole numbers": (np.round(9 * ROW), 9 * ROW),
    "it is transposed": (VALUES.T, VALUES),
    "it is in reverse order": (ROW[::-1], ROW),
    "the values stand one place too early": (np.append(ROW[1:], 0), ROW),
    "the values stand one place too late": (np.append([0], ROW[:-1]), ROW),
    "it holds the last one everywhere": (np.full(7, ROW[-1]), ROW),
    "it holds the mean everywhere": (np.full(7, ROW.mean()), ROW),
    "each is a sum of all before it": (np.cumsum(ROW), ROW),
    "each is a mean of all up to it": (np.cumsum(ROW) / np.arange(1, 8), ROW),
    "only the first is wrong": (np.append([9], ROW[1:]), ROW),
    "only the last is wrong": (np.append(ROW[:-1], 9), ROW),
    "the same values in another order": (ROW[[2, 0, 1, 4, 3, 6, 5]], ROW),
    "each value has no more digits than a bfloat16 holds": (
        (ROW + 0.1).astype(ml_dtypes.bfloat16).astype("f4"),
        ROW,
    ),
    "the last is missing": (ROW[:-1], ROW),
    "the first 2 are missing": (ROW[2:], ROW),
    "one more at its end": (np.append(ROW, 0), ROW),
    "2 more at its beginning": (np.append([0, 0], ROW), ROW),
    "the same values in another shape": (VALUES.ravel(), VALUES),
    "not summed over axis 0": (VALUES, VALUES.sum(0)),
    "no mean was taken over axis 1": (VALUES, VALUES.mean(1)),
    "summed over axis 1": (VALUES.sum(1), VALUES),
    "its mean over axis 0": (VALUES.mean(0), VALUES),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_explained(words: str) -> None:
    got, wanted = (np.asarray(array, np.float32) for array in MISTAKES[words])
    assert explanation(got, wanted) == words


@pytest.mark.parametrize("words", MISTAKES)
def test_what_fits_only_nearly_is_not_said(words: str) -> None:
    got, wanted = (np.asarray(array, np.float32) for array in MISTAKES[words])
    noise = 1 + 1e-3 * RNG.uniform(1, 2, size=got.shape) * RNG.choice([-1, 1], size=got.shape)
    noisy = (got * noise + 1e-3).astype(np.float32)
    assert explanation(noisy, wanted) != words


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nothing_is_said_of_what_is_no_number(value: float) -> None:
    assert explanation(np.full(3, value), np.ones(3)) == ""
    assert explanation(np.array(["a"]), np.array(["b"])) == ""
    assert explanation(np.zeros(0), np.ones(3)) == ""


def test_zeros_are_no_sum_of_zeros() -> None:
    assert explanation(np.zeros((3, 2)), np.zeros(2)) == ""


def test_equal_values_need_no_explanation() -> None:
    assert explanation(ROW, ROW) == ""
    assert explanation(np.zeros(3), np.zeros(3)) == ""
    assert explanation(np.float32(3.7), np.float32(1)) == ""
