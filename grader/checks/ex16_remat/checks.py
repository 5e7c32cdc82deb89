"""Checks of ex16_remat: the gradients, and the budgets for memory and for work."""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

import msgspec

from grader.checks.ex16_remat import EXERCISE, facts
from grader.checks.ex16_remat.facts import NETWORKS, Network
from grader.judging.arrays import CHANGE, compare
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import calls_of, definition, given, seen, wanted
from grader.judging.programs import compiled_program
from grader.judging.results import differing_output
from grader.judging.steps import output_error
from grader.records.record import Measured, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

ARRAYS = 4.5
"""The budget for memory: arrays (n, h) a layer, kept or in use."""
OWN, NEEDED = 3, 9
"""The matrix products of a layer, and those of its forward and its backward pass together."""
PRODUCTS = 10.5
"""The budget for work: matrix products (n, d) x (d, h) a layer."""


def _programs(record: Record) -> Iterator[tuple[str, Network, Measured | Failure | Unable]]:
    """The program of each network, by its name."""
    networks = msgspec.convert(wanted(record).facts[NETWORKS], list[Network])
    for number, network in enumerate(networks, 1):
        name = facts.program(number)
        yield name, network, compiled_program(record, name, COMPILED, made_by="thrifty")


def _alone(name: str, network: Network) -> str:
    """What is known of a network, in words, where those before it have passed; else ""."""
    if name == facts.program(1):
        return ""
    its = f"{network.layers} layers, and an `x` of shape {network.shape}"
    return f"; so it is in {name.rpartition(' of ')[2]}, with {its}, and not in those before it"


COMPILED = "`gradients` is a program that can be compiled apart from its file"
THRIFTY_COMPILED = "`thrifty` is a program that can be compiled apart from its file"


@EXERCISE.check(
    ground="program",
    hints=(
        "`thrifty(x, weights)` gives the numbers of `layer(x, weights)`. Only what is kept for the "
        "backward pass changes.",
    ),
)
def same_gradients(record: Record) -> Result:
    """The gradients are the reference's, and `thrifty` returns what `layer` does."""
    networks = {name: network for name, network, _ in _programs(record)}
    for name in (*networks, facts.RESULT):
        expected = THRIFTY_COMPILED if name == facts.RESULT else COMPILED
        program = compiled_program(record, name, expected, made_by="thrifty")
        if not isinstance(program, Measured):
            return program
        if failure := differing_output(record, name, rtol=1e-3, atol=1e-5):
            apart = output_error(record, name)
            small = apart is not None and apart < BFLOAT16
            said = (
                f"; together, they differ by 1 part in {1 / apart:.0f}" if apart and small else ""
            )
            cast = statements.matching(record, "thrifty", _CAST) if small else []
            unlike = cast or statements.unlike(record, "layer")
            unlike = unlike or (_other_arguments(record) if small else [])
            swapped, words = _exchanged(record) if not unlike else ([], "")
            said += words
            said += "; what is marked is not as in `layer`" * bool(unlike)
            said += _in_layer(record, unlike)
            said += WITHOUT_X * (not unlike and _lacks_x(record))
            of_constant = any("stop_gradient" in place.text for place in unlike)
            backward = [] if unlike or said else _backward(record, name)
            stopped = calls_of(record, ["stop_gradient"]) if backward == [] and not said else []
            stopped = stopped if _is_right(record) else []
            last = f"[{networks[name].layers - 1}]" if backward else ""
            of_x = bool(backward) and _is_right_in(record, name, last)
            of_down = bool(backward) and not _is_right_in(record, name, f"{last}['down']")
            said += OF_BACKWARD * bool(backward or stopped) + OF_X * of_x + OF_DOWN * of_down
            where = _alone(name, networks[name]) if name in networks else OF_SQUARE
            hint = NEARLY if small else STOPPED if stopped else BACKWARD if backward else ""
            hint = BACKWARD_OF_X if of_x else BACKWARD_OF_DOWN if of_down else hint
            hint = STOPPED if of_constant and _is_right(record) else EACH_ITS_OWN if words else hint
            hint = AT_ZERO if " NaN of " in failure.observed and _is_right(record) else hint
            return replace(
                failure,
                observed=failure.observed + said + where,
                culprits=unlike or swapped or backward or stopped or definition(record, "thrifty"),
                hint=failure.hint or hint,
                made=statements.result(record, "thrifty"),
            )
    if changed := seen(record).facts[facts.CHANGED]:
        return Failure(
            "`thrifty` leaves the dict of weights as it is, as `layer` does",
            f"`weights[{str(changed[0])!r}]` is new after it, or gone, or another array",
            statements.written_into(record, "thrifty"),
            THE_DICT,
        )
    return None


