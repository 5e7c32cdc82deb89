"""Finds slips of the pen that a text shows by itself.

They are a result that is dropped, a `map` that nothing goes through, a new value that nothing uses,
a value that a loop does not carry on, a list that is put into itself, a list that a loop empties in
each round, an `append` below its loop, a `return` that ends a loop in its first round, an iterator
that is used up before a loop over it, a condition that always holds, a search or a call with its
arguments exchanged, a result that is rounded down, a copy to no named place, a copy that hangs on a
condition, a dtype of few digits, and a parameter that is used nowhere, or replaced. They are looked
for in a function, and in what the file adds for it.

It compares two texts, the learner's file and the reference solution, and runs neither. What it
finds explains a failure that has no line of its own; it never makes one. A forgotten `return` is in
`grader.source.returns`.
"""

import ast
from collections.abc import Container, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple

from grader.records.verdict import Culprit
from grader.source.file import File, reached
from grader.source.inlined import is_large
from grader.source.trees import own_nodes, stored_in, text_of

_NEW_VALUES = (
    "device_put",
    "apply_updates",
    "with_memory_kind",
    "with_sharding_constraint",
    "reshard",
    "optimization_barrier",
    "nnx.merge",
    "pmean",
    "psum",
    "astype",
    "to_device",
    "random.split",
    "checkpoint",
    "checkpoint_name",
    "remat",
    "np.pad",
    "jnp.pad",
    "concatenate",
)
"""How calls end that change nothing and return a new value."""
_MAPS = ("tree.map", "tree_map")
_AT = frozenset(("add", "divide", "max", "min", "multiply", "power", "set"))


class Slip(NamedTuple):
    """A slip: where it is, what it is, and the edited function that holds or reaches it."""

    place: Culprit
    words: str
    function: str
    about: str = ""
    """The parameter, or the word, that it is about: it explains only what has to do with that."""
    hint: str = ""
    """Where it is a mistake wherever it stands, and whatever it leads to: what to do about it."""


def slips(file: File, model: str, edits: Sequence[str]) -> Iterator[Slip]:
    """The slips in the edited functions, the most telling ones first.

    In what is much larger than any solution, none is looked for.
    """
    if is_large(file.tree):
        return
    right = {node.name: node for node in File(model).tree.body if isinstance(node, ast.FunctionDef)}
    mine = [
        (node, right[name])
        for name in edits
        if name in right
        for node in (*_put_in_place(file, name, model), *_added_for(file, name, right))
        if not is_large(node, LARGEST_FUNCTION)
    ]
    making = frozenset(name for name, node in right.items() if any(map(_gives, ast.walk(node))))
    finders = (
        (_dropped, "The call does not change what it gets. Use what it returns."),
        (partial(_dropped_of_the_file, making=making), ""),
        (_never_begun, LAZY),
        (_never_read, ""),
        (_never_used, ""),
        (_not_fed_back, ""),
        (_put_into_itself, "Which value is to be added to the list? What is named is the list."),
        (_emptied, "What is in it after the last round? Where is it to be made?"),
        (_after_its_loop, "How far is this line indented, and how often does it run?"),
        (
            _ends_its_loop,
            "How far is this `return` indented, and how many rounds does the loop make?",
        ),
        (_used_up, "An iterator gives each item once. What is there for the loop that follows?"),
        (
            _always_holds,
            "`or` stands between two conditions, and each is whole: `x == 1 or x == 2`.",
        ),
        (_searched_in_a_text, "Which of the two is the text that is looked for?"),
        (_exchanged, "What does each parameter stand for, and which argument is in its place?"),
        (_rounded_down, "`/` divides, and `//` leaves the fraction out."),
        (_names_no_place, ""),
        (_hangs_on_a_condition, ""),
        (_of_few_digits, ""),
        (_replaced, ""),
        (_unused, ""),
    )
    for find, hint in finders:
        for node, reference in mine:
            if node.name != reference.name and find in _OF_THE_WHOLE:
                continue
            for place, words in find(node, reference):
                about = place.arg if isinstance(place, ast.arg) else _ABOUT.get(find, "")
                yield Slip(file.place(place), words, reference.name, about, hint)


