# expect: never_whole_on_the_host
"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax


kept = []


def load(dataset, sharding):
    def read(block):
        kept.append(dataset[block])
        return kept[-1]
    return jax.make_array_from_callback(dataset.shape, sharding, read)
