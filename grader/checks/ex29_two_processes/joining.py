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

    from grader.probes.describe import describe
    from grader.records import hlo

    compiled: list[str] = []
    exchanged: list[tuple[str, int, int | None]] = []

    def hear(event: str, duration_secs: float, **about: str | int) -> None:
        if not event.endswith("backend_compile_duration"):
            return
        compiled.append(str(about.get("fun_name")))
        lines = [f.lineno for f in traceback.extract_stack() if f.filename == submission.__file__]
        for newest in jax.local_devices()[0].client.live_executables()[:1]:
            found = hlo.read(newest.hlo_modules()[0].to_string()).collectives
            # Nobody knows how often a loop of unknown length runs: it may send everything.
            nbytes = sum(c.nbytes * c.count * (c.runs or 1 << 30) for c in found)
            exchanged.append((compiled[-1], nbytes, lines[-1] if lines else None))

    jax.monitoring.register_event_duration_secs_listener(hear)
    say("doing", "join")
    submission.join(address, given["count"], index)
    say("processes", jax.process_count())
    say("index", jax.process_index())
    say("devices", jax.device_count())
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
        say("met", True)
    mesh = submission.data_mesh()
    places = {device.id: place for place, device in enumerate(mesh.devices.flat)}
    rounds = []
    for rows in given["batches"]:
        say("doing", "global_batch")
        compiled.clear()
        batch = submission.global_batch(mesh, np.array(rows, np.float32))
        told: dict[str, typing.Any] = {"programs": [*compiled]}
        leaves, _ = describe(batch, data=False)
        told["batch"] = msgspec.to_builtins(leaves)
        if [(leaf.kind, len(leaf.shape)) for leaf in leaves] == [("jax", 2)]:
            shards = {places.get(s.device.id, -1): s.data for s in batch.addressable_shards}
            told["own"] = [np.asarray(shards[place]).tolist() for place in sorted(shards)]
        say("doing", "mean")
        mean = submission.mean(batch)
        name = str(mean) if type(mean) is float else type(mean).__name__
        told["mean"] = mean if type(mean) is float and np.isfinite(mean) else name
        told["exchanged"] = [*exchanged]
        exchanged.clear()
        rounds.append(told)
        say("rounds", rounds)
    say("joined", jax.distributed.is_initialized())
