"""The source policy: refuses code that could reach the evidence, and names the line.

It is a fence against shortcuts, not a proof: observed evidence leans on it and on the
isolation of the process (`grader.isolation`). No exercise needs what it refuses; one
that does lists the module in `Exercise.allowed_modules`. Names are followed through
`import ... as`, `from ... import` and plain assignment, not through containers.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from grader.record import Finding

_MODULES = """
    _thread asyncio atexit bdb builtins cProfile code codeop concurrent contextvars ctypes
    dis doctest faulthandler fcntl fileinput gc glob grader http importlib inspect io
    linecache logging marshal mmap multiprocessing opcode os pathlib pdb pickle pkgutil
    posix profile pty resource runpy select selectors shelve shutil signal site socket
    sqlite3 ssl subprocess symtable sys sysconfig tempfile threading timeit tokenize trace
    traceback tracemalloc types unittest urllib weakref zipimport
"""
_NAMES = """
    __builtins__ __import__ breakpoint compile delattr eval exec globals input locals open vars
"""
_DUNDERS = """
    __add__ __annotations__ __call__ __contains__ __doc__ __enter__ __eq__ __exit__ __getitem__
    __init__ __iter__ __len__ __main__ __matmul__ __mul__ __name__ __next__ __post_init__
    __repr__ __str__ __sub__ __version__
"""
_WATCHERS = """
    log_compiles monitoring transfer_guard transfer_guard_device_to_device
    transfer_guard_device_to_host transfer_guard_host_to_device
"""
_FILES = "ctypeslib fromfile memmap tofile"
MODULES = frozenset(_MODULES.split())
NAMES = frozenset(_NAMES.split())
DUNDERS = frozenset(_DUNDERS.split())
WATCHERS = frozenset(_WATCHERS.split())
FILES = frozenset(_FILES.split())
OWN = frozenset(("self", "cls", "super"))
NAMED_TUPLE = frozenset(("_asdict", "_fields", "_make", "_replace"))
AMBIGUOUS = frozenset(("code", "profile", "select", "signal", "site", "trace", "types"))
"""Modules whose names are also public names in JAX and NumPy, such as `jnp.trace`."""

_DUNDER = re.compile(r"__\w+__")
_REACHING = re.compile(r"[\w.]+|.*\{[^}]*__.*", re.DOTALL)
"""Texts that may name an attribute: for `attrgetter`, and for `str.format`."""
_LEFT = "modules and types stay as they are"
_WATCHED = "transfers and compiles are left to the grader to watch"
_PUBLIC = "public names: private ones change without notice"


def violations(tree: ast.Module, allowed: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Everything in `tree` that the policy refuses, in order of lines."""
    origins = _origins(tree)
    policy = _Policy(origins, _shadowed(tree), frozenset(allowed), _updated(tree, origins))
    found: dict[tuple[int, str], Finding] = {}
    for node in ast.walk(tree):
        for finding in policy.judge(node):
            found.setdefault((finding.line or 0, finding.expected), finding)
    yield from (found[place] for place in sorted(found, key=lambda place: place[0]))


def _origins(tree: ast.Module) -> dict[str, str]:
    """Names that stand for something imported, anywhere in the file, and what that is."""
    origins: dict[str, str] = {}
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom | ast.Assign)]
    for node in sorted(nodes, key=lambda node: node.lineno):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    name = alias.asname or alias.name.split(".")[0]
                    origins[name] = alias.name if alias.asname else name
            case ast.ImportFrom(module=module, names=names):
                origins |= {a.asname or a.name: f"{module}.{a.name}" for a in names}
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _dotted(value, origins):
                origins[name] = _dotted(value, origins)
    return origins


