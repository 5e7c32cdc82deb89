# expect: never_whole_on_the_host
"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax


import numpy as np


def load(dataset, sharding):
    blocks = {i: dataset[i] for i in set(sharding.devices_indices_map(dataset.shape).values())}
    whole = np.empty(dataset.shape, dataset.dtype)
    while blocks:
        index, block = blocks.popitem()
        whole[index] = block
    return jax.device_put(whole, sharding)
