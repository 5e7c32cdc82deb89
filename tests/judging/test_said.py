"""Exceptions and structures in plain words."""

import pytest

from grader.judging import said
from grader.judging.said import (
    LONGEST,
    MAX_LINES,
    cleaned,
    hint_for,
    in_words,
    is_known,
    is_of_a_call,
    without_treedefs,
)


def test_an_exception_that_says_what_is_wrong_is_left_as_it_is() -> None:
    assert in_words("ValueError: no batch is good enough") == "ValueError: no batch is good enough"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("ValueError: Non-hashable static arguments are used: [[1\n2]]", "`static_argnums` is not"),
        ("TypeError: 'function' object is not subscriptable", "a function stands where a value"),
        (
            "ValueError: in_specs[0] is P(None, 'data') which has length 2, but the passed "
            "args[0]['b1'], where args[0] is bound to step's parameter 'params', has shape "
            "float32[64], which has rank 1",
            "`in_specs[0]` is P(None, 'data'): it is for arrays of 2 dimensions or more, and "
            "`params['b1']` has 1",
        ),
        (
            "DuplicateSpecError: A single NamedSharding spec specification can map every mesh axis "
            "to at most one positional dimension, but P('data', 'data') has duplicate entries for "
            "`data`",
            "P('data', 'data') names the axis data twice",
        ),
        (
            "UnboundLocalError: cannot access local variable 'cause' where it is not associated "
            "with a value",
            "`cause` has no value yet on this line",
        ),
        (
            "TypeError: key accepts a scalar seed, but was given a PRNG key.",
            "a random key stands where a seed is expected",
        ),
        (
            "ValueError: Cannot extract graph node from different trace level, got RngCount( # 1",
            "a model with a `RngCount` is used in a traced function",
        ),
        (
            "TypeError: add requires ndarray or scalar arguments, got <class 'dict'> at position "
            "1.",
            "a dict stands where an array or a number is expected",
        ),
        (
            "ValueError: device_put device specification must be a tree prefix of the "
            "corresponding value; \n the prefix pytree has a subtree of type\n    "
            "<class 'list'>\nbut at the same key path the full pytree has another",
            "a list stands where `jax.device_put` takes a device or a sharding",
        ),
        ("TypeError: 'int' object is not iterable", "something of type `int` stands where a list"),
        (
            "AttributeError: jax.device_put_replicated is deprecated; use jax.device_put instead.",
            "JAX has no `device_put_replicated` any more",
        ),
        (
            "AssertionError: <class 'numpy.ndarray'> passed to device_put is not the same on each "
            "process.",
            "jax.device_put was given other numbers in each process",
        ),
        (
            "ValueError: process_id and num_processes must be nonnegative, with process_id < "
            "num_processes. Got process_id=2, num_processes=1.",
            "a process was to join as number 2 of 1",
        ),
        ("ValueError: scan got no values to scan over and `length` not provided.", "nothing to go"),
        (
            "TypeError: shardings leaf specifications are expected to be PartitionSpec instances or"
            " None, but got Mesh('model': 4, 'data': 2, axis_types=(Auto, Auto))",
            "a `Mesh` stands where a sharding is expected",
        ),
        ("TypeError: only integer scalar arrays can be converted to a scalar index", "one whole"),
        ("TypeError: unexpected PRNG key type <class 'tuple'>", "where a random key"),
        (
            "ValueError: normal accepts a single key, but was given a key array of shape (2,) != ()"
            ". Use jax.vmap for batching.",
            "several random keys",
        ),
        (
            "TypeError: Expected the input to have a dtype that is a subdtype of "
            "<class 'numpy.floating'>, got int32 instead",
            "is int32, and must be of a kind that NumPy calls floating",
        ),
        (
            "TypeError: expected function with aux output to return a two-element tuple, but got",
            "a pair: the loss, and whatever else",
        ),
        ("RecursionError: Recursively calling `step`", "a function calls itself"),
        (
            "IndexError: only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and "
            "integer or boolean arrays are valid indices",
            "was used as an index",
        ),
        (
            "TypeError: scan body function carry input and carry output must have equal types:",
            "the body of a loop",
        ),
        (
            "ValueError: Expected shard shape (4, 4) doesn't match the single device array shape "
            "(4, 8). Shape of Array is int32[8,8]",
            "a device was given a block of shape (4, 8), and by the sharding its block has shape",
        ),
        (
            "ValueError: When making an array from single-device arrays, the input arrays must be "
            "from distinct devices, but got device IDs [0, 0]",
            "several of the blocks are on one device",
        ),
        (
            "TypeError: mul got incompatible shapes for broadcasting: (4,), (56,).",
            "arrays of shapes (4,) and (56,) do not fit each other",
        ),
        (
            "TypeError: unsupported operand type(s) for -: 'tuple' and 'DynamicJaxprTracer'",
            "a tuple stands on one side of `-`, and an array or a number on the other",
        ),
        ("RuntimeError: Array has been deleted with shape=float32[4].", "donated or deleted"),
        ("TypeError: 'NoneType' object is not iterable", "a value is None"),
        (
            "ValueError: Received incompatible devices for jitted computation. Got x",
            "on different devices",
        ),
        ("StopIteration", "`next` found no item"),
        ("NameError: Found an unbound axis name: data. To fix this,", "no axis is called `data`"),
        (
            "ValueError: Sharding spec ('data',) implies that array axis 0 is partitioned 8 times, "
            "but does not evenly divide the dimension size 6. Got shape: (6,)",
            "an axis of length 6 cannot be cut into 8",
        ),
        (
            "IndivisibleError: implies that array axis 0 is partitioned 8 times, but the dimension "
            "size is 6 (full shape: (6,)",
            "an axis of length 6 cannot be cut into 8",
        ),
        (
            "IndivisibleError: One of device_put args was given the sharding NamedSharding(mesh="
            "Mesh('data': 4, 'model': 2, axis_types=(Auto, Auto)), spec=P(('data', 'model'),), "
            "memory_kind=device) implies that array axis 0 is partitioned 8 times, but the "
            "dimension size is 12",
            "an axis of length 12 cannot be cut into 8 equal parts: the spec names 'data' and",
        ),
        ("TypeError: 'jaxlib._jax.NamedSharding' object is not callable", "a sharding was called"),
        (
            "TypeError: unsupported operand type(s) for /: 'tuple' and 'int'",
            "a tuple stands on one side of `/`",
        ),
        (
            "TypeError: unsupported operand type(s) for *: 'list' and 'jax.Array'",
            "a list stands on one side of `*`",
        ),
        (
            "ValueError: Incompatible shapes for broadcasting: shapes=[(3, 4), (5,)]",
            "do not fit each other: (3, 4), (5,)",
        ),
        (
            "ValueError: shard_map applied to the function 'step' was given an out_specs entry "
            "which is too long to be compatible: out_specs[1] is P('data',) which has length 1, "
            "but step(*args)[1] has shape float32[], which has rank 0 (and 0 < 1)",
            "`out_specs[1]` is P('data',), and what `step` returns there is float32[]",
        ),
        (
            "ValueError: too many values to unpack (expected 2)",
            "has more parts than the 2 names on the left",
        ),
        (
            "ValueError: not enough values to unpack (expected 3, got 2)",
            "has 2 parts, and 3 names stand",
        ),
        ("TypeError: object of type 'int' has no len()", "of type `int` stands where a tuple"),
        ("TypeError: cannot unpack non-iterable int object", "of type `int` was unpacked"),
        ("ValueError: index can't contain negative values", "fewer than 0 rows"),
        (
            "ValueError: Resource axis: model of P('model',) is not found in mesh: ('data',).",
            "the mesh has no axis `model`: its axes are ('data',)",
        ),
        (
            "ValueError: Length of sharding.spec (1) must be equal to aval's ndim (0). Got",
            "the spec speaks of 1 axes, and the array has 0",
        ),
        ("ValueError: entry not a 2- or 3- tuple", "a dict, or another tree"),
        (
            "TypeError: Cannot interpret value of type <class 'generator'> as an abstract array",
            "an iterator stands where arrays are expected",
        ),
        (
            "AttributeError: 'NoneType' object has no attribute 'append'",
            "`append` was asked of None",
        ),
        (
            "AttributeError: 'dict' object has no attribute 'block_until_ready'",
            "`block_until_ready` was asked of a dict",
        ),
        (
            "TypeError: '<' not supported between instances of 'int' and 'function'",
            "was it not called?",
        ),
        (
            "TypeError: Shapes must be 1D sequences of concrete values of integer type",
            "a shape needs the number",
        ),
        (
            "jax.errors.TracerIntegerConversionError: The __index__() method was called on x",
            "the whole number of a value",
        ),
        (
            "TypeError: Gradient only defined for scalar-output functions. Output was x",
            "something else than one number",
        ),
        ("TypeError: step() missing 1 required positional argument: 'x'", "too few arguments"),
        (
            "TypeError: body() takes 1 positional argument but 2 were given",
            "`body` was called with 2 arguments, and takes 1",
        ),
        (
            "TypeError: load.<locals>.<lambda>() takes 0 positional arguments but 1 was given",
            "`<lambda>` was called with an argument, and takes 0",
        ),
        (
            "TypeError: jit() takes from 0 to 1 positional arguments but 2 were given",
            "`jit` was called with 2 arguments in a row, and takes 1",
        ),
        ("TypeError: jit() got an unexpected keyword argument 'in_axes'", "has no argument"),
        ("TypeError: 'numpy.ndarray' object is not callable", "type `ndarray` was called"),
        ("AttributeError: 'tuple' object has no attribute 'items'", "asked of a tuple"),
        ("AttributeError: DynamicJaxprTracer has no attribute items.", "asked of an array"),
        ("TypeError: iteration over a 0-d array", "a single number was unpacked"),
        (
            "TypeError: to_device() argument 1 must be str, not jax.Device",
            "asked of a NumPy array",
        ),
        (
            "TypeError: 'jax.Device' object does not support the context manager protocol",
            "is no block",
        ),
        ("IndexError: no such group", "a group that its pattern does not have"),
        ("TypeError: dots_saveable() missing 1 required positional argument", "was called, with"),
        (
            "TypeError: Cannot interpret value of type <class 'stages.loop.Future'> as an abstract "
            "array",
            "a future stands",
        ),
        ("ValueError: Memory kind mismatch with xla::PjRtBuffers.", "both the devices and"),
        ("ValueError: pytree structure error: different types", "different structures"),
        (
            "ValueError: `jax.device_put` only accepts x. Received invalid value: Mesh('a': 4)",
            "a `Mesh` stands",
        ),
        (
            "ValueError: `jax.device_put` only accepts `None`. Received invalid value: 2",
            "the number `2` stands",
        ),
        (
            "ValueError: `jax.device_put` only accepts `None`. Received invalid value: pinned_host",
            "the text `pinned_host` stands",
        ),
        ("TypeError: cond_fun must return a boolean scalar, but got x", "the condition"),
        ("AttributeError: 'P' object has no attribute 'size'", "a `P` stands where a mesh"),
        (
            "AttributeError: 'jaxlib._jax.NamedSharding' object has no attribute 'size'",
            "a `NamedSharding` stands where a mesh",
        ),
        ("ValueError: The context mesh cannot be empty. Use `jax.set_mesh(mesh)`", "no mesh"),
        (
            "TypeError: unsupported operand type(s) for +: 'DynamicJaxprTracer' and 'tuple'",
            "a tuple stands on one side of `+`",
        ),
        (
            "ValueError: pytree structure error: different types at key path shard_map in_specs[1]",
            "`in_specs` do not fit the arguments",
        ),
    ],
)
def test_others_get_plain_words_first(message: str, words: str) -> None:
    first, *rest = in_words(message).splitlines()
    assert words in first
    assert rest == message.splitlines()