THE_DICT = (
    "Another layer may use the same weights. Which line takes one out of the dict, or puts one in?"
)
OF_SQUARE = "; `x` has as many rows as columns here"
_CAST = r".*\.astype\([^()]*float16['\"]?\)$"
OF_BACKWARD = "; the result of `thrifty` is right, and its gradients are not"
BACKWARD = (
    "The backward function of jax.custom_vjp returns one gradient for each argument, of all ways "
    "on which the result depends on it. On which ways does it depend on `x`?"
)
OF_X = ", except those of the last layer: the others are made from the gradient of `x`"
BACKWARD_OF_X = (
    "The backward function of jax.custom_vjp returns the gradient of `x`, too, and the layer "
    "before goes on with it. `layer` multiplies `x` by `up` and by `gate`, and adds what it "
    "computes to `x`: has your gradient a part for each of the three?"
)
OF_DOWN = ", that of `down` in the last layer among them"
BACKWARD_OF_DOWN = (
    "The gradient of `down` is made of two arrays: `hidden`, and the gradient that comes in, times "
    "the derivative of tanh. That derivative is 1 - tanh(y)**2. Does your backward function have "
    "both of them?"
)
STOPPED = (
    "What jax.lax.stop_gradient gets counts as a constant in the backward pass. Does the result "
    "depend on it?"
)
AT_ZERO = (
    "The result is right, and its gradients are no numbers. One row of `x` is all 0. Which "
    "function in your code has no derivative there? A root has none at 0, nor has a norm."
)
ALIKE = 0.8
"""How much two lines have in common that are nearly the same: see `difflib`."""


def _in_layer(record: Record, places: list[Culprit]) -> str:
    """The line of `layer` that is nearly the marked one, in words; or ""."""
    file = File(record.source)
    own = [file.place(one).text for layer in _functions(file, "layer") for one in layer.body]
    near = [get_close_matches(place.text, own, 1, ALIKE) for place in places]
    return f", where `{near[0][0]}` stands" if len(near) == 1 and near[0] else ""


WITHOUT_X = "; `thrifty(x, weights)` is what `layer` adds to `x`, without `x`"


def _lacks_x(record: Record) -> bool:
    """Whether `thrifty` gives the result of `layer` less `x`."""
    mine, theirs = record.measured.get(facts.RESULT), record.reference_measured.get(facts.RESULT)
    if mine is None or theirs is None:
        return False
    before = given(record, facts.RESULT)
    found = compare("", mine.outputs, theirs.outputs, "", "", rtol=1e-3, atol=1e-5, before=before)
    return found is not None and found.hint == CHANGE


EACH_ITS_OWN = (
    "Which parameter does each argument become? By position, they go in the order of `def`."
)


def _exchanged(record: Record) -> tuple[list[Culprit], str]:
    """The call of a function of the file that gets two names in each other's place; and words."""
    file = File(record.source)
    defined = {one.name: one for one in ast.walk(file.tree) if isinstance(one, ast.FunctionDef)}
    for call in (node for node in ast.walk(file.tree) if isinstance(node, ast.Call)):
        function = defined.get(ast.unparse(call.func))
        names = [arg.arg for arg in function.args.args] if function else []
        got = [arg.id if isinstance(arg, ast.Name) else "" for arg in call.args]
        for (one, own), (other, its) in itertools.combinations(zip(got, names, strict=False), 2):
            if function and one == its != own == other:
                words = f"; `{function.name}` takes ({', '.join(names)}), and `{one}` and `{other}`"
                return [file.place(call)], f"{words} come in each other's place"
    return [], ""


def _backward(record: Record, name: str) -> list[Culprit]:
    """What the backward function of jax.custom_vjp returns, if nothing but gradients is wrong."""
    right = name != facts.RESULT and _is_right(record)
    return statements.backward(record, "thrifty") if right else []


def _is_right_in(record: Record, name: str, part: str) -> bool:
    """Whether the gradients whose paths begin with `part` are the reference's."""
    return differing_output(record, name, rtol=1e-3, atol=1e-7, part=part) is None


def _is_right(record: Record) -> bool:
    """Whether the result of `thrifty` is that of `layer`."""
    return differing_output(record, facts.RESULT, rtol=1e-3, atol=1e-5) is None


BFLOAT16 = 2**-5
"""The part of the gradients that bfloat16 may change: 1/50 was seen, after seven layers."""
NEARLY = (
    "So small a difference is rounding, or a function that is nearly the one of `layer`. Compare "
    "your lines with those of `layer`, and the dtypes of what they compute."
)


