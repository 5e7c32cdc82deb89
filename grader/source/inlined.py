"""Puts the helpers of a file in the place of their calls, as if they had been written there.

One may do in a function of one's own what another does in place. Where such a helper is called
once, and the call is all that a statement does, what it does can be read in the place of that
statement. Likewise what a variable is given that is returned at once. Each node keeps its line and
its columns, so that what is found in it can be shown.

A helper is a function inside the function that calls it, a static method of a class of the file,
or a function of the file. It pays no heed to two variables of one name. Nothing is run.
"""

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy

from grader.source.trees import own_nodes, text_of

_Function = ast.FunctionDef
_BLOCKS = ("body", "orelse", "finalbody")
_NAMED_SCOPE = "named_scope"
_MOST = 20
"""How many helpers are put in place."""
LARGEST = 5000
"""The nodes of a file that is read so; a solution has a thousand."""


def inlined(tree: ast.Module, kept: Collection[str]) -> ast.Module:
    """A copy of `tree` in which helpers are put in place, but for the top-level names `kept`.

    It is `tree` itself if that is too large or too deep.
    """
    if is_large(tree):
        return tree
    try:
        return _inlined(deepcopy(tree), kept)
    except RecursionError:
        return tree


def is_large(tree: ast.AST, most: int = LARGEST) -> bool:
    """Whether a file has more nodes than a program to which any of this applies.

    What looks for each thing in all the others would take long with a file of many.
    """
    return sum(1 for _ in ast.walk(tree)) > most


def _inlined(tree: ast.Module, kept: Collection[str]) -> ast.Module:
    for _ in range(_MOST):
        helpers = dict(_helpers(tree, kept))
        if not any(_InPlace(helpers).changes(node) for node in _functions(tree)):
            break
    tree.body = [node for node in tree.body if not _is_empty_class(node)]
    return tree


