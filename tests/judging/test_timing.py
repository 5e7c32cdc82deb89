"""The paired sign test: its exact arithmetic, and its verdicts on a simulated machine."""

import math
import random
from collections.abc import Callable
from fractions import Fraction

import pytest

from grader.judging.timing import (
    Calls,
    Window,
    calibrate,
    decide,
    e_value,
    equal_windows,
    paired_test,
    plan,
    repeated,
    with_controls,
)

MILLISECOND = 1e-3
TWICE = Calls(5, 10)
"""Equal windows at k = 2 for a baseline call of one millisecond."""


class Machine:
    """Simulated time: log-normal noise, rare long spikes, and a clock that advances.

    `second_is_slower` is the factor by which the second window of every pair is slower, as on
    a machine that warms up or throttles.
    """

    def __init__(
        self, seed: int, *, sigma: float = 0.05, spikes: float = 0.0, second_is_slower: float = 1.0
    ) -> None:
        self.rng = random.Random(seed)
        self.sigma = sigma
        self.spikes = spikes
        self.second_is_slower = second_is_slower
        self.windows = 0
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def window(self, seconds_per_call: float) -> Window:
        def run(calls: int) -> float:
            self.windows += 1
            seconds = calls * seconds_per_call * math.exp(self.rng.gauss(0, self.sigma))
            if self.rng.random() < self.spikes:
                seconds += self.rng.expovariate(1 / (30 * MILLISECOND))
            if self.windows % 2 == 0:
                seconds *= self.second_is_slower
            self.now += seconds
            return seconds

        return run


def verdict(
    ratio: float, machine: Machine, rng: random.Random, *, max_seconds: float = 20.0
) -> str:
    """The verdict at k = 2 on a submission of `ratio` times the threshold."""
    timing = paired_test(
        machine.window(2 * ratio * MILLISECOND),
        machine.window(MILLISECOND),
        k=2,
        calls=TWICE,
        rng=rng,
        clock=machine.clock,
        max_seconds=max_seconds,
    )
    return timing.verdict


# The e-value


@pytest.mark.parametrize(
    ("wins", "losses", "exact"),
    [
        (0, 0, Fraction(1)),
        (1, 0, Fraction(3, 2)),
        (0, 1, Fraction(1, 2)),
        (1, 1, Fraction(2, 3)),
        (2, 1, Fraction(11, 12)),
        (13, 0, Fraction(2**14 - 1, 14)),
    ],
)
def test_e_value_by_hand(wins: int, losses: int, exact: Fraction) -> None:
    assert e_value(wins, losses) == exact


@pytest.mark.parametrize(("wins", "losses"), [(3, 9), (9, 3), (20, 17), (60, 31)])
def test_e_value_is_the_mixture_it_claims_to_be(wins: int, losses: int) -> None:
    cells = 20_000
    grid = ((2 * cells + 2 * i + 1) / (4 * cells) for i in range(cells))
    likelihood_ratios = ((2 * p) ** wins * (2 - 2 * p) ** losses for p in grid)
    assert float(e_value(wins, losses)) == pytest.approx(
        math.fsum(likelihood_ratios) / cells, rel=1e-6
    )


def test_e_value_is_a_martingale_of_a_fair_coin() -> None:
    for wins in range(12):
        for losses in range(12):
            after = e_value(wins + 1, losses) + e_value(wins, losses + 1)
            assert after / 2 == e_value(wins, losses)


def test_thirteen_wins_in_a_row_decide_and_twelve_do_not() -> None:
    assert decide(12, 0, 1e-3) is None
    assert decide(13, 0, 1e-3) == "pass"
    assert decide(0, 13, 1e-3) == "fail"


def test_both_sides_are_judged_alike() -> None:
    opposite = {"pass": "fail", "fail": "pass", None: None}
    found = {decide(s, f, 0.01) for s in range(30) for f in range(30)}
    assert found == {"pass", "fail", None}
    for s in range(30):
        for f in range(30):
            assert decide(s, f, 0.01) == opposite[decide(f, s, 0.01)]


def wrong_pass_probability(pairs: int, passes: Callable[[int, int], bool]) -> Fraction:
    """P(a fair coin ever makes `passes` true within `pairs` flips), exactly."""
    alive = {0: Fraction(1)}
    stopped = Fraction(0)
    for n in range(1, pairs + 1):
        flipped: dict[int, Fraction] = {}
        for wins, probability in alive.items():
            for now in (wins, wins + 1):
                flipped[now] = flipped.get(now, Fraction(0)) + probability / 2
        alive = {wins: p for wins, p in flipped.items() if not passes(wins, n - wins)}
        stopped += sum(flipped.values()) - sum(alive.values())
    return stopped


