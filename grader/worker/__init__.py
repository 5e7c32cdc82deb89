"""Inside a worker process: it meets JAX, runs a learner's file, and reports what was observed.

`serve` takes one job and answers it, `learner` runs the learner's code and turns what it
raises into words, `driving` lets an exercise's drive run a submission, `observer` answers
what a drive asks to be observed. A worker gives no verdicts. It is forked by
`grader.running.forkserver`, or spawned as `python -m grader.worker`.

May call: the drive of the exercise, by its name; `program`, `probes`, `judging`, `records`; and
`running.messages`, the language it shares with the grader.
"""
