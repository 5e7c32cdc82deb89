"""Finds what the learner's running code holds: arrays, and memory of the host.

It walks from the variables of the functions that are running, and of the module, to whatever they
refer to. Not followed are functions and generators of other files, and objects of JAX, except for
its Partial. What it
does not reach is not said to be free: the drive also counts all that is alive.
"""

import gc
import inspect
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex17_find_the_leak.facts import Holder

MOST = 20_000
"""Objects that one walk looks at: what holds more holds enough to be seen."""
MUCH_MORE = 20
"""So many times as much in dicts and numbers is more than a history, which is made of them."""
SEVERAL = 20
"""So many calls of one function that have not ended hold much by their own variables."""
_Weigh = Callable[[object], int]


def running(frame: FrameType | None, file: str) -> list[FrameType]:
    """The frames of functions in `file` that led to `frame`, the innermost first."""
    found = []
    while frame is not None:
        if frame.f_code.co_filename == file:
            found.append(frame)
        frame = frame.f_back
    return found


def host_bytes(frames: list[FrameType], module: ModuleType) -> int:
    """Bytes of arrays, lists and texts on the host that the frames and the module hold."""
    roots = [value for scope in _scopes(frames, module) for value in scope.values()]
    return sum(map(_size, _reached(roots, str(module.__file__))))


def kept_bytes(module: ModuleType) -> int:
    """The same of the module alone, and the bytes of dicts and numbers, too."""
    roots = [value for scope in _scopes([], module) for value in scope.values()]
    return sum(map(_size_of_all, _reached(roots, str(module.__file__))))


def holders(frames: list[FrameType], module: ModuleType) -> tuple[Holder, Holder]:
    """The variable that holds most arrays, and the one that holds most memory of the host."""
    file = str(module.__file__)
    calls = Counter(frame.f_code.co_name for frame in frames).most_common(1)
    repeated = Holder(*calls[0], calls=True) if calls and calls[0][1] > SEVERAL else None
    scopes = _scopes(frames[:1] + frames[-1:], module)
    arrays, host, all_ = (
        _heaviest(scopes, file, weigh) for weigh in (_is_array, _size, _size_of_all)
    )
    host = all_ if all_.weight > MUCH_MORE * host.weight else host
    return (repeated, repeated) if repeated else (arrays, host)


def _scopes(frames: list[FrameType], module: ModuleType) -> list[dict[str, Any]]:
    """The variables of each frame and of the module."""
    scopes = []
    for frame in frames:
        scope = frame.f_locals
        scopes.append(dict(scope))
        if isinstance(scope, dict) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            scope.clear()  # until Python 3.12 the frame keeps it, and so what the variables held
    names = [name for name in vars(module) if not name.startswith("__")]
    return [*scopes, {name: vars(module)[name] for name in names}]


def _heaviest(scopes: Iterable[Mapping[str, Any]], file: str, weigh: _Weigh) -> Holder:
    """The variable of which most is reached, or the attribute of it that holds the most of that."""
    every = [(name, value) for scope in scopes for name, value in scope.items()]
    weights = [sum(map(weigh, _reached([value], file))) for _, value in every]
    heaviest = max(range(len(every)), key=lambda index: weights[index], default=None)
    if heaviest is None:
        return Holder("", 0)
    (name, value), weight = every[heaviest], weights[heaviest]
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and not isinstance(value, ModuleType | type | FunctionType):
        inner = _heaviest([attributes], file, weigh)
        if 2 * inner.weight > weight:
            return Holder(f"{name}.{inner.name}", inner.weight)
    return Holder(name, weight)


def _reached(roots: Iterable[object], file: str) -> Iterator[object]:
    """The objects that `roots` lead to, each once; at most `MOST`."""
    left, known = list(roots), set[int]()
    while left and len(known) < MOST:
        value = left.pop()
        if id(value) in known:
            continue
        known.add(id(value))
        yield value
        left += _next(value, file)


def _next(value: object, file: str) -> Iterable[object]:
    """What an object refers to, as far as it is followed."""
    match value:
        case ModuleType() | type() | jax.Array():
            return ()
        case jax.tree_util.Partial():
            return gc.get_referents(value)
        case np.ndarray():
            held = value.tolist() if value.dtype == object else ()
            return (value.base, held) if value.base is not None else (held,)
        case FunctionType():
            if value.__code__.co_filename != file:
                return ()
            return (value.__closure__, value.__defaults__, value.__kwdefaults__, vars(value))
        case GeneratorType():
            return gc.get_referents(value) if value.gi_code.co_filename == file else ()
        case FrameType():
            return gc.get_referents(value) if value.f_code.co_filename == file else ()
    root = type(value).__module__.partition(".")[0]
    return () if root in ("jax", "jaxlib") else gc.get_referents(value)


def _is_array(value: object) -> int:
    return int(isinstance(value, jax.Array | np.ndarray))


def _size(value: object) -> int:
    """Bytes of an array, a list or a text in the host's memory; 0 for all else."""
    if isinstance(value, np.ndarray):
        return 0 if isinstance(value.base, np.ndarray) else value.nbytes
    return sys.getsizeof(value) if isinstance(value, _SIZED) else 0


def _size_of_all(value: object) -> int:
    """The same, and the bytes of dicts and numbers, too."""
    return _size(value) or (sys.getsizeof(value) if isinstance(value, dict | float | int) else 0)


_SIZED = (bytes, bytearray, str, list, tuple, array)
