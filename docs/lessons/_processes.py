"""Runs a program in several processes at once, for lesson 16: on CPU devices, over loopback.

Each process is `python -c PROGRAM` with `index`, `count` and `address` defined before it.
Whatever happens, no process is left: those that wait for each other are killed.
"""

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from typing import IO

WIDTH = 46
LONGEST = 100.0
KILLED = "(still waits: killed)"
OF_LIBRARIES = ("[Gloo]",)


@dataclass
class Group:
    """Processes that run, and the files that they print to."""

    processes: list[subprocess.Popen[bytes]]
    files: list[IO[bytes]]

    def finish(self, patience: float) -> list[list[str]]:
        """Wait for the end and return the lines that each printed.

        Once all have printed something, a silence of `patience` seconds is an end, too.
        """
        started = changed = time.monotonic()
        before: list[int] = []
        while any(process.poll() is None for process in self.processes):
            now, sizes = time.monotonic(), [os.fstat(file.fileno()).st_size for file in self.files]
            if sizes != before or not all(sizes):
                before, changed = sizes, now
            if now - changed > patience or now - started > LONGEST:
                break
            time.sleep(0.05)
        return self._end()

    def _end(self) -> list[list[str]]:
        late = [process.poll() is None for process in self.processes]
        for process in reversed(self.processes):  # process 0 last: it keeps the meeting place
            process.kill()
        printed = []
        for process, file, waited in zip(self.processes, self.files, late, strict=True):
            process.wait()
            file.seek(0)
            lines = file.read().decode().splitlines()
            file.close()
            kept = [line for line in lines if line and not line.startswith(OF_LIBRARIES)]
            printed.append(kept + [KILLED] * waited)
        return printed


def start(program: str, count: int = 2, devices: int = 2) -> Group:
    """Start `program` in `count` processes with `devices` simulated CPU devices each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    group = Group([], [])
    for index in range(count):
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed in Group.finish)
        given = f"index, count, address = {index}, {count}, {address!r}\n"
        command = [sys.executable, "-u", "-c", given + program]
        both = {"stdout": file, "stderr": file}
        group.processes.append(subprocess.Popen(command, env=environment, **both))
        group.files.append(file)
    return group


def show(printed: list[list[str]]) -> None:
    """Print what the processes said, side by side."""
    columns = [[f"process {i}", "-" * 9, *lines] for i, lines in enumerate(printed)]
    columns = [[part for line in lines for part in _wrapped(line)] for lines in columns]
    for number in range(max(map(len, columns))):
        line = [lines[number] if number < len(lines) else "" for lines in columns]
        print("  ".join(f"{part:{WIDTH}}" for part in line).rstrip())


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ") or [""]


def run(program: str, patience: float = LONGEST) -> list[list[str]]:
    """Run a program in two processes, show what they print, and return it."""
    printed = start(program).finish(patience)
    show(printed)
    return printed
