"""Judges what was observed. Pure: no JAX, no process, no file but what `source` and `book` read.

    record      what was observed, as data         verdict     what was decided, as data
    checking    the words a check is written in    evidence    what a check finds in a record
    judge       every check, once, in order        words       counts and places in words
    source      the text of a submission           policy      what that text may do
    allowed     the policy's table                 scopes      what names stand for
    own         what a file itself makes           imported_names  what it imported, by any name
    arrays      values in records, compared        hlo         the text of a compiled program
    loops       the calls of a training loop       memory      what a program keeps where
    timing      the statistics of timing           stack_dump  the stack of a stuck process
    unlike      facts of another form than the reference's
    places      the learner's line that a failure is about
    statements  what in a function made a value    shares      which rows a step followed
    returns     a `return` that was forgotten      slips       what else a text shows by itself
    sole_difference  the one place where a file parts from the reference solution
    inlined     helpers in the place of their calls
    said        exceptions in plain words          differences what would explain one of numbers
    book        what a device next door notes      bookkeeping what a book adds up to
    perfetto    a book as a trace to look at    witness    counts by the book, beside the probes

May call: nothing in the grader's other rooms.
"""
