"""Trains a small transformer over 2 x 2 devices and prints its losses: a program, not a test."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS, WIDTH, HEADS, WORDS, BATCH, LENGTH = 2, 32, 4, 64, 4, 16
mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("dp", "tp"))


def on(*axes):
    return NamedSharding(mesh, P(*axes))


def drawn(key, *shape):
    return jax.random.normal(key, shape) * 0.02


keys = jax.random.split(jax.random.key(0), 5)
model = {
    "words": jax.device_put(drawn(keys[0], WORDS, WIDTH), on("tp")),
    "qkv": jax.device_put(drawn(keys[1], LAYERS, WIDTH, 3 * WIDTH), on(None, None, "tp")),
    "out": jax.device_put(drawn(keys[2], LAYERS, WIDTH, WIDTH), on(None, "tp")),
    "up": jax.device_put(drawn(keys[3], LAYERS, WIDTH, 4 * WIDTH), on(None, None, "tp")),
    "down": jax.device_put(drawn(keys[4], LAYERS, 4 * WIDTH, WIDTH), on(None, "tp")),
}


def forward(model, tokens):
    @jax.checkpoint
    def block(x, w):
        h = x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        q, k, v = jnp.split((h @ w["qkv"]).reshape(BATCH, LENGTH, HEADS, -1), 3, -1)
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(BATCH, LENGTH, WIDTH)
        x = x + a @ w["out"]
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"], None

    layers = {name: model[name] for name in ("qkv", "out", "up", "down")}
    x, _ = jax.lax.scan(block, model["words"][tokens], layers)
    return x @ model["words"].T


def loss(model, tokens):
    guessed = jax.nn.log_softmax(forward(model, tokens)[:, :-1])
    return -jnp.take_along_axis(guessed, tokens[:, 1:, None], -1).mean()


@functools.partial(jax.jit, donate_argnums=0)
def step(model, tokens):
    value, slope = jax.value_and_grad(loss)(model, tokens)
    return jax.tree.map(lambda w, g: w - 0.5 * g, model, slope), value


draw, losses = np.random.default_rng(0), []
for _ in range(5):
    tokens = (draw.integers(0, WORDS, (BATCH, 1)) + np.arange(LENGTH)) % WORDS
    model, value = step(model, jax.device_put(tokens, on("dp")))
    losses.append(float(value))
print(losses)  # noqa: T201 (a program: it prints)
