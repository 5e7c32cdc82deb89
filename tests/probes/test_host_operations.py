"""What a traced program computes in host memory, at any depth, by any name."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compute_on import compute_on

from grader.probes.host_operations import host_operations

HOST, DEVICE = jax.memory.Space.Host, jax.memory.Space.Device


def to_device(x: Any) -> Any:
    return jax.device_put(x, DEVICE)


def to_host(x: Any) -> Any:
    return jax.device_put(x, HOST)


def scanned(x: Any) -> Any:
    """Layers come from host memory one by one, and go back."""

    def body(total: Any, row: Any) -> Any:
        row = to_device(row)
        return total + row, to_host(row * 2)

    return jax.lax.scan(body, jnp.zeros(()), x)


def scanned_on_host(x: Any) -> Any:
    return jax.lax.scan(lambda total, row: (total, jnp.sin(row)), jnp.zeros(()), x)


def branch(x: Any) -> Any:
    return jax.lax.cond(True, lambda x: x, lambda x: jnp.exp(x), x)


RIGHT = {
    "in and out": lambda x: to_host(to_device(x) * 3),
    "a barrier": lambda x: jax.lax.optimization_barrier(x),
    "one more dimension": lambda x: to_device(x[None]) + 1,
    "one layer of many": lambda x: to_device(jax.lax.dynamic_index_in_dim(x, 1)) + 1,
    "layers of a scan": scanned,
    "nothing": lambda x: x,
}
WRONG = {
    "add": lambda x: x + x,
    "sort": lambda x: jax.lax.sort(x),
    "reduce_sum": lambda x: jnp.sum(x),
    "broadcast_in_dim": lambda x: to_device(jnp.broadcast_to(x, (3, 4))),
    "sin": scanned_on_host,
    "exp": branch,
    "neg": jax.jit(lambda x: jax.checkpoint(lambda y: -y)(x)),
}


@pytest.fixture
def staged() -> Any:
    """float32 (4,) in pinned host memory."""
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    return jax.device_put(jnp.ones(4), place)


@pytest.mark.parametrize("name", RIGHT)
def test_what_only_passes_through_host_memory_is_no_operation(name: str, staged: Any) -> None:
    assert host_operations(jax.make_jaxpr(RIGHT[name])(staged).jaxpr) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_is_computed_in_host_memory_is_named(name: str, staged: Any) -> None:
    assert name in host_operations(jax.make_jaxpr(WRONG[name])(staged).jaxpr)


def test_what_the_host_is_asked_to_compute_is_named_wherever_its_arrays_are(staged: Any) -> None:
    on_host = compute_on(jax.jit(jnp.cos), compute_type="device_host", out_memory_spaces=DEVICE)
    jaxpr = jax.make_jaxpr(lambda x: on_host(to_device(x)))(staged).jaxpr
    assert "cos" in host_operations(jaxpr)
