"""Takes a jittable function out of the learner's process: trace, lower, serialise.

Runs in the learner's worker, so nothing it returns is believed: `grader.program.loading`
reads the blob as hostile input. The function comes from the learner, its arguments from
the exercise's `drive()`. Nothing is compiled or run here.
"""

import dataclasses
import inspect
import traceback
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

import jax
from jax import export

from grader.judging.said import cleaned, in_words, shortened
from grader.records.record import Program

TARGET_PLATFORM = "cuda"
"""The platform of every target."""
MAX_LINES = 4
"""Lines of an exception that are repeated."""
SIZE_LIMIT = 16 << 20
"""Bytes of a serialised program that the grader accepts."""

_CALLBACKS = {
    "debug_callback": "jax.debug.callback",
    "debug_print": "jax.debug.print",
    "io_callback": "io_callback",
    "pure_callback": "jax.pure_callback",
}


class Impossible(Exception):
    """The function cannot be exported; the message is for the learner."""


def export_program(name: str, function: Any, args: tuple[Any, ...], platform: str = "") -> Program:
    """Export `function` for `args`, for `platform` (default: that of the default backend).

    `args` are pytrees of `jax.Array`, `jax.ShapeDtypeStruct`, NumPy arrays or Python
    scalars. Shardings and memory kinds are those of concrete arrays and of structs that
    carry one. What `jax.jit` made is exported as it is. Any other callable (a method, a
    `functools.partial`, `jax.pmap`'s result) is jitted first; it donates the arguments
    that it hands on to a jitted function which donates them.

    Returns a `Program` with a blob, or with a problem in words. Raises nothing for a
    learner's mistake.
    """
    try:
        return Program(name, _export(name, function, args, platform))
    except Impossible as reason:
        return Program(name, problem=str(reason), line=_line(reason.__cause__, function))


def _export(name: str, function: Any, args: tuple[Any, ...], platform: str) -> bytes:
    if not callable(function):
        raise Impossible(f"`{name}` is not a function, but of type `{type(function).__name__}`")
    try:
        jitted, leaves = _jitted(function, args)
        _refuse_callbacks(jitted.trace(*leaves))
        platforms = (platform or export.default_export_platform(),)
        make = export.export(jitted, platforms=platforms, disabled_checks=_no_checks())
        exported = make(*leaves)
        in_tree = exported.in_tree if leaves is args else jax.tree.structure((args, {}))
        blob = bytes(_with_plain_trees(exported, in_tree).serialize())
    except Impossible:
        raise
    except Exception as error:
        raise Impossible(f"`{name}` cannot be traced: {_said(error)}") from error
    return _capped(name, blob)


def _said(error: Exception) -> str:
    """An exception in words; of its own text, the first lines."""
    text = cleaned(f"{type(error).__name__}: {error}").strip()
    lines = [line for line in text.splitlines() if line.strip()][:MAX_LINES]
    return in_words("\n".join(map(shortened, lines)))


def _line(error: BaseException | None, function: Any) -> int | None:
    """The innermost line of the file that defines `function`, at which an error was raised."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if error is None or type(code) is not CodeType:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return lines[-1] if lines else None


def _jitted(function: Any, args: tuple[Any, ...]) -> tuple[Any, Sequence[Any]]:
    """Something to export and its arguments: `function` itself, or a jitted flat form of it."""
    if isinstance(function, type(jax.jit(len))):
        return function, args
    leaves, tree = jax.tree.flatten(args)
    donated = _handed_on(jax.jit(function).trace(*args).jaxpr)

    def flat(*flat_args: Any) -> Any:
        return function(*jax.tree.unflatten(tree, flat_args))

    return jax.jit(flat, donate_argnums=donated), leaves


def _handed_on(jaxpr: Any) -> tuple[int, ...]:
    """Flat arguments that go to an inner jitted function which donates them."""
    inner = jaxpr.jaxpr
    given = set()
    for equation in inner.eqns:
        marks = equation.params.get("donated_invars", ())
        for variable, donated in zip(equation.invars, marks, strict=False):
            if donated and not hasattr(variable, "val"):  # a literal cannot be an argument
                given.add(variable)
    return tuple(index for index, variable in enumerate(inner.invars) if variable in given)


def first_line(error: BaseException) -> str:
    """The type and the first line of an exception, at most 300 characters."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}"[:300] if text else type(error).__name__


def _no_checks() -> list[export.DisabledSafetyCheck]:
    # The receiver has its own, stricter list; a refusal there names the operation.
    return [export.DisabledSafetyCheck.custom_call("ALL")]


def _capped(name: str, blob: bytes) -> bytes:
    if len(blob) > SIZE_LIMIT:
        raise Impossible(
            f"`{name}` is {len(blob) / 2**20:.0f} MiB when exported, the limit is "
            f"{SIZE_LIMIT >> 20} MiB: an array it closes over became a constant of the program"
        )
    return blob


def _refuse_callbacks(traced: Any) -> None:
    for primitive in _primitives(traced.jaxpr):
        if "callback" in primitive or primitive in _CALLBACKS:
            call = _CALLBACKS.get(primitive, primitive)
            raise Impossible(
                f"the program calls back into Python ({call}): it cannot leave this process"
            )


def _primitives(jaxpr: Any) -> Iterator[str]:
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation.primitive.name
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(inner):
                yield from _primitives(inner)


def _is_jaxpr(value: object) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def _with_plain_trees(exported: export.Exported, in_tree: Any) -> export.Exported:
    """Write the trees as tuples and dicts.

    Serialisation knows no other node types, and the receiver must not import any. Without
    this, the state of an optimizer or of a Flax model could not be exported.
    """
    return dataclasses.replace(
        exported,
        in_tree=jax.tree.structure(_plain(in_tree)),
        out_tree=jax.tree.structure(_plain(exported.out_tree)),
    )


def _plain(tree: Any) -> Any:
    """A pytree of zeros with the same leaves in the same order."""
    node = tree.node_data()
    if node is None:
        return 0
    kind, data = node
    children = [_plain(child) for child in tree.children()]
    if kind is type(None):
        return None
    if kind is dict and all(isinstance(key, str) for key in data):
        return dict(zip(data, children, strict=True))
    return children if kind is list else tuple(children)
