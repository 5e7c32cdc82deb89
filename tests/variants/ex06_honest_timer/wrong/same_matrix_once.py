# expect: times_all_calls
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
    placed = {id(x): jax.device_put(x) for x in args}  # each matrix is copied once
    jax.block_until_ready(function(*placed.values()))
    start = clock()
    for _ in range(calls):
        jax.block_until_ready(function(*placed.values()))
    return (clock() - start) / calls


if __name__ == "__main__":
    product = jax.jit(lambda x: {"product": jnp.tanh(x @ x @ x)})
    square = np.ones((1000, 1000), np.float32)
    print(seconds_per_call(product, (square,), 10, time.perf_counter), "s per call")
