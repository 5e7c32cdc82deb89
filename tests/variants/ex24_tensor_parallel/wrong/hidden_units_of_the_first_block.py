# expect: weights_are_split
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
    hidden = params[0]["up_bias"].shape

    def place(array, dimension):
        """Split the dimension of the hidden units, where the array has it."""
        has_it = array.shape[dimension : dimension + 1] == hidden
        spec = [None] * dimension + ["model"] if has_it else []
        return jax.NamedSharding(mesh, jax.P(*spec))

    at = {"up": 1, "up_bias": 0, "down": 0}
    whole = jax.NamedSharding(mesh, jax.P())
    return [
        {name: place(x, at[name]) if name in at else whole for name, x in block.items()}
        for block in params
    ]


def make_step(mesh):
    """Return step(params, batch) -> (params, loss); the new params lie as the old ones.

    The rows of the batch are split over "data", the params as `layout` says, for any number of
    blocks. All are float32, or all are bfloat16. What the devices send has the same type.
    """

    def step(params, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        new = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
        return jax.lax.with_sharding_constraint(new, layout(mesh, new)), loss

    return jax.jit(step, donate_argnums=0)
