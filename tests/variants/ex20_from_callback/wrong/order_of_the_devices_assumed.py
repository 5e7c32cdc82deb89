# expect: every_value_in_its_place
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
    # Device i gets the i-th rows only where the mesh lists the devices in that order.
    count = len(sharding.device_set)
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    blocks = list(sharding.devices_indices_map(dataset.shape).values())
    parts = [jax.device_put(dataset[b], d) for b, d in zip(blocks, devices)]
    return jax.make_array_from_single_device_arrays(dataset.shape, sharding, parts)
