"""Checks of ex30_roofline: the counts of two kernels, and each figure that `place` returns."""

import math
import re
from itertools import combinations, combinations_with_replacement, product

import msgspec
from msgspec.structs import replace

from grader.checks.ex30_roofline import EXERCISE
from grader.checks.ex30_roofline.facts import BYTES, FLOPS, Case, Count
from grader.judging.arrays import figures
from grader.judging.checking import Failure, Result
from grader.judging.evidence import seen, wanted
from grader.records.record import Record
from grader.source import statements

CLOSE = 1e-6
"""How far a figure may be off, relative to what it should be."""
HALF = 0.5
"""A count that is off by less is the right one. All counts are below 2**53, where float64 still
tells whole numbers apart."""


def _counts(record: Record, kernel: str) -> list[Count]:
    """What the learner counted of a kernel, beside what its jaxpr held in the reference's run."""
    sides = (seen(record).facts["counts"], wanted(record).facts["counts"])
    mine, theirs = (msgspec.convert(counts, list[Count]) for counts in sides)
    pairs = zip(mine, theirs, strict=True)
    return [replace(own, counted=right.counted) for own, right in pairs if right.kernel == kernel]


def _cases(record: Record) -> list[Case]:
    """The cases with drawn ceilings, whose figures a seed gives again, and then the measured."""
    cases = msgspec.convert(seen(record).facts["cases"], list[Case])
    return sorted(cases, key=lambda case: case.measured)


def _beside(counts: list[Count], what: str, got: float, want: float) -> str:
    """How far a count is from the right one: times as many, or how many more where it is near."""
    all_of_them = [(float(one.said[what]), one.counted[what], _sizes(one)) for one in counts]
    if math.isclose(got, want, rel_tol=0.05):
        many = "many" if got > want else "few"
        return f"{abs(got - want):,.10g} too {many}{_apart_in_words(all_of_them)}"
    words = ""
    if what == BYTES:
        words = _elements_in_words(all_of_them) or _rounds_in_words(all_of_them)
    else:
        words = _fewer_in_words(all_of_them) or _anew_in_words(all_of_them)
    times = {f"{one / right:.3g}" for one, right, _ in all_of_them}
    return f"{got / want:.3g} times as many{words or ', as in each case' * (len(times) == 1)}"


_Counted = tuple[float, int, dict[str, int]]
"""A count of the learner's, the right one, and the sizes that both are of."""


def _elements_in_words(counts: list[_Counted]) -> str:
    """Of which elements all counts are the bytes, where they are of one size; else ""."""
    for size in (1, 2, 4, 8):
        if all(got * sizes["itemsize"] == size * want for got, want, sizes in counts):
            words = f", as elements of {size} bytes would have"
            return f"{': it is the number of elements' if size == 1 else words}"
    return ""


def _fewer_in_words(counts: list[_Counted]) -> str:
    """How many rounds more or fewer all counts are of; "" if they are not."""
    for more in (-2, -1, 1, 2):
        if all(
            got == 2 * sizes["n"] * (sizes["degree"] + more)
            for got, _, sizes in counts
            if "degree" in sizes
        ) and all("degree" in sizes for *_, sizes in counts):
            return f": 2 * n * (degree {'+' if more > 0 else '-'} {abs(more)}) in each case"
    return ""


def _rounds_in_words(counts: list[_Counted]) -> str:
    """How many arrays all counts have for each round, and how many more; "" if they have not."""
    if all(got == sizes["itemsize"] * (sizes["n"] + 1) for got, _, sizes in counts):
        return ": itemsize * (n + 1) in each case"
    for times, more in product((1, 2, 3, 4), (0, 1, 2)):
        if all(
            got == sizes["itemsize"] * sizes["n"] * (times * sizes.get("degree", 0) + more)
            for got, _, sizes in counts
        ):
            rounds = f"{times} * degree" if times > 1 else "degree"
            arrays = f"({rounds} + {more})" if more else rounds
            return f": itemsize * n * {arrays} in each case"
    return ""


