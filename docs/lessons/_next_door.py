"""Runs programs on a device next door, for lessons 04 and 08, and draws what its book says.

Such a device is a JAX device in another process. The course's `grader` starts it, as it does at a
terminal. Where none can be started, a line says why, and the lesson goes on without; only a build
of the site ends there.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt

GRADER = [sys.executable, "-m", "grader"]
PAGE = "COURSE_PAGE"
"""The variable that is set where the site is built: what comes out becomes a page."""
SECONDS, COLUMNS, BOOK = 100, 76, "book"
KINDS = {"h2d": "copies", "launch": "steps", "d2h": "reads"}
"""Events of a book that make a training loop, and what they are called here."""
_STEERING = ("JAX_", "XLA_")
_CHECKOUT = Path(__file__).resolve().parent.parent.parent


def run(name, program, *options, page=False):
    """Run a program by `grader run OPTIONS NAME`, and print what a terminal would show.

    With `page`, that includes the page with which `grader run` ends, up to its timeline. Returns
    the lines that the program printed, and the lines of the device's book with their fields as
    attributes; both empty where there is no device.

    Raises RuntimeError if the program fails, and on a page if there is no device.
    """
    return run_all([(name, program, {})], *options, page=page)[0]


def run_all(programs, *options, page=False):
    """Run some programs at the same time, each on a device of its own. See `run`.

    `programs` is a list of (name, program, environment variables).
    """
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder, str(number)) for number in range(len(programs))]
        processes = [
            _start(place, *program, options)
            for place, program in zip(places, programs, strict=True)
        ]
        heard = _heard(processes)
        books = [_entries(place / BOOK) for place in places]
    if not all(books):
        _without(heard)
        return [SimpleNamespace(printed=[], book=[]) for _ in programs]
    for (name, _, settings), process, said in zip(programs, processes, heard, strict=True):
        if process.returncode:
            raise RuntimeError(f"{name} ended with code {process.returncode}\n{''.join(said)}")
        exports = [f"$ export {key}={value}" for key, value in settings.items()]
        shown = said[1].partition("\n\ntimeline of ")[0] if page else ""
        _show([*exports, f"$ grader run {' '.join(options)} {name}"], said[0] + shown)
    return [
        SimpleNamespace(printed=printed.splitlines(), book=book)
        for (printed, _), book in zip(heard, books, strict=True)
    ]


def _start(place, name, program, settings, options):
    """Start `grader run` in the background; `place` gets the program and the device's book."""
    place.mkdir()
    (place / name).write_text(program.lstrip("\n"))
    kept = {key: text for key, text in os.environ.items() if not key.startswith(_STEERING)}
    own = (_CHECKOUT / "grader").is_dir()
    return subprocess.Popen(
        [*GRADER, "run", *options, "--book", str(place / BOOK), str(place / name)],
        env={**kept, "COLUMNS": str(COLUMNS), **settings},
        cwd=_CHECKOUT if own else place,  # Python finds a checkout's own grader there
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _heard(processes):
    """What each process wrote to stdout and stderr; none is left."""
    try:
        return [process.communicate(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()


def _entries(book):
    """The lines of a book; none where no device began one."""
    lines = book.read_text().splitlines() if book.is_file() else []
    return [SimpleNamespace(**json.loads(line)) for line in lines]


def _show(commands, text):
    """Print commands, and below them what they wrote, folded where a line is too long."""
    print(*commands, sep="\n")
    for line in text.splitlines():
        long = len(line) > COLUMNS
        print("\n".join(textwrap.wrap(line, COLUMNS, subsequent_indent="  ")) if long else line)
    print()


def _without(heard):
    """Say that there is no device, and why."""
    said = [line for _, stderr in heard for line in stderr.splitlines() if line]
    why = said[-1] if said else "`grader run` said nothing"
    if PAGE in os.environ:
        raise RuntimeError(f"no device next door, which this page shows: {why}")
    print("No device next door here:", why)
    print("The lesson's page shows what comes out where there is one.")


def last_loops(book, count, steps):
    """The last `count` loops of `steps` steps, each with the entries of `copies`, `steps`, `reads`.

    A loop takes one copy, one step and one read at a time, and is over before the next begins.
    """
    found = {name: [e for e in book if e.event == kind] for kind, name in KINDS.items()}
    ends = range((1 - count) * steps, 1, steps)
    cuts = [slice(end - steps, end or None) for end in ends]
    return [SimpleNamespace(**{name: found[name][cut] for name in found}) for cut in cuts]


def draw(loops):
    """Draw loops by their names, as the device saw them, from the first copy on."""
    _, axes = plt.subplots()
    for row, loop in enumerate(loops.values()):
        zero = loop.copies[0].asked
        spans = {
            "copy in": [(copy.start, copy.end) for copy in loop.copies],
            "step on the device": [(step.start, step.end) for step in loop.steps],
            "read, from question to answer": [(read.asked, read.end) for read in loop.reads],
        }
        colours = ["tab:blue", "tab:green", "tab:red"]
        for lane, ((name, times), colour) in enumerate(zip(spans.items(), colours, strict=True)):
            bars = [((start - zero) * 1000, (end - start) * 1000) for start, end in times]
            style = {"color": colour, "label": None if row else name}
            axes.broken_barh(bars, (-row - 0.24 * lane, 0.2), **style)
    axes.set_yticks([-row - 0.14 for row in range(len(loops))], loops)
    axes.set_xlabel("milliseconds since the loop's first copy")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.45, 1.25))
    plt.show()
