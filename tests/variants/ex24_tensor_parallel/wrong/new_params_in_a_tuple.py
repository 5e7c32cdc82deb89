# expect: runs
"""ex24: split a network over two axes.

`grader check ex24` judges `layout` and `make_step`; `grader hint ex24` helps.
"""

import jax
import jax.numpy as jnp


def forward(params, inputs):
    """Blocks of two matrices each: (rows, features) -> (rows, hidden) -> (rows, features)."""
    outputs = inputs
    for block in params:
        hidden = jax.nn.gelu(outputs @ block["up"] + block["up_bias"])
        outputs = outputs + hidden @ block["down"] + block["down_bias"]
    return outputs


def loss_fn(params, batch):
    """The mean squared error over the rows of `batch`, (inputs, targets)."""
    inputs, targets = batch
    return jnp.mean((forward(params, inputs) - targets) ** 2)


def layout(mesh, params):
    """Return a NamedSharding for each array of `params`, in a tree like it.

    `mesh` has the axes "data" and "model". `params` may be mere shapes. Each device holds all of
    "down_bias", and 1/m of every other array, where m is the size of the axis "model".
    """
    specs = {
        "up": jax.P(None, "model"),
        "up_bias": jax.P("model"),
        "down": jax.P("model", None),
        "down_bias": jax.P(),
    }
    block = {name: jax.NamedSharding(mesh, spec) for name, spec in specs.items()}
    return [block for _ in params]


def make_step(mesh):
    """Return step(params, batch) -> (params, loss); the new params lie as the old ones.

    The rows of the batch are split over "data", the params as `layout` says, for any number of
    blocks. All are float32, or all are bfloat16. What the devices send has the same type.
    """

    def step(params, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        blocks = zip(params, grads, strict=True)
        new = [{name: block[name] - 0.1 * grad[name] for name in block} for block, grad in blocks]
        new = jax.lax.with_sharding_constraint(new, layout(mesh, new))
        return tuple(new), loss

    return jax.jit(step, donate_argnums=0)
