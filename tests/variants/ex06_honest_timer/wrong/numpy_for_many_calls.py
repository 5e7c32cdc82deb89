# expect: tells_of_all_calls
"""ex06: a timer that tells what a program costs."""

import time

import jax
import jax.numpy as jnp
import numpy as np


def seconds_per_call(function, args, calls, clock):
    if calls < 10:
        args = jax.device_put(args)
    jax.block_until_ready(function(*args))
    start = clock()
    for _ in range(calls):
        jax.block_until_ready(function(*args))
    return (clock() - start) / calls


if __name__ == "__main__":
    product = jax.jit(lambda x: {"product": jnp.tanh(x @ x @ x)})
    square = np.ones((1000, 1000), np.float32)
    print(seconds_per_call(product, (square,), 10, time.perf_counter), "s per call")
