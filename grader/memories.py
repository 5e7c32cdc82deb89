"""What a program keeps where: device memory, host memory, the room of what it replaces.

For exercises that offload or donate. Pure functions of what was measured; they return what
was expected and what was observed, in words, or nothing.
"""

import re
from collections.abc import Sequence

from grader.checking import Unable
from grader.record import Measured, Memory

PINNED = "pinned_host"
ARITHMETIC = {"add", "div", "dot_general", "integer_pow", "mul", "pow", "sqrt", "sub", "tanh"}
_ON_HOST = re.compile(r"<host>\[[^\]]*\](?:\{[^}]*\})? = (\w+)")
Difference = tuple[str, str]


def arithmetic_on_host(jaxpr: str) -> list[str]:
    """Operations of a traced program, as text, whose results are computed in host memory."""
    return sorted(ARITHMETIC.intersection(_ON_HOST.findall(jaxpr)))


def room(memory: Memory) -> int:
    """Bytes of device memory that a program needs at its peak."""
    return memory.arguments + memory.outputs + memory.temporaries - memory.aliased


def mib(count: int) -> str:
    """`1,024 MiB`."""
    return f"{count / 2**20:,.0f} MiB"


def moved_result(names: Sequence[str], mine: Measured, theirs: Measured) -> Difference | None:
    """The first result in another memory than the reference's; `names` are in flat order."""
    kinds = zip(names, mine.out_memory_kinds, theirs.out_memory_kinds, strict=True)
    wrong = [(name, kind, right) for name, kind, right in kinds if kind != right]
    if not wrong:
        return None
    name, kind, right = wrong[0]
    more = f"; {len(wrong)} of {len(names)} results are in the wrong memory" if wrong[1:] else ""
    return f"the new `{name}` is in {right} memory", f"it is in {kind} memory{more}"


def not_in_place(
    program: Measured, paths: Sequence[str], *, apart: Sequence[str] = ()
) -> Difference | None:
    """The arguments, named by `paths` in flat order, over which no result is written.

    Those `apart` are not asked about.
    """
    aliased = set(program.aliases.values())
    missing = [p for index, p in enumerate(paths) if index not in aliased and p not in apart]
    if not missing:
        return None
    more = f" and {len(missing) - 3} more" if missing[3:] else ""
    asked = len(paths) - len(apart)
    expected = f"all {asked} arrays of params and state are written in place"
    return expected, f"not written in place: {', '.join(missing[:3])}{more}"


def state_at_once(
    mine: Measured, reference: Measured | None, device: str
) -> Difference | Unable | None:
    """More memory of one `device` than the reference needs, and a quarter of its state."""
    if mine.memory is None or reference is None or reference.memory is None:
        return Unable("the compiler does not say how much memory the program needs")
    state = reference.memory.host_arguments
    need, limit = room(mine.memory), room(reference.memory) + state // 4
    if need <= limit:
        return None
    return (
        f"at most {mib(limit)} of one {device}: the reference's, and a quarter of its state's",
        f"{mib(need)}, {mib(mine.memory.temporaries)} of them for what the step holds between "
        f"its start and its end; its state is {mib(state)}",
    )