JOINED = (
    "The compiler can join a second computation with the first one, and then all is kept again. "
    "prevent_cse keeps it from that: leave it at its default, True."
)


def _why_kept(record: Record) -> tuple[str, str]:
    """What a file lacks, and the hint for what it does to keep too much.

    Nothing and "" for the check's first hint.
    """
    source = record.source
    if any(word in source for word in ("offload", "pinned_host", "Space.Host")):
        hint = "What waits in the host's memory is kept, too. Which of it could be computed again?"
        return "", hint
    if "custom_vjp" in source:
        return "", OF_A_VJP
    if not re.search(r"\b(checkpoint|remat)\b", source):
        hint = NAMED if "checkpoint_name" in source else ALL_KEPT
        return "; no line of the file calls jax.checkpoint", hint
    if not any(statements.reaches(record, "thrifty", name) for name in ("checkpoint", "remat")):
        return "; `thrifty` does not use what jax.checkpoint returns", ALL_KEPT
    if "_names" in source:
        return "", ALL_BUT_NAMED if "except_these_names" in source else TOO_MANY_NAMED
    return "", JOINED if "prevent_cse" in source else ""


ALL_BUT_NAMED = (
    "save_anything_except_these_names keeps every array that has none of the names, and a layer "
    "makes many. Which policy keeps the named ones alone?"
)
TOO_MANY_NAMED = (
    "Each array that jax.ad_checkpoint.checkpoint_name has given one of the policy's names is "
    "kept. How many arrays (n, h) are these, and which of them is made from the others?"
)


OF_A_VJP = (
    "What the forward function of jax.custom_vjp returns for the backward is kept. And what the "
    "backward computes again, the compiler may compute early, and keep: jax.lax."
    "optimization_barrier of what was kept and of the gradient that comes in makes it wait."
)
NAMED = (
    "jax.ad_checkpoint.checkpoint_name only gives an array a name. A policy of jax.checkpoint can "
    "use it."
)
ALL_KEPT = (
    "What a backward pass needs is kept, unless jax.checkpoint says that it is computed again."
)


@EXERCISE.check(
    ground="program",
    after=("same_gradients",),
    hints=(
        "What jax.checkpoint does not drop is kept. Each layer here makes several arrays (n, h): "
        "products, gelu, sigmoid, the norm.",
        JOINED,
    ),
)
def within_memory(record: Record) -> Result:
    """The program's intermediate results take at most 4.5 arrays (n, h) a layer."""
    for name, network, program in _programs(record):
        if not isinstance(program, Measured):
            return program
        if program.memory is None:
            return Unable("this backend does not say how much memory a program needs")
        one = network.layers * network.array_bytes
        found = program.memory.temporaries + program.memory.host_temporaries
        if found > ARRAYS * one:
            on_host = program.memory.host_temporaries
            lacks, hint = _why_kept(record)
            return Failure(
                f"at most {ARRAYS} arrays (n, h) for each of {network.layers} layers: "
                f"{ARRAYS * one:,.0f} bytes of intermediate results",
                f"{found / one:.1f} arrays a layer: {found:,} bytes"
                + f", {on_host:,} of them in the host's memory" * bool(on_host)
                + _alone(name, network)
                + lacks,
                _checkpointed(record),
                hint,
            )
    return None


def _checkpointed(record: Record) -> list[Culprit]:
    """Where `thrifty` says what is kept, if it says that once."""
    rules = calls_of(record, ["defvjp"])
    return rules or statements.call(record, "thrifty", "checkpoint", "remat", "partial")


POLICY = (
    "The results of the products are worth keeping. What is computed from them element by element "
    "is not. Which of them does your policy save?"
)
OF_NAMES = (
    "A policy that saves names saves the arrays that jax.ad_checkpoint.checkpoint_name has given "
    "these names; a name that no array has saves nothing. The results of the products are worth "
    "keeping."
)


def _names_of_nothing(record: Record) -> list[str]:
    """The names that a policy saves and that no array gets, where all are written out."""
    calls = [node for node in ast.walk(File(record.source).tree) if isinstance(node, ast.Call)]
    given = [call.args[1:] for call in calls if _is_of(call, "checkpoint_name")]
    known = [arg.value for args in given for arg in args if isinstance(arg, ast.Constant)]
    if len(known) < len(given) or not given:
        return []
    kept = [arg for call in calls if _is_of(call, "_names") for arg in call.args]
    names = [arg.value for arg in kept if isinstance(arg, ast.Constant)]
    return [str(name) for name in names if name not in known]


