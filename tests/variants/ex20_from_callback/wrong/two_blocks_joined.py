# expect: never_whole_on_the_host
"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax
import numpy as np


def in_order(slices):
    """Where a block begins."""
    rows, columns = slices
    return rows.start or 0, columns.start or 0


def load(dataset, sharding):
    """Return the whole of `dataset` as one jax.Array that lies as `sharding` says.

    `dataset` stands for a file that is larger than the memory of this host: it has a
    `shape` and a `dtype` like an array, and reads from the disk what is indexed.
    `dataset[0:4, 8:16]` is a NumPy array.
    """
    blocks = {in_order(block): block for block in sharding.devices_indices_map(dataset.shape).values()}
    match sorted(blocks):
        case [first, second]:
            below = first[0] != second[0]
            parts = [dataset[blocks[first]], dataset[blocks[second]]]
            source = np.concatenate(parts, axis=0 if below else 1)
        case _:
            source = dataset
    return jax.make_array_from_callback(dataset.shape, sharding, lambda block: source[block])
