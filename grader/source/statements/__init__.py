"""Finds, inside a function of the learner's file, what makes the value that a failure is about.

A check knows the function, and what is wrong with what it made: a call that should do something
else, the entry of a dict, a result. Where exactly one expression can be meant, that is the place;
else it is the line that defines the function. No verdict is reached here.

    calling   calls and operations              results   what it returns, what a name gets
    loops     what each round does              layouts   how arrays are to lie
    filling   what a list or a dict gets        raised    what an exception is about
    search    the words that the others are written in

A check writes `statements.call(record, "step", "psum")`: what checks use is named here.
"""

from grader.source.statements.calling import (
    apart_from,
    argument,
    call,
    division,
    dropped,
    dropped_at_top,
    every,
    every_sending,
    matching,
    moving,
    naming,
    reaches,
    reading,
    remainder,
    sending,
    taken,
    taking_apart,
    times,
    uses,
    with_one_argument,
)
from grader.source.statements.filling import discarding, filled, piled
from grader.source.statements.layouts import laid, left_whole, of_spec
from grader.source.statements.loops import (
    backward,
    callback,
    condition,
    differentiated,
    each_round,
    kept_of_the_last_round,
    leaving,
    of_gradients,
    rounds,
    start,
)
from grader.source.statements.raised import (
    jits_inside,
    of_blocks,
    of_jit,
    of_left_out,
    of_none,
    of_promise,
    of_shard_map,
    of_zero,
)
from grader.source.statements.results import (
    assigned,
    choice,
    choosing,
    computed,
    deciding,
    divided_in_part,
    entry,
    of_keys,
    result,
    returned,
    unlike,
    unnamed,
    written_into,
)

__all__ = (
    "apart_from",
    "argument",
    "assigned",
    "backward",
    "call",
    "callback",
    "choice",
    "choosing",
    "computed",
    "condition",
    "deciding",
    "differentiated",
    "discarding",
    "divided_in_part",
    "division",
    "dropped",
    "dropped_at_top",
    "each_round",
    "entry",
    "every",
    "every_sending",
    "filled",
    "jits_inside",
    "kept_of_the_last_round",
    "laid",
    "leaving",
    "left_whole",
    "matching",
    "moving",
    "naming",
    "of_blocks",
    "of_gradients",
    "of_jit",
    "of_keys",
    "of_left_out",
    "of_none",
    "of_promise",
    "of_shard_map",
    "of_spec",
    "of_zero",
    "piled",
    "reaches",
    "reading",
    "remainder",
    "result",
    "returned",
    "rounds",
    "sending",
    "start",
    "taken",
    "taking_apart",
    "times",
    "unlike",
    "unnamed",
    "uses",
    "with_one_argument",
    "written_into",
)
