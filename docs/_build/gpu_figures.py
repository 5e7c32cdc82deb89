"""Measures on this machine's GPU what the experiments ask for, and keeps the figures.

    python docs/_build/gpu_figures.py --out OUT [G6 G12 ...]     all of them by default

Each experiment is a function of this file, named as in `docs/claims/experiments.toml`, that runs
in a process of its own, where nothing has touched JAX yet. It yields pairs of texts: what was
measured, and the figure with its unit. A time is the median of several, with the smallest and the
largest beside it. Output: `experiments.<device>.json`, where the figures of an experiment stand
under the hash of its own function: figures of another one are not shown. What the functions share
is not in that hash, so whoever changes it measures again. `gpu_statements` reads that file.
"""

import argparse
import ast
import functools
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import recordings

type Figures = Iterator[tuple[str, str]]

EXPERIMENTS: dict[str, Callable[[], Figures]] = {}
SECONDS = 150
"""How long one experiment may take."""
STEERING = ("JAX_", "XLA_", "TF_")
MIB, GIB = 1 << 20, 1 << 30


def experiment(measure: Callable[[], Figures]) -> Callable[[], Figures]:
    """Marks the function that measures the experiment of its name."""
    EXPERIMENTS[measure.__name__] = measure
    return measure


@functools.cache
def keys() -> dict[str, str]:
    """The hash of each experiment's code, by its name: 20 hex digits."""
    body = ast.parse(Path(__file__).read_text("utf-8")).body
    named = {node.name: ast.dump(node) for node in body if isinstance(node, ast.FunctionDef)}
    return {name: hashlib.sha256(named[name].encode()).hexdigest()[:20] for name in EXPERIMENTS}


def seconds(work: Callable[[], Any], times: int = 9) -> list[float]:
    """How long `work` takes until its results are ready, so many times; it ran once before."""
    import jax

    jax.block_until_ready(work())
    return [_timed(lambda: jax.block_until_ready(work())) for _ in range(times)]


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def spread(found: list[float], unit: str) -> str:
    """`1.20 ms (1.18 to 1.31, 9 times)`: the median, the smallest and the largest."""
    middle, least, most = (
        f"{number:,.0f}" if number >= 100 else f"{number:#.3g}"
        for number in (statistics.median(found), min(found), max(found))
    )
    return f"{middle} {unit} ({least} to {most}, {len(found)} times)"


def ms(found: list[float]) -> str:
    """Seconds as milliseconds."""
    return spread([second * 1e3 for second in found], "ms")


def us(found: list[float]) -> str:
    """Seconds as microseconds."""
    return spread([second * 1e6 for second in found], "us")


def rate(nbytes: int, found: list[float]) -> str:
    """Bytes in each of these seconds, as GB/s."""
    return spread([nbytes / second / 1e9 for second in found], "GB/s")


def _unsteered() -> dict[str, str]:
    """Our environment without what steers JAX."""
    return {name: text for name, text in os.environ.items() if not name.startswith(STEERING)}


def other(program: str, **environment: str) -> str:
    """What a fresh Python prints that runs `program`; or the last line of its error."""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=_unsteered() | environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    return (ended.stdout if not ended.returncode else ended.stderr.strip().splitlines()[-1]).strip()


def traced(work: Callable[[], Any]) -> list[tuple[str, int, dict[str, Any]]]:
    """Name, nanoseconds and statistics of each event on a GPU's streams while `work` runs."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(work())
        (trace,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(trace))
    return [
        (event.name, int(event.duration_ns), {key: value for key, value in event.stats if key})
        for plane in data.planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
    ]


@experiment
def G1() -> Figures:
    """Where arrays and results are born."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones(3)
    yield "`jax.default_backend()`", f"`{jax.default_backend()}`"
    yield "`jnp.ones(3).devices()`", f"`{x.devices()}`"
    yield "`jnp.ones(3).committed`", f"`{x.committed}`"
    yield "result of a jitted function", f"`{jax.jit(lambda a: a + 1)(x).devices()}`"


@experiment
def G15() -> Figures:
    """What is listed."""
    import jax

    yield "`jax.devices()`", f"`{jax.devices()}`"
    yield '`jax.devices("cpu")`', f"`{jax.devices('cpu')}`"
    program = "import jax; jax.devices('cpu')"
    yield '`JAX_PLATFORMS=cuda`: `jax.devices("cpu")`', f"`{other(program, JAX_PLATFORMS='cuda')}`"


