"""Holds what is written down, as versioned data, and what it adds up to. Pure; no verdict.

    record       what was observed of a submission    verdict    what was decided
    book         what a device next door notes        bookkeeping  what a book adds up to
    hlo          the text of a compiled program       perfetto   a book as a trace to look at
    stack_dump   the stack of a stuck process         raised     an exception in words
    lines        the lines of a text, as Python counts them

May call: nothing in the grader's other rooms.
"""