def _put_in_place(file: File, name: str, model: str) -> Iterator[ast.FunctionDef]:
    """An edited function, with the helpers that are called once in the place of their calls."""
    body = file.in_place(File(model).names)
    yield from (node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)


def _added_for(file: File, name: str, given: Container[str]) -> Iterator[ast.FunctionDef]:
    """The functions and methods that the file adds, and an edited function reaches."""
    for top in reached(file, name):
        if isinstance(top, ast.FunctionDef | ast.ClassDef) and top.name not in given:
            held = top.body if isinstance(top, ast.ClassDef) else [top]
            yield from (node for node in held if isinstance(node, ast.FunctionDef))


_Found = Iterator[tuple[ast.expr | ast.stmt | ast.arg, str]]


def _gives(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) and node.value is not None


def _dropped(mine: ast.FunctionDef, _: ast.FunctionDef) -> _Found:
    """Calls that do nothing but return new values, as statements of their own."""
    makers = _makers(mine)
    for call, name in _statements(mine):
        if _is_new(name) or (name.endswith(_MAPS) and _maps_to_new(call, makers)):
            yield call, _drops(name)


LAZY = "A `for` loop goes through its items at once. What goes through what `map` returns?"


def _never_begun(mine: ast.FunctionDef, _: ast.FunctionDef) -> _Found:
    """Calls of `map` as statements of their own."""
    for call in begun_by_nothing(mine):
        yield call, "`map` calls nothing before something goes through what it returns"


def begun_by_nothing(tree: ast.AST) -> list[ast.Call]:
    """The calls of `map` that are statements of their own: the mapped function is never called."""
    alone = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return [one for one in alone if isinstance(one, ast.Call) and text_of(one.func) == "map"]


def _maps_to_new(call: ast.Call, makers: set[str]) -> bool:
    """Whether a call of jax.tree.map does no more than make new values."""
    match call.args[:1]:
        case [ast.Lambda(body=ast.Call(func=called))] | [ast.Attribute() as called]:
            return _is_new(text_of(called))
        case [ast.Name(id=name)]:
            return name in makers
    return False


def _dropped_of_the_file(
    mine: ast.FunctionDef, right: ast.FunctionDef, making: frozenset[str]
) -> _Found:
    """Calls of a parameter, or of a function of the file, whose result the reference uses.

    `making` names the functions of the file that return something.
    """
    given = {arg.arg for arg in right.args.args} | making | _makers(mine)
    given -= set(_called_for_effect(right))
    yield from ((call, _drops(name)) for call, name in _statements(mine) if name in given)


def _makers(function: ast.FunctionDef) -> set[str]:
    """The functions inside a function that do no more than return one of `_NEW_VALUES`."""
    found: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.FunctionDef(name=name, body=[*_, ast.Return(value=ast.Call() as made)]):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(body=ast.Call() as made)):
                pass
            case _:
                continue
        parts = [one for one in ast.walk(made) if isinstance(one, ast.Attribute | ast.Name)]
        if any(_is_new(text_of(one)) for one in parts):
            found.add(name)
    return found


def _statements(function: ast.FunctionDef) -> Iterator[tuple[ast.Call, str]]:
    """The calls that are statements of their own, and what each calls."""
    for node in ast.walk(function):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node.value, text_of(node.value.func)


def _drops(name: str) -> str:
    shown = name if len(name) <= MAX_NAME else f"...{name.rpartition('.')[2]}"
    return f"what `{shown}` returns on this line is dropped"


MOST_CONDITIONS, LARGEST_FUNCTION = 20, 1500
"""The conditions and the nodes of a function in which a slip is looked for."""
MAX_NAME = 40
"""The longest name of a called function that is repeated."""


def _is_new(called: str) -> bool:
    """Whether a function of this name changes nothing, and returns a new value."""
    is_at = called.rpartition(".")[2] in _AT and ".at[" in called
    return is_at or f".{called}".endswith(tuple(f".{name}" for name in _NEW_VALUES))


