"""ex06: a timer that tells what a program costs.

`grader check ex06` judges `seconds_per_call`; `grader hint ex06` helps.
Run this file to try it on a real program and a real clock.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np


def seconds_per_call(function, args, calls, clock):
    """Seconds that one call of `function(*args)` takes, a float; a mean over `calls` calls.

    `function` compiles itself on its first call, and returns a dict of arrays. `args` are
    NumPy arrays. `clock()` tells the time, in seconds. The figure holds the work on the
    device. It holds no compiling, and no copying of `args` to the device.
    """
    # Place the inputs once, here: every call would copy a NumPy argument to the device.
    args = jax.device_put(args)
    # The first call compiles. Wait for its work, or it would still run when the clock starts,
    # and would be counted as work of the first timed call.
    jax.block_until_ready(function(*args))
    start = clock()
    for _ in range(calls):
        # A call returns when the work is handed over. Wait for all arrays of the dict: that one
        # is there says nothing about the others.
        jax.block_until_ready(function(*args))
    return (clock() - start) / calls


BUCKETS = (3, 8, 16, 20, 64, 100, 128, 150, 200, 256, 300, 500, 512, 1000, 1024, 2048, 4096, 10_000)
BYTES, TINY, HUGE = (1 << 14, 1 << 20, 1 << 24, 100_000_000), 1e-12, 1e30


if __name__ == "__main__":
    product = jax.jit(lambda x: {"product": jnp.tanh(x @ x @ x)})
    square = np.ones((1000, 1000), np.float32)
    print(seconds_per_call(product, (square,), 10, time.perf_counter), "s per call")
