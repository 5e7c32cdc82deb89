"""What tracing, lowering and running `step` of ex14_donate shows: the state, and donations."""

import msgspec

TRACED, RUNS = "traced", "runs"
"""The names of the facts that hold lists of `Traced` and of `Run`."""

FEATURES = 16
"""The numbers in a row of the inputs."""
FEW, MANY = 6, 8
"""Up to how many rows the batches of most programs have, and those of all but one: of more rows a
step may keep so much that there is room for a copy of the state."""
LEAST = 3
"""With fewer rows, a sum may pass for a mean."""
WEAKLY = "weakly typed "
"""How the form of an array begins whose dtype gives way to others: the next step is compiled anew
for it."""
LONG = 100
"""From so many steps on, a run has no target that is far from the others: it is compared closely,
since nothing but the last digits may differ in it."""


def program(number: int) -> str:
    """The name of the program that is exported for a state of the size `number`, from 1."""
    return f"step of size {number}"


def losses(number: int) -> str:
    """The name of the losses of all steps of the run `number`, from 1."""
    return f"losses of run {number}"


def last_state(number: int) -> str:
    """The name of the state that the run `number`, from 1, ends with."""
    return f"state after run {number}"


class Traced(msgspec.Struct):
    """A traced `step`. A state is written down as path -> `float32[16,512]`."""

    rows: int
    """The rows of its batch."""
    old_state: dict[str, str]
    """The state that goes in; its arrays are the first arguments of the program, in order."""
    new_state: dict[str, str]
    state_bytes: int
    """The size of the old state."""
    state_donated: bool
    """Whether any array of the state is donated."""
    batch_donated: bool
    """Whether any array of the batch is donated."""
    donated_inside: bool
    """Whether a jitted function that `step` calls donates an argument."""
    uses_the_host: bool
    """Whether the program moves an array to host memory, or from there."""


class Run(msgspec.Struct):
    """Many steps, each of which gets the state that the one before returned."""

    steps: int
    alive: int
    """After how many steps an array of the old state was not deleted."""
    moved: int
    """After how many steps an array of the new state lay in no buffer of the old one."""
    batch_lost: int
    """After how many steps an array of the batch was deleted, or had other numbers."""
