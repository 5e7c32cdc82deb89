"""Finds in a record what a check asks of compiled programs: whether there is one, what it holds,
and what it costs in operations and in bytes that devices exchange.
"""

from collections.abc import Iterable, Sequence

from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import culprit, definition, devices_of, seen, target_of
from grader.judging.said import hint_for, is_known
from grader.records.record import Collective, Measured, Program, Record
from grader.source import statements
from grader.source.file import File


def compiled_program(
    record: Record, name: str, expected: str = "", *, made_by: str = ""
) -> Measured | Failure | Unable:
    """A program of the submission as measured, or why there is none.

    The failure says `expected`, and names the line that led to it, or else the one that defines
    `made_by`, the learner's function that made the program, if that is not called `name`.
    """
    expected = expected or f"`{name}` is a program that can be compiled apart from its file"
    exported, measured = seen(record).programs.get(name), record.measured.get(name)
    return _compiled(record, made_by or name, exported, measured, expected)


def target_program(
    record: Record, name: str, expected: str = "", *, made_by: str = ""
) -> Measured | Failure | Unable:
    """A program of the submission as compiled for the target, or why there is none.

    Nothing ran, so there are no outputs, no times and no count of floating-point operations.
    If the drive gave `Observe.program` a function of the same name, that one ran, and this
    one must hold the same operations. A failure says `expected`, and names a line as that of
    `compiled_program` does.
    """
    if record.target_problem:
        return Unable(record.target_problem)
    machine = target_of(record).title
    expected = expected or f"`{name}` is a program that can be compiled for {machine}"
    exported, measured = seen(record).targeted.get(name), record.target_measured.get(name)
    found = _compiled(record, made_by or name, exported, measured, expected)
    ran = record.measured.get(name)
    if ran is None or not isinstance(found, Measured):
        return found
    difference = _other_code(ran, found)
    if not difference:
        return found
    expected = f"the `{name}` that is compiled for {machine} is the one that was run"
    return Failure(expected, difference, definition(record, made_by or name))


TRACED = (
    "Call the function on small arrays in a Python of your own: what is raised there names the "
    "line, and the shapes."
)
"""The hint where a function cannot be traced: no hint about its numbers helps."""
TWO_MEMORIES = (
    "jit moves no array to another memory by itself. Which array of the marked line is still in "
    "host memory?"
)
PLACEMENT = frozenset({"sdy.sharding_constraint", "stablehlo.optimization_barrier"})
"""Operations that say where an array lies, or when, and change no number. Of a single layer, a
program may hold none."""


def _other_code(ran: Measured, compiled: Measured) -> str:
    """How two exports of a function differ, or "". Only the outputs of `ran` were compared.

    Where the number of arrays differs (more layers, say), the number of operations may too.
    """
    same_tree = _tree(ran) == _tree(compiled)
    for name in sorted((ran.operations | compiled.operations).keys() - PLACEMENT):
        before, after = ran.operations.get(name, 0), compiled.operations.get(name, 0)
        differ = before != after if same_tree else bool(before) != bool(after)
        if differ:
            return (
                f"the one that is compiled holds {after} `{name}`, the one that was run holds "
                f"{before}"
            )
    return ""


def _tree(measured: Measured) -> str:
    return measured.signature.in_tree if measured.signature else ""


def target_reference(record: Record, name: str) -> Measured | None:
    """The reference's program as compiled for the same target, if it could be."""
    found = record.target_reference_measured.get(name)
    return None if found is None or found.problem else found


def _compiled(
    record: Record, maker: str, exported: Program | None, measured: Measured | None, expected: str
) -> Measured | Failure | Unable:
    problem = (exported and exported.problem) or (measured and measured.problem)
    if problem:
        line = exported.line if exported else None
        place = [culprit(record, line)] if line else definition(record, maker)
        traced = "cannot be traced" in problem or is_known(problem)
        hint = TWO_MEMORIES if "two kinds of memory" in problem else hint_for(problem)
        return Failure(expected, problem, place, hint or (TRACED if traced else ""))
    return measured or Unable("the program was not compiled")


