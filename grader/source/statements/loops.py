"""Finds what a loop does in each round, and what a function returns that JAX is handed."""

import ast
from collections.abc import Mapping

from grader.records.record import Record
from grader.records.verdict import Culprit
from grader.source.file import File
from grader.source.places import of_definitions
from grader.source.statements.search import (
    alone,
    calls_among,
    elsewhere,
    first_in,
    given_by,
    made_in,
    name_of,
    nodes_of,
    only_place,
    part_of,
    reached_by,
    returned_by,
)
from grader.source.trees import Function, names_in, text_of

_STARTS = {"scan": 1, "fori_loop": 3, "while_loop": 2}
"""Which argument of a loop it starts with."""


def start(record: Record, function: str) -> list[Culprit]:
    """What the only loop of jax.lax in a function starts with; of a name, what makes it."""
    file = File(record.source)
    nodes = list(nodes_of(file, function))
    found = [
        (loop, loop.args[_STARTS[name_of(loop.func)]])
        for loop in calls_among(nodes, *_STARTS)
        if len(loop.args) > _STARTS[name_of(loop.func)]
    ]
    if len(found) != 1:
        return of_definitions(file, [function])
    loop, value = found[0]
    holders = [node for node in nodes if isinstance(node, Function) and loop in ast.walk(node)]
    made = made_in(holders[-1], value.id) if isinstance(value, ast.Name) and holders else []
    return [file.place(made[0] if len(made) == 1 else value)]


_ROUNDS = {"scan": 0, "fori_loop": 2, "while_loop": 1}
"""Which argument of a loop is the function that makes a round of it."""


def each_round(record: Record, function: str) -> list[Culprit]:
    """What the function returns that the only loop of jax.lax calls in each round; else nothing."""
    return _given_to_call(File(record.source), function, _ROUNDS)


def stacked(record: Record, function: str) -> list[Culprit]:
    """What the only round of a jax.lax.scan returns beside its carry, but for None; else nothing.

    The scan is in the function, or in what it names.
    """
    file = File(record.source)
    scans = [scan for nodes in reached_by(file, function) for scan in calls_among(nodes, "scan")]
    given = [
        value
        for scan in scans
        for value in (*scan.args[:1], *(k.value for k in scan.keywords if k.arg == "f"))
    ]
    named = {name_of(value) for value in given}
    owners = (n for n in ast.walk(file.tree) if isinstance(n, Function) and n.name in named)
    results = [value for owner in owners for value in returned_by(owner)]
    results += [value.body for value in given if isinstance(value, ast.Lambda)]
    parts = (part for value in results if (part := part_of(value, 1, 2)))
    return only_place(file, (part for part in parts if text_of(part) != "None"))


def condition(record: Record, function: str) -> list[Culprit]:
    """What the condition of the only jax.lax.while_loop in a function returns; else nothing."""
    return _given_to_call(File(record.source), function, {"while_loop": 0})


def backward(record: Record, function: str) -> list[Culprit]:
    """What the backward function of the only jax.custom_vjp returns; else nothing."""
    return _given_to_call(File(record.source), function, {"defvjp": 1})


def differentiated(record: Record, function: str) -> list[Culprit]:
    """What the function returns that the only jax.value_and_grad or jax.grad gets; else nothing."""
    return _given_to_call(File(record.source), function, {"value_and_grad": 0, "grad": 0})


def callback(record: Record, function: str) -> list[Culprit]:
    """What the callback returns that the only make_array_from_callback gets; else nothing."""
    return _given_to_call(File(record.source), function, {"make_array_from_callback": 2})


_BY_NAME = (("cond_fun", "f"), ("body_fun",), ("body_fun", "data_callback"))
"""How a function may be called that is given at a place."""