EACH_BY_ITSELF = "A policy takes each name as an argument of its own: (*names), not (names)."


def _names_in_one(record: Record) -> list[Culprit]:
    """Where a policy gets its names as a list or a tuple, and not each by itself; or nothing."""
    file = File(record.source)
    nodes = [*ast.walk(file.tree)]
    stored = {
        ast.unparse(target)
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, _COLLECTIONS)
        for target in node.targets
    }
    return [
        file.place(call)
        for call in nodes
        if isinstance(call, ast.Call) and _is_of(call, "_these_names")
        for arg in call.args
        if isinstance(arg, _COLLECTIONS) or ast.unparse(arg) in stored
    ]


_COLLECTIONS = (ast.Tuple, ast.List, ast.Set)
OUTERMOST = (
    "A jax.checkpoint without a policy keeps nothing of what is inside it, whatever a policy there "
    "says. How many stand around the layer?"
)


def _without_policy(record: Record) -> list[Culprit]:
    """Where jax.checkpoint without a policy decorates a `thrifty` that has a policy; or nothing."""
    file = File(record.source)
    functions = [one for one in _functions(file, "thrifty") if "policy" in ast.unparse(one)]
    return [
        file.place(decorator)
        for function in functions
        for decorator in function.decorator_list
        if re.search(r"\b(checkpoint|remat)$", ast.unparse(decorator))
    ]


def _other_arguments(record: Record) -> list[Culprit]:
    """The calls outside `layer` of what it calls, with other keyword arguments than there."""
    file = File(record.source)
    calls = [node for node in ast.walk(file.tree) if isinstance(node, ast.Call)]
    layer, given = (
        [node for function in _functions(file, name) for node in ast.walk(function)]
        for name in ("layer", "gradients")
    )
    known = {ast.unparse(one.func): _keywords(one) for one in calls if one in layer}
    own = (call for call in calls if call not in (*layer, *given))
    others = ((call, known.get(ast.unparse(call.func))) for call in own)
    return [file.place(call) for call, its in others if its not in (None, _keywords(call))]


def _functions(file: File, name: str) -> list[ast.FunctionDef]:
    """The functions at the top level of that name."""
    return [n for n in file.tree.body if isinstance(n, ast.FunctionDef) and n.name == name]


def _keywords(call: ast.Call) -> list[str]:
    return sorted(ast.unparse(keyword) for keyword in call.keywords)


def _is_of(call: ast.Call, ending: str) -> bool:
    return ast.unparse(call.func).endswith(ending)


AGAIN_BY_A_VJP = (
    "Each product that the backward pass computes again is work once more. What the forward "
    "function of jax.custom_vjp keeps for it is not computed again."
)


@EXERCISE.check(
    ground="program",
    after=("within_memory",),
    hints=(
        "Without a policy, jax.checkpoint computes the whole layer again: 3 more products.",
        POLICY,
    ),
    anchor="what-a-policy-saves",
)
def within_work(record: Record) -> Result:
    """The program's work is at most that of 10.5 matrix products a layer."""
    for name, network, program in _programs(record):
        if not isinstance(program, Measured):
            return program
        one = network.layers * network.product_flops
        expected = (
            f"work of at most {PRODUCTS} matrix products a layer: {PRODUCTS * one:,.0f} FLOPs"
        )
        if not program.work:
            observed = "a loop whose length is not known before it runs"
            hint = "A loop needs work, too. Which one stops when its data say so?"
            return Failure(expected, observed, definition(record, "thrifty"), hint)
        # A compiler counts the body of a loop once, and the grader counts it as often as it runs.
        found = max(program.flops, program.work)
        if found > PRODUCTS * one:
            again = round(found / one) - NEEDED
            observed = f"work of {found / one:.1f} products a layer: {found:,.0f} FLOPs"
            more = f", as if {again} of the layer's {OWN} products were computed once more"
            observed += more * (again in range(2, OWN + 1)) + _alone(name, network)
            place = _checkpointed(record)
            if missing := _names_of_nothing(record):
                observed += f"; the policy saves `{missing[0]}`, and no array has that name"
            hint = OF_NAMES if "_names" in record.source else POLICY
            hint = hint if "policy" in record.source else ""
            hint = AGAIN_BY_A_VJP if "custom_vjp" in record.source else hint
            if collected := _names_in_one(record):
                observed += "; the policy gets its names in one collection, and knows none of them"
                place, hint = collected, EACH_BY_ITSELF
            elif outer := _without_policy(record):
                place, hint = outer, OUTERMOST
            return Failure(expected, observed, place, hint)
    return None
