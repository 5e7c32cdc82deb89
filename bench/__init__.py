"""Measures the grader: `python -m bench` prints one table of figures, limits and verdicts.

    __main__    options, the table, the data file, the exit code
    commands    wall time of the command line, against bare scripts
    terminals   wall time of a second check at a terminal, against its bare script
    sessions    wall time of a re-check in a session that is kept, against bare scripts
    verdicts    how often a timing verdict is wrong or missing, at known true ratios
    margins     how far known answers lie from the thresholds of timed exercises
    next_door   what a device next door costs: its start, a launch, a copy, an idle client
    burners     processes that make a machine noisy
    figures     medians with their spread, and a row of the table
    bare/       bare scripts to compare with: honest tests of an exercise, without a grader

The benchmark is not a test: it takes minutes, and its figures hold for one machine only.
"""
