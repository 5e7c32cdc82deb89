"""Says where the facts of a submission are of another form than the reference's.

Facts are plain JSON values. Their values may differ, and so may the lengths of lists: what
counts is what kind of thing stands where. JSON has no NaN and no infinity: it holds nothing in
their place.
"""

from collections.abc import Iterable, Mapping
from typing import Any

MAX_DEPTH = 6


def difference(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The first difference of form, in words, or ""."""
    for name, want in wanted.items():
        if name not in got:
            return f"nothing is known of `{name}`"
        if found := _unlike(got[name], want, 0):
            return f"`{name}`: {found}"
    return ""


def _unlike(got: Any, want: Any, depth: int) -> str:
    if _kind(got) != _kind(want):
        return f"{_kind(got)} where {_kind(want)} is expected"
    if depth == MAX_DEPTH:
        return ""
    if isinstance(want, dict):
        missing = [key for key in want if key not in got]
        return f"no `{missing[0]}`" if missing else _first((got[k], want[k], depth) for k in want)
    if isinstance(want, list) and want:
        alike = len({_kind(item) for item in want}) == 1
        wanted = want[:1] * len(got) if alike else want
        return _first((mine, one, depth) for mine, one in zip(got, wanted, strict=False))
    return ""


def _first(pairs: Iterable[tuple[Any, Any, int]]) -> str:
    return next(filter(None, (_unlike(got, want, depth + 1) for got, want, depth in pairs)), "")


def _kind(value: Any) -> str:
    """`a number`, `a list`: a JSON value in words."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    kinds |= {list: "a list", dict: "names with values"}
    return kinds.get(type(value), "nothing (as for NaN and infinity)")