def _never_read(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Calls whose result gets a name that nothing reads from there on.

    The name held another value before, or the result is the point of the call. Of what is
    unpacked, that is a part which the reference reads, which is called new, or which goes into the
    call and comes out of it, and which held another value before, or nothing reads anywhere else.
    """
    every = (node for node in ast.walk(mine) if isinstance(node, ast.FunctionDef))
    for function, node in ((one, node) for one in every for node in own_nodes(one.body)):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=called)
                | ast.ListComp(elt=ast.Call(func=called))
                | ast.DictComp(value=ast.Call(func=called)) as value,
            ):
                again = _had_another(name, node, function)
                mapped = text_of(called).endswith(_MAPS)
                names = [name] if again or mapped or _is_new(text_of(called)) else []
            case ast.Assign(targets=[ast.Tuple(elts=parts)], value=ast.Call() as value):
                made = [part.id for part in parts if isinstance(part, ast.Name)]
                used = _read(right) | _read(value)
                meant = [name for name in made if name in used or name.startswith("new")]
                names = [
                    name
                    for name in meant
                    if _had_another(name, node, function)
                    or not _loads(name, function) - _loads(name, node)
                ]
            case _:
                continue
        for name in names:
            if not name.startswith("_") and not _is_read(name, node, function):
                yield value, f"nothing uses the `{name}` that this line makes"


def _never_used(mine: ast.FunctionDef, _: ast.FunctionDef) -> _Found:
    """What a loop takes out of `zip` item by item and does nothing with."""
    for node in ast.walk(mine):
        match node:
            case ast.For(target=ast.Tuple(elts=parts), iter=ast.Call(func=ast.Name(id="zip"))):
                for part in (one for one in parts if isinstance(one, ast.Name)):
                    if not part.id.startswith("_") and not _loads(part.id, mine):
                        yield part, f"nothing uses the `{part.id}` of this loop"


def _had_another(name: str, made: ast.Assign, function: ast.FunctionDef) -> bool:
    """Whether a name had a value, as a parameter or later, before a statement gives it one."""
    return any(
        _begin(node) < _begin(made)
        for node in ast.walk(function)
        if (isinstance(node, ast.arg) and node.arg == name)
        or (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store))
    )


def _loads(name: str, tree: ast.AST) -> set[ast.Name]:
    """Where a name is read in a tree."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name)
    return {node for node in names if isinstance(node.ctx, ast.Load)}


def _is_read(name: str, made: ast.Assign, function: ast.FunctionDef) -> bool:
    """Whether anything may read the value that a statement has given a name."""
    inside = [node for node in ast.walk(function) if isinstance(node, _INNER)][1:]
    hidden = [node for node in inside if any(arg.arg == name for arg in node.args.args)]
    if any(name in _read(node) for node in inside if node not in hidden):
        return True
    around = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
    for loop in (node for node in reversed(around) if made in ast.walk(node)):  # the inner first
        if isinstance(loop, ast.For) and name in stored_in(loop.target):
            break
        if name in _read(loop):
            return True
    own = set[ast.Name]().union(*(_loads(name, node) for node in (made, *hidden)))
    return any(_begin(node) > _begin(made) for node in _loads(name, function) - own)


_INNER = ast.FunctionDef | ast.Lambda


def _begin(node: ast.expr | ast.stmt | ast.arg) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _called_for_effect(function: ast.FunctionDef) -> Iterator[str]:
    """What a function calls in a statement of its own, or only to decide where to go on."""
    for node in ast.walk(function):
        match node:
            case ast.Expr(value=ast.Call(func=called)):
                yield text_of(called)
            case ast.If(test=ast.Call(func=called)) | ast.While(test=ast.Call(func=called)):
                yield text_of(called)


def _not_fed_back(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Calls that get the same value in each round, where the reference's get a new one."""
    fed = {
        (name, arg.id) for loop, name, arg in _given_in_loops(right) if arg.id in stored_in(loop)
    }
    for loop, name, arg in _given_in_loops(mine):
        if (name, arg.id) in fed and arg.id not in stored_in(loop):
            yield (
                arg,
                f"`{arg.id}` is the same in each round of this loop, which does not assign it",
            )


def _given_in_loops(function: ast.FunctionDef) -> Iterator[tuple[ast.For, str, ast.Name]]:
    """Names that a loop passes to a parameter of the function that is called, with both."""
    given = {arg.arg for arg in function.args.args}
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [arg for arg in node.args if isinstance(arg, ast.Name)]
                yield from ((loop, node.func.id, arg) for arg in names if node.func.id in given)


def _put_into_itself(mine: ast.FunctionDef, _: ast.FunctionDef) -> _Found:
    """A list that is given to its own `append` or `insert`."""
    for node in ast.walk(mine):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="append" | "insert"),
                args=[*_, ast.Name(id=added)],
            ) if name == added:
                yield node, f"this puts the list `{name}` into itself"


