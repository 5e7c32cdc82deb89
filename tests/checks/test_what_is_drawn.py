"""What drives draw in each grading, so that code which is right but for one case does not pass."""

from itertools import pairwise

import jax
import numpy as np
import pytest

from grader.checks.ex01_find_devices import drive as ex01
from grader.checks.ex02_mixed_devices import drive as ex02
from grader.checks.ex04_place_model import drive as ex04
from grader.checks.ex05_model_state import drive as ex05
from grader.checks.ex08_boundary_copy import drive as ex08
from grader.checks.ex09_stay_on_cpu import drive as ex09
from grader.checks.ex10_diagnose import reports as ex10
from grader.stages import machines
from grader.stages.drawn import some_odd

SEEDS = pytest.mark.parametrize("seed", range(3))


@SEEDS
def test_each_make_of_gpus_comes_alone_and_by_the_dozen(seed: int) -> None:
    staged = ex01._staged(np.random.default_rng(seed))
    for made in (machines.NVIDIA, machines.AMD, machines.CPU_FIRST, machines.AMD_AFTER_CPU):
        same = made, ex01._named_first(made)
        of_it = [(gpus, default) for gpus, one, default in staged if one in same and gpus]
        assert {1, 8} < {gpus for gpus, _ in of_it}
        assert max(gpus for gpus, _ in of_it) > 8
        assert {default for _, default in of_it} == {*ex01.DEFAULTS}
    assert {gpus for gpus, _, _ in staged} >= {*range(9)}


@pytest.mark.parametrize(
    "spans",
    [ex02.LENGTHS, (*ex08.LENGTHS, ex08.BETWEEN)],
    ids=["ex02", "ex08"],
)
def test_no_length_lies_between_the_drawn_ones(spans: tuple[tuple[int, int], ...]) -> None:
    assert all(low[1] >= high[0] for low, high in pairwise(sorted(spans)))


@SEEDS
def test_numbers_are_zero_negative_and_large(seed: int) -> None:
    shape, rng = jax.ShapeDtypeStruct((30, 30), np.float32), np.random.default_rng(seed)
    for values in (ex04._values(rng, shape), ex05._filled(rng, shape, ex05.ANY, (0, 1))):
        assert (values == 0).any()
        assert (values < 0).any()
        assert (abs(values) > 100).any()
    whole = ex04._values(rng, jax.ShapeDtypeStruct((30,), np.int32))
    assert {*np.sign(whole)} == {-1, 1}
    count = jax.ShapeDtypeStruct((), np.uint32)
    assert {int(ex05._filled(rng, count, ex05.ANY, span)) > 999 for span in ex05.COUNTS} == {
        True,
        False,
    }


@SEEDS
def test_what_a_careless_copy_loses_is_in_every_array_with_room(seed: int) -> None:
    floats, whole, single = np.zeros(40, np.float32), np.zeros(9, np.int32), np.zeros(1)
    some_odd(np.random.default_rng(seed), floats, whole, single)
    assert np.isnan(floats).sum() == 1
    assert {*np.sign(floats[np.isinf(floats)])} == {-1, 1}
    assert np.signbit(floats[floats == 0]).sum() == 1
    assert {*whole} == {0, np.iinfo(np.int32).min, np.iinfo(np.int32).max}
    assert not single.any()


@SEEDS
def test_raw_is_of_each_kind_and_lies_in_each_order(seed: int) -> None:
    arrays = ex09._empty(np.random.default_rng(seed))
    assert {array.dtype.kind for array in arrays} == {"f", "i"}
    raws = [array[: ex09.ROWS[0][0]] for array in arrays]
    assert len({tuple(np.sign(np.diff(raw.strides))) for raw in raws}) == 2
    assert len({raw.flags.c_contiguous for raw in raws}) == 2


def test_a_fault_comes_with_what_may_stand_beside_it() -> None:
    jax.devices()  # a stage needs a backend that has started
    texts: dict[str, list[str]] = {}
    for report in ex10.reports(np.random.default_rng(0)):
        texts.setdefault(report.cause, []).append(report.text)
    assert any("XLA_" in text for text in texts["library missing"])
    assert not any("LD_LIBRARY_PATH" in text for text in texts["library missing"])
    versions = "plugin of another version", "jaxlib of another version"
    for cause in ("foreign library", "two plugins", *versions, "XLA_FLAGS is misspelt"):
        assert len({"JAX_PLATFORMS=" in text for text in texts[cause]}) == 2
    assert len({"was not found" in text for text in texts["library missing"]}) == 2
    assert all("was not found" in text for text in texts["foreign library"])
    flags = [line for text in texts["XLA_FLAGS is misspelt"] for line in text.splitlines()]
    assert any(line.count("--") > 1 for line in flags if "XLA_FLAGS=" in line)
