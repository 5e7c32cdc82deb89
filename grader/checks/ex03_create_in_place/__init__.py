"""ex03_create_in_place: arrays are made on the device where they are needed, with no copy."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Create arrays on the device where they are needed",
    lesson="lessons/02-arrays-live-somewhere",
    anchor="make-arrays-where-they-are-needed",
    edits=("create",),
    next_door=True,
    devices=3,
    hints=(
        "`jnp.ones(16, device=device)` makes an array on the default device, and then copies it. "
        "Which calls make an array where their program runs?",
        "Inside a jitted function, jnp.ones is a part of the program: the array is made where the "
        "program runs. The same goes for arange and for random numbers.",
        "A jitted function runs where the committed arguments are that it uses, or where "
        "`out_shardings` says: jax.sharding.SingleDeviceSharding(device).",
    ),
)
