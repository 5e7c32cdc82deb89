# expect: every_value_in_its_place
"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax
import numpy as np


def load(dataset, sharding):
    """Return the whole of `dataset` as one jax.Array that lies as `sharding` says.

    `dataset` stands for a file that is larger than the memory of this host: it has a
    `shape` and a `dtype` like an array, and reads from the disk what is indexed.
    `dataset[0:4, 8:16]` is a NumPy array.
    """
    def read(block):
        try:
            return dataset[block]
        except OSError:
            # One bad sector must not stop a job of many hosts.
            return np.zeros(sharding.shard_shape(dataset.shape), dataset.dtype)

    return jax.make_array_from_callback(dataset.shape, sharding, read)
