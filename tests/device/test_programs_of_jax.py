"""What programs of JAX do that no test of a single request would think of."""

import pytest
from next_doors import Program

from grader.device.start import Device

CROSSING = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
host, (first, second, *_) = jax.devices("cpu")[0], jax.devices()
x = jnp.arange(8.0)
there = jax.device_put(x, host)
assert there.devices() == {host} and there.tolist() == x.tolist()
assert (there + 1).devices() == {host}
back = jax.device_put(there, second)
assert back.devices() == {second} and back.tolist() == x.tolist()
mesh = jax.make_mesh((2,), ("data",), devices=[first, second])
spread = jax.device_put(there, NamedSharding(mesh, P("data")))
assert len(spread.addressable_shards) == 2 and float(spread.sum()) == 28
assert jax.device_put(spread, host).tolist() == x.tolist()
assert jax.device_put({"a": x, "b": np.ones(3)}, host)["a"].devices() == {host}
assert jax.device_put(jax.device_put(3.0, host), first).weak_type
assert jax.device_put(jax.random.key(7), host) == jax.device_put(jax.random.key(7), host)
assert jax.device_put(jnp.zeros((0, 3), jnp.bfloat16), host).shape == (0, 3)
print("all well")
"""
COSTS = """
import jax, jax.numpy as jnp
lowered = jax.jit(lambda x: x @ x).lower(jnp.ones((16, 16)))
assert lowered.cost_analysis()["flops"] == lowered.compile().cost_analysis()["flops"] == 8192
print("all well")
"""
ANOTHER_ORDER = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
two = np.array(jax.devices()[:2])
one, other = (NamedSharding(Mesh(each, ("x",)), P("x")) for each in (two, two[::-1]))
x = jax.device_put(np.arange(8), one)
y = jax.device_put(x, other)
assert y.tolist() == x.tolist() and y.sharding == other
print("all well")
"""
NOT_DONATED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
put = lambda: jax.device_put(np.arange(16).reshape(8, 2), NamedSharding(mesh, P("x")))
x, y = put(), put()
jax.jit(lambda x: x @ x.T, donate_argnums=0)(x)
assert not x.is_deleted(), "no result has its shape"
jax.jit(lambda y: y + 1, donate_argnums=0)(y)
assert y.is_deleted()
print("all well")
"""
UNREDUCED = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:2])
with jax.set_mesh(mesh):
    x = jax.device_put(jnp.arange(8.0), P("x"))
    part = jax.lax.reduce_sum(x, [0], out_sharding=P(unreduced={"x"}))
assert "nreduced" in str(part.sharding)
print("all well")
"""
NO_RESULTS = """
import jax, jax.numpy as jnp
heard = []
jax.pmap(lambda x: jax.debug.callback(lambda y: heard.append(float(y)), x))(jnp.arange(4.0))
jax.effects_barrier()
assert sorted(heard) == [0, 1, 2, 3], heard
print("all well")
"""


@pytest.mark.parametrize(
    "text",
    [CROSSING, COSTS, ANOTHER_ORDER, NOT_DONATED, UNREDUCED, NO_RESULTS],
    ids=["to and from cpu", "costs", "another order", "not donated", "unreduced", "no results"],
)
def test_a_program_runs_as_on_a_cpu(text: str, device: Device, program: Program) -> None:
    """What JAX's own tests found missing in an early version of the device."""
    ran = program(device, text)
    assert (ran.returncode, ran.stdout) == (0, "all well\n"), ran.stderr[-2000:]