def test_addresses_classes_and_numbers_are_left_out() -> None:
    call = (
        "TypeError: Error interpreting argument to <function run at 0x7f> as an abstract array. "
        "The problematic value is of type <class 'jaxlib._jax.Device'> and was passed to the "
        "function at path device."
    )
    first, own = in_words(call).splitlines()
    assert first.startswith("the jitted `run` was called with a `Device` as `device`")
    assert "to `run` as" in own
    assert "<class 'jax.Device'>" in own
    assert is_of_a_call(call)
    assert (
        cleaned("TypeError: Loop.step() missing 1 argument")
        == "TypeError: step() missing 1 argument"
    )
    assert cleaned("ValueError: bad {'w': Array([1., 2.,\n 3.])} here") == "ValueError: bad ..."
    assert cleaned("ValueError: bad Array(1.) here") == "ValueError: bad Array(1.) here"
    assert cleaned("on CPU at /home/me/ex31.py:53:9 (step)") == "on CPU at ex31.py:53:9 (step)"
    assert cleaned("no file at /home/me/notes.txt") == "no file at /home/me/notes.txt"


def test_what_has_words_is_known_and_says_where_to_look() -> None:
    known = "TypeError: JAX does not support string indexing; got idx='w'"
    assert is_known(known)
    assert "exchanged" in hint_for(known)
    assert not is_known("ValueError: no batch")
    assert hint_for("ValueError: no batch") == ""


