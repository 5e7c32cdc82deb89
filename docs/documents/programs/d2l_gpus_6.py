"""One line places a batch on one device or cuts it over all of them."""

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((jax.device_count(),), ("batch",))
rows = NamedSharding(mesh, P("batch"))


def prepare_batch(batch):
    return jax.device_put(batch, rows)


inputs, targets = prepare_batch((np.ones((64, 10), np.float32), np.ones(64, np.float32)))
shapes = {shard.data.shape for shard in inputs.addressable_shards}
print(len(inputs.devices()), "device(s), each with rows of shape", *shapes)
assert shapes == {(64 // jax.device_count(), 10)}
