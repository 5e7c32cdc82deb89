"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax


import numpy as np


def load(dataset, sharding):
    def read(index):
        rows, columns = index
        start, stop, _ = rows.indices(dataset.shape[0])
        block = np.empty((stop - start, len(range(*columns.indices(dataset.shape[1])))), dataset.dtype)
        for first in range(min(2, stop - start)):
            block[first::2] = dataset[start + first : stop : 2, columns]
        return block

    return jax.make_array_from_callback(dataset.shape, sharding, read)
