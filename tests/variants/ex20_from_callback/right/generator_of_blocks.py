"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax


def blocks(dataset, places):
    for device, index in places.items():
        yield jax.device_put(dataset[index], jax.sharding.SingleDeviceSharding(device))


def load(dataset, sharding):
    places = sharding.devices_indices_map(tuple(dataset.shape))
    return jax.make_array_from_single_device_arrays(
        tuple(dataset.shape), sharding, list(blocks(dataset, places))
    )
