"""ex12_repair_trainer: a trainer has six faults, and each is judged apart, by what it does."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Repair a trainer",
    lesson="lessons/07-repair-the-trainer",
    anchor="six-faults-and-what-they-do",
    edits=("step", "train"),
    next_door=True,
    devices=2,
    hints=(
        "Three faults cost time, two change what is learned, and one moves the work to another "
        "device. Each has a check of its own: take them one at a time.",
        "In `step`: is it one program? What does `network.apply` return besides the logits? In "
        "`train`: which lines wait, copy, or name a device? What should differ from step to step?",
        "Put jax.jit on `step`, and get the new state out with has_aux=True. In `train`, split "
        "the key once a step, keep the losses as arrays until the last step, and call neither "
        "device_put nor device_get.",
    ),
)
