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
    # jax-ml/jax#19919: by hand, so that reads from a slow disk could go on at the same time.
    index = sharding.addressable_devices_indices_map(dataset.shape)
    parts = [jax.device_put(dataset[block], device) for device, block in index.items()]
    return jax.make_array_from_single_device_arrays(dataset.shape, sharding, parts)