def with_lambdas(tree: ast.Module, kept: Collection[str]) -> ast.Module:
    """The same `tree`, with each helper that only returns as a lambda, where its name stood.

    One that is called by its name stays.
    """
    called = {_words(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for name, helper in list(_helpers(tree, kept)):
        match helper.body:
            case [ast.Return(value=ast.expr() as value)] if name not in called:
                args = helper.function.args
                made = ast.copy_location(ast.Lambda(args, value), helper.function)
                replacing = Replacing(name, made)
                replacing.visit(tree)
                if replacing.done:
                    helper.forget()
    return tree


class Replacing(ast.NodeTransformer):
    """Puts an expression in the place of a name."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self._name, self._value, self.done = name, value, False

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id != self._name or not isinstance(node.ctx, ast.Load):
            return node
        self.done = True
        return self._value


def _is_empty_class(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and all(isinstance(one, ast.Pass) for one in node.body)


def _functions(tree: ast.Module) -> list[_Function]:
    return [node for node in ast.walk(tree) if isinstance(node, _Function)]


def _helpers(tree: ast.Module, kept: Collection[str]) -> Iterator[tuple[str, "_Helper"]]:
    """What may be put in place, by the words that call it: `helper`, `Tools.helper`."""
    used = Counter(_words(node) for node in ast.walk(tree))
    for holder in ast.walk(tree):
        for name, body in ((name, getattr(holder, name, None)) for name in _BLOCKS):
            for node in body if isinstance(body, list) else ():
                match node, holder:
                    case _Function(name=own), ast.ClassDef(name=of) if holder in tree.body:
                        words, decorated = f"{of}.{own}", ["staticmethod"]
                    case _Function(name=own), _ if own not in kept or holder is not tree:
                        words, decorated = own, []
                    case _:
                        continue
                if used[words] == 1 and [*map(text_of, node.decorator_list)] == decorated:
                    yield words, _Helper(node, holder, name)


def _words(node: ast.AST) -> str:
    """A name, or a name and its attribute, as they are written; "" for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return f"{name}.{attribute}"
    return ""


class _Helper:
    """A function, and the block that defines it."""

    def __init__(self, function: _Function, holder: ast.AST, block: str) -> None:
        self.function, self._holder, self._block = function, holder, block
        first = ast.get_docstring(function) is not None
        self.body: list[ast.stmt] = function.body[first:]

    def in_place(self, call: ast.Call) -> list[ast.stmt] | None:
        """What it does if it is called so; None if that can't be said."""
        own = self.function.args
        if own.vararg or own.kwarg or any(isinstance(arg, ast.Starred) for arg in call.args):
            return None
        names = [arg.arg for arg in (*own.posonlyargs, *own.args)]
        given = dict(zip(names, call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        usual = dict(zip(reversed(names), reversed(own.defaults), strict=False))
        only = [arg.arg for arg in own.kwonlyargs]
        usual |= {name: value for name, value in zip(only, own.kw_defaults, strict=True) if value}
        given = usual | given
        if len(call.args) > len(names) or given.keys() != {*names, *only}:
            return None
        return [*self._bound({name: given[name] for name in (*names, *only)}), *self.body]

    def _bound(self, given: dict[str, ast.expr]) -> Iterator[ast.stmt]:
        """Give the parameters their values; a variable stands for one that stays as it is."""
        stored = {
            node.id if isinstance(node, ast.Name) else node.arg
            for statement in self.body
            for node in ast.walk(statement)
            if isinstance(node, ast.arg)
            or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        }
        for name, value in given.items():
            if isinstance(value, ast.Name) and name not in stored:
                for statement in self.body:
                    _rename(statement, name, value.id)
            elif not (isinstance(value, ast.Name) and value.id == name):
                target = ast.copy_location(ast.Name(name, ast.Store()), value)
                yield ast.copy_location(ast.Assign([target], value), value)

    def forget(self) -> None:
        """Take it away from where it is defined."""
        block = getattr(self._holder, self._block)
        block.remove(self.function)
        if not block:
            block.append(ast.copy_location(ast.Pass(), self.function))


def _rename(statement: ast.stmt, name: str, other: str) -> None:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and node.id == name:
            node.id = other


class _InPlace:
    """Puts helpers in place in the statements of a function."""

    def __init__(self, helpers: dict[str, _Helper]) -> None:
        self._helpers = helpers
        self._placed: list[_Helper] = []

    def changes(self, function: _Function) -> bool:
        """Do it in one function, once; returns whether there was one."""
        used = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name))
        return any(self._in_block(block, used) for block in _blocks(function))

    def _in_block(self, block: list[ast.stmt], used: Mapping[str, int]) -> bool:
        for place, statement in enumerate(block):
            match block[place : place + 2]:
                case [
                    ast.Assign(targets=[ast.Name(id=made)], value=value),
                    ast.Return(value=ast.Name(id=name)),
                ] if made == name and used[name] == 2:
                    block[place : place + 2] = [ast.copy_location(ast.Return(value), statement)]
                    return True
            if (found := self._instead(statement)) is not None:
                block[place : place + 1] = found
                for helper in self._placed:
                    helper.forget()
                return True
        return False

    def _instead(self, statement: ast.stmt) -> list[ast.stmt] | None:
        """What a statement does by a helper, or in a block that changes nothing; else None."""
        match statement:
            case ast.With(items=[ast.withitem(context_expr=ast.Call(func=scope))], body=body):
                return body if text_of(scope).endswith(_NAMED_SCOPE) else None
            case ast.If(test=ast.Constant(value=True), body=body):
                return body
            case ast.Try(body=[*body, ast.Return() as end], handlers=[], orelse=[], finalbody=last):
                return [*body, *last, end]
            case ast.Try(body=body, handlers=[], orelse=[], finalbody=last):
                return [*body, *last]
            case ast.Return(value=ast.Call() as call):
                return self._called(call, _is_no_generator)
            case ast.Expr(value=ast.YieldFrom(value=ast.Call() as call)):
                return self._called(call, lambda body: not _returns(body))
            case ast.Expr(value=ast.Call() as call):
                return self._called(call, lambda b: _is_no_generator(b) and not _returns(b))
            case ast.Assign(targets=[target], value=ast.Call() as call):
                found = self._called(call, lambda b: _is_no_generator(b) and _returns(b) == b[-1:])
                return found and _assigned(target, found)
        return None

    def _called(
        self, call: ast.Call, fits: Callable[[list[ast.stmt]], bool]
    ) -> list[ast.stmt] | None:
        helper = self._helpers.get(_words(call.func))
        inside = helper and any(node is call for node in ast.walk(helper.function))
        if helper is None or inside or not fits(helper.body):
            return None
        if (found := helper.in_place(call)) is not None:
            self._placed.append(helper)
        return found


def _assigned(target: ast.expr, body: list[ast.stmt]) -> list[ast.stmt]:
    """Give `target` what the body's last statement returns."""
    value = getattr(body[-1], "value", None) or ast.Constant(None)
    if text_of(target).strip("()") == text_of(value).strip("()"):
        return body[:-1] or [ast.copy_location(ast.Pass(), target)]
    return [*body[:-1], ast.copy_location(ast.Assign([target], value), body[-1])]


def _blocks(function: _Function) -> Iterator[list[ast.stmt]]:
    """The blocks of a function, without those of functions and classes inside it."""
    left: list[ast.AST] = [function]
    while left:
        node = left.pop()
        for name in _BLOCKS:
            if isinstance(block := getattr(node, name, None), list):
                yield block
        inner = (one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt))
        left += (one for one in inner if not isinstance(one, _Function | ast.ClassDef))


def _returns(body: list[ast.stmt]) -> list[ast.stmt]:
    return [node for node in own_nodes(body) if isinstance(node, ast.Return)]


def _is_no_generator(body: list[ast.stmt]) -> bool:
    return not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(body))
