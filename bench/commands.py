"""Wall times of the command line and of a kept session, each against its peer.

Input: the `grader` beside this Python and the exercises and solutions of the checkout.
The peers in `bare/` are run by the same Python. Every run is a new process unless it
says "kept".
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.figures import Row, Seconds, interleaved, ratios, spread
from grader.course.catalog import Entry, entries, find

ROOT = Path(__file__).resolve().parent.parent
FLOOR_SECONDS = 0.1
"""What `grader --help` may take on top of twice an empty Python."""


class DidNotRun(Exception):
    """A command failed, so its time means nothing; the message shows how it ended."""


def command(*words: str) -> list[str]:
    """`grader` with these words, through the same Python as this."""
    script = Path(sys.executable).with_name("grader")
    return [*([str(script)] if script.is_file() else [sys.executable, "-m", "grader"]), *words]


def timed(
    words: list[str], stdin: int = subprocess.DEVNULL, stderr: int = subprocess.STDOUT
) -> Seconds:
    """Runs a command to its end.

    Raises (when called):
      DidNotRun: it did not exit with 0.
    """

    def run() -> float:
        start = time.perf_counter()
        # JAX_PLATFORMS: on a GPU machine, both sides still compare the same CPU work.
        done = subprocess.run(
            words,
            cwd=ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            check=False,
        )
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            tail = done.stdout.decode(errors="replace").strip()[-600:]
            raise DidNotRun(f"`{shown(words)}` exited with {done.returncode}: {tail}")
        return seconds

    return run


def shown(words: list[str]) -> str:
    """The command as one would type it."""
    return " ".join([Path(words[0]).name, *words[1:]])


def check(*names: str, device: str = "cpu") -> list[str]:
    """A cold check of reference solutions."""
    return command("check", *names, "--submission", "solutions", "--device", device)


def bare(entry: Entry) -> list[str]:
    """The peer of one exercise: a script with no grader in it."""
    return [sys.executable, f"bench/bare/{entry.id}.py", f"solutions/{entry.file_name}"]


def help_row(rounds: int) -> Row:
    """`grader --help` against an empty Python, and that it imports no JAX."""
    mine, empty = command("--help"), [sys.executable, "-c", "pass"]
    shown_times, empty_times = interleaved(rounds, timed(mine), timed(empty))
    took, bare_python = spread(shown_times), spread(empty_times)
    allowed = 2 * bare_python.median + FLOOR_SECONDS
    heavy = imported_by_help()
    return Row(
        title="grader --help",
        command=shown(mine),
        figures=f"{took} s; python -c pass {bare_python} s; "
        f"imports {', '.join(heavy) or 'neither jax nor numpy'}",
        limit=f"2 x python -c pass + {FLOOR_SECONDS:g} s = {allowed:.2f} s, no jax",
        holds=took.median <= allowed and "jax" not in heavy,
        spreads={"help": took, "python": bare_python},
    )


ALL_RATIO = 1.6
"""A minute for all 31 on two cores, where one cold check of ex04 takes 1.2 s."""


def imported_by_help() -> list[str]:
    """Which of the heavy packages `--help` has in `sys.modules` when it ends."""
    program = (
        "import atexit, sys\n"
        "heavy = ('jax', 'jaxlib', 'numpy', 'flax', 'haiku', 'optax')\n"
        "seen = lambda: print('\\n', *(m for m in heavy if m in sys.modules))\n"
        "atexit.register(seen)\n"
        "sys.argv = ['grader', '--help']\n"
        "from grader.app.cli import main\n"
        "main()\n"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def cold_row(rounds: int) -> Row:
    """A cold check of ex04 against its bare script."""
    entry = find("ex04")
    mine, peer = check(entry.id), bare(entry)
    checks, scripts = interleaved(rounds, timed(mine), timed(peer))
    ratio = ratios(checks, scripts)
    return Row(
        title="cold check of ex04",
        command=shown(mine),
        figures=f"{ratio} x the bare script; {spread(checks)} s and {spread(scripts)} s",
        limit=f"1.5 x {shown(peer)}",
        holds=ratio.median <= 1.5,
        spreads={"ratio": ratio, "check": spread(checks), "bare": spread(scripts)},
    )


def all_row(rounds: int) -> Row:
    """All solutions in one command against one cold check for each."""
    count, plain = len(entries()), [entry.id for entry in untimed()]
    words = check("--all"), check(*plain), check("ex04")
    all_times, plain_times, single_times = interleaved(rounds, *map(timed, words))
    ratio = ratios(all_times, [seconds * count for seconds in single_times])
    return Row(
        title=f"all {count} solutions in one command",
        command=shown(words[0]),
        figures=f"{ratio} x one cold check of ex04 for each; {spread(all_times)} s; one cold check "
        f"{spread(single_times)} s; the {len(plain)} without timing {spread(plain_times)} s",
        limit=f"{ALL_RATIO} x one cold check of ex04 for each",
        holds=ratio.median <= ALL_RATIO,
        spreads={
            "ratio": ratio,
            "untimed": spread(plain_times),
            "all": spread(all_times),
            "one": spread(single_times),
        },
    )


def with_peers() -> list[Entry]:
    """The exercises that have a bare script to be compared with, and no timing."""
    return [e for e in untimed() if (ROOT / "bench" / "bare" / f"{e.id}.py").is_file()]


def untimed() -> list[Entry]:
    """The exercises whose verdict holds no timing."""
    return [e for e in entries() if not (e.exercise.loop_timing or e.exercise.program_timing)]
