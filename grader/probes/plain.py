"""Turns what a drive wrote down into plain JSON values, whatever the learner's code put there.

Facts are the grader's own records, but a learner's object may stand in one of them: a NumPy
number, an int with methods of its own, a tree. Numbers of NumPy become Python's; anything else
that is not plain becomes words. No method of a learner's object is called.
"""

from typing import Any

import msgspec
import numpy as np

SCALARS = frozenset(np.sctypeDict.values())
"""NumPy's own types of scalars, without subclasses of them."""


def plain(value: Any) -> Any:
    """`value` as `msgspec.to_builtins` writes it, with words for what it cannot write."""
    try:
        made = msgspec.to_builtins(value, enc_hook=_word)
        msgspec.json.encode(made)
    except (TypeError, ValueError, RecursionError) as error:
        return f"something that cannot be written down ({error})"
    return made


def _word(value: Any) -> Any:
    """A number of NumPy's as Python's; any other object by the name of its type."""
    if type(value) in SCALARS and isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    return f"an object of type `{type(value).__name__}`"