def test_of_a_long_exception_the_beginning_is_repeated() -> None:
    lines = in_words("ValueError: Non-hashable static arguments\n" + "1.5\n" * 60).splitlines()
    assert len(lines) == MAX_LINES + 2
    assert lines[-1] == "..."


def test_of_a_text_without_end_only_the_beginning_is_looked_at() -> None:
    late = "x" * LONGEST + "StopIteration 'NoneType' object"
    assert in_words(late) == "x" * LONGEST
    assert hint_for(late) == ""
    assert without_treedefs("x" * LONGEST + "PyTreeDef(*)").endswith("PyTreeDef(*)")


def test_a_structure_is_written_as_python_would() -> None:
    adam = "CustomNode(namedtuple[Adam], [*, {'w': *}])"
    text = f"a tree, PyTreeDef({{'a': ({adam}, CustomNode(namedtuple[Empty], []))}}), and more"
    assert without_treedefs(text) == "a tree, {'a': (Adam(*, {'w': *}), Empty())}, and more"
    assert without_treedefs("PyTreeDef(*") == "*"


def test_no_pattern_stands_twice() -> None:
    """The first one would hide the second."""
    patterns = [pattern.pattern for pattern, _ in said._TABLE]
    assert len(patterns) == len(set(patterns)) > 50
