# expect: never_whole_on_the_host
"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax

def load(dataset, sharding):
    """Return the whole of `dataset` as one jax.Array that lies as `sharding` says."""
    first = []

    def read(block):
        values = dataset[block]
        if not first:
            first.append(values)
            previews.append(values)
        return values

    return jax.make_array_from_callback(dataset.shape, sharding, read)

previews = []
