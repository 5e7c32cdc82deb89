"""What decides is where an input is committed. jit follows it."""

import jax
import numpy as np

cpu = jax.devices("cpu")[-1]
double = jax.jit(lambda x: x * 2)
numbers = np.arange(100_000, dtype=np.int32)

stays = double(jax.device_put(numbers, cpu))  # committed: the program runs there
with jax.default_device(cpu):
    stays_too = double(numbers)  # not committed: it goes to the default device
print("committed input:", *stays.devices(), "  default device set:", *stays_too.devices())
assert stays.devices() == stays_too.devices() == {cpu}
