"""Processes that burn CPU in random bursts, to make a machine noisy on purpose.

A burner is this file, run as a program. It imports only the standard library, and it ends
with its parent, even if the parent is killed.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

MEAN_SECONDS = 0.3
"""Mean length, in seconds, of a burst and of a pause; both are exponentially distributed."""


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Run `count` burners inside the block, on the CPUs that this process may use."""
    command = [sys.executable, "-S", __file__]
    burners = [subprocess.Popen([*command, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def burn(parent: int) -> None:
    """Burn CPU and pause, in turn, until the process `parent` is gone."""
    rng = random.Random()
    while os.getppid() == parent:
        end = time.perf_counter() + rng.expovariate(1 / MEAN_SECONDS)
        while time.perf_counter() < end:
            pass
        time.sleep(rng.expovariate(1 / MEAN_SECONDS))


if __name__ == "__main__":
    burn(int(sys.argv[1]))
