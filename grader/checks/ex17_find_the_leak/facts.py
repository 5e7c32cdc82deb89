"""What ex17_find_the_leak counts at each step: live arrays, and memory of the host."""

import msgspec

SETTLED = 5
"""The step from which on nothing may grow: a loop that reads one step late does so by then."""

BEST_OF = "the step whose params are the best"
"""The fact that holds the number of the step, from 0, that was given what `train` returns as its
best params; or -1."""
FIRST, LAST = (f"best of a short run whose {end} step is the best" for end in ("first", "last"))
"""The names of the best params of two more runs."""
HISTORY_OF = {FIRST: "history of a short run", LAST: "history of another short run"}
"""The names of their histories. All losses and errors there are below 0."""
KEPT_FROM = "arrays kept from run to run"
"""The fact that says how many more arrays were alive after the last run than after the second."""


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
