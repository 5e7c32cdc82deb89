# expect: straight_to_its_device
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
    placed, parts = {}, []
    for device, block in sharding.addressable_devices_indices_map(dataset.shape).items():
        key = tuple(side.indices(size) for side, size in zip(block, dataset.shape, strict=True))
        if key not in placed:
            placed[key] = dataset[block]
        placed[key] = jax.device_put(placed[key], device)
        parts.append(placed[key])
    return jax.make_array_from_single_device_arrays(dataset.shape, sharding, parts)
