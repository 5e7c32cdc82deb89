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
    # The sharding knows which block belongs to which device of this process. JAX asks for each
    # block by its slices, as a NumPy index, and puts it on its device. No block is guessed.
    rows, columns = dataset.shape
    height = sharding.shard_shape(dataset.shape)[0]
    if height == rows:
        return jax.make_array_from_callback(dataset.shape, sharding, lambda block: dataset[block])

    def neighbour(block):
        top = (block[0].start or 0) - height
        top = top % rows
        return dataset[top : top + height, block[1]]

    rolled = jax.make_array_from_callback(dataset.shape, sharding, neighbour)
    return jax.jit(lambda x: jax.numpy.roll(x, -height, 0), out_shardings=sharding)(rolled)