def _dotted(node: ast.expr, origins: Mapping[str, str]) -> str:
    """`jax.config.update` for `j.config.update` after `import jax as j`; else nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in origins:
        return ""
    return ".".join([origins[node.id], *reversed(parts)])


def _shadowed(tree: ast.Module) -> frozenset[str]:
    """Of `input` and `compile`, which are harmless variables in machine learning, those bound."""
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return frozenset(bound & {"input", "compile"})


def _updated(tree: ast.Module, origins: Mapping[str, str]) -> frozenset[ast.AST]:
    found = (n for n in ast.walk(tree) if isinstance(n, ast.AugAssign))
    merged = (n.target for n in found if isinstance(n.op, ast.BitOr))
    return frozenset(target for target in merged if _dotted(target, origins) == "os.environ")


@dataclass(frozen=True)
class _Policy:
    """The policy, with what it must know of one file."""

    origins: Mapping[str, str]
    shadowed: frozenset[str]
    allowed: frozenset[str]
    updated: frozenset[ast.AST]
    """`os.environ` in `os.environ |= ...`, which updates it: what is assigned is the same."""

    def judge(self, node: ast.AST) -> Iterator[Finding]:
        """What is refused at this very node."""
        match node:
            case ast.Import() | ast.ImportFrom():
                start = f"{node.module or '.'}." if isinstance(node, ast.ImportFrom) else ""
                for alias in node.names:
                    yield from self._module(node, start + alias.name)
            case ast.Name(id=name):
                yield from self._name(node, name)
            case ast.Attribute():
                yield from self._attribute(node, node)
            case ast.Call():
                yield from self._call(node)
            case ast.MatchClass(cls=cls, kwd_attrs=names):
                for name in names:
                    yield from self._attribute(cls, ast.Attribute(cls, name, ast.Load()))
            case ast.Constant(value=str(text)):
                yield from _text(node, text)

    def _module(self, node: ast.stmt, name: str) -> Iterator[Finding]:
        parts = name.split(".")
        reached = parts[0] if parts[0] in MODULES else self._reached(parts)
        text = f"`{ast.unparse(node)}`"
        if reached and reached not in self.allowed:
            yield _finding(node, f"a solution without the module `{reached}`", text)
        elif any(part.startswith("_") and part != "__future__" for part in parts):
            yield _finding(node, _PUBLIC, text)
        elif parts[0] == "jax" and WATCHERS.intersection(parts):
            yield _finding(node, _WATCHED, text)

    def _reached(self, parts: list[str]) -> str:
        """The module that stands as an attribute in another one: `contextlib.sys`."""
        return next((p for p in parts[1:] if p in MODULES - AMBIGUOUS), "")

    def _name(self, node: ast.Name, name: str) -> Iterator[Finding]:
        dunder = _DUNDER.fullmatch(name) and name not in DUNDERS
        if dunder or (name in NAMES and name not in self.shadowed):
            yield _finding(node, f"a solution without `{name}`", f"`{name}`")

    def _attribute(self, node: ast.expr, access: ast.Attribute) -> Iterator[Finding]:
        name, text = access.attr, f"`{ast.unparse(access)}`"
        dotted = _dotted(access, self.origins)
        reached = self._reached(dotted.split("."))
        if _DUNDER.fullmatch(name) and name not in DUNDERS:
            yield _finding(node, f"a solution without `{name}`", text)
        elif name.startswith("_") and not (_DUNDER.fullmatch(name) or self._own(access)):
            yield _finding(node, _PUBLIC, text)
        elif name in WATCHERS:
            yield _finding(node, _WATCHED, text)
        elif name in FILES:
            yield _finding(node, f"a solution without `{name}`", text)
        elif dotted == "jax.config.update":
            yield _finding(node, "JAX's configuration stays as it is", text)
        elif reached == name and reached not in self.allowed:
            yield _finding(node, f"a solution without the module `{reached}`", text)
        elif access in self.updated:
            return
        elif not isinstance(access.ctx, ast.Load) and (dotted or _of_type(access)):
            yield _finding(node, _LEFT, f"{text} is assigned")

    def _own(self, access: ast.Attribute) -> bool:
        root = access.value
        root = root.func if isinstance(root, ast.Call) else root
        return access.attr in NAMED_TUPLE or (isinstance(root, ast.Name) and root.id in OWN)

    def _call(self, node: ast.Call) -> Iterator[Finding]:
        """`getattr` and `setattr` are judged as the attribute that they name."""
        match node:
            case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr" as name)):
                context = ast.Store() if name == "setattr" else ast.Load()
            case _:
                return
        match node.args:
            case [target, ast.Constant(value=str(attr)), *_]:
                yield from self._attribute(node, ast.Attribute(target, attr, context))
            case [target, *_] if _dotted(target, self.origins) or _is_type_call(target):
                yield _finding(node, "attributes called by name", f"`{ast.unparse(node)}`")


def _text(node: ast.Constant, text: str) -> Iterator[Finding]:
    """A dunder in a text reaches attributes through `attrgetter` or `str.format`."""
    for name in _DUNDER.findall(text) if _REACHING.fullmatch(text) else ():
        if name not in DUNDERS:
            yield _finding(node, f"a solution without `{name}`", f"{text!r}")


def _of_type(access: ast.Attribute) -> bool:
    """Whether this is an attribute of `type(...)`, as in `type(loss).item = ...`."""
    return _is_type_call(access.value)


def _is_type_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"


def _finding(node: ast.stmt | ast.expr, expected: str, observed: str) -> Finding:
    return Finding("policy", node.lineno, expected, observed)
