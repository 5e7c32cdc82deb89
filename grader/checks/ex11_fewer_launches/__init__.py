"""ex11_fewer_launches: a run of many steps is one program, launched once."""

from grader.judging.checking import Exercise, LoopTiming

EXERCISE = Exercise(
    title="Many small launches become one",
    lesson="lessons/06-when-the-gpu-pays",
    anchor="many-launches-or-one",
    edits=("simulate",),
    next_door=True,
    loop_timing=LoopTiming(at_most=0.1, function="simulate"),
    hints=(
        "Outside jit, each operation is a program of its own. How many does one step launch?",
        "A loop can be part of a program: see jax.lax.fori_loop and jax.lax.scan.",
        "Write a body that makes one step, call jax.lax.fori_loop(0, steps, body, (angle, speed)), "
        "and put @jax.jit on the function that holds the loop.",
    ),
)
