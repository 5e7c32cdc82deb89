"""The runs of `train` in ex12_repair_trainer, and what `step` was called with in each."""

import msgspec

LONG = "train"
"""A long run."""
AGAIN = "again"
"""A run from the same key, on the other device, which must make the same keys."""
OTHER = "other"
"""A run of some steps from the key of the next seed, which must make other keys."""
RUNS = (LONG, AGAIN, OTHER)
MANY = ("of one step", "of a power of two", "of hundreds", "of more hundreds")
"""Runs that train nothing, each with a fact that is a `ManySteps`."""
OTHER_ROWS = "step with other batches"
"""The name of the program of `step` for batches of another size; and of the fact that holds the
rows of the usual ones, and of those."""
COMPILES = 20
"""After so many compiles, a run that trains nothing is stopped."""
LOSS_AFTER = "loss with the new params"
"""The name of the value that the reference's side keeps: two losses of the params that the exported
step makes of its first arguments, with the same key and batch, and the old state or the new one."""
LOSS_MOVED = "loss with the new state"
"""The name of the value that the reference's side keeps: the loss of the first arguments, but with
the state that the step makes of theirs."""
LOSS_OF_NAN = "loss of a batch with a NaN"
"""The name of the loss where a row of the inputs is NaN."""
MODEL_OF_NAN = "model after a step with a NaN"
"""The name of the params and the optimizer state that `step` returns then."""
HIDES = "what train hides an error of"
"""The fact that lists of what `train` hides an error: of "step", of "batches"."""
MOVES = "how often the mean moves"
"""The fact that says how often the mean of the returned state has moved: 0, 1, 2, or -1 where that
is not known."""
FILLED_AGAIN = "a later call of `train` changes the list of losses that this one returned"
"""What is wrong with such a list."""
LAST_LOST = ": that of the last step is missing"
"""What is wrong with a list that holds all other losses."""
WAITED = "held steps that were waited for"
"""The fact that lists steps, from 0, for which the host waited in the run that holds its steps."""


def through_host(run: str) -> str:
    """The fact that counts programs which a run compiles, and which keep arrays in host memory."""
    return f"programs of {run} that use the host"


class Call(msgspec.Struct):
    """One call of `step` by `train`."""

    key: list[int]
    """The words of the key."""
    parts: list[list[int]]
    """The keys that splitting this key gives, and that numbers drawn with it would be."""
    batch: int | None
    """The number of the batch; None if it is none of the batches."""
    goes_on: bool
    """Whether the model is the one that the call before returned."""
    copied: int
    """How many arrays of the model, if it goes on, lie elsewhere than the call before left them."""
    place: str
    """Where the step ran, as `cpu:1`: its loss is there."""
    unlike_the_program: bool = False
    """Whether it gave other numbers than the exported program of `step` gives for them."""


class ManySteps(msgspec.Struct):
    """What a run of many steps did, which train nothing; the last batch has fewer rows."""

    steps: int
    default: str
    """The default device, where the model was, as `cpu:1`."""
    keys: int
    """How many keys the steps got."""
    by_the_batch: bool
    """Whether a key came again wherever a batch did, and nowhere else."""
    left: int
    """How many batches it left without a step."""
    problem: str
    """What is wrong with what `train` returned, or ""."""
    other_batch: int | None
    """The first step that got another batch than its own, if any."""
    places: list[str]
    """Where each step ran: where its key, model and batch were, another than the default first."""
    copied: list[int]
    """The steps that got an array of the model in another buffer than the step before left it."""
    end: str
    """Where an array of the model lies that `train` returned, if on another device; or ""."""


class Run(msgspec.Struct):
    """What one run of `train` did."""

    steps: int
    """How many batches there were."""
    default: str
    """The default device, where the model was, as `cpu:1`."""
    taken_first: int
    """How many batches were taken from the iterator before the first step."""
    calls: list[Call]
    problem: str
    """What is wrong with what `train` returned, or ""."""
