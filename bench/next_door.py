"""The costs of a device next door: until it is ready, a launch, a copy, a client that does nothing,
and a check of an exercise on it.

The device is forked from a process that has imported JAX already. The client is this file as a
program of its own, with the device's environment; it prints what it measured as JSON. Limits are
absolute, like the promises that they are taken from: a device that is slower than this would be
felt in every exercise. A check's is a ratio.
"""

import os
import subprocess
import sys
import time
from typing import NamedTuple

import msgspec

from bench.commands import ROOT, DidNotRun, bare, check, shown, timed
from bench.figures import Row, interleaved, ratios, spread
from grader.course.catalog import find
from grader.device.nursery import Nursery
from grader.device.options import Options
from grader.device.start import CouldNotStart

LAUNCHES = 500
COPY_BYTES = 64 << 20
IDLE_SECONDS = 3.0


class Told(msgspec.Struct, frozen=True):
    """What one client measured; seconds, one for each repetition."""

    launch: list[float]
    """Of one launch in a chain of `LAUNCHES`."""
    put: list[float]
    """Of a copy of `COPY_BYTES` to the device, waited for."""
    get: list[float]
    """And back."""
    idle: float
    """Processor seconds that the client used in `IDLE_SECONDS` in which it did nothing."""


class Limit(NamedTuple):
    """What a figure is held against."""

    most: float
    text: str


READY = Limit(0.3, "0.3 s")
LAUNCH = Limit(0.4e-3, "0.4 ms")
COPY = Limit(COPY_BYTES / 2**30, "1 GiB/s")
IDLE = Limit(0.03, "3 % of a core")
CHECK_RATIO = 1.4


def check_row(rounds: int) -> Row:
    """A cold check of ex04 next door against its bare script, and beside it one on simulated
    devices."""
    entry = find("ex04")
    mine, other, peer = check(entry.id, device="next-door"), check(entry.id), bare(entry)
    found = interleaved(rounds, *map(timed, (mine, other, peer)))
    ratio, simulated = (ratios(times, found[-1]) for times in found[:2])
    return Row(
        title="cold check of ex04 next door",
        command=shown(mine),
        figures=f"{ratio} x the bare script; on simulated devices {simulated} x",
        limit=f"{CHECK_RATIO} x {shown(peer)}",
        holds=ratio.median <= CHECK_RATIO,
        spreads={"ratio": ratio, "simulated": simulated, "bare": spread(found[-1])},
    )


def rows(rounds: int) -> list[Row]:
    """All rows, from `rounds` devices, each with one client."""
    ready: list[float] = []
    told: list[Told] = []
    try:
        with Nursery() as nursery:
            nursery.wait()
            for _ in range(rounds):
                begin = time.perf_counter()
                with nursery.start(Options(devices=8)) as device:
                    ready.append(time.perf_counter() - begin)
                    told.append(_client(device.environment))
    except CouldNotStart as error:
        raise DidNotRun(f"no device next door could be started: {error}") from error
    launches = [seconds for one in told for seconds in one.launch]
    puts = [seconds for one in told for seconds in one.put]
    gets = [seconds for one in told for seconds in one.get]
    idle = [one.idle / IDLE_SECONDS for one in told]
    return [
        _row("device next door, forked: ready", ready, READY, 1, "s"),
        _row(f"one of {LAUNCHES} chained launches", launches, LAUNCH, 1e3, "ms"),
        _row("64 MiB to the device", puts, COPY, 1e3, "ms"),
        _row("64 MiB from the device", gets, COPY, 1e3, "ms"),
        _row("a client that does nothing", idle, IDLE, 100, "% of a core"),
    ]


def _row(title: str, values: list[float], limit: Limit, scale: float, unit: str) -> Row:
    found = spread(values)
    return Row(
        title=title,
        command="python -m bench.next_door",
        figures=f"{spread([value * scale for value in values])} {unit}",
        limit=limit.text,
        holds=found.median <= limit.most,
        spreads={"next door": found},
    )


def _client(environment: dict[str, str]) -> Told:
    words = [sys.executable, "-m", "bench.next_door"]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Told)


def main() -> None:
    """The client: measures the default device of this environment."""
    import jax  # here, since the benchmark itself needs none
    import numpy as np

    step = jax.jit(lambda x: x + 1)
    x = jax.block_until_ready(step(np.float32(0)))
    launch, put, get = [], [], []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            x = step(x)
        jax.block_until_ready(x)
        launch.append((time.perf_counter() - begin) / LAUNCHES)
    for number in range(3):
        host = np.full(COPY_BYTES // 4, number, np.float32)
        begin = time.perf_counter()
        there = jax.block_until_ready(jax.device_put(host))
        put.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        back = np.asarray(there)
        get.append(time.perf_counter() - begin)
        if back[-1] != number:
            sys.exit("what came back is not what was sent")
    before = time.process_time()
    time.sleep(IDLE_SECONDS)
    idle = time.process_time() - before
    sys.stdout.buffer.write(msgspec.json.encode(Told(launch, put, get, idle)))


if __name__ == "__main__":
    main()
