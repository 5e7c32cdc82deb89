"""Processes that burn CPU in random bursts, to make a machine noisy on purpose.

A burner is this file run as a program, with no imports beyond the standard library;
it ends with its parent, even if the parent is killed.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

MEAN_SECONDS = 0.3
"""Mean length of a burst and of the pause after it, exponentially distributed."""


@contextmanager
def burning(count: int) -> Iterator[None]:
    """`count` burners run inside the block; they share the caller's CPU affinity."""
    command = [sys.executable, "-S", __file__]
    burners = [subprocess.Popen([*command, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def burn(parent: int) -> None:
    """Burst and pause until `parent` is gone."""
    rng = random.Random()
    while os.getppid() == parent:
        end = time.perf_counter() + rng.expovariate(1 / MEAN_SECONDS)
        while time.perf_counter() < end:
            pass
        time.sleep(rng.expovariate(1 / MEAN_SECONDS))


if __name__ == "__main__":
    burn(int(sys.argv[1]))
