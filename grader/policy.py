"""The source policy: refuses code that could reach the evidence, and names the line.

It is a fence against shortcuts, not a proof: observed evidence leans on it and on the
isolation of the process (`grader.isolation`). No exercise needs what it refuses; one
that does lists the module in `Exercise.allowed_modules`.
"""

import ast
from collections.abc import Iterator

from grader.record import Finding

MODULES = frozenset(
    "_thread atexit builtins code codeop ctypes faulthandler gc grader importlib inspect marshal "
    "multiprocessing opcode os pickle pkgutil posix pty runpy shelve signal site socket "
    "subprocess symtable sys sysconfig threading trace traceback tracemalloc types "
    "unittest weakref zipimport".split()
)
NAMES = frozenset("__builtins__ __import__ breakpoint compile eval exec globals input locals open vars".split())
DUNDERS = frozenset(
    "__init__ __call__ __name__ __doc__ __enter__ __exit__ __iter__ __next__ __len__ __getitem__ "
    "__post_init__ __repr__ __str__ __add__ __mul__ __sub__ __matmul__ __version__ __annotations__".split()
)
WATCHERS = frozenset(
    "transfer_guard transfer_guard_host_to_device transfer_guard_device_to_host "
    "transfer_guard_device_to_device monitoring log_compiles".split()
)
_WHY = "an exercise is solved without it"


def violations(tree: ast.Module, allowed: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Everything in `tree` that the policy refuses, in order of lines."""
    modules = _imported(tree)
    found = [f for node in ast.walk(tree) for f in _node(node, modules, allowed)]
    yield from sorted(found, key=lambda f: f.line or 0)


def _imported(tree: ast.Module) -> frozenset[str]:
    """Names bound by imports anywhere in the file."""
    return frozenset(
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )


def _node(node: ast.AST, modules: frozenset[str], allowed: tuple[str, ...]) -> Iterator[Finding]:
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield from _module(node, alias.name, allowed)
        case ast.ImportFrom(module=module, names=names):
            for alias in names:
                yield from _module(node, f"{module or '.'}.{alias.name}", allowed)
        case ast.Name(id=name) if name in NAMES:
            yield _finding(node, f"`{name}`", _WHY)
        case ast.Attribute(attr=attr):
            yield from _attribute(node, attr)
            if isinstance(node.ctx, ast.Store | ast.Del) and _root(node) in modules:
                yield _finding(node, f"`{ast.unparse(node)}` is assigned", "modules stay as they are")
        case ast.Call(func=ast.Name(id="setattr" | "delattr" as name), args=[first, *_]):
            if _root(first) in modules:
                yield _finding(node, f"`{name}` on `{ast.unparse(first)}`", "modules stay as they are")


def _module(node: ast.stmt, name: str, allowed: tuple[str, ...]) -> Iterator[Finding]:
    parts = name.split(".")
    if parts[0] in MODULES and parts[0] not in allowed:
        yield _finding(node, f"`import {parts[0]}`", _WHY)
    elif any(part.startswith("_") and part != "__future__" for part in parts):
        yield _finding(node, f"`import {name}`", "private modules change without notice")
    elif parts[0] == "jax" and parts[-1] in WATCHERS:
        yield _finding(node, f"`{name}`", "the grader watches transfers and compiles itself")


def _attribute(node: ast.Attribute, attr: str) -> Iterator[Finding]:
    if attr.startswith("__") and attr.endswith("__") and attr not in DUNDERS:
        yield _finding(node, f"`.{attr}`", _WHY)
    elif attr.startswith("_") and _root(node) not in ("self", "cls"):
        yield _finding(node, f"`{ast.unparse(node)}`", "private names change without notice")
    elif attr in WATCHERS or (attr == "update" and ast.unparse(node.value) == "jax.config"):
        yield _finding(
            node, f"`{ast.unparse(node)}`", "the grader watches transfers and compiles itself"
        )


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _finding(node: ast.stmt | ast.expr, observed: str, why: str) -> Finding:
    return Finding("policy", node.lineno, f"no {observed}: {why}", observed)
