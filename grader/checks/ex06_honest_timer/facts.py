"""What a timer did with each of the staged programs, and the figure that it returned."""

from typing import Literal

import msgspec

TIMINGS = "timings"
"""The fact that holds a list of `TimedProgram`."""
THROUGH_HOST = "programs that use the host"
"""The fact that counts the compiled programs which keep arrays in host memory."""
ProgramName = Literal[
    "work", "swapped", "often", "uneven", "varied", "outlier", "compiling", "copy", "again"
]
"""The staged programs, named for what a timer may get wrong.

`work`, `swapped` and `often` cost little but their work; of the results, the first one takes long
in `swapped`, the last one in all others. `often`, `varied` and `outlier` get many calls. The work
of `uneven`, `varied`, `outlier` and `again` differs from call to call: in `varied` all take about
as long, in the others one call takes much more than the rest. `compiling` takes long to compile,
and `copy` takes long to copy its inputs; `uneven`, `varied` and `outlier` do both. `again` is
`work`, which is timed a second time.
"""


class TimedProgram(msgspec.Struct):
    """How a timer fared with one staged program.

    `cost` is in seconds on the staged clock, by the keys of `grader.stages.clock.Staged`, and
    `shares` are the work of each call as a share of the mean, in turn. `asked` is the number of
    calls that the timer was asked for, and `figure` is what it returned. `inputs` counts the
    inputs, and `results` names the results. `readings` counts its readings of the clock. `timed`
    counts the calls between the first and the last reading, `running` those that were not done at
    the last. `traced` says whether a call was traced, and `in_numpy` whether one got a NumPy array
    after the first reading.

    The last reading of the clock, and the call before it, are steps of the phase `phase(staged)`;
    `polls` counts calls of `is_ready` between them. `awaited` names the results of that call for
    which the timer has waited by then; `after_it` says whether it has waited for an array that was
    made after that call, such as a sum of its results, and whether all of these were there then.
    `other_inputs` says how an input of the program was not as it was given; "" if all were.
    """

    staged: ProgramName
    cost: dict[str, float]
    shares: list[float]
    asked: int
    figure: float
    inputs: int
    results: list[str]
    readings: int
    timed: int
    running: int
    traced: bool
    polls: int
    in_numpy: bool
    last_call: int
    last_reading: int
    awaited: list[str]
    after_it: bool
    other_inputs: str = ""


def phase(staged: ProgramName) -> str:
    """The phase in which a program is timed."""
    return f"timing {staged}"
