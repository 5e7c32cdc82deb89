"""Try strategies before you have the machine: compile each, and compare what it holds and sends."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(AxisType.Auto,))
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
strategies = {
    "rows of a": (P("x"), P()),
    "columns of b": (P(), P(None, "x")),
    "the sum": (P(None, "x"), P("x")),
    "rows of both": (P("x"), P("x")),
}
a, b = np.random.default_rng(0).normal(size=(2, 512, 512)).astype(np.float32)
results, messages = {}, {}
for name, specs in strategies.items():
    places = [NamedSharding(mesh, spec) for spec in specs]
    placed = jax.device_put((a, b), tuple(places))
    compiled = jax.jit(jnp.matmul).lower(*placed).compile()
    results[name] = compiled(*placed)
    messages[name] = re.findall(rf" ({KINDS})(?:-start)?\(", compiled.as_text())
    held = compiled.memory_analysis().argument_size_in_bytes
    print(f"{name:13} {held / 2**10:6.0f} KiB of arguments; sends", *messages[name] or ["nothing"])
for result in results.values():
    np.testing.assert_allclose(result, a @ b, rtol=1e-3, atol=1e-3)
assert not messages["rows of a"]
assert bool(messages["the sum"]) == (len(mesh.devices) > 1)
