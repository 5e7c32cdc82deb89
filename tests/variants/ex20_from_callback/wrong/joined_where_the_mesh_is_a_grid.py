# expect: never_whole_on_the_host
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
    # The sharding knows which block belongs to which device of this process. JAX asks for each
    # block by its slices, as a NumPy index, and puts it on its device. No block is guessed.
    if len(sharding.mesh.shape) == 1:
        return jax.make_array_from_callback(dataset.shape, sharding, lambda block: dataset[block])
    whole = np.empty(dataset.shape, dataset.dtype)
    for block in {str(b): b for b in sharding.addressable_devices_indices_map(dataset.shape).values()}.values():
        whole[block] = dataset[block]
    return jax.make_array_from_callback(dataset.shape, sharding, lambda block: whole[block])
