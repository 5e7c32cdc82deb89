"""The *program* ground: a learner's function as StableHLO, away from the learner's Python.

`export` runs in the learner's worker. The rest runs in a disposable process that never
saw the learner's Python: `loading` reads the blob as hostile input, `allowlist` refuses
operations, `measuring` compiles, measures and runs, `pairs` times two programs side by
side, `placing` puts inputs where a program wants them, `targeting` compiles for a machine
that is not there, `jobs` serves the worker.
"""

from grader.program.export import TARGET_PLATFORM, export_program
from grader.program.jobs import measurements, warm_up
from grader.program.measuring import measure
from grader.program.targeting import compile_for

__all__ = ["TARGET_PLATFORM", "compile_for", "export_program", "measure", "measurements", "warm_up"]
