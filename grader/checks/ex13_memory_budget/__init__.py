"""ex13_memory_budget: a process says how much of the GPU's memory it may take, and when."""

from grader.checks.ex13_memory_budget.facts import ALLOCATOR, NEW, OLD, PREALLOCATE
from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Let two processes share one GPU",
    lesson="lessons/08-who-took-the-memory",
    anchor="what-the-shell-left",
    edits=("start",),
    allowed_modules=("os",),
    hints=(
        "Three environment variables decide how large the pool may be, whether it is taken at "
        "once, and which allocator hands out the memory. JAX reads them all at one moment. When?",
        "JAX reads none of them when it is imported. It reads all of them when your code first "
        "asks for a device.",
        f"Set {NEW} to a fraction, {PREALLOCATE} to `false` or `true`, {ALLOCATOR} to `default`; "
        f"remove {OLD}; then ask for jax.devices().",
    ),
)
