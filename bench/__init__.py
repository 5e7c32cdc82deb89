"""Measures the grader: `python -m bench` prints one table of figures, limits and verdicts.

    __main__    options, the table, the data file, the exit code
    commands    wall time of the command line and of a kept session, against bare scripts
    verdicts    how often a timing verdict is wrong or missing, at known true ratios
    burners     processes that make a machine noisy
    figures     medians with their spread, and a row of the table
    bare/       the peers: what an honest test script without a grader would do

No test: it takes minutes and its figures belong to the machine it ran on.
"""
