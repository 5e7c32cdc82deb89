"""What each process does with a submission: joins, and takes the means of some arrays.

`grader.stages.hosts` sends the code of `part` to each process, because this file is hidden from
them. So `part` imports what it needs inside, and uses no other name of this module, nor any of
`facts`.
"""

from types import ModuleType
from typing import Any


def part(submission: ModuleType, index: int, address: str, given: Any, say: Any) -> None:
    """Call the learner's functions in order, and `say` the fields of `facts.Told`."""
    import contextlib
    import socket
    import traceback
    import typing

    import jax
    import msgspec
    import numpy as np

    from grader.probes import exchanges, private
    from grader.probes.describe import describe

    compiled: list[str] = []
    exchanged: dict[tuple[str, int | None], int] = {}

    programs = exchanges.Programs()

    def hear(event: str, duration_secs: float, **about: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(str(about.get("fun_name")))

    def ran(program: private.Launched, _: typing.Any) -> None:
        if nbytes := exchanges.nbytes(programs.collectives(program)):
            stack = traceback.walk_stack(None)
            lines = (at for f, at in stack if f.f_code.co_filename == submission.__file__)
            key = program.name, next(lines, None)
            exchanged[key] = exchanged.get(key, 0) + nbytes

    jax.monitoring.register_event_duration_secs_listener(hear)
    watched = contextlib.ExitStack()
    watched.enter_context(private.no_shortcut())
    watched.enter_context(private.executions(ran))
    say("doing", "join")
    host, port = given["host"], address.rpartition(":")[2]
    submission.join(f"{host}:{port}", given["count"], index)
    say("host", (private.coordinator() or host).rpartition(":")[0] or host)
    say("visible", str(jax.config.read("jax_cuda_visible_devices")))
    say("processes", jax.process_count())
    say("index", jax.process_index())
    say("devices", jax.device_count())
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
        say("met", True)
    mesh = submission.data_mesh()
    places = {device.id: place for place, device in enumerate(mesh.devices.flat)}
    rounds, buffers = [], dict[tuple[int, ...], typing.Any]()
    for number, rows in enumerate(given["batches"]):
        say("doing", "global_batch")
        compiled.clear()
        before = {**exchanged}
        own = np.array(rows, np.float32)
        own = np.asfortranarray(own) if number % 2 else own  # it lies column by column in memory
        buffer = buffers.setdefault(own.shape, own)  # a reader fills one again, where it fits
        buffer[...], own = own, buffer
        batch = submission.global_batch(mesh, own)
        sent = [key[0] for key in exchanged if exchanged[key] != before.get(key)]
        told: dict[str, typing.Any] = {"programs": [*compiled, *sent]}
        told["changed"] = not np.array_equal(own, np.array(rows, np.float32))
        leaves, _ = describe(batch, data=False)
        told["batch"] = msgspec.to_builtins(leaves)
        if [(leaf.kind, len(leaf.shape)) for leaf in leaves] == [("jax", 2)]:
            shards = {places.get(s.device.id, -1): s.data for s in batch.addressable_shards}
            parts = [np.asarray(shards[place]) for place in sorted(shards)]
            if own.size < given["most"]:
                told["own"] = [part.tolist() for part in parts]
            else:
                held = [row for part in parts for row in part.tolist()]
                told["same"] = held == rows
        say("doing", "mean")
        mean = submission.mean(batch)
        name = str(mean) if type(mean) is float else type(mean).__name__
        told["mean"] = mean if type(mean) is float and np.isfinite(mean) else name
        arrays = [leaf for leaf in jax.tree.leaves(batch) if isinstance(leaf, jax.Array)]
        told["deleted"] = any(array.is_deleted() for array in arrays)
        told["exchanged"] = [(name, sent, line) for (name, line), sent in exchanged.items()]
        exchanged.clear()
        rounds.append(told)
        say("rounds", rounds)
    say("joined", jax.distributed.is_initialized())
