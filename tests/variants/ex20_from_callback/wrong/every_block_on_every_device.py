# expect: straight_to_its_device
"""ex20: a sharded array, read piece by piece.

`grader check ex20` judges `load`; `grader hint ex20` helps.
"""

import jax


import jax.numpy as jnp


def load(dataset, sharding):
    everywhere = jax.NamedSharding(sharding.mesh, jax.P())
    blocks = {}
    for index in set(sharding.devices_indices_map(dataset.shape).values()):
        key = tuple(s.indices(n)[:2] for s, n in zip(index, dataset.shape))
        blocks[key] = jax.block_until_ready(jax.device_put(dataset[index], everywhere))
    tops = sorted({k[0] for k in blocks})
    lefts = sorted({k[1] for k in blocks})

    def join(blocks):
        return jnp.concatenate(
            [jnp.concatenate([blocks[t, l] for l in lefts], 1) for t in tops], 0
        )

    return jax.jit(join, out_shardings=sharding)(blocks)
