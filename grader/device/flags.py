"""Options of XLA's that name files, of which a device next door has none.

It compiles in a process of its own, behind a fence. `XLA_FLAGS` in a program's environment is read
there; what of it the device leaves out is said once, by the command that starts the program.
"""

import re
from collections.abc import Iterator
from pathlib import Path

_FILES = re.compile(
    r"(^|_)(dump\w*|(?<!fast_)path|dir|file|filename|library|upload|load_autotune_results_from|extra_options)(_|$)"
)


def names_files(option: str) -> bool:
    """Whether an option of XLA's reads or writes files, or runs others' code."""
    return _FILES.search(option) is not None


def left_out(flags: str) -> list[str]:
    """The flags in `XLA_FLAGS` that do nothing on the device, each once: `--xla_dump_to`.

    As XLA reads it, a value that does not begin with a dash is a file with flags.
    """
    if flags.strip() and not flags.strip().startswith("-"):
        try:
            flags = Path(flags.strip()).read_text("utf-8", "replace")
        except OSError:
            return []
    return list(dict.fromkeys(name for name in _names(flags) if names_files(name.lstrip("-"))))


def _names(flags: str) -> Iterator[str]:
    for word in flags.split():
        if word.startswith("--"):
            yield word.partition("=")[0]