@experiment
def G4() -> Figures:
    """Where a jitted function runs."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    double, host = jax.jit(lambda x: x * 2), np.ones(4, np.float32)
    there = jax.device_put(host, jax.devices("cpu")[0])
    yield "input committed to the CPU", f"`{double(there).devices()}`"
    yield "NumPy data", f"`{double(host).devices()}`"
    yield "`jnp.from_dlpack` of NumPy data", f"`{double(jnp.from_dlpack(host)).devices()}`"


@experiment
def G17() -> Figures:
    """The error for two commitments."""
    import jax
    import jax.numpy as jnp

    try:
        jax.device_put(jnp.ones(3), jax.devices()[0]) + jax.device_put(1.0, jax.devices("cpu")[0])
    except ValueError as error:
        yield "the error", f"`{str(error).splitlines()[0]}`"


@experiment
def G16() -> Figures:
    """The platform `gpu`."""
    yield (
        "`JAX_PLATFORMS=gpu`",
        f"`{other('import jax; print(jax.devices())', JAX_PLATFORMS='gpu')}`",
    )


USED = """
import subprocess
def used():
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0])
before = used()
import jax, jax.numpy as jnp
after = [used() - before]
jax.devices()
after.append(used() - before)
jnp.ones(1).block_until_ready()
after.append(used() - before)
large = jnp.ones((256, 1024, 1024)).block_until_ready()
after.append(used() - before)
print(*[f"{mib:,}" for mib in after], sep=", ", end=" MiB")
stats = jax.devices()[0].memory_stats() or {}
if "bytes_limit" in stats: print(f"; `bytes_limit` {stats['bytes_limit'] / 2**20:,.0f} MiB")
"""
STEPS = "after `import jax`, `jax.devices()`, one number, and 1 GiB"


@experiment
def G2() -> Figures:
    """What the driver says is taken."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader"]
    total = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    yield "the GPU's memory, by the driver", total
    yield f"taken {STEPS}", other(USED)
    for name, text in (
        ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
        ("XLA_CLIENT_MEM_FRACTION", ".1"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "platform"),
    ):
        yield f"the same with `{name}={text}`", other(USED, **{name: text})


@experiment
def G3() -> Figures:
    """The same, where JAX was told to use the CPU."""
    program = USED.replace("jnp.ones((256", "jax.jit(lambda: 2 * jnp.ones((256").replace(
        "1024)).block", "1024)))().block"
    )
    yield (
        f"taken {STEPS} made by `jit`, with `JAX_PLATFORMS=cpu`",
        other(program, JAX_PLATFORMS="cpu"),
    )


