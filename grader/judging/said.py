"""Says in plain words what an exception means here; the exception's own words follow.

Input: the text of an exception of Python, JAX, Flax or Optax, as a worker reported it. Most need
no other words. Those here name something that a learner's file does not hold, or bury it.
"""

import re

_NODE = re.compile(r"CustomNode\((?:\w+\[)?([\w.]+)\]?, \[([^\[\]]*)\]\)")
MAX_LINES, MAX_LENGTH = 8, 300
"""How much of an exception is repeated below plain words for it."""

_NO_NUMBERS = (
    "While jit traces a function, its arrays have shapes and types, and no numbers. What needs a "
    "number there?"
)
_HINTS = tuple(
    (re.compile(pattern, re.DOTALL), hint)
    for pattern, hint in (
        (
            r"Received incompatible devices for jitted computation",
            "jax.device_put moves no array: it returns a new one, and the old one stays where it "
            "was. Which array of this call, or which sharding, names the other devices?",
        ),
        (
            r"Array has been deleted|Buffer has been deleted or donated|deleted or donated buffer",
            "A call that donates an argument deletes it. What the call returned takes its place.",
        ),
        (r"TracerArrayConversionError|The numpy\.ndarray conversion method", _NO_NUMBERS),
        (r"TracerBoolConversionError|Attempted boolean conversion", _NO_NUMBERS),
        (r"method is not available on traced array", _NO_NUMBERS),
        (r"ConcretizationTypeError|Abstract tracer value encountered where concrete", _NO_NUMBERS),
        (r"does not support string indexing", "Were two values unpacked in the wrong order?"),
    )
)
"""Where to look, for exceptions of which that is known."""

_WORDS = tuple(
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in (
        (
            r"Non-hashable static arguments|static.*unhashable|unhashable.*static",
            "an argument that `static_argnums` or `static_argnames` names is an array. A static "
            "argument is compiled into the program and must be hashable; `static_argnums` is not "
            "`donate_argnums`",
        ),
        (
            r"carry input and carry output must have",
            "the body of a loop (scan, fori_loop, while_loop) returns a carry of another shape, "
            "dtype or structure than the carry it was given",
        ),
        (
            r"'NoneType' object|NoneType object",
            "a value is None where another was expected: was a `return` forgotten, or was nothing "
            "found?",
        ),
        (
            r"does not support string indexing",
            "an array was indexed with a name, as if it were a dict",
        ),
        (
            r"Array has been deleted|Buffer has been deleted or donated|deleted or donated buffer",
            "an array was used after it had been donated or deleted",
        ),
        (
            r"Received incompatible devices for jitted computation",
            "a jitted function was called with arrays that are on different devices",
        ),
        (
            r"TracerArrayConversionError|The numpy\.ndarray conversion method",
            "NumPy was asked to convert a value that jit is still tracing and that has no numbers "
            "yet",
        ),
        (
            r"TracerBoolConversionError|Attempted boolean conversion",
            "`if`, `while` or `and` needs a number of a value that jit is still tracing",
        ),
        (
            r"ConcretizationTypeError|Abstract tracer value encountered where concrete",
            "a number was asked of a value that jit is still tracing and that has none yet",
        ),
        (
            r"UnexpectedTracerError|leaked tracer|escaped the scope",
            "a value that jit was tracing was kept after the trace, and is no array",
        ),
        (
            r"sharded? .*rank (\d+)|is only valid for values of rank at least (\d+)",
            "a PartitionSpec names more dimensions than its array has",
        ),
        (
            r"method is not available on traced array",
            "a method that needs numbers was asked of a value that jit is still tracing",
        ),
        (
            r"scan body output must be a pair",
            "the body of a scan returns a pair (carry, output), and this one does not: was its "
            "`return` forgotten?",
        ),
        (
            r"memory_space of all inputs passed to",
            "one operation got arrays in two kinds of memory, the device's and the host's",
        ),
        (
            r"cannot select an axis to squeeze out which has size not equal to one",
            "an axis longer than 1 was to be squeezed away",
        ),
    )
)


def in_words(message: str) -> str:
    """An exception in plain words, and below them its own, at most `MAX_LINES` lines of them."""
    words = next((said for pattern, said in _WORDS if pattern.search(message)), "")
    if not words:
        return message
    lines = [line for line in message.splitlines() if line.strip()]
    kept = [line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]} ..." for line in lines]
    more = ["..."] if len(kept) > MAX_LINES else []
    return "\n".join([words, *kept[:MAX_LINES], *more])


def hint_for(message: str) -> str:
    """Where to look for what an exception says, or ""."""
    return next((hint for pattern, hint in _HINTS if pattern.search(message)), "")


def without_treedefs(text: str) -> str:
    """A text in which a tree is written as Python would: `{'w': *, 'b': *}`, `Adam(*, *)`."""
    before = ""
    while text != before:
        before, text = text, _NODE.sub(r"\1(\2)", text)
    begin = text.find("PyTreeDef(")
    while begin >= 0:
        start, depth, end = begin + len("PyTreeDef("), 1, begin + len("PyTreeDef(")
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        inner = text[start : end - 1 if not depth else end]
        text = f"{text[:begin]}{inner}{text[end:]}"
        begin = text.find("PyTreeDef(", begin)
    return text
