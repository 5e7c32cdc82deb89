# expect: never_whole_on_the_host
"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax


import numpy as np


def load(dataset, sharding):
    whole = np.empty(dataset.shape, dataset.dtype)
    for index in set(sharding.devices_indices_map(dataset.shape).values()):
        whole[index] = dataset[index]
    return jax.device_put(whole, sharding)