def _emptied(mine: ast.FunctionDef, _: ast.FunctionDef) -> _Found:
    """An empty list or dict that a loop makes in each round, and that is read after the loop."""
    for loop in (node for node in ast.walk(mine) if isinstance(node, ast.For)):
        for node in loop.body:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.List(elts=[]) | ast.Dict(keys=[])
                ) if any(one.lineno > (loop.end_lineno or 0) for one in _loads(name, mine)):
                    yield node, f"this makes `{name}` empty in each round of the loop"


def _after_its_loop(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """An `append` below a loop, where the reference has one in its loop, and this has none."""
    if not _appended(right, ast.For) or _appended(mine, _LOOPS):
        return
    for before, node in pairwise(mine.body):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append")) as call):
                if isinstance(before, ast.For):
                    yield call, "this `append` comes after the loop, and runs once"


_LOOPS = (ast.For, ast.While, ast.comprehension)


def _appended(function: ast.FunctionDef, loops: type[ast.AST] | tuple[type[ast.AST], ...]) -> bool:
    """Whether something is appended in one of these loops."""
    inside = (node for node in ast.walk(function) if isinstance(node, loops))
    return any(
        isinstance(node, ast.Attribute) and node.attr == "append"
        for loop in inside
        for node in ast.walk(loop)
    )


def _ends_its_loop(mine: ast.FunctionDef, _: ast.FunctionDef) -> _Found:
    """The last `return` in a loop, where nothing in the loop passes by all of them."""
    for node in ast.walk(mine):
        if not isinstance(node, ast.For) or not always_returns(node.body) or _takes_first(node):
            continue
        if not any(isinstance(inner, ast.Continue) for inner in ast.walk(node)):
            last = max((n for n in ast.walk(node) if isinstance(n, ast.Return)), key=_begin)
            yield last, "this `return` is inside the loop: it ends it in its first round"


def _takes_first(loop: ast.For) -> bool:
    """Whether a loop is made to give its first item, if there is one."""
    match loop:
        case ast.For(target=ast.Name(id=item), body=[ast.Return(value=ast.Name(id=given))]):
            return item == given
    return False


def always_returns(body: Sequence[ast.stmt]) -> bool:
    """Whether whatever way leads through statements ends at a `return`."""
    match body[-1]:
        case ast.Return():
            return True
        case ast.If(body=then, orelse=[_, *_] as otherwise):
            return always_returns(then) and always_returns(otherwise)
    return False


def _always_holds(mine: ast.FunctionDef, _: ast.FunctionDef) -> _Found:
    """A text or a number beside `or`, where whether it holds is asked: it always does."""
    tests = [
        test
        for node in ast.walk(mine)
        for test in (getattr(node, "test", None), *getattr(node, "ifs", ()))
        if test is not None
    ]
    asked = {node for test in tests for node in ast.walk(test)}
    either = (node for node in ast.walk(mine) if isinstance(node, ast.BoolOp))
    for node in (node for node in either if isinstance(node.op, ast.Or)):
        compared = any(isinstance(value, ast.Compare) for value in node.values)
        constants = [value for value in node.values if isinstance(value, ast.Constant)]
        for one in constants:
            if type(one.value) in (str, int) and one.value and (compared or node in asked):
                whole, part = text_of(node), text_of(one)
                yield one, f"`{whole}` holds always: `{part}` alone counts as true"


def _searched_in_a_text(mine: ast.FunctionDef, _: ast.FunctionDef) -> _Found:
    """Calls of `re` that look for a parameter in a text which the file spells out."""
    given = {arg.arg for arg in mine.args.args}
    for node in ast.walk(mine):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=called),
                args=[ast.Name(id=name), ast.Constant(value=str()), *_],
            ) if name in given:
                yield node, f"`re.{called}` looks for its first argument, `{name}`, in its second"


