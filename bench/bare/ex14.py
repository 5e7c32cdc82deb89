"""A hand-written test of ex14, with no grader: import the file, take one step, assert."""

import runpy
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, ROWS = 40, 320

step = runpy.run_path(sys.argv[1])["step"]
rng = np.random.default_rng()
shapes = {"w1": (16, WIDTH), "b1": (WIDTH,), "w2": (WIDTH,)}
params, momentum = ({n: rng.normal(size=s) / 8 for n, s in shapes.items()} for _ in range(2))
inputs, targets = rng.normal(size=(ROWS, 16)), rng.normal(size=ROWS)
expected = (np.tanh(inputs @ params["w1"] + params["b1"]) @ params["w2"] - targets) ** 2


def place(tree: Any) -> Any:
    """A copy that owns its memory, so that it can be donated."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32), tree)


old = {"params": place(params), "momentum": place(momentum), "count": jnp.array(3)}
batch = place((inputs, targets))
new, losses = step(old, batch)

np.testing.assert_allclose(losses, expected, rtol=1e-3, atol=1e-4)
assert new["count"] == 4
for name, moved in new["params"].items():
    np.testing.assert_allclose(
        moved, params[name] - 0.05 * np.asarray(new["momentum"][name]), rtol=1e-3, atol=1e-4
    )
assert all(leaf.is_deleted() for leaf in jax.tree.leaves(old))
assert not any(leaf.is_deleted() for leaf in batch)
