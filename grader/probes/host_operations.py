"""Finds what a traced program computes in host memory, or asks the host to compute.

Arrays may lie in host memory, come from it and go to it. Whatever else is done to them there
takes the host's processor, and its memory's bandwidth. The exercises that offload use this.
"""

from collections.abc import Iterator
from typing import Any

import jax

MOVES = frozenset(
    {
        "broadcast_in_dim",
        "copy",
        "copy_p",
        "device_put",
        "dynamic_slice",
        "dynamic_update_slice",
        "optimization_barrier",
        "reshape",
        "reshard",
        "sharding_constraint",
        "slice",
        "squeeze",
    }
)
"""Primitives that move or address numbers, and change none. XLA offloads with these. A broadcast is
none of them where its result has more numbers than it was given."""


def host_operations(jaxpr: Any) -> list[str]:
    """The primitives of a jaxpr that compute with arrays in host memory, or on the host.

    Jaxprs inside it are searched too: loops, branches, jits. Names are sorted, each once.
    """
    return sorted(set(_found(jaxpr)))


def uses_host_memory(jaxpr: Any) -> bool:
    """Whether an array of a jaxpr lies in host memory."""
    return any(
        _in_host_memory(equation) or any(map(uses_host_memory, _inner(equation.params.values())))
        for equation in jaxpr.eqns
    )


def _found(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        inner = list(_inner(equation.params.values()))
        for body in inner:
            yield from _found(body)
        name = str(equation.primitive.name)
        if (
            equation.ctx.compute_type is not None
            or "compute_type" in equation.params
            or (not inner and not _moves(equation) and _in_host_memory(equation))
        ):
            yield name


def _moves(equation: Any) -> bool:
    """Whether an equation only moves or addresses numbers, and writes none of them twice."""
    name = equation.primitive.name
    if name == "broadcast_in_dim":
        return bool(equation.outvars[0].aval.size <= equation.invars[0].aval.size)
    return name in MOVES


def _inner(params: Any) -> Iterator[Any]:
    """The jaxprs among the parameters of an equation."""
    for value in params:
        for part in value if isinstance(value, tuple | list) else (value,):
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                yield part


def _in_host_memory(equation: Any) -> bool:
    """Whether an operand or a result lies in host memory."""
    avals = (variable.aval for variable in (*equation.invars, *equation.outvars))
    return any(getattr(aval, "memory_space", None) == jax.memory.Space.Host for aval in avals)