_IN_ANY_ORDER = ("max", "min", "maximum", "minimum", "add", "multiply", "close", "array_equal")
"""How functions end that take their arguments in any order."""
OTHER_ORDER = "gets its arguments in another order than it takes them"


def _exchanged(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Calls that get what the reference's get, in an order in which no call there has it."""
    model = list(_given_several(right))
    for call, called, given in _given_several(mine):
        alike = [order for name, order in ((n, g) for _, n, g in model) if name == called]
        same = [order for order in alike if sorted(order) == sorted(given)]
        if same and given not in same:
            yield call, f"`{text_of(call.func)}` {OTHER_ORDER}"


def _given_several(function: ast.FunctionDef) -> Iterator[tuple[ast.Call, str, list[str]]]:
    """Calls that get several things by position: each with what is called, and the things.

    Calls of a module's functions that get names alone are not told: those may be in any order, as
    in jnp.dot(a, b).
    """
    for node in ast.walk(function):
        match node:
            case ast.Call(func=called, args=[_, _, *_] as args, keywords=[]):
                name, plain = text_of(called), all(isinstance(arg, ast.Name) for arg in args)
                if name.endswith(_IN_ANY_ORDER) or ("." in name and plain):
                    continue
                yield node, name, [text_of(arg) for arg in args]


def _rounded_down(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """The result of a `//`, where the reference returns that of a `/`."""
    if _quotients(right, ast.Div) and not _quotients(right, ast.FloorDiv):
        words = "`//` rounds down to a whole number"
        yield from ((node, words) for node in _quotients(mine, ast.FloorDiv))


def _quotients(function: ast.FunctionDef, kind: type[ast.operator]) -> list[ast.BinOp]:
    """The divisions of one kind whose result a function returns."""
    given = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
    return [node for node in given if isinstance(node, ast.BinOp) and isinstance(node.op, kind)]


_TAKE_ALL = frozenset(("list", "tuple", "set", "sorted", "sum", "max", "min", "deque"))
"""Functions that take all items of what they are given."""


def _used_up(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """What takes all items of a parameter that is an iterator, before a loop over it."""
    if "iterator" not in (ast.get_docstring(right) or ""):
        return
    always = [node for node in mine.body if not isinstance(node, ast.If)]
    for name in {arg.arg for arg in mine.args.args} - stored_in(mine):
        found = (_takes_all(node, name) for each in always for node in ast.walk(each))
        takers = sorted(filter(None, found), key=lambda node: (node.lineno, node.col_offset))
        loops = {id(node.iter) for node in ast.walk(mine) if isinstance(node, ast.For)}
        if any(id(node) in loops for node in takers[1:]):
            yield takers[0], f"this takes all of `{name}`, an iterator, and leaves the loop none"


def _takes_all(node: ast.AST, name: str) -> ast.expr | None:
    """The expression by which a node takes all items of what has this name, if it does."""
    match node:
        case ast.Call(func=ast.Name(id=called), args=[ast.Name(id=given)]) if given == name:
            return node if called in _TAKE_ALL else None
        case ast.For(iter=ast.Name(id=given) as taken, body=body) if given == name:
            ends = (ast.Break, ast.Return)
            early = any(isinstance(inner, ends) for each in body for inner in ast.walk(each))
            return None if early else taken
        case ast.comprehension(iter=ast.Name(id=given) as taken) if given == name:
            return taken
    return None


NO_PLACE = (
    "`device_put` names no device here: an array stays where it is, and a NumPy array goes to the "
    "default device"
)


def _names_no_place(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Calls of `device_put` that name no place, where all of the reference's name one."""
    if _copies(right) and all(map(_has_place, _copies(right))):
        yield from ((call, NO_PLACE) for call in _copies(mine) if not _has_place(call))


def _hangs_on_a_condition(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Conditions of a copy that do not look at its place, where the reference's have none.

    The place is one that the function is given.
    """
    if not _copies(right) or any(True for _ in _decided(right)):
        return
    for test, call in _decided(mine):
        to = (*call.args[1:], *(keyword.value for keyword in call.keywords))
        named = {last_name(node) for one in to for node in ast.walk(one)}
        named &= {arg.arg for arg in right.args.args}
        if named and named.isdisjoint(last_name(node) for node in ast.walk(test)):
            yield test, f"this condition decides what is copied to `{text_of(to[0])}`"


def _decided(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.Call]]:
    """The conditions that decide whether a function copies, each with the copy.

    Of a function with many, none is told.
    """
    conditions = [node for node in ast.walk(function) if isinstance(node, ast.If | ast.IfExp)]
    for node in conditions if len(conditions) <= MOST_CONDITIONS else ():
        match node:
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                ways: list[list[ast.AST]] = [[then], [otherwise]]
            case ast.If(test=test, body=body, orelse=orelse):
                after = _after(node, function) if always_returns(body) else []
                ways = [[*body], [*orelse, *after]]
        calls = [[call for one in way for call in _copies(one)] for way in ways]
        if sum(map(bool, calls)) == 1:
            yield from ((test, call) for call in chain(*calls))


def _after(node: ast.stmt, function: ast.FunctionDef) -> list[ast.stmt]:
    """The statements that follow one in the body that holds it."""
    bodies = (getattr(one, "body", None) for one in ast.walk(function))
    around = next((body for body in bodies if isinstance(body, list) and node in body), [node])
    return around[around.index(node) + 1 :]


def _copies(tree: ast.AST) -> list[ast.Call]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in calls if text_of(call.func).endswith("device_put")]


def _has_place(call: ast.Call) -> bool:
    starred = any(isinstance(arg, ast.Starred) for arg in call.args)
    return len(call.args) != 1 or bool(call.keywords) or starred


def _of_few_digits(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Calls that are given a dtype of half precision, where the reference names none."""
    if _HALF & {last_name(node) for node in ast.walk(right)}:
        return
    for call in (node for node in ast.walk(mine) if isinstance(node, ast.Call)):
        given = (*call.args, *(keyword.value for keyword in call.keywords))
        for half in _HALF & {last_name(one) for one in given}:
            yield call, f"this call gives an array of {half}, which has few digits"


_HALF = frozenset(("bfloat16", "float16", "half"))


def last_name(node: ast.AST) -> str:
    """A name, the last part of a dotted one, or a text."""
    return str(
        next((getattr(node, name) for name in ("id", "attr", "value") if hasattr(node, name)), "")
    )


def _replaced(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Parameters that get another value before anything reads the one that was given."""
    given = {arg.arg for arg in mine.args.args} & _read(right) - stored_in(right)
    for node in own_nodes(mine.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=name) as target]):
                pass
            case ast.For(target=ast.Name(id=name) as target):
                pass
            case _:
                continue
        end = node.iter if isinstance(node, ast.For) else node
        before = (one for one in _loads(name, mine) if _begin(one) <= _end(end))
        if name in given and not any(before):
            words = f"`{name}` is another value from this line on than the one that was given"
            yield ast.copy_location(ast.arg(name), target), words


_ABOUT: dict[object, str] = {_of_few_digits: "value", _hangs_on_a_condition: "device"}
"""What a failure has to speak of, where that is not the parameter that is marked."""
_OF_THE_WHOLE = (_after_its_loop, _ends_its_loop, _used_up, _rounded_down)
"""What is looked for in the function alone that takes the place of the reference's."""


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _unused(mine: ast.FunctionDef, right: ast.FunctionDef) -> _Found:
    """Parameters that the reference uses, and this function does not."""
    if any(isinstance(node, ast.Name) and node.id == "locals" for node in ast.walk(mine)):
        return
    for arg in (*mine.args.posonlyargs, *mine.args.args, *mine.args.kwonlyargs):
        if arg.arg in _read(right) and arg.arg not in _read(mine):
            yield arg, f"`{mine.name}` does not use `{arg.arg}`"


def _read(tree: ast.AST) -> set[str]:
    """The names that are read anywhere in a tree."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Load)}