def not_jitted(record: Record, name: str, edit: str = "") -> Failure | None:
    """The failure if what the drive gave to `Observe.jitted` as `name` is not from jax.jit.

    `edit` is the learner's definition that made it, if that has another name.
    """
    kind = seen(record).facts.get(f"type of {name}")
    if kind == "jax.jit":
        return None
    if dropped := statements.dropped_at_top(record, name, *MAKERS):
        observed = f"`{name}` is what it was: what is returned on the marked line is dropped"
        return Failure(f"`{name}` is what jax.jit returns", observed, dropped, KEPT)
    place = statements.result(record, edit) if edit else definition(record, name)
    observed = f"`{name}` is of type `{kind}`"
    names = File(record.source).names
    made = {called for called in MAKERS if statements.uses(record, edit or name, called)}
    elsewhere = not edit and any(statements.uses(record, other, "jit") for other in names)
    if "jit" in made or elsewhere:
        observed += ": what happens around a jitted function is not part of its program"
    elif made:
        observed += f", made by {' and '.join(f'jax.{one}' for one in sorted(made))}"
    else:
        observed += ", and nothing jits it"
    plain = PLAIN if not made and not edit and not elsewhere else ""
    return Failure(f"`{name}` is what jax.jit returns", observed, place, plain)


KEPT = "jax.jit changes no function: it returns another one. Which name should that one have?"
MAKERS = ("jit", "pmap", "shard_map", "vmap")
"""Functions of JAX that make another function of one."""
PLAIN = "Which line gives this function to jax.jit? A decorator above its `def` does."


def exchanged(found: Sequence[Collective]) -> int | Unable:
    """Bytes that arrive on one device. A collective in a loop counts as often as it runs."""
    if any(collective.runs == 0 for collective in found):
        return Unable(
            "a collective stands in a loop whose length the compiled program hides, or in a branch "
            "inside a loop: nobody can say how often it runs"
        )
    return exchanged_by(found)


def exchanged_by(found: Iterable[Collective], op: str = "") -> int:
    """Bytes that arrive on one device by collectives of one kind, or by all of them."""
    return sum(c.total for c in found if c.op == op or not op)


def sent(found: Sequence[Collective], devices: int) -> int:
    """Bytes that each of `devices` sends to its neighbour, if all of them form one ring.

    A sum goes round twice, anything else once: the factors of NVIDIA's nccl-tests
    (doc/PERFORMANCE.md, "bus bandwidth"). A collective in a loop of unknown length counts as
    0 bytes; `exchanged` says whether there is one.
    """
    rounds = {"all-reduce": 2 / devices, "reduce-scatter": 1.0}
    sizes = (rounds.get(c.op, 1 / devices) * c.total for c in found)
    return round((devices - 1) * sum(sizes))


WORK = 1.6
"""The operations of a step may be this many times the reference's. A step that runs its forward
pass twice comes to 1.35, one that computes with twice the rows to 2."""
OWN_ROWS = (
    "A device computes with its own rows, once. Which line brings it those of others, in any form, "
    "or works through the same rows again?"
)


def beyond_own_rows(
    record: Record, name: str, made_by: str = "", hint: str = OWN_ROWS, spare: int = 0
) -> Result:
    """The failure where a device works as much in a program as with rows of others beside its own.

    None, too, if the program did not run; `compiled_program` says why. `made_by` is the function
    that made it, if that is not the first word of its name. `spare` operations more are allowed.
    """
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None:
        return None
    if not theirs.work:
        return Unable("the operations of the reference's program could not be counted")
    place = definition(record, made_by or name.partition(" ")[0])
    if not mine.work:
        expected = "each loop runs as often as the compiled program says"
        return Failure(expected, "a loop whose length is not known before it runs", place)
    if mine.work <= (limit := WORK * theirs.work + spare):
        return None
    return Failure(
        f"at most {limit:,.0f} operations on each of {devices_of(record)} devices",
        f"{mine.work:,} operations, {mine.work / theirs.work:.1f} times as many as one share of "
        "the rows needs",
        place,
        hint,
    )
