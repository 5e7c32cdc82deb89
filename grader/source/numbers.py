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
from collections.abc import Callable, Mapping
from contextlib import suppress

HOW_MANY = 500
"""So many at most are looked at, the largest."""
_MOST = 3.4e38
"""About the largest float32."""
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
    known: dict[str, float] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            value = _Meanings(node.value, known).values.get(node.value)
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            known |= {} if value is None else dict.fromkeys(names, value)
    found = Counter(abs(value) for value in _Meanings(tree, known).values.values())
    for common in (0.0, 1.0, 2.0):
        found.pop(common, None)
    return found


class _Meanings:
    """What the expressions of a tree stand for, each looked at once, the inner ones first."""

    def __init__(self, tree: ast.AST, known: Mapping[str, float]) -> None:
        self._known = known
        self.values: dict[ast.expr, float] = {}
        """The expressions that stand for a number."""
        self._lengths: dict[ast.expr, float] = {}
        """Those that are a text, a list or a tuple, or many in a row."""
        for node in reversed([*ast.walk(tree)]):
            if isinstance(node, ast.expr):
                self._look_at(node)

    def _look_at(self, node: ast.expr) -> None:
        for found, compute in ((self.values, self._value), (self._lengths, self._length)):
            with suppress(ArithmeticError, ValueError):
                value = compute(node)
                if value is not None and abs(value) <= _MOST:
                    found[node] = float(value)

    def _value(self, node: ast.expr) -> float | None:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand) if operand in self.values:
                return -self.values[operand]
            case ast.BinOp(left=left, op=op, right=right):
                if left in self.values and right in self.values and type(op) in _TWO:
                    return _TWO[type(op)](self.values[left], self.values[right])
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._called(name, arguments)
        return None

    def _called(self, name: str, arguments: list[ast.expr]) -> float | None:
        """What one of Python's own functions returns."""
        match name, arguments:
            case "len", [one]:
                return self._lengths.get(one)
            case "int" | "float", [ast.Constant(str() as text)]:
                return float(text)
            case "int", [ast.Constant(str() as text), base] if base in self.values:
                return int(text, int(self.values[base]))
            case "int" | "float" | "abs" | "round", [one]:
                return self.values.get(one)
            case "ord", [ast.Constant(str() as text)] if len(text) == 1:
                return ord(text)
            case "sum", [ast.List(parts) | ast.Tuple(parts)]:
                return sum(self.values.get(one, 0) for one in parts)
        return None

    def _length(self, node: ast.expr) -> float | None:
        match node:
            case ast.Constant(value=str() | bytes() as text):
                return len(text)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return len(parts)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                for many, times in ((left, right), (right, left)):
                    if many in self._lengths and times in self.values:
                        return self._lengths[many] * self.values[times]
            case ast.Call(func=ast.Name(id="range" | "list" | "tuple"), args=[one]):
                return self.values.get(one, self._lengths.get(one))
        return None
