"""The numbers that a text names: from where on, or for what, it could do something else.

Code that is right for the first two hundred steps, for arrays below some size, or for numbers up to
a million, has to say so somewhere. What a text names in plain sight is found, also where it is
computed from numbers in the text: `N = 8 * 25`, `1 << 14`, `int("200")`, `len(("a",) * 200)`.
Nothing of the text is run.
"""

import ast
import math
import operator
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

HOW_MANY = 500
"""So many at most are looked at, the largest."""
_MOST = 3.4e38
"""About the largest float32."""
_DEEP = 50
_TWO: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,
    ast.LShift: lambda left, right: left * math.pow(2, right),
    ast.RShift: lambda left, right: left // math.pow(2, right),
}
_Known = dict[str, float]


def own(text: str, model: str) -> tuple[float, ...]:
    """The numbers that a text names more often than its model does, in order, without their signs.

    0, 1 and 2 are not among them: they are everywhere. A text that is no Python names none.
    """
    return tuple(sorted(_named(text) - _named(model))[-HOW_MANY:])


def _named(text: str) -> Counter[float]:
    """How often a text names each number."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Counter()
    known: _Known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (value := _value(node.value, known)) is not None:
            names = (target for target in node.targets if isinstance(target, ast.Name))
            known |= {name.id: value for name in names}
    values = (_value(node, known) for node in ast.walk(tree) if isinstance(node, ast.expr))
    found = Counter(abs(float(value)) for value in values if value is not None)
    for common in (0.0, 1.0, 2.0):
        found.pop(common, None)
    return found


def _value(node: ast.expr, known: _Known, depth: int = 0) -> float | None:
    """The number that an expression stands for, or None: it is none, or cannot be known."""
    if depth > _DEEP:
        return None
    with suppress(ArithmeticError, ValueError):
        return _finite(_computed(node, known, depth + 1))
    return None


def _finite(value: float | None) -> float | None:
    if value is None or not math.isfinite(value) or abs(value) > _MOST:
        return None
    return value


def _computed(node: ast.expr, known: _Known, depth: int) -> float | None:
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return known.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand, known, depth)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right):
            return _of_two(op, _value(left, known, depth), _value(right, known, depth))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _called(name, arguments, known, depth)
    return None


def _called(name: str, arguments: list[ast.expr], known: _Known, depth: int) -> float | None:
    """What one of Python's own functions returns."""
    match name, arguments:
        case "len", [one]:
            return _length(one, known, depth)
        case "int" | "float", [ast.Constant(str() as text)]:
            return float(text)
        case "int", [ast.Constant(str() as text), base]:
            return float(int(text, int(_value(base, known, depth) or 0)))
        case "int" | "float" | "abs" | "round", [one]:
            return _value(one, known, depth)
        case "ord", [ast.Constant(str() as text)]:
            return float(ord(text)) if len(text) == 1 else None
        case "sum", [ast.List(parts) | ast.Tuple(parts)]:
            values = [_value(one, known, depth) for one in parts]
            return sum(value for value in values if value is not None)
    return None


def _of_two(op: ast.operator, left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    compute = _TWO.get(type(op))
    return None if compute is None else float(compute(left, right))


def _length(node: ast.expr, known: _Known, depth: int) -> float | None:
    """Of a text, a list or a tuple, or of many in a row."""
    match node:
        case ast.Constant(value=str() | bytes() as text):
            return len(text)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return len(parts)
        case ast.BinOp(left=one, op=ast.Mult(), right=other):
            length, times = _length(one, known, depth), _value(other, known, depth)
            if length is None:
                length, times = _length(other, known, depth), _value(one, known, depth)
            return None if length is None or times is None else length * times
        case ast.Call(func=ast.Name(id="range" | "list" | "tuple"), args=[one]):
            found = _value(one, known, depth)
            return _length(one, known, depth) if found is None else found
    return None
