"""Exports programs as a learner's worker does; `test_program` runs it as a script.

`python program_cases.py OUT` writes `Exports` as JSON. The functions stand for what learners
hand in; the hostile ones are what somebody may forge.
"""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax import export, ffi
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from grader.probes.describe import describe
from grader.program.export import export_program
from grader.records.record import Leaf, Program

P = PartitionSpec
ROWS, COLUMNS = 64, 32


class Exports(msgspec.Struct):
    """Everything that one run exported; `inputs` has two sets of inputs for each program."""

    programs: dict[str, Program]
    inputs: dict[str, list[list[Leaf]]]


class State(NamedTuple):
    """A node type that serialisation does not know, as in optax."""

    mean: Any
    count: Any


def loss(weights: Any, batch: Any) -> Any:
    return jnp.mean(jnp.tanh(batch @ weights) ** 2)


def step(weights: Any, batch: Any) -> Any:
    return weights - 0.1 * jax.grad(loss)(weights, batch)


def repeated_step(weights: Any, batch: Any) -> Any:
    """The same result, computed forty times; `0 * w` hides that from the compiler."""
    return jax.lax.fori_loop(0, 40, lambda _, w: step(weights + 0 * w, batch), weights)


def state_step(state: State, batch: Any) -> tuple[State, dict[int, Any], None]:
    return State(state.mean * 0.9 + batch, state.count + 1), {2: batch, 10: -batch}, None


def mesh(explicit: bool = False) -> Mesh:
    kind = AxisType.Explicit if explicit else AxisType.Auto
    return Mesh(np.array(jax.devices()[:8]), ("data",), axis_types=(kind,))


def put(array: Any, *spec: Any, kind: str = "device", explicit: bool = False) -> Any:
    return jax.device_put(array, NamedSharding(mesh(explicit), P(*spec), memory_kind=kind))


def weights_and_batch(rng: np.random.Generator, **keywords: Any) -> tuple[Any, Any]:
    weights = rng.normal(size=(COLUMNS, COLUMNS)).astype(np.float32)
    batch = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    return put(weights, **keywords), put(batch, "data", **keywords)


class Trainer:
    """Donates through a method, as learners who like classes do."""

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
    def step(self, weights: Any, batch: Any) -> Any:
        return step(weights, batch)


def mapped(batch: Any) -> Any:
    return jax.lax.psum(batch, "data")


def printing(x: Any) -> Any:
    jax.debug.print("x is {}", x)
    return x


