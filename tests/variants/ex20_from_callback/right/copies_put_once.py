"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax


def load(dataset, sharding):
    places = sharding.addressable_devices_indices_map(dataset.shape)
    grouped = {}
    for device, index in places.items():
        grouped.setdefault(tuple(s.indices(n) for s, n in zip(index, dataset.shape)), []).append(device)
    made = {}
    for index, devices in grouped.items():
        block = dataset[tuple(slice(*part) for part in index)]
        made |= {device: jax.device_put(block, device) for device in devices}
    return jax.make_array_from_single_device_arrays(
        dataset.shape, sharding, [made[d] for d in places]
    )
