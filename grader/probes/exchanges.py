"""Reads what devices send each other in programs that are launched, from the programs' text.

The runtime's trace knows that they meet (`grader.probes.runtime`), and not what they send.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from grader.probes import dumped
from grader.probes.devices import is_next_door
from grader.probes.private import Launched, executions
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


@contextmanager
def launched() -> Iterator[list[Collective]]:
    """A list that gets the collectives of each program that is launched in the block.

    They come as often as the program is launched, while no call takes JAX's shortcut. On a device
    next door there are none: it does not tell the text of its programs, and its book has what they
    exchange.
    """
    programs, found = Programs(), list[Collective]()
    if is_next_door():
        yield found
        return
    with executions(lambda program, _: found.extend(programs.collectives(program))):
        yield found


@contextmanager
def programs() -> Iterator[dict[str, int]]:
    """What the programs of a block hold themselves, and exchange, in bytes: told when it ends."""
    told: dict[str, int] = {}
    with dumped.programs() as texts, launched() as sent:
        yield told
    told |= {"held": dumped.held(texts), "sent": nbytes(sent)}


def nbytes(found: Sequence[Collective]) -> int:
    """The bytes that arrive on a device when a program with these collectives runs once."""
    return sum(one.nbytes * one.count * (one.runs or EVERYTHING) for one in found)
