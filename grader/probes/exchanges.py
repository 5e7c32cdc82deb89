"""Reads what devices send each other in programs that are launched, from the programs' text.

The runtime's trace knows that they meet (`grader.probes.runtime`), and not what they send.
"""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from grader.probes.private import Launched
from grader.records import hlo
from grader.records.record import Collective

EVERYTHING = 1 << 30
"""As so many rounds a loop of unknown length counts: it may send everything."""


class Programs:
    """The collectives of each program that was launched. A text is read once."""

    def __init__(self) -> None:
        self._known = WeakKeyDictionary[Any, list[Collective]]()

    def collectives(self, launched: Launched) -> list[Collective]:
        """Those of one program."""
        found = self._known.get(launched.program)
        if found is None:
            found = self._known[launched.program] = hlo.read(launched.text()).collectives
        return found


def nbytes(found: Sequence[Collective]) -> int:
    """The bytes that arrive on a device when a program with these collectives runs once."""
    return sum(one.nbytes * one.count * (one.runs or EVERYTHING) for one in found)
