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
OPTIONS = """
import jax, jax.numpy as jnp
x = jnp.ones((64, 64))
both = lambda x, y: jnp.exp(x) + jnp.sin(y) * x
def optimised(options):
    return jax.jit(both).lower(x, x).compile(compiler_options=options).as_text()
plain = optimised(None)
assert "fused_computation" in plain, plain
assert "fused_computation" not in optimised({"xla_disable_hlo_passes": "fusion"})
assert "fused_computation" not in optimised({"xla_disable_all_hlo_passes": True})
assert optimised({"xla_embed_ir_in_executable": True, "xla_dump_max_hlo_modules": 200})
for name, value, words in (
    ("xla_cpu_no_such_thing", True, "No such compile option: 'xla_cpu_no_such_thing'"),
    ("xla_embed_ir_in_executable", "invalid_value", "invalid_value"),
    ("xla_dump_to", "/tmp/dumped", "the compiler option xla_dump_to is refused"),
    ("xla_backend_extra_options", "x=y", "option xla_backend_extra_options is refused"),
):
    try:
        optimised({name: value})
    except jax.errors.JaxRuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(name)
assert float(jax.jit(both, compiler_options={"xla_embed_ir_in_executable": True})(x, x)[0, 0]) > 3
print("all well")
"""
IN_PLACE = """
import jax, jax.numpy as jnp
from grader.probes.describe import address
add = jax.jit(lambda state, more: {"b": state["a"] + more, "a": state["b"] + 1, "c": more * 2},
              donate_argnums=0)
state = jax.jit(lambda: {"a": jnp.zeros((3, 2)), "b": jnp.ones(5)})()
more = jnp.ones((3, 2))
before = {name: address(array) for name, array in state.items()}
after = add(state, more)
places = {name: address(array) for name, array in after.items()}
assert places["b"] == before["a"] and places["a"] == before["b"], (before, places)
assert len({*places.values(), address(more)}) == 4
kept = jax.jit(lambda x: x + 1)(more)
assert address(kept) != address(more)
print("all well")
"""
LAYOUTS = """
import jax, numpy as np
from jax.experimental.layout import Format, Layout
first, second = jax.devices()[:2]
host = np.arange(12, dtype=np.float32).reshape(3, 4)
columns = lambda device: Format(Layout((1, 0)), jax.sharding.SingleDeviceSharding(device))
times = jax.jit(lambda x: x @ x.T)
x = jax.device_put(host, columns(first))
y = jax.device_put(x, second)
z = jax.jit(lambda x: x + 1, donate_argnums=0)(jax.device_put(x, columns(first)))
w = jax.jit(lambda x: x, out_shardings=columns(first))(x)
for array, values in ((x, host), (y, host), (z, host + 1), (w, host)):
    assert (np.asarray(array) == values).all(), (array, values)
    assert (np.asarray(times(array)) == values @ values.T).all()
assert x.format.layout.major_to_minor == w.format.layout.major_to_minor == (1, 0)
print("all well")
"""


@pytest.mark.parametrize(
    "text",
    [
        CROSSING,
        COSTS,
        ANOTHER_ORDER,
        NOT_DONATED,
        UNREDUCED,
        NO_RESULTS,
        OPTIONS,
        IN_PLACE,
        LAYOUTS,
    ],
    ids=[
        "to and from cpu",
        "costs",
        "another order",
        "not donated",
        "unreduced",
        "no results",
        "compiler options",
        "in place",
        "layouts",
    ],
)
def test_a_program_runs_as_on_a_cpu(text: str, device: Device, program: Program) -> None:
    """What JAX's own tests found missing in an early version of the device."""
    ran = program(device, text)
    assert (ran.returncode, ran.stdout) == (0, "all well\n"), ran.stderr[-2000:]
