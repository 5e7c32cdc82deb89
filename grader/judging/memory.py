"""What a program keeps in device memory and in host memory, and what it writes in place.

For exercises that offload or donate. Pure functions of what was measured: they return what
was expected and what was observed, in words, or None. Where a step brings too much of its state to
the device, its text tells the place.
"""

from collections.abc import Sequence

from grader.judging.checking import Unable
from grader.judging.evidence import definition
from grader.records.record import Measured, Memory, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

HELD = "An array stays where it is as long as a name, a list or a closure holds it."
"""The hint where arrays stay that nobody needs."""
OF_ITS_OWN = (
    "The step writes each new array over the old one. What happens to two arrays in one memory?"
)
"""The hint where two arrays share their memory."""
BATCH_STAYS = (
    "A donated array is deleted for the caller too, who may need the batch again. Which arguments "
    "does this line donate?"
)
OF_THE_BATCH = "params and state are donated, and the batch is not", "the batch is donated, too"
"""What was expected, and what was observed, where a step may write over its batch."""
IN_TURN = (
    "A copy waits for what goes through the barrier before it. Does each state go through it, "
    "together with its gradient and the state that went back before, and only then to the device?"
)
AT_ONCE = (
    "The step brings all of the state in one call. When does the update of each part need its own, "
    "and not before?"
)
_TO_DEVICE = r"(Space\.Device|memory_kind\(.device.\))"
_MAPPED = rf"map\(lambda .*device_put\(.*{_TO_DEVICE}\), state"
_ALL_OF_IT = rf"[\w.]*(device_put\(state, .*{_TO_DEVICE}|{_MAPPED})\)$"
_SOME_OF_IT = rf"[\w.]*device_put\(.*{_TO_DEVICE}\)$"
"""How a step brings the argument `state` to the device's memory, and how any array."""
Difference = tuple[str, str]
"""What was expected, and what was observed."""


def room(memory: Memory) -> int:
    """Bytes of device memory that a program needs at its peak."""
    return memory.arguments + memory.outputs + memory.temporaries - memory.aliased


def mib(count: int) -> str:
    """`1,024 MiB`."""
    return f"{count / 2**20:,.0f} MiB"


def moved_result(names: Sequence[str], mine: Measured, theirs: Measured) -> Difference | None:
    """The first result that is not in the memory of the reference's result.

    `names` are the results' names, in flat order.
    """
    kinds = zip(names, mine.out_memory_kinds, theirs.out_memory_kinds, strict=True)
    wrong = [(name, kind, right) for name, kind, right in kinds if kind != right]
    if not wrong:
        return None
    name, kind, right = wrong[0]
    more = ""
    if len(wrong) > 1:
        more = f"; {len(wrong)} of {len(names)} results are in the wrong memory"
    return f"the new `{name}` is in {right} memory", f"it is in {kind} memory{more}"


COUNTS_ALONE = (
    "Only the counts are in the wrong memory. A count is an array, too, of no dimension: which "
    "condition leaves it out?"
)


def counts_alone(names: Sequence[str], mine: Measured, theirs: Measured) -> str:
    """The hint where only Adam's counts are in another memory than the reference's, else ""."""
    kinds = zip(names, mine.out_memory_kinds, theirs.out_memory_kinds, strict=True)
    wrong = [name for name, kind, right in kinds if kind != right]
    return COUNTS_ALONE if all(name.endswith(".count") for name in wrong) else ""


def not_in_place(
    program: Measured, paths: Sequence[str], *, apart: Sequence[str] = ()
) -> Difference | None:
    """The arguments that no result is written over.

    `paths` are the arguments' names, in flat order. Those in `apart` are not judged.
    """
    aliased = set(program.aliases.values())
    missing = [p for index, p in enumerate(paths) if index not in aliased and p not in apart]
    if not missing:
        return None
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    judged = len(paths) - len(apart)
    expected = f"all {judged} arrays of params and state are written in place"
    return expected, f"not written in place: {', '.join(missing[:3])}{more}"


def state_at_once(
    mine: Measured, reference: Measured | None, device: str
) -> Difference | Unable | None:
    """A difference if a program needs more memory on one `device` than the reference and slack.

    The slack is a quarter of the reference's state.
    """
    if mine.memory is None or reference is None or reference.memory is None:
        return Unable("the compiler does not say how much memory the program needs")
    state = reference.memory.host_arguments
    need, limit = room(mine.memory), room(reference.memory) + state // 4
    if need <= limit:
        return None
    return (
        f"at most {mib(limit)} on one {device}: what the reference needs plus a quarter of its "
        "state",
        f"{mib(need)}; the state is {mib(state)}, and {mib(mine.memory.temporaries)} are "
        f"temporaries that the step holds while it runs",
    )


def left(nbytes: int, function: str) -> Difference | None:
    """A difference if a call of `function` left arrays alive beside those that it returned."""
    if not nbytes:
        return None
    observed = f"{nbytes:,} bytes of arrays stay"
    return (
        f"after `{function}`, no arrays are left but those that it returned, and none when its "
        "caller has let go of them"
    ), observed


def shared(tree: str, paths: Sequence[str]) -> Difference | None:
    """A difference if two arrays of what is called `tree` share memory; `paths` are theirs."""
    if not paths:
        return None
    one, other = paths
    return f"`{tree}{one}` and `{tree}{other}` have memory of their own", "both are one array"


def weak(tree: str, paths: Sequence[str]) -> Difference | None:
    """A difference if an array of what is called `tree` is weakly typed; `paths` are of those."""
    if not paths:
        return None
    expected = f"`{tree}{paths[0]}` has the type that `adam.init` gives it"
    return expected, "it is weakly typed, as an array is that was made of a number of Python's"


OF_A_NUMBER = (
    "The types change with the first step, and the second one is compiled anew. An array that is "
    "made with a dtype, `jnp.zeros((), jnp.int32)`, is not weakly typed."
)


def bringing(record: Record, function: str) -> tuple[Sequence[Culprit], str]:
    """Where a step, that `function` is or holds, brings too much to the device at once, and a hint.

    Without a hint, what it does is not known well enough.
    """
    whole = statements.matching(record, function, _ALL_OF_IT)
    if whole and File(record.source).function_at(whole[0].line).endswith("step"):
        return whole, AT_ONCE
    barrier = statements.call(record, function, "optimization_barrier")
    if barrier != definition(record, function):
        return barrier, IN_TURN
    return statements.matching(record, function, _SOME_OF_IT) or barrier, ""
