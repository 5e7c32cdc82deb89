"""What ex17_find_the_leak counts at each step: live arrays, and memory of the host."""

import msgspec

SETTLED = 5
"""The step from which on nothing may grow: a loop that reads one step late does so by then."""

TRAINS = "train"
"""The phase of each call of `train`."""
BEST_OF = "the step whose params are the best"
"""The fact that holds the number of the step, from 0, that was given what `train` returns as its
best params; or -1."""
OTHER_PARAMS = "the first step that was given other params than the one before returned"
"""The fact that holds its number, from 0, in the first run; 0 if there is none."""
FIRST, LAST, ONLY, HUNDREDS, AGAIN = (
    f"best of a run whose {end} step is the best"
    for end in ("first", "last", "only", "first of hundreds", "very first")
)
"""The names of the best params of five more runs."""
NOT_AS_TOLD = "where a history is not what the reports said"
"""The fact that says, for the first run and each of the others, how its history differs from what
`step` reported in it, to the last bit; "" if it doesn't."""
HISTORY_OF = {
    FIRST: "history of a short run",
    LAST: "history of another short run",
    ONLY: "history of a run of one step",
    AGAIN: "history of the last run",
}
"""The names of their histories, but of that of hundreds of steps. All losses and errors there are
below 0."""
BETTER_ALONE = "the history of those steps alone whose loss is the lowest so far"
"""What a history is that lacks the others."""
KEPT_FROM, KEPT_ON_HOST = "arrays kept from run to run", "bytes kept on the host from run to run"
"""The facts that say how many more arrays were alive after the last run than before the first, and
how much more of the host's memory the file's variables led to than after the second."""
KEPT_OF_REPORTS = "kinds of arrays of reports that are left"
"""The fact that lists the kind, such as `float32[64]`, of each array of a report that was still
there after the last run."""
KEEPERS = "what holds most between the runs"
"""The fact that holds, for arrays and for memory of the host, a `Holder` each: the variable of the
file's own that held most after the last run."""
LATER = "what is alive at each step of two more runs"
"""The fact that lists an `Alive` for each step of each run of `WATCHED`."""
WATCHED = (FIRST, HUNDREDS, AGAIN)
LOWEST = "the step with the lowest loss in the run of hundreds"
"""The fact that holds its number, from 0, by what the reports said."""
WINDOW_LATER = 10
"""Steps of a window of these runs."""


class Alive(msgspec.Struct):
    """What was alive when a step was called."""

    nbytes: int
    """Bytes of all live arrays."""
    arrays: dict[str, int]
    """How many live arrays there are of each kind, by names such as `float32[64]`."""
    host: int
    """Bytes that Python and NumPy hold."""
    held: int
    """Of them, the bytes of arrays, lists and texts that the learner's variables lead to."""
    since: list[int]
    """The steps at which live arrays were first there."""


class Holder(msgspec.Struct):
    """What held the most at the last step."""

    name: str
    """A variable or its attribute, `book.reports`; "" if there is none."""
    weight: int
    """How many arrays it leads to, or bytes."""
    calls: bool = False
    """Whether `name` is a function instead, of which `weight` calls have not ended."""