def test_wrong_passes_at_the_threshold_stay_below_alpha_at_any_time() -> None:
    def passes(wins: int, losses: int) -> bool:
        return decide(wins, losses, 0.01) == "pass"

    assert 0 < wrong_pass_probability(120, passes) <= Fraction(1, 100)


def test_a_fixed_size_test_looked_at_often_would_not_stay_below_alpha() -> None:
    """The test above can fail: a one-sided z-test at 1 %, looked at after every pair, would."""

    def passes(wins: int, losses: int) -> bool:
        return wins - losses > 2.326 * math.sqrt(wins + losses)

    assert wrong_pass_probability(120, passes) > Fraction(3, 100)


# Verdicts


@pytest.mark.parametrize(("ratio", "wanted"), [(0.5, "pass"), (2.0, "fail")])
def test_a_factor_of_two_is_decided_in_thirteen_pairs(ratio: float, wanted: str) -> None:
    machine = Machine(1)
    assert verdict(ratio, machine, random.Random(1)) == wanted
    assert machine.windows == 2 * 13


def test_no_verdict_at_the_threshold() -> None:
    verdicts = [verdict(1.0, Machine(seed), random.Random(-seed)) for seed in range(40)]
    assert verdicts.count("undecided") == len(verdicts)


@pytest.mark.parametrize(("ratio", "wanted"), [(0.25, "pass"), (0.8, "pass"), (1.25, "fail")])
def test_verdicts_survive_spikes_longer_than_the_window(ratio: float, wanted: str) -> None:
    for seed in range(30):
        machine = Machine(seed, sigma=0.1, spikes=0.2)
        assert verdict(ratio, machine, random.Random(-seed)) == wanted


def test_random_order_withstands_a_machine_that_slows_down_within_a_pair() -> None:
    machines = [Machine(seed, second_is_slower=1.3) for seed in range(20)]
    verdicts = [verdict(1.1, m, random.Random(seed)) for seed, m in enumerate(machines)]
    assert "pass" not in verdicts


def test_a_fixed_order_would_be_fooled_by_that_machine() -> None:
    """The test above can fail: a submission that always goes first would win wrongly."""

    class SubmissionFirst(random.Random):
        def random(self) -> float:
            return 0.0

    assert verdict(1.1, Machine(7, second_is_slower=1.3), SubmissionFirst()) == "pass"


def test_ratio_and_spread_are_per_call_and_not_per_window() -> None:
    machine = Machine(3, sigma=0.02)
    timing = paired_test(
        machine.window(3 * MILLISECOND),
        machine.window(MILLISECOND),
        k=2,
        calls=TWICE,
        rng=random.Random(3),
    )
    assert timing.ratio == pytest.approx(3, rel=0.05)
    assert timing.spread[0] < timing.ratio < timing.spread[1]
    assert (timing.wins, timing.losses, timing.k) == (0, 13, 2)


def test_ties_are_no_evidence() -> None:
    timing = paired_test(
        lambda calls: 0.01,
        lambda calls: 0.01,
        k=2,
        calls=TWICE,
        rng=random.Random(1),
        max_pairs=30,
    )
    assert (timing.verdict, timing.wins, timing.losses) == ("undecided", 0, 0)
    assert timing.reason == "too close or too noisy after 30 pairs"


def test_time_runs_out() -> None:
    machine = Machine(5)
    assert verdict(4.0, machine, random.Random(5), max_seconds=0.2) == "undecided"
    assert 0.2 <= machine.now < 0.4


@pytest.mark.parametrize(("ratio", "wanted"), [(15.0, "fail"), (8.0, "undecided")])
def test_what_is_far_too_slow_for_more_pairs_fails_after_three(ratio: float, wanted: str) -> None:
    machine = Machine(4)
    assert verdict(ratio, machine, random.Random(5), max_seconds=0.0) == wanted
    assert machine.windows == (6 if wanted == "fail" else 2)


def test_one_pair_is_run_however_little_time_there_is() -> None:
    machine = Machine(5)
    assert verdict(4.0, machine, random.Random(5), max_seconds=0.0) == "undecided"
    assert machine.windows == 2


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_window_without_a_time_is_an_error(seconds: float) -> None:
    with pytest.raises(ValueError, match="a window took"):
        paired_test(lambda _: seconds, lambda _: 1.0, k=2, calls=TWICE, rng=random.Random(1))


# Sizes of windows


@pytest.mark.parametrize("k", [0.1, 0.25, 0.8, 1.25, 1.37, 2, 3.3, 10, math.pi])
@pytest.mark.parametrize("baseline_calls", [1, 2, 7, 40, 1000])
def test_windows_are_equal_at_the_threshold(k: float, baseline_calls: int) -> None:
    calls = equal_windows(k, baseline_calls)
    assert min(calls.submission, calls.baseline) >= 1
    assert calls.baseline / calls.submission == pytest.approx(k, rel=0.005)


