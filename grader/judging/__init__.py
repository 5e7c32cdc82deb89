"""Judges what was observed. Pure: no JAX, no process, no file.

    checking    the words a check is written in    evidence    what a check finds in a record
    judge       every check, once, in order        words       counts and places in words
    programs    compiled ones, and what they cost  results     what was returned, compared
    steps       of training, compared
    arrays      values in records, compared        differences what would explain one of numbers
    loops       the calls of a training loop       memory      what a program keeps where
    shares      which rows a step followed         timing      the statistics of timing
    said        exceptions in plain words          witness     counts from below the probes
    unlike      facts of another form than the reference's

May call: `records`, `source`.
"""
