"""`grader run`: runs a person's program on a device next door, and ends with a page.

The program is not changed, and not judged. Its terminal, its exit code and its signals are its
own; the page goes to stderr when the program has ended.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import msgspec

from grader.app.next_door import foreground, page
from grader.app.next_door.borrowed import Unusable, Wanted, borrowed, options_of, writable
from grader.device.flags import left_out
from grader.device.start import Device
from grader.records import book, bookkeeping, perfetto


def run(
    program: Sequence[str],
    wanted: Wanted,
    *,
    module: bool,
    trace: Path | None,
    form: str,
) -> int:
    """Run `program`, a script or with `module` a module's name, and its arguments.

    Returns the program's exit code; does not return if a signal ended the program.

    Raises:
      Unusable: there is no such script, or an option is wrong.
      NoDevice: no device could be started.
    """
    words = _words(program, module=module)
    options = options_of(wanted)
    if trace is not None:
        writable("--perfetto", trace)
    print_lines(_left_out(os.environ.get("XLA_FLAGS", "")))
    with borrowed(options) as device:
        code = foreground.run(words, {**os.environ, **device.environment})
        say(device, Path(program[0]).name, trace=trace, form=form)
    return foreground.end_like(code)


def _left_out(flags: str) -> list[str]:
    """What is said of flags in the program's environment that the device leaves out."""
    names = ", ".join(left_out(flags))
    why = "it compiles in another process, which reaches none of your files"
    return [f"grader: the device leaves out {names} of XLA_FLAGS: {why}"] if names else []


def _words(program: Sequence[str], *, module: bool) -> list[str]:
    """The command that runs the program with this Python."""
    if module:
        return [sys.executable, "-m", *program]
    if not Path(program[0]).exists():
        raise Unusable(f"no file {program[0]}; a module's name goes after -m")
    return [sys.executable, *program]


def say(device: Device, title: str, *, trace: Path | None = None, form: str = "text") -> None:
    """End a device, print the page of its book on stderr, and write its trace."""
    try:
        read = device.finish()
    except (book.NotABook, OSError) as error:
        print_lines([f"grader: no page, for the device left no book that can be read: {error}"])
        return
    summary = bookkeeping.summary(read)
    if form == "json":
        print_lines([msgspec.json.encode(summary).decode()])
    else:
        print_lines(["", *page.lines(title, summary, read, _width())])
    if trace is not None:
        try:
            trace.write_bytes(perfetto.trace(read))
        except OSError as error:
            print_lines([f"grader: --perfetto {trace}: {error.strerror}"])


def print_lines(lines: Sequence[str], stream: TextIO | None = None) -> None:
    """Lines for whoever still listens."""
    stream = sys.stderr if stream is None else stream
    with suppress(OSError):
        stream.write("".join(f"{line}\n" for line in lines))
        stream.flush()


def _width() -> int:
    """Columns of the terminal at stderr; 80 where there is none."""
    if "COLUMNS" not in os.environ and sys.stderr.isatty():
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return shutil.get_terminal_size((80, 24)).columns
