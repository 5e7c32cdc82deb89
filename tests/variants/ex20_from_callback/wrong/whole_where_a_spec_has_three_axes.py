# expect: reads_one_block_at_a_time
"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax


def load(dataset, sharding):
    """Return the whole of `dataset` as one jax.Array that lies as `sharding` says.

    `dataset` stands for a file that is larger than the memory of this host: it has a
    `shape` and a `dtype` like an array, and reads from the disk what is indexed.
    `dataset[0:4, 8:16]` is a NumPy array.
    """
    axes = [axis for part in sharding.spec for axis in (part if isinstance(part, tuple) else (part,))]
    if len([axis for axis in axes if axis is not None]) > 2:
        return jax.device_put(dataset[:, :], sharding)
    return jax.make_array_from_callback(dataset.shape, sharding, lambda block: dataset[block])