def _given_to_call(file: File, function: str, places: Mapping[str, int]) -> list[Culprit]:
    """What a function of the file returns that the only call of one of `places` gets there.

    That is one by its name, a method, an object that can be called, or a lambda. Where it returns
    nothing, it is the function.
    """
    loops = first_in(file, function, lambda nodes: calls_among(nodes, *places))
    loops = loops or list(calls_among(alone(file.tree.body), *places))
    if len(loops) != 1:
        return []
    place = places[name_of(loops[0].func)]
    named = [keyword.value for keyword in loops[0].keywords if keyword.arg in _BY_NAME[place]]
    given = [*loops[0].args[place : place + 1], *named]
    match given:
        case [ast.Call(func=called, args=[first, *_])] if name_of(called) == "partial":
            given = [first]
    match given:
        case [ast.Lambda(body=value)]:
            return [file.place(value)]
        case [ast.Name() | ast.Attribute() | ast.Call() as taken]:
            every = [node for node in ast.walk(file.tree) if isinstance(node, Function)]
            name = name_of(taken)
            if isinstance(taken, ast.Call):  # of a class, or of a function that returns one
                made = elsewhere(file, taken)
                name = name_of(made[-1]) if made and isinstance(made[-1], ast.Name) else "__call__"
            owners = [node for node in every if node.name == name]
            values = [value for owner in owners for value in returned_by(owner)]
            return only_place(file, values or owners)
    return []


def of_gradients(record: Record, function: str) -> list[Culprit]:
    """Where a function adds up the gradients of the parts of a batch, or takes them.

    That is the first thing returned by the function inside that takes them, where a loop calls
    it; or what a loop of that function returns each round; or the only other call of that
    function; or the call that takes the gradients.
    """
    file = File(record.source)
    nodes = list(nodes_of(file, function))
    taking = list(calls_among(nodes, "value_and_grad", "grad"))
    if len(taking) != 1:
        return of_definitions(file, [function])
    top = file.doing(function)
    inside = (n for n in nodes if isinstance(n, Function) and n is not top)
    owners = [n for n in inside if taking[0] in ast.walk(n)]
    if not owners:
        return [file.place(taking[0])]
    owner = owners[-1]
    if loops := list(calls_among(nodes, *_ROUNDS)):
        around = any(node in loops for node in ast.walk(owner))
        if around and (made := each_round(record, function)):
            return made
        given = [part_of(value, 0, 2) or value for value in returned_by(owner)]
        return [file.place(given[0] if len(given) == 1 else taking[0])]
    calls = list(calls_among(nodes, owner.name))
    return [file.place(calls[0] if len(calls) == 1 else taking[0])]


def rounds(record: Record, function: str) -> list[Culprit]:
    """What the only `for` in a function goes over; else nothing."""
    file = File(record.source)
    return only_place(
        file, (node.iter for node in nodes_of(file, function) if isinstance(node, ast.For))
    )


def leaving(record: Record, function: str) -> list[Culprit]:
    """The only `break` in a function, else nothing."""
    file = File(record.source)
    return only_place(
        file, (node for node in nodes_of(file, function) if isinstance(node, ast.Break))
    )


def kept_of_the_last_round(record: Record, function: str, called: str) -> list[Culprit]:
    """Where a loop gives a name, which the function returns, a new value of `called` each round.

    That is not where the old value is used, or kept, in the loop, and not where an `if` decides.
    Nothing if there is none.
    """
    file = File(record.source)
    top = file.doing(function)
    given = returned_by(top) if top else []
    returned = {name for value in given for name in names_in(value)}
    found = []
    for loop in (node for node in nodes_of(file, function) if isinstance(node, ast.For)):
        decided = {n for one in ast.walk(loop) if isinstance(one, ast.If) for n in ast.walk(one)}
        for node in (node for node in ast.walk(loop) if node not in decided):
            if isinstance(node, ast.Assign) and any(calls_among(ast.walk(node.value), called)):
                names = (n for n in ast.walk(loop) if isinstance(n, ast.Name))
                read = {name.id for name in names if isinstance(name.ctx, ast.Load)}
                found += [node] * bool(returned & {*given_by(node)} - read)
    return [file.place(node) for node in found]
