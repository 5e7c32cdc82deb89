# expect: waits_for_the_work
"""ex06: a timer that tells what a program costs.

`grader check ex06` judges `seconds_per_call`; `grader hint ex06` helps.
Run this file to try it on a real program and a real clock.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np


def _wait(result):
    floats = [x for x in result.values() if jnp.issubdtype(x.dtype, jnp.floating)]
    jax.block_until_ready(floats)


def seconds_per_call(function, args, calls, clock):
    args = jax.device_put(args)
    _wait(function(*args))
    start = clock()
    for _ in range(calls):
        _wait(function(*args))
    return (clock() - start) / calls


if __name__ == "__main__":
    product = jax.jit(lambda x: {"product": jnp.tanh(x @ x @ x)})
    square = np.ones((1000, 1000), np.float32)
    print(seconds_per_call(product, (square,), 10, time.perf_counter), "s per call")