@experiment
def G10() -> Figures:
    """The guard, and what a read costs."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones(()) + 1
    try:
        with jax.transfer_guard("disallow"):
            float(x)
        yield "`float(x)` under `transfer_guard('disallow')`", "passes"
    except RuntimeError as error:
        yield "`float(x)` under `transfer_guard('disallow')`", f"`{str(error).splitlines()[0]}`"
    step = jax.jit(lambda w: (w @ w / 2048, w.sum()))
    start = jnp.ones((2048, 2048))

    def loop(late: bool, sets_out: bool, reads: bool = True) -> Any:
        w, before = start, None
        for _ in range(50):
            w, loss = step(w)
            if sets_out:
                loss.copy_to_host_async()
            if reads and not late:
                float(loss)
            elif reads and before is not None:
                float(before)
            before = loss
        return w

    ways = {
        "no read": (True, False, False),
        "a read at once": (False, False, True),
        "a read one step late": (True, False, True),
        "the same after `copy_to_host_async`": (True, True, True),
    }
    for name, way in ways.items():
        yield f"50 steps, {name}", ms(seconds(functools.partial(loop, *way)))


@experiment
def G6() -> Figures:
    """Which memory a copy starts in, and how fast it is."""
    import jax
    import numpy as np

    device = jax.devices()[0]
    here = jax.sharding.SingleDeviceSharding(device)
    for size, text in ((64 * MIB, "64 MiB"), (900 * MIB, "900 MiB"), (1536 * MIB, "1.5 GiB")):
        host = np.ones(size // 4, np.float32)
        found = seconds(functools.partial(jax.device_put, host, here), 5)
        yield f"NumPy to the GPU, {text}", rate(size, found)
        events = traced(functools.partial(jax.device_put, host, here))
        kinds = {
            str(stats.get("memcpy_details", "")).partition(" size")[0]
            for name, _, stats in events
            if "MemcpyH2D" in name
        }
        yield f"the profiler's word for it, {text}", f"`{', '.join(sorted(kinds)) or 'no copy'}`"
    pinned = jax.device_put(host, here.with_memory_kind("pinned_host"))
    found = seconds(functools.partial(jax.device_put, pinned, here), 5)
    yield "`pinned_host` to the GPU, 1.5 GiB", rate(pinned.nbytes, found)
    placed = jax.device_put(host, here)
    found = seconds(lambda: jax.device_put(placed, here.with_memory_kind("pinned_host")), 5)
    yield "the GPU to `pinned_host`, 1.5 GiB", rate(placed.nbytes, found)
    fresh = [jax.block_until_ready(placed + n) for n in range(6)]
    np.asarray(fresh.pop())
    found = [_timed(functools.partial(np.asarray, x)) for x in fresh]
    yield "the GPU to NumPy, 1.5 GiB", rate(placed.nbytes, found)
    found = seconds(lambda: jax.device_put(placed, here, may_alias=False), 5)
    yield "the GPU to itself, 1.5 GiB (read and written)", rate(2 * placed.nbytes, found)


@experiment
def G5() -> Figures:
    """How often a NumPy argument is copied, and what that costs."""
    import jax
    import numpy as np

    step = jax.jit(lambda total, batch: total + batch.sum())
    host = np.ones(20_000_000, np.float32)
    zero = jax.numpy.zeros(())

    def loop(batch: Any) -> Any:
        total = zero
        for _ in range(100):
            total = step(total, batch)
        return total

    placed = jax.device_put(host)
    yield "100 steps, each with 80 MB of NumPy", ms(seconds(lambda: loop(host), 3))
    yield "100 steps with the same batch on the GPU", ms(seconds(lambda: loop(placed), 3))
    for name, batch in (("NumPy", host), ("the GPU's", placed)):
        events = traced(functools.partial(loop, batch))
        copies = sum("MemcpyH2D" in event for event, _, _ in events)
        yield f"copies to the GPU in 100 steps with {name} batch", f"{copies}"
    with jax.transfer_guard_host_to_device("disallow"):
        try:
            step(zero, host)
        except RuntimeError as error:
            yield "under a guard", f"`{str(error).splitlines()[0]}`"


@experiment
def G14() -> Figures:
    """What does not fit."""
    import jax
    import jax.numpy as jnp

    room = jax.devices()[0].memory_stats()["bytes_limit"]
    yield "`bytes_limit`", f"{room / GIB:.1f} GiB"
    try:
        jnp.ones(room, jnp.float32).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        yield "an array of four times that", f"`{str(error).splitlines()[0][:300]}`"
    jnp.ones(3).block_until_ready()
    program = "import jax.numpy as jnp; jnp.ones(3).block_until_ready(); print('works')"
    yield "a second process beside it, with default settings", f"`{other(program)[:300]}`"


@experiment
def G11() -> Figures:
    """What goes on side by side."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    host = np.ones(100_000_000, np.float32)
    done = seconds(lambda: jax.device_put(host))
    asked = []
    for _ in range(9):
        start = time.perf_counter()
        placed = jax.device_put(host)
        asked.append(time.perf_counter() - start)
        placed.block_until_ready()
    yield "`device_put` of 400 MB of NumPy returns after", ms(asked)
    yield "and the copy has ended after", ms(done)
    step = jax.jit(lambda w, x: (w @ w / 8192, x.sum()))
    w, x = jnp.ones((8192, 8192)), jax.device_put(host)
    alone = seconds(lambda: step(w, x))

    def both() -> Any:
        return step(w, x), jax.device_put(host)

    def in_turn() -> Any:
        return jax.block_until_ready(step(w, x)), jax.device_put(host)

    yield "a step alone", ms(alone)
    yield "a step, and the copy of the next batch beside it", ms(seconds(both))
    yield "the same with a wait between them", ms(seconds(in_turn))


