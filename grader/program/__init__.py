"""The *program* ground: a learner's function as StableHLO, away from the learner's Python.

`export` runs in the learner's worker. The rest runs in a disposable process that never saw
the learner's Python: `loading` reads the program as hostile input, `allowlist` refuses
operations, `measuring` compiles, measures and runs, `pairs` times two programs side by
side, `placing` puts inputs where a program wants them, `jobs` does all of that for one
grading. `targeting` compiles for a machine that is not there. `targets` describes those
machines; it is the one module here without JAX, so that the grader's own process may
import it.

May call: `probes`, `judging`, `records`. No verdicts live here, and no processes: the process is
started in `running`, and what runs inside it is in `worker`.
"""
