"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax


class Reader:
    def __init__(self, dataset):
        self.dataset, self.blocks, self.me = dataset, {}, self
    def __call__(self, block):
        key = str(block)
        if key not in self.blocks:
            self.blocks[key] = self.dataset[block]
        return self.blocks[key]


def load(dataset, sharding):
    return jax.make_array_from_callback(dataset.shape, sharding, Reader(dataset))
