"""ex06: a timer that tells what a program costs.

`grader check ex06` judges `seconds_per_call`; `grader hint ex06` helps.
Run this file to try it on a real program and a real clock.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np


class Stopwatch:
    """Tells how long a block took."""

    def __init__(self, clock):
        self.clock = clock

    def __enter__(self):
        self.start = self.clock()
        return self

    def __exit__(self, *error):
        self.seconds = self.clock() - self.start


def seconds_per_call(function, args, calls, clock):
    """Seconds that one call of `function(*args)` takes, a float; a mean over `calls` calls."""
    placed = jax.device_put(args)
    jax.block_until_ready((placed, function(*placed)))
    with Stopwatch(clock) as watch:
        for _ in range(calls):
            result = function(*placed)
        jax.block_until_ready(result)
    return watch.seconds / calls


if __name__ == "__main__":
    product = jax.jit(lambda x: {"product": jnp.tanh(x @ x @ x)})
    square = np.ones((1000, 1000), np.float32)
    print(seconds_per_call(product, (square,), 10, time.perf_counter), "s per call")
