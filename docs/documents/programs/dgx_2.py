"""An array cut over devices: jit follows its sharding, and needs no pjit, pmap or `with mesh`."""

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

some = jax.devices()[:2]
rows = NamedSharding(jax.make_mesh((len(some),), ("x",), devices=some), P("x"))
data = np.arange(100).reshape(10, 10)

simple = jax.device_put(data, rows)
called = jax.make_array_from_callback(data.shape, rows, lambda index: data[index])
doubled = jax.jit(lambda x: x * 2)(simple)
print("pieces of", *{piece.data.shape for piece in doubled.addressable_shards})
assert doubled.sharding.is_equivalent_to(rows, 2)
np.testing.assert_array_equal(simple, called)
np.testing.assert_array_equal(doubled, data * 2)