def calling(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.lax.scan(lambda c, _: (jax.pure_callback(np.sin, shape, c), None), x, length=2)[0]


def forged(x: Any) -> Any:
    """A call into Python, at an address that the sender made up."""
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return ffi.ffi_call("xla_ffi_python_cpu_callback", shape)(x, index=np.uint64(12345))


def outside(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return ffi.ffi_call("unheard_of", shape)(ffi.ffi_call("unheard_of", shape)(x))


def linear_algebra(x: Any) -> Any:
    square = x @ x.T + 40 * jnp.eye(x.shape[0])
    values = jax.scipy.special.gammaln(1 + jax.lax.top_k(jnp.abs(x), 3)[0])
    return (
        jnp.linalg.svd(square),
        jnp.linalg.cholesky(square),
        jnp.linalg.solve(square, x),
        jnp.linalg.eigh(square),
        jnp.fft.rfft(x),
        jnp.sort(x),
        jnp.cumsum(x),
        values,
        jax.scipy.special.erfinv(x / 100),
    )


def cases(rng: np.random.Generator) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Name -> function and arguments."""
    weights, batch = weights_and_batch(rng)
    plain = jnp.asarray(rng.normal(size=(8, 4)), jnp.float32)
    pinned = put(np.ones((16, 4), np.float32), "data", kind="pinned_host")
    single = SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    one = NamedSharding(mesh(), P("data"))
    host = NamedSharding(mesh(), P("data"), memory_kind="pinned_host")
    shape = jax.ShapeDtypeStruct((16,), jnp.float32, sharding=one)
    return {
        "step": (jax.jit(step), (weights, batch)),
        "donated": (jax.jit(step, donate_argnums=0), (weights, batch)),
        "method": (Trainer().step, (weights, batch)),
        "partial": (
            functools.partial(jax.jit(lambda rate, w, b: step(w, b), donate_argnums=1), 0.1),
            (weights, batch),
        ),
        "slow": (jax.jit(repeated_step), (weights, batch)),
        "wrong": (jax.jit(lambda w, b: step(w, b) * 1.01), (weights, batch)),
        "explicit": (jax.jit(step), weights_and_batch(rng, explicit=True)),
        "unjitted": (step, (np.asarray(weights), np.asarray(batch))),
        "shard_map": (
            jax.jit(jax.shard_map(mapped, mesh=mesh(), in_specs=P("data"), out_specs=P())),
            (batch,),
        ),
        "static": (jax.jit(lambda x, n: x * n, static_argnums=1), (plain, 3)),
        "pmap_donated": (
            jax.pmap(lambda x: x + jax.lax.psum(x, "data"), "data", donate_argnums=0),
            (plain,),
        ),
        "pmap": (jax.pmap(mapped, axis_name="data"), (plain,)),
        "to_device": (
            jax.jit(lambda x: jax.device_put(x, one) * 2, out_shardings=host),
            (pinned,),
        ),
        "pinned_single": (
            jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Device) * 2),
            (jax.device_put(plain, single),),
        ),
        "pinned_donated": (
            jax.jit(lambda x: jax.device_put(jax.device_put(x, one) + 1, host), donate_argnums=0),
            (pinned,),
        ),
        "trees": (
            jax.jit(state_step, donate_argnums=0),
            (State(plain, jnp.zeros((), jnp.bfloat16)), plain),
        ),
        "unused": (jax.jit(lambda a, b, c: b + c, donate_argnums=1), (plain, plain, 2.0)),
        "key": (jax.jit(lambda k: jax.random.normal(k, (3,))), (jax.random.key(7),)),
        "struct": (jax.jit(lambda x: x * 2), (shape,)),
        "linear_algebra": (linear_algebra, (plain,)),
        "huge": (lambda x: jnp.broadcast_to(x, (1 << 20, 1 << 20, 4, 4))[..., 1:], (plain[:4],)),
        "printing": (printing, (plain,)),
        "calling": (jax.jit(calling), (plain,)),
        "branching": (lambda x: x if x.sum() > 0 else -x, (plain,)),
        "number": (3, (plain,)),
        "constants": (lambda x: x + jnp.asarray(np.random.rand(2200, 2200), "f4"), (1.0,)),
        "forged": (jax.jit(forged), (plain,)),
        "outside": (jax.jit(outside), (plain,)),
    }


def lies(plain: Any) -> dict[str, Program]:
    """Programs whose claims about themselves are wrong."""
    honest = export.export(jax.jit(lambda x: x * 2))(plain)
    wider = jax.ShapeDtypeStruct((1 << 30, 1 << 10), jnp.float32)
    aval = export.export(jax.jit(lambda x: x))(wider).in_avals
    tree = jax.tree.structure(((1, 2), {}))
    claims: dict[str, dict[str, Any]] = {
        "lying_shape": {"in_avals": aval},
        "lying_result": {"out_avals": aval},
        "lying_tree": {"in_tree": tree},
        "too_many_devices": {"nr_devices": 4096},
        "other_platform": {"platforms": ("cuda",)},
        "unused_lie": {"module_kept_var_idx": (7,)},
    }
    return {
        name: Program(name, bytes(dataclasses.replace(honest, **claim).serialize()))
        for name, claim in claims.items()
    }


def main(out: Path) -> None:
    programs: dict[str, Program] = {}
    inputs: dict[str, list[list[Leaf]]] = {}
    for seed in (0, 1):
        for name, (function, args) in cases(np.random.default_rng(seed)).items():
            if seed == 0:
                programs[name] = export_program(name, function, args)
            inputs.setdefault(name, []).append(_described(args))
    programs |= lies(jnp.ones((8, 4)))
    out.write_bytes(msgspec.json.encode(Exports(programs, inputs)))


def _described(args: tuple[Any, ...]) -> list[Leaf]:
    """The flat arguments; a random key is described by its key data."""
    keys = jax.tree.map(_words, args)
    leaves = describe(keys)[0]
    types = [str(getattr(leaf, "dtype", "")) for leaf in jax.tree.leaves(args)]
    return [
        msgspec.structs.replace(leaf, dtype=dtype, shape=()) if dtype.startswith("key<") else leaf
        for leaf, dtype in zip(leaves, types, strict=True)
    ]


def _words(leaf: Any) -> Any:
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


if __name__ == "__main__":
    main(Path(sys.argv[1]))
