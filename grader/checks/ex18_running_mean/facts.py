"""The names of ex18_running_mean: the learner's function, and its programs for other sizes."""

from collections.abc import Mapping

NAME = "mean_of_updates"
"""The function, and its program for hundreds or thousands of updates."""
THOUSAND = "mean_of_updates, a thousand"
"""Its program for exactly a thousand updates."""
SHORT = "mean_of_updates, a few"
"""Its program for a few updates."""
FEWER = "mean_of_updates, some"
"""Its program for less than a thousand updates."""
AS_MANY = "mean_of_updates, as many as rows"
"""Its program for as many updates as `x` has rows."""
UNKNOWN = (THOUSAND, AS_MANY)
"""The programs for which no known mistake is computed."""
LONG = "mean_of_updates, three times as many or more"
"""Its program for some thousands of updates, three times as many as the first or more."""
MORE = ("mean_of_updates, of a larger x", "mean_of_updates, many thousands")
"""Its programs for dozens to thousands of updates, and for up to 3 million: only compiled."""
HUGE = "mean_of_updates, very many"
"""Its program for a number of updates that is only compiled."""
SIZES = "sizes"
"""The name of the fact that holds, by program, the bytes of `x` and the number of updates."""
LENGTHS = "lengths"
"""The name of the fact that holds how many operations two of the programs are written in."""
NUMBERED = "numbered"
"""The name of the fact that says whether the program holds a constant that grows with the updates,
as numbers of the rounds do that NumPy made. For very many updates, it cannot be exported."""
KEPT_BY_LOOPS = "kept by loops"
"""The name of the fact that says how many arrays like `x` a loop of the program for millions of
updates carries and stacks."""
NUMBERS = 2
"""How many numbers the program may keep for each update: a loop may number its rounds, as it is
given a rate for each."""
DONATED = "donated"
"""The name of the fact that says whether the function deletes arrays that it is given."""
X, FIRST, LAST, RATES = "x", "first state", "last state", "sum of the rates"
WEIGHTED, HALVED = "sum weighted by the rates", "sum halved in each round"
DIVIDED = "sum divided in each round"
WITHOUT_FIRST, FIRST_RATE = "sum without the first update", "sum with the first rate"
ONE_MORE = "sum with one update more"
BY_NUMBER, OF_THE_SUM = "sum with numbers as rates", "sum that is updated itself"
SKIPPED = "sum by each rate but the first, the last one twice"
AS_ROWS = "sum of as many updates as x has rows"
REPEATED = "sum by the first rate twice, and by each other but the last"
SLOW = "mean that each state moves by 1 part in their number"
KEPT = (0.9, 0.99, 0.999, 0.1)
"""What of itself a moving average keeps in each round, as people write it."""
SMOOTHED = tuple(f"moving average that keeps {kept}" for kept in KEPT)
STUCK, REVERSED = "sum of updates of x", "sum with the rates in reverse"
EXCHANGED = ("sum with the carry exchanged", "sum with the carry unpacked in exchange")
"""Names of values of the reference's side: each begins the name that ends in that of a program."""


def grows(lengths: Mapping[str, int]) -> bool:
    """Whether the text of the program grows with the number of updates.

    A few updates that do not fill a round may be written out.
    """
    return lengths[LONG] > 2 * lengths[NAME] + 100