@experiment
def G9() -> Figures:
    """What a step takes at its peak."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    device = jax.devices()[0]
    host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    layers = jax.device_put(np.ones((16, 2048, 2048), np.float32) / 2048, host)

    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ jax.device_put(w, jax.memory.Space.Device)), None

    x = jnp.ones((8, 2048))
    before = device.memory_stats()["peak_bytes_in_use"]
    run = jax.jit(lambda layers, x: jax.lax.scan(layer, x, layers)[0])
    jax.block_until_ready(run(layers, x))
    peak = device.memory_stats()["peak_bytes_in_use"] - before
    yield (
        "peak for 16 layers of 16 MiB, fetched from `pinned_host` one at a time",
        (f"{peak / MIB:.0f} MiB more than before"),
    )
    yield "one pass over them", ms(seconds(functools.partial(run, layers, x)))
    there = jax.device_put(layers, jax.sharding.SingleDeviceSharding(device))
    yield "one pass with all layers on the GPU", ms(seconds(functools.partial(run, there, x)))


@experiment
def G7() -> Figures:
    """From which size on the GPU is quicker than its own CPU."""
    import jax
    import jax.numpy as jnp

    program = jax.jit(lambda x: jnp.sin(jnp.sin(x)) * 2 + 1)
    gpu, cpu = jax.devices()[0], jax.devices("cpu")[0]
    yield "the CPU's cores", f"{len(os.sched_getaffinity(0))}"
    for power in range(1, 9):
        x = {d.platform: jax.device_put(jnp.ones(10**power), d) for d in (gpu, cpu)}
        there, here = (
            statistics.median(seconds(functools.partial(program, x[name]), 30 if power < 8 else 5))
            for name in ("gpu" if "gpu" in x else gpu.platform, "cpu")
        )
        quicker = "GPU" if there < here else "CPU"
        yield (
            f"`sin(sin(x)) * 2 + 1` of 10^{power} numbers",
            (f"GPU {there * 1e6:,.0f} us, CPU {here * 1e6:,.0f} us: the {quicker} is quicker"),
        )
    x = jax.device_put(jnp.ones(10), gpu)
    program(x).block_until_ready()
    called = []
    for _ in range(200):
        called.append(_timed(lambda: program(x)))
        program(x).block_until_ready()
    yield "a call with ten numbers returns after", us(called)


@experiment
def G12() -> Figures:
    """The rate of matrix products."""
    import jax
    import jax.numpy as jnp

    n = 8192
    key = jax.random.key(0)

    def product(dtype: Any, precision: Any, device: Any, n: int, times: int) -> str:
        a = jax.device_put(jax.random.normal(key, (n, n)).astype(dtype), device)
        work = jax.jit(lambda a: jnp.matmul(a, a, precision=precision))
        return spread([2 * n**3 / s / 1e12 for s in seconds(lambda: work(a), times)], "TFLOP/s")

    gpu, cpu = jax.devices()[0], jax.devices("cpu")[0]
    for name, dtype, precision in (
        ("float32, highest precision", jnp.float32, "highest"),
        ("float32, default precision", jnp.float32, None),
        ("float32, `tensorfloat32`", jnp.float32, "tensorfloat32"),
        ("bfloat16", jnp.bfloat16, None),
        ("float16", jnp.float16, None),
    ):
        yield f"{name}, {n} x {n} random numbers", product(dtype, precision, gpu, n, 15)
    cores = len(os.sched_getaffinity(0))
    yield (
        f"float32 on the CPU's {cores} cores, 4096 x 4096",
        product(jnp.float32, None, cpu, 4096, 5),
    )


@experiment
def G13() -> Figures:
    """One GPU that poses as eight."""
    program = "import jax; jax.config.update('jax_mock_gpu_topology', '{topology}'); "
    program += "print(jax.device_count(), 'devices,', jax.local_device_count(), 'here')"
    for topology in ("1x1x8", "1x8x1"):
        name = f"with `jax_mock_gpu_topology` {topology}"
        yield name, f"`{other(program.format(topology=topology))}`"


def measured(name: str) -> dict[str, str]:
    """The figures of one experiment, from a process of its own.

    Raises RuntimeError with what that process said last if it fails.
    """
    command = [sys.executable, __file__, "--one", name]
    quiet = _unsteered() | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    ended = subprocess.run(
        command, env=quiet, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if ended.returncode:
        raise RuntimeError(ended.stderr.strip()[-2000:] or f"exit code {ended.returncode}")
    found: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return found


def record(out: Path, names: list[str]) -> int:
    """Measure each experiment, whatever became of the one before; how many failed."""
    device = recordings.device()
    path = out / f"experiments.{device.slug}.json"
    figures: dict[str, dict[str, str]] = {}
    failed = 0
    for name in names:
        start = time.monotonic()
        try:
            figures[keys()[name]] = measured(name)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed += 1
            continue
        print(f"{name} ({time.monotonic() - start:.1f} s)", flush=True)
        for what, figure in figures[keys()[name]].items():
            print(f"  {what}: {figure}", flush=True)
        text = {"version": recordings.VERSION, "device": vars(device), "experiments": figures}
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    return failed


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code: 0, or 1 with a message for each that failed."""
    parser = argparse.ArgumentParser(description="Measure on this machine's GPU.")
    parser.add_argument("--out", type=Path, help="folder for the figures")
    parser.add_argument("--one", choices=EXPERIMENTS, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help="G6; all by default")
    wanted = parser.parse_args(arguments)
    if wanted.one:
        print(json.dumps(dict(EXPERIMENTS[wanted.one]())))
        return 0
    if unknown := [name for name in wanted.names if name not in EXPERIMENTS]:
        parser.error(f"no experiment {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    if wanted.out is None:
        parser.error("--out is missing: the folder for the figures")
    try:
        return int(record(wanted.out, wanted.names or list(EXPERIMENTS)) > 0)
    except recordings.NoGpuError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