def test_windows_stay_as_long_as_asked_where_k_allows_it() -> None:
    assert equal_windows(2, 10) == Calls(5, 10)
    assert equal_windows(0.25, 3) == Calls(12, 3)
    assert equal_windows(1.5, 1) == Calls(2, 3)


def test_windows_need_a_positive_ratio() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        equal_windows(0, 10)


@pytest.mark.parametrize("milliseconds", [0.001, 0.3, 4, 6, 9, 500])
def test_calibration_meets_its_target_or_makes_one_call(milliseconds: float) -> None:
    machine = Machine(1, sigma=0.02)
    calls = calibrate(machine.window(milliseconds * MILLISECOND), 10 * MILLISECOND)
    assert calls == pytest.approx(max(1, 10 / milliseconds), rel=0.25)


def test_a_very_slow_submission_gets_short_windows() -> None:
    machine = Machine(1)
    usual = plan(machine.window(0.002), 10, k=2, target_seconds=0.01)
    slow = plan(machine.window(0.2), 10, k=2, target_seconds=0.01)
    assert (usual, slow) == (TWICE, Calls(1, 2))


# Controls


def judged(machine: Machine, submission: float, reference: float, naive: float, k: float) -> str:
    """The verdict and, after a colon, the reason; times are milliseconds for one call."""
    times = (submission, reference, naive)
    timing = with_controls(
        *(machine.window(t * MILLISECOND) for t in times),
        k=k,
        rng=random.Random(11),
        clock=machine.clock,
    )
    return f"{timing.verdict}:{timing.reason}"


@pytest.mark.parametrize(
    ("submission", "k", "wanted"),
    [(1.1, 1.5, "pass"), (2.0, 1.5, "fail"), (1.1, 0.5, "pass"), (3.5, 0.5, "fail")],
)
def test_controls_hold_and_the_submission_is_judged(
    submission: float, k: float, wanted: str
) -> None:
    assert judged(Machine(2), submission, 1.0, 4.0, k) == f"{wanted}:"


def test_a_naive_version_that_is_not_slow_makes_the_machine_unsuitable() -> None:
    assert judged(Machine(2), 1.0, 1.0, 1.1, 1.5).startswith(
        "unsuitable:this machine cannot tell times apart now: the naive version must fail at "
        "1.5 x the reference, but the result was pass: shorter in 13 of 13 pairs, median 1.09 x"
    )


def test_a_reference_that_cannot_pass_makes_the_machine_unsuitable() -> None:
    assert judged(Machine(2), 3.5, 3.0, 4.0, 0.5).startswith(
        "unsuitable:this machine cannot tell times apart now: the reference must pass at "
        "0.5 x the naive version, but the result was fail: shorter in 0 of 13 pairs"
    )


def test_noise_that_hides_the_difference_decides_nothing() -> None:
    assert judged(Machine(2, sigma=3.0), 1.0, 1.0, 4.0, 1.25).startswith(
        "undecided:too close or too noisy after "
    )


def test_an_undecided_submission_is_tried_twice_and_no_more() -> None:
    machine = Machine(4)
    windows: list[int] = []
    submission = machine.window(2 * MILLISECOND)

    def counted(calls: int) -> float:
        windows.append(calls)
        return submission(calls)

    reference, naive = machine.window(MILLISECOND), machine.window(8 * MILLISECOND)
    timing = with_controls(
        counted, reference, naive, k=2, rng=random.Random(4), clock=machine.clock
    )
    assert timing.verdict == "undecided"
    assert len([calls for calls in windows if calls > 1]) == 2 * 200


def test_a_disturbance_that_passes_is_no_fail() -> None:
    """Something beside a right answer makes it slow for as long as the first comparison takes."""
    machine = Machine(2)
    quiet, disturbed = machine.window(1.1 * MILLISECOND), machine.window(9 * MILLISECOND)
    calls_seen = 0

    def submission(calls: int, /) -> float:
        nonlocal calls_seen
        calls_seen += 1
        return disturbed(calls) if calls_seen < 18 else quiet(calls)

    reference, naive = machine.window(MILLISECOND), machine.window(8 * MILLISECOND)
    timing = with_controls(
        submission, reference, naive, k=2, rng=random.Random(4), clock=machine.clock
    )
    assert timing.verdict == "undecided"
    assert timing.reason.startswith("two comparisons disagree: ")
    assert calls_seen > 18


@pytest.mark.parametrize("k", [0.9, 1.0, 1.2])
def test_a_threshold_near_one_is_refused(k: float) -> None:
    with pytest.raises(ValueError, match="too near to 1"):
        judged(Machine(1), 1.0, 1.0, 4.0, k)


def test_a_repeated_window_takes_as_long_as_a_slower_program() -> None:
    assert repeated(lambda calls: calls * 0.5, 4)(3) == 6.0
