"""Data parallelism: cut the batch, copy the parameters, and jit as for one device."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P


def network(x):
    return hk.Sequential([hk.Linear(64), jax.nn.relu, hk.Linear(10)])(x)


mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))
cut, whole = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())

model = hk.without_apply_rng(hk.transform(network))
params = jax.device_put(model.init(jax.random.key(0), np.ones((1, 32), np.float32)), whole)
numbers = np.random.default_rng(0)
batch = numbers.normal(size=(256, 32)).astype(np.float32)
targets = numbers.normal(size=(256, 10)).astype(np.float32)


@jax.jit
def step(params, inputs, targets):
    return jax.value_and_grad(lambda p: jnp.mean((model.apply(p, inputs) - targets) ** 2))(params)


loss, gradients = step(params, *jax.device_put((batch, targets), cut))
alone, _ = step(params, batch, targets)  # the whole batch, not cut
print("devices:", len(mesh.devices), "rows on each:", 256 // len(mesh.devices))
print("the same loss as without cutting:", bool(np.isclose(loss, alone, rtol=1e-5)))
np.testing.assert_allclose(loss, alone, rtol=1e-5)
assert all(gradient.sharding.is_fully_replicated for gradient in jax.tree.leaves(gradients))
