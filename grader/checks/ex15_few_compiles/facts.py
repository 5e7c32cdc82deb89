"""The lists that ex15_few_compiles serves: their sizes, and each call of `model` for them."""

from collections.abc import Iterable

import msgspec

SERVED = "served"
"""The fact that lists what was served, each a `Served`."""
SERVED_MORE = "served at the end"
"""The fact that lists what was served of `one_row_more`."""
FACTOR = "by what model multiplies"
"""The fact that holds the factor between what `network` gives and what `model` gives."""
UNSEEN = "why launches cannot be watched"
"""The fact that says so, or is ""."""
EMPTIED = "a later call of `predict_all` changes the list of this one, or an array in it"
"""What is wrong with a list that was as it should be when its own call had returned."""
REFUSED = "`predict_all` tries to write into an array of `batches` that cannot be written to"
FORMER = "the numbers that this array held before"
"""What explains the predictions for an array that has been filled with other numbers since."""
TWICE = "the list, from 1, and the places in it where one array stands twice"
RENEWED = "number of the list with new arrays in the dict"
"""The fact that says before which list, from 1, the caller's dict of params got new arrays."""
OLD_PARAMS = "what the arrays give that this dict of params held before"
"""What explains the predictions of that list, if they are those of the arrays before."""
PROGRAMS = 5
"""How many programs the whole process may compile."""
MOST_ROWS = 256
"""The rows of the largest batch."""
SCRAMBLED = "these are the numbers of a batch, in other places"
OTHER_END, ZEROS = "the batch lies at the other end", "these rows are all 0"


class Call(msgspec.Struct):
    """One call of `model`, by the arrays that it got."""

    rows: int
    counted: int
    """How many of the rows the mask counts."""
    batch: int | None
    """The number of the batch, in its list, whose rows the mask counts, in any order."""
    why: str
    """Why they are those of no batch, if that is known: one of the texts below, or ""."""
    finite: bool
    """Whether all of the rows are finite, also those that the mask does not count."""
    begins: int
    """The first of the rows that the mask counts."""
    form: str
    """Shapes and dtypes of the arrays, as text: `network` has a program for each."""


class Served(msgspec.Struct):
    """One list of batches, and the calls of `model` that served it."""

    sizes: list[int]
    """The rows of each batch."""
    calls: list[Call]
    beside: int
    """Rows of 16 numbers given to programs that `model` did not call, or made by them."""
    changed: str
    """What became of the caller's list, or "" if it is as it was."""
    made: int = 0
    """For how many of the batches a prediction is no number that `model` returned for its row."""
    overwritten: int = 0
    """How many of the predictions were others, or gone, once all lists had been served."""


def one_row_more(served: Iterable[Served]) -> list[int]:
    """The sizes that are one row larger than an array that `model` got.

    A batch of such a size no longer fits into that array: its own has the most padding. There are
    none where `model` got arrays of more sizes than there may be programs.
    """
    sizes = {call.rows for one in served for call in one.calls}
    if len(sizes) > PROGRAMS:
        return []
    return [rows + 1 for rows in sorted(sizes) if rows < MOST_ROWS]


def served_list(number: int) -> str:
    """The name of the phase in which list `number`, from 1, is served, and of its predictions."""
    return f"predict_all(list {number})"