def _anew_in_words(counts: list[_Counted]) -> str:
    """How all counts are those of powers computed anew in each round; "" if they are not."""
    for what, least in (("degree * (degree + 1) / 2", 1), ("degree * (degree - 1) / 2", -1)):
        for more in (0, 1):
            if (
                all(
                    got == sizes["n"] * (d * (d + least) // 2 + more * d)
                    for got, _, sizes in counts
                    if (d := sizes.get("degree", 0))
                )
                and "degree" in counts[0][2]
            ):
                total = f"({what} + degree)" if more else what
                return f": n * {total} in each case, as if each power of x were computed anew"
    return ""


LESS_ONE = "(itemsize - 1)"
"""What is left out where elements are counted, and not their bytes."""


def _apart_in_words(counts: list[_Counted]) -> str:
    """The product of sizes by which all counts are wrong, or ""."""
    known = [
        (abs(got - want), sizes | {"2": 2, LESS_ONE: sizes["itemsize"] - 1})
        for got, want, sizes in counts
    ]
    for most in (1, 2, 3):
        for names in combinations_with_replacement(known[0][1], most):
            if all(apart == math.prod(sizes[name] for name in names) for apart, sizes in known):
                return f": {' * '.join(sorted(names))} in each case"
    return ""


def _sizes(count: Count) -> dict[str, int]:
    """The sizes that a count is of, by the names of the parameters."""
    names = ("m", "k", "n") if count.kernel == "matmul" else ("n", "degree")
    numbers = map(int, re.findall(r"\d+", count.call))
    return dict(zip((*names, "itemsize"), numbers, strict=True))


def _miscount(record: Record, kernel: str, what: str, why: str) -> Failure | None:
    """The first size at which the learner's count is not the jaxpr's."""
    counts = _counts(record, kernel)
    for count in counts:
        got, want = float(count.said[what]), count.counted[what]
        if not abs(got - want) < HALF:  # NaN is far from all
            other = BYTES if what == FLOPS else FLOPS
            swapped = all(
                math.isclose(float(one.said[what]), one.counted[other], rel_tol=CLOSE)
                for one in counts
            )
            said = "the other number of the pair (flops, nbytes)" if swapped else ""
            said = said or _as(count, what, got) or _beside(counts, what, got, want)
            return Failure(
                f"`{count.call}` counts {want:,} {what}: {why}",
                f"{got:,.16g}, which is {said}",
                statements.result(record, f"{kernel}_cost", 0 if what == FLOPS else 1, 2),
                _hint(count, what, got / want, said),
            )
    return None


def _hint(count: Count, what: str, ratio: float, said: str) -> str:
    """The hint for a count that no fused round and no forgotten addition explains, or ""."""
    if what == FLOPS and said.startswith("2 * "):
        return TERMS
    if what == FLOPS and said.endswith("too few: m * n in each case"):
        return ADDED
    if what == BYTES and count.kernel == "poly":
        degree = _sizes(count)["degree"]
        each_round = degree > FEW_ROUNDS and any(
            abs(ratio - times * degree) <= 2 for times in (0.5, 1, 1.5, 2)
        )
        return "" if each_round else ARRAYS
    return ""


FEW_ROUNDS = 8
"""With so few, as many arrays as rounds could be any other number of arrays."""
ADDED = "A sum of k products counts as k additions: the first product is added to 0."
TERMS = "The result has a row for each row of x, and a column for each of y. How long is each sum?"
ARRAYS = (
    "One array is read and one is written, of n elements each. An element has `itemsize` bytes."
)


def _as(count: Count, what: str, got: float) -> str:
    """What of the sides gives this count of `matmul`, in their names, or ""."""
    if count.kernel != "matmul":
        return ""
    sides = _sizes(count)
    itemsize = sides.pop("itemsize")
    if what == FLOPS:
        three = combinations_with_replacement(sides, 3)
        products = [names for names in three if 2 * math.prod(sides[n] for n in names) == got]
        return f"2 * {' * '.join(products[0])}" if len(products) == 1 else ""
    arrays = {f"{a} * {b}": sides[a] * sides[b] for a, b in combinations_with_replacement(sides, 2)}
    found = {
        " + ".join(names): sum(arrays[name] for name in names)
        for most in (1, 2, 3, 4)
        for names in combinations_with_replacement(arrays, most)
    } | {"m * k * n": math.prod(sides.values())}
    found = {
        f"itemsize * ({words})": total * itemsize for words, total in found.items()
    } | _in_part(count, itemsize)
    found = {words: total for words, total in found.items() if total == got}
    return next(iter(found)) if len(found) == 1 else ""


def _in_part(count: Count, itemsize: int) -> dict[str, int]:
    """The counts of `matmul` where some of its arrays have elements of another, fixed size."""
    sizes = _sizes(count)
    arrays = {f"{a} * {b}": sizes[a] * sizes[b] for a, b in (("m", "k"), ("k", "n"), ("m", "n"))}
    known = {}
    for most, size in product((1, 2), (1, 2, 4, 8)):
        for names in combinations(arrays, most):
            others = [name for name in arrays if name not in names]
            fixed = " + ".join(others) if size == 1 else f"{size} * ({' + '.join(others)})"
            whole, bare = (sum(arrays[name] for name in some) for some in (names, others))
            known[f"itemsize * ({' + '.join(names)}) + {fixed}"] = itemsize * whole + size * bare
    return known


@EXERCISE.check(
    ground="observed", hints=("A multiplication and an addition are always two operations.",)
)
def counts_matmul_flops(record: Record) -> Result:
    """`matmul_cost` counts every multiplication and every addition."""
    return _miscount(record, "matmul", FLOPS, "a multiplication and an addition for each term")


@EXERCISE.check(
    ground="observed",
    after=("counts_matmul_flops",),
    hints=("Three arrays: two are read, one is written. An element has `itemsize` bytes.",),
)
def counts_matmul_bytes(record: Record) -> Result:
    """`matmul_cost` counts the bytes of each array once, including the result's."""
    return _miscount(record, "matmul", BYTES, "each of three arrays is read or written once")


@EXERCISE.check(
    ground="observed", hints=("Each of `degree` rounds multiplies once and adds once.",)
)
def counts_poly_flops(record: Record) -> Result:
    """`poly_cost` counts every round's multiplication and addition."""
    return _miscount(record, "poly", FLOPS, "two for each element in each round")


@EXERCISE.check(
    ground="observed",
    after=("counts_poly_flops",),
    hints=(
        "jit makes one kernel of all rounds. What passes between two rounds never leaves the chip.",
        "One array is read and one is written, however many rounds there are.",
    ),
    anchor="fused-work-moves-nothing",
)
def counts_poly_bytes(record: Record) -> Result:
    """`poly_cost` counts what a fused kernel moves: one array in and one out."""
    return _miscount(record, "poly", BYTES, "one array is read, and one is written")


def _right(case: Case) -> dict[str, float]:
    """The numbers that are right for a case."""
    return {"intensity": case.intensity, "attainable": case.attainable, "share": case.share}


def _differs(record: Record, key: str, why: str) -> Failure | None:
    """The first case in which the learner's `key` is not what it should be."""
    for case in _cases(record):
        want, got = _right(case)[key], float(case.answer[key])
        if not math.isclose(got, want, rel_tol=CLOSE):
            right_one, mine = figures(want, got)
            expected = f"{_given(case)}, {key} is {right_one}: {why}"
            instead = _instead(case, key, got) or _everywhere(record, key)
            observed = f"{mine}{instead or _of_another(record, key, got)}"
            hint = IN_PERCENT if observed.endswith(PERCENT) else ""
            hint = KEPT if observed.endswith(ANOTHERS) else hint
            hint = UNITS if key == "attainable" and _of_other_units(record) else hint
            hint = CUT_OFF if key == "share" and got == 1 < want else hint
            return Failure(expected, observed, statements.entry(record, "place", key), hint)
    return None


PERCENT = "the share in percent"
UNITS = (
    "This is peak_flops in each case: the other ceiling is never the lower one. peak_bandwidth is "
    "in bytes/s. By what is it multiplied?"
)
ANOTHERS = "which is right for another call, with other figures"
KEPT = "Each call has its own figures. What does `place` keep from one call to the next?"
CUT_OFF = "A share above 1 tells you that a ceiling was measured too low. Do not cut it off at 1."
IN_PERCENT = "A share is a fraction: 1 at the roof, and not 100."


def _instead(case: Case, key: str, got: float) -> str:
    """What a wrong figure is, where it is one of the other figures; else nothing."""
    reached, bandwidth = case.flops / case.seconds, case.nbytes / case.seconds
    others = {
        "intensity": {
            "bytes / FLOPs": case.nbytes / case.flops,
            "FLOPs / seconds": reached,
            "bytes / seconds": bandwidth,
        },
        "attainable": {
            "peak_flops, the other ceiling": case.peak_flops,
            "intensity * peak_bandwidth, the other ceiling": case.intensity * case.peak_bandwidth,
            "FLOPs / seconds, what was reached": reached,
            "intensity / peak_bandwidth": case.intensity / case.peak_bandwidth,
            "peak_bandwidth / intensity": case.peak_bandwidth / case.intensity,
            "intensity * peak_flops": case.intensity * case.peak_flops,
            "FLOPs / the time of both ceilings, one after the other": 1
            / (1 / case.peak_flops + 1 / (case.intensity * case.peak_bandwidth)),
        },
        "share": {
            "FLOPs / seconds / peak_flops": reached / case.peak_flops,
            "bytes / seconds / peak_bandwidth": bandwidth / case.peak_bandwidth,
            PERCENT: 100 * case.share,
            "the share upside down": 1 / case.share,
            "FLOPs * seconds / attainable": case.flops * case.seconds / case.attainable,
            "FLOPs / attainable": case.flops / case.attainable,
            "FLOPs / seconds": reached,
        },
    }
    found = (what for what, is_so in others[key].items() if math.isclose(got, is_so, rel_tol=CLOSE))
    what = next(found, "")
    return f", which is {what}" if what else ""


def _everywhere(record: Record, key: str) -> str:
    """By which factor a figure is wrong, if that is the same in all cases; else ""."""
    ratios = [
        float(case.answer[key]) / right for case in _cases(record) if (right := _right(case)[key])
    ]
    same = all(math.isclose(ratio, ratios[0], rel_tol=CLOSE) for ratio in ratios)
    return f", which is {ratios[0]:.4g} times as much, as in each case" if same else ""


def _of_other_units(record: Record) -> bool:
    """Whether the file multiplies by 10**9 or so, and peak_flops is always the lower ceiling."""
    scaled = re.search(r"1e[369]\b|10 ?\*\* ?[369]\b|\b1_?000(_?000)+\b|1 ?<< ?30\b", record.source)
    return bool(scaled) and all(
        case.answer["attainable"] == case.peak_flops for case in _cases(record)
    )


def _of_another(record: Record, key: str, got: float) -> str:
    """That a wrong figure is the right one of another case, if it is; else ""."""
    known = (_right(case)[key] for case in _cases(record) if not case.measured)
    return f", {ANOTHERS}" if any(math.isclose(got, one, rel_tol=EQUAL_TO) for one in known) else ""


EQUAL_TO = 1e-12
"""Figures that are drawn differ by more."""
BOUNDS = ("memory", "compute")
EQUAL = 'Both ceilings are equal here. Then the bound is "compute".'
NAMES = 'The bound is one of two words: "memory" or "compute".'


def _given(case: Case) -> str:
    """The figures of a case, in words."""
    whose = "this machine's, measured in this run" if case.measured else "drawn at random"
    return (
        f"for {case.flops:.3g} FLOPs, {case.nbytes:.3g} bytes and {case.seconds:.3g} s, under "
        f"{case.peak_flops:.3g} FLOP/s and {case.peak_bandwidth:.3g} bytes/s ({whose})"
    )


@EXERCISE.check(ground="observed", hints=("How often is a byte used, once it has arrived?",))
def intensity_is_flops_per_byte(record: Record) -> Result:
    """The arithmetic intensity is FLOPs per byte."""
    return _differs(record, "intensity", "FLOPs / bytes")


@EXERCISE.check(
    ground="observed",
    after=("intensity_is_flops_per_byte",),
    hints=(
        "Bytes arrive at peak_bandwidth, and each feeds `intensity` FLOPs. But the machine does "
        "no more than peak_flops.",
    ),
    anchor="two-ceilings",
)
def attainable_is_under_both_ceilings(record: Record) -> Result:
    """The attainable FLOP/s are the lower of two ceilings."""
    found = _differs(record, "attainable", "the lower of the two ceilings")
    if found is None or not (bounds := _other_bounds(record)):
        return found
    places = [*statements.entry(record, "place", "bound"), *found.culprits]
    return Failure(found.expected, f"{found.observed}; `bound` is wrong, too{bounds}", places)


@EXERCISE.check(
    ground="observed",
    after=("intensity_is_flops_per_byte",),
    hints=(
        "No intensity is high or low by itself. Where do this machine's two ceilings meet?",
        "They meet at peak_flops / peak_bandwidth FLOPs per byte, the ridge.",
    ),
    anchor="two-ceilings",
)
def bound_is_the_lower_ceiling(record: Record) -> Result:
    """The bound names the ceiling that is met first: "memory" or "compute"."""
    # Where both are equal, there is more to know: that case comes last.
    for case in sorted(_cases(record), key=_at_the_ridge):
        if case.answer["bound"] != case.bound:
            meet = case.peak_flops / case.peak_bandwidth
            intensity, ridge = figures(case.intensity, meet)
            equal = EQUAL if case.intensity == meet else ""
            return Failure(
                f"{_given(case)}, bound is {case.bound!r}: the intensity is {intensity}, and the "
                f"ceilings meet at {ridge}",
                repr(case.answer["bound"]) + _other_bounds(record),
                statements.entry(record, "place", "bound"),
                equal if case.answer["bound"] in BOUNDS else NAMES,
            )
    return None


def _at_the_ridge(case: Case) -> bool:
    """Whether both ceilings are equal."""
    return case.intensity == case.peak_flops / case.peak_bandwidth


def _other_bounds(record: Record) -> str:
    """What explains all bounds that were returned, if something simple does; else ""."""
    cases = _cases(record)
    swapped = dict(zip(BOUNDS, BOUNDS[::-1], strict=True))
    if all(case.answer["bound"] == swapped[case.bound] for case in cases):
        return ": in each case, it is the other of the two"
    sides = [[c.intensity for c in cases if c.answer["bound"] == bound] for bound in BOUNDS]
    if all(sides) and (low := max(sides[0])) < (high := min(sides[1])):
        return f": in each case, it is as if they met between {low:.3g} and {high:.3g}"
    turned = (BOUNDS[case.intensity >= case.peak_bandwidth / case.peak_flops] for case in cases)
    if all(case.answer["bound"] == bound for case, bound in zip(cases, turned, strict=True)):
        return ": in each case, it is as if they met at peak_bandwidth / peak_flops"
    return ""


@EXERCISE.check(
    ground="observed",
    after=("attainable_is_under_both_ceilings",),
    hints=(
        "A kernel bound by memory can be perfect, and still be far from peak_flops.",
        CUT_OFF,
    ),
    anchor="how-near-to-the-roof",
)
def share_is_of_the_attainable(record: Record) -> Result:
    """The share is the FLOP/s reached, divided by those attainable."""
    return _differs(record, "share", "FLOPs / seconds / attainable")
