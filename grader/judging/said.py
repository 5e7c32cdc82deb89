"""Says in plain words what an exception means here; the exception's own words follow.

Input: the text of an exception of Python, JAX, Flax or Optax, as a worker reported it. Most need
no other words. Those here name something that a learner's file does not hold, or bury it.
"""

import re
from typing import NamedTuple

_NODE = re.compile(r"CustomNode\((?:\w+\[)?([\w.]+)\]?, \[([^\[\]]*)\]\)")
MAX_LINES, MAX_LENGTH = 8, 300
"""How much of an exception is repeated below plain words for it."""
LONGEST = 4000
"""Characters of a text that are looked at. A worker reports no more of an exception, and some
patterns take the square of the length."""

_NO_NUMBERS = (
    "While jit traces a function, its arrays have shapes and types, and no numbers. What needs a "
    "number there?"
)
_ORDER = "Were two values exchanged, where they were unpacked or where they were passed on?"
_TREES = (
    "jax.device_put and jax.tree.map take a tree of arrays, such as a dict; jnp.asarray and most "
    "functions of jnp take one array."
)
_ONE_STRUCTURE = (
    "jax.tree.map takes trees of one structure, and calls the function with one leaf of each. What "
    "is the same for all leaves goes into the function: `lambda x: f(x, same)`. Or were two values "
    "exchanged, where they were unpacked?"
)
_WHOLE = (
    "A parameter is one that `def` names. It is donated, or static, whole: with all arrays in it."
)
_PARTS = (
    "What does the call return, and in which order? jax.value_and_grad gives the pair (value, "
    "gradient), and jax.grad the gradient alone. jax.lax.scan calls its function with (carry, "
    "item), and jax.lax.fori_loop with (i, carry). A dict that is unpacked gives its keys."
)
_NOT_AN_ARRAY = (
    "Which argument of this call is that? If two arguments are exchanged: jax.device_put takes the "
    "arrays first, and then the device."
)


class _Said(NamedTuple):
    """What is said of the exceptions in which a pattern is found: the first row that fits."""

    pattern: str
    words: str = ""
    r"""What it means here, with the pattern's groups as `\1`; "" if its own words are enough."""
    hint: str = ""
    """Where to look, if that is known."""


_TABLE = tuple(
    (re.compile(row.pattern, re.DOTALL), row)
    for row in (
        _Said(
            r"Non-hashable static arguments|static.*unhashable|unhashable.*static",
            "an argument that `static_argnums` or `static_argnames` names is an array, or a tree "
            "of arrays. A static argument is compiled into the program and must be hashable; "
            "`static_argnums` is not `donate_argnums`",
            "Is an argument meant to be given up, so that its memory can be used again? Then it "
            "is donated. Is it a number that decides shapes? Then only that one is static.",
        ),
        _Said(
            r"interpreting argument to <function (?:\w+\.|<locals>\.)*(\w+) at \w+> as an abstract "
            r"array\. The problematic value is of type <class '(?:\w+\.)*(\w+)'> and was passed to "
            r"the function at path ([\w.\[\]']+?)\.?(?:\s|$)",
            r"the jitted `\1` was called with a `\2` as `\3`; jit takes arrays, numbers and trees "
            "of them",
            "What jit compiles is a function of arrays. What else the function needs can be an "
            "argument of a function around it, or static.",
        ),
        _Said(
            r"Cannot interpret value of type <class '(?:\w+\.)*(generator|\w*iterator)'> as",
            "an iterator stands where arrays are expected: what it will give is not there yet",
            "An iterator gives one item at a time. Which line of your code gets that item?",
        ),
        _Said(
            r"Cannot interpret value of type <class '(?:\w+\.)*Future'> as an abstract array",
            "a future stands where arrays are expected",
            "`.result()` waits for what a future reads, and returns it.",
        ),
        _Said(
            r"Cannot interpret value of type <class '(?:function|method)'> as an abstract array",
            "a function stands where an array is expected: was it not called?",
            "`f` is the function, and `f()` what it returns.",
        ),
        _Said(
            r"Cannot interpret value of type <class '(?:\w+\.)*(\w+)'> as an abstract array",
            r"a `\1` stands where an array, or a tree of arrays, is expected",
            _NOT_AN_ARRAY,
        ),
        _Said(
            r"of type '?<class '(?:[\w<>]+\.)*(\w+)'>'? is not a valid JAX type",
            r"a `\1` stands where an array, or a tree of arrays, is expected",
            "JAX takes arrays, numbers and trees of them. What of this object is an array: an "
            "attribute, or what it gives when it is called or indexed?",
        ),
        _Said(
            r"entry not a 2- or 3- ?tuple",
            "a dict, or another tree, was given where one array is expected",
            _TREES,
        ),
        _Said(
            r"object of type '(generator|\w*iterator)' has no len",
            "an iterator has no length: it does not know how many items come",
        ),
        _Said(
            r"shardings leaf specifications are expected to be .* but got \w+:\d",
            "a device stands where a sharding is expected",
            "jax.sharding.SingleDeviceSharding(device) is the sharding of an array on one device.",
        ),
        _Said(
            r"shardings leaf specifications are expected to be .* but got (\w+)\(",
            r"a `\1` stands where a sharding is expected",
            "A sharding says over which mesh, and how: jax.NamedSharding(mesh, jax.P(...)).",
        ),
        _Said(
            r"scan got no values to scan over",
            "a scan was given nothing to go over",
            "jax.lax.scan takes the body, the carry that it starts with, and what it goes over, in "
            "this order.",
        ),
        _Said(
            r"only integer scalar arrays can be converted to a scalar index",
            "several numbers, or a fraction, stand where one whole number is expected",
            _ORDER,
        ),
        _Said(
            r"body function carry input and carry output .* is a <class '(tuple|dict|list)'> but "
            r"the corresponding component of the carry output is a <class '[\w.]*ShapedArray'>",
            r"the first thing that the body of a loop returns is to be the whole new carry, which "
            r"is a \1; here it is a single array",
            "The body of a scan returns (carry, output). If the carry is a pair, that is "
            "((a, b), output).",
        ),
        _Said(
            r"carry input and carry output must have",
            "the body of a loop (scan, fori_loop, while_loop) returns a carry of another shape, "
            "dtype or structure than the carry it was given",
            "What a loop starts with must be like what its body returns: a sum of arrays starts as "
            "jnp.zeros_like of one of them. Does an operation change the dtype? Then `astype` sets "
            "it back.",
        ),
        _Said(
            r"accepts a single key, but was given a key array",
            "several random keys stand where one is expected",
            "jax.random.split gives an array of keys. Unpack it, or take one of it.",
        ),
        _Said(
            r"accepts a scalar seed, but was given a PRNG key",
            "a random key stands where a seed is expected: a key is made of it once more",
            "jax.random.key makes a key of a seed, a whole number. Which function makes one here "
            "of what is a key already?",
        ),
        _Said(
            r"unexpected PRNG key type|invalid PRNG key data|accepts a scalar seed",
            "something else stands where a random key, or a seed, is expected",
            "The functions of jax.random take the key first. jax.random.split makes several keys "
            "of one; a key itself can't be unpacked.",
        ),
        _Said(
            r"have a dtype that is a subdtype of <class 'numpy\.(\w+)'>, got (\w+) instead",
            r"an argument of this call is \2, and must be of a kind that NumPy calls \1",
            _ORDER,
        ),
        _Said(
            r"function with aux output to return a two-element tuple",
            "with has_aux=True, the function that is differentiated returns a pair: the loss, and "
            "whatever else. Here it returned something else",
        ),
        _Said(
            r"cond_fun must return a boolean scalar",
            "the condition, which is the first function that while_loop takes, returned something "
            "else than one true or false",
            "jax.lax.while_loop takes the condition, the body and the start, in this order.",
        ),
        _Said(
            r"'NoneType' object has no attribute '(append|extend|insert|sort|update|add)'",
            r"`\1` was asked of None. It changes its list, dict or set in place, and returns None",
            "Is there a line that assigns what `append`, or the like, returned?",
        ),
        _Said(
            r"'NoneType' object cannot be interpreted as an integer",
            "None stands where a whole number is expected",
            "A slice of all of an axis may have None for its `start` and its `stop`. "
            "`s.indices(n)` gives the numbers of a slice `s` of an axis of length n.",
        ),
        _Said(
            r"'NoneType' object|NoneType object",
            "a value is None where another was expected: was a `return` forgotten, or was nothing "
            "found?",
        ),
        _Said(
            r"iteration over a 0-d array",
            "a single number was unpacked, or looped over, as if it were a tuple or an array",
            "A list takes one value by `append`; `extend` goes over the parts of one. "
            "jax.lax.fori_loop calls its function with (i, carry), and scan with (carry, item). "
            "With `has_aux=True`, the function that is differentiated returns two values.",
        ),
        _Said(
            r"'(?:jaxlib\._jax\.)?Mesh' object is not iterable",
            "a mesh stands where a list, or a tree of arrays, is expected",
            _ORDER,
        ),
        _Said(
            r"(list|tuple) indices must be integers or slices, not str",
            r"a \1 was indexed with a name, as if it were a dict",
            "Which line makes that list or tuple, and what became of the names? Or were two values "
            "exchanged?",
        ),
        _Said(
            r"does not support string indexing",
            "an array was indexed with a name, as if it were a dict",
            _ORDER,
        ),
        _Said(
            r"ArrayImpl' object has no attribute '(to|cuda|cpu|gpu)'",
            r"a jax.Array has no `\1`",
            "jax.device_put(x, device) returns a copy of x on a device.",
        ),
        _Said(
            r"(?:ArrayImpl|Tracer)'?(?: object)? has no attribute '?(items|keys|values)\b",
            r"`\1` was asked of an array, as if it were a dict",
            _ORDER,
        ),
        _Said(
            r"'(tuple|list)' object has no attribute '(items|keys|values)'",
            r"`\2` was asked of a \1, as if it were a dict",
            "Which values may come here? If any tree of arrays may, jax.tree.map goes through it. "
            "If only a dict may, two values were exchanged, or jax.grad, which differentiates by "
            "the first argument, got another one first.",
        ),
        _Said(
            r"ArrayImpl' object has no attribute '(with_memory_kind|memory_kind|mesh|spec)'",
            r"a jax.Array has no `\1`",
            "`x.sharding` says on which devices x lies, how it is split over them, and in which of "
            "their memories. It has that.",
        ),
        _Said(
            r"(?:ArrayImpl|Tracer)'?(?: object)? has no attribute '?(\w+)",
            r"a jax.Array has no `\1`",
        ),
        _Said(
            r"SingleDeviceSharding' object has no attribute '(\w+)'",
            r"an array lies on one device alone, and its sharding has no `\1`",
            "Which arrays come in there? Every sharding has `device_set`, `memory_kind` and "
            "`with_memory_kind(kind)`; only one over a mesh has `mesh` and `spec`.",
        ),
        _Said(
            r"(DictKey|SequenceKey|GetAttrKey)' object has no attribute '(\w+)'",
            r"an entry of a path is a \1, which has no `\2`",
            "A path into a tree has an entry for each step: a DictKey has its key in `key`, a "
            "SequenceKey its number in `idx`, a GetAttrKey its name in `name`.",
        ),
        _Said(
            r"Donation across different memory kinds is not implemented",
            "a device_put with donate=True was to move an array to another kind of memory",
            "What is donated is deleted, and JAX deletes nothing while it changes the memory. Does "
            "the caller still need the array?",
        ),
        _Said(
            r"type object 'MemorySpace' has no attribute '(\w+)'",
            r"jax.memory.Space has no `\1`",
            "For a device_put it has Device and Host. Host is the memory of the host that the "
            "device can read by itself, where it has such a memory.",
        ),
        _Said(
            r"'(dict|list|tuple)' object has no attribute '(block_until_ready|copy_to_host_async|"
            r"devices?|sharding|shape|dtype|astype|at|item|max|mean|min|nbytes|ndim|reshape|size|sum|"
            r"tolist)'",
            r"`\2` was asked of a \1; arrays have it, and a \1 of arrays has not",
            "jax.block_until_ready, jax.device_put and jax.tree.map take a tree of arrays. Or were "
            "two values exchanged, where they were passed on?",
        ),
        _Said(
            r"'types.SimpleNamespace' object has no attribute '(\w+)'",
            r"JAX has nothing there that is called `\1`",
            "JAX's documentation lists the names. Is it spelt as there?",
        ),
        _Said(
            r"Device' object is not callable",
            "a device was called, as if it were a function",
            "In old versions of JAX, `device()` was a method of an array. It is an attribute now.",
        ),
        _Said(
            r"unsupported operand type\(s\) for (\S+): (?:'tuple' and '(?:(?:\w+\.)*"
            r"(?:ArrayImpl|Array|ndarray|\w*Tracer)|int|float)'|'\w*Tracer' and 'tuple')",
            r"a tuple stands on one side of `\1`, and an array or a number on the other",
            "A loop returns its whole carry, and a function of two results a pair: `first, second "
            "= pair` takes it apart. Is a tuple passed on whole to a function of several "
            "arguments? `f(*pair)` takes it apart. jax.lax.fori_loop calls its function with (i, "
            "carry), and jax.lax.scan with (carry, item). Or were two values exchanged?",
        ),
        _Said(
            r"unsupported operand type\(s\) for (\S+): 'list' and '(?:(?:\w+\.)*"
            r"(?:ArrayImpl|Array|ndarray|\w*Tracer)|int|float)'",
            r"a list stands on one side of `\1`, and an array or a number on the other",
            "A list grows by `append`. To compute with what is in it, jnp.stack makes one array of "
            "a list of arrays.",
        ),
        _Said(
            r"unsupported operand type\(s\) for (\S+): (?:'NoneType'|'[\w.]+' and 'NoneType')",
            r"None stands on one side of `\1`, where an array or a number is expected",
            "A function without a `return` gives None. So does the second result of a jax.lax.scan "
            "that stacks nothing: its first one is the carry. And a slice of all of an axis may "
            "have None for its `start` and its `stop`.",
        ),
        _Said(
            r"unsupported operand type\(s\) for (\S+): (?:'\w+' and )?'(?:\w+\.)?OrderedDict'",
            r"a dict stands on one side of `\1`, where a number is expected: `mesh.shape` is such "
            "a dict",
            "`mesh.shape` holds the size of each axis by its name. mesh.shape[axis] is one of "
            "them, and mesh.size is the number of all devices.",
        ),
        _Said(
            r"unsupported operand type\(s\) for \S+: (?:'\w+' and )?'(?:\w*[dD]ict|State)'",
            "a dict, or another tree, stands where an array or a number is expected",
            "jax.tree.map computes with each array of a tree. Or were two values exchanged, where "
            "they were unpacked?",
        ),
        _Said(
            r"(?:not supported between|unsupported operand).*"
            r"'(?:function|method|builtin_function_or_method|PjitFunction)'"
            r"|'(?:function|method|PjitFunction)' object is not subscriptable",
            "a function stands where a value is expected: was it not called?",
            "`f` is the function, and `f()` what it returns.",
        ),
        _Said(
            r"invalid argnames \{(.+)\} in (\w+)\. Function does not take",
            r"`\2` names \1, and the function has no parameter of that name",
            _WHOLE,
        ),
        _Said(
            r"has (\w+_argnums)=\S.{0,40}, but only accepts (\d+) positional",
            r"`\1` counts the parameters of the function from 0, and it has \2",
            _WHOLE,
        ),
        _Said(
            r"\bjit\(\) got an unexpected keyword argument '(donate\w*)'",
            r"jax.jit has no argument `\1`",
            "jax.jit takes donate_argnums and donate_argnames: which parameters are donated.",
        ),
        _Said(
            r"\b(\w+_saveable|checkpoint_dots\w*)\(\) missing",
            r"`\1` was called, with nothing to decide about",
            "A policy is a function: jax.checkpoint gets it, and calls it for each operation.",
        ),
        _Said(
            r"\b(checkpoint|jit|grad|value_and_grad|vmap|pmap|shard_map)\(\) takes (?:from )?"
            r"(?:\w+ to )?(\w+) positional arguments? but (\w+)",
            r"`\1` was called with \3 arguments in a row, and takes \2; the others have names",
            "`name=value` gives an argument its name. The arguments of the function itself come in "
            "a second pair of brackets.",
        ),
        _Said(
            r"(?<![\w>])(\w+|<lambda>)\(\) missing \d+ required positional arguments?",
            r"`\1` was called with too few arguments",
            "Which parameters does its `def` name, and what does the call give? `f(*args)` gives "
            "the parts of a tuple one by one, and `f(args)` the tuple.",
        ),
        _Said(
            r"(?<![\w>])(\w+|<lambda>)\(\) takes (?:from )?(\w+)(?: to \w+)? positional arguments? "
            r"but 1\b",
            r"`\1` was called with an argument, and takes \2",
        ),
        _Said(
            r"(?<![\w>])(\w+|<lambda>)\(\) takes (?:from )?(\w+)(?: to \w+)? positional arguments? "
            r"but (\w+)",
            r"`\1` was called with \3 arguments, and takes \2",
        ),
        _Said(
            r"\b(\w+)\(\) got an unexpected keyword argument '(in_axes|out_axes|axis_name)'",
            r"`\1` has no argument that is called `\2`",
            "in_axes and out_axes are arguments of vmap and pmap. jit has none of them: the arrays "
            "keep their shape, and in_shardings and out_shardings say how they lie.",
        ),
        _Said(
            r"\b(\w+)\(\) got an unexpected keyword argument 'device'",
            r"`\1` has no argument that is called `device`",
            "jnp.zeros, jnp.ones and jnp.arange have one. What is computed from an array that is "
            "committed, such as a random key, is made where that lies.",
        ),
        _Said(
            r"\b(device_put|a?s?array)\(\) got an unexpected keyword argument "
            r"'(\w*(?:memory|pin)\w*)'",
            r"`\1` has no argument that is called `\2`",
            "The memory of an array is a part of its sharding, which jax.device_put takes.",
        ),
        _Said(
            r"\b(\w+)\(\) got an unexpected keyword argument '(\w+)'",
            r"`\1` has no argument that is called `\2`",
        ),
        _Said(
            r"device_put` only accepts .* Received invalid value: ((?:cpu|gpu|cuda|tpu)(?::\d+)?)$",
            r"the text `\1` stands where a device is expected",
            "jax.device_put takes the jax.Device itself, not its name.",
        ),
        _Said(
            r"device_put` only accepts .* Received invalid value: (\d+)$",
            r"the number `\1` stands where a sharding or a device is expected",
            "jax.device_put takes the jax.Device itself, not its number.",
        ),
        _Said(
            r"device_put` only accepts .* Received invalid value: (\w+)$",
            r"the text `\1` stands where a sharding or a device is expected",
            'x.sharding.with_memory_kind("pinned_host") is the sharding of x, in that memory.',
        ),
        _Said(
            r"device_put` only accepts .* Received invalid value: (?:<?\w+\.)*(\w+)",
            r"a `\1` stands where a sharding or a device is expected",
            "A mesh does not say how an array is split over it. jax.NamedSharding(mesh, spec) says "
            "both.",
        ),
        _Said(
            r"sharding should be an instance of `jax.sharding`\. Got .*<class '(?:\w+\.)*(\w+)'>",
            r"a `\1` stands where a sharding is expected",
            _ORDER,
        ),
        _Said(
            r"Unsupported type for elements in `arrays`: <class '([\w.]+)'>",
            r"a list of `\1` stands where jax.Arrays are expected, each of them on its own device",
            "jax.device_put(block, device) makes such an array of a block.",
        ),
        _Said(
            r"requires a non-empty mesh in context if you are passing `PartitionSpec`s",
            "a PartitionSpec stands alone: it names axes of a mesh, and no mesh is given",
            "jax.NamedSharding(mesh, spec) is a sharding. Where a mesh was set as the context's, a "
            "spec is enough.",
        ),
        _Said(
            r"out_specs which require replication which can't be statically inferred",
            "an entry of `out_specs` says that a result is the same on all devices, and nothing in "
            "the function makes it so",
            "Each device computes with its own part. What makes a result of all parts, the same on "
            "each device? jax.lax.pmean and psum do.",
        ),
        _Said(
            r"'str' object cannot be interpreted as an integer",
            "a text stands where a whole number is expected",
            "If it is the name of an argument: donate_argnames and static_argnames take names, "
            "donate_argnums and static_argnums take positions.",
        ),
        _Said(
            r"Expected shard shape (\([\d, ]*\)) doesn't match the single device array shape "
            r"(\([\d, ]*\))",
            r"a device was given a block of shape \2, and by the sharding its block has shape \1",
            "A block has as many dimensions as the array, and its index a slice for each of them. "
            "The sharding knows that index for each device, and a callback gets it. Is it what "
            "your code reads, all of it, in its order, and is the block given as it is?",
        ),
        _Said(
            r"input arrays must be from distinct devices",
            "several of the blocks are on one device, where each device is to have its own block",
            "jax.device_put(block, device) puts a block on its device; without one, it goes to the "
            "default device.",
        ),
        _Said(
            r"Addressable devices and per-device arrays devices do not match",
            "the blocks are on other devices than those of the sharding",
            "jax.devices() are those of all processes, and jax.local_devices() those of this one. "
            "sharding.addressable_devices_indices_map(shape) lists these, each with the index of "
            "its block.",
        ),
        _Said(
            r"incompatible shapes for broadcasting: (\([\d, ]*\)), (\([\d, ]*\))",
            r"arrays of shapes \1 and \2 do not fit each other",
            "Which of the two has another shape than you expect? A sum or a mean over another axis "
            "leaves another shape.",
        ),
        _Said(
            r"Incompatible shapes for broadcasting: shapes=\[(\([\d, ]*\)(?:, \([\d, ]*\))+)\]",
            r"arrays of these shapes do not fit each other: \1",
            "Shapes are compared from their last sizes on, and two sizes fit if they are equal or "
            "one of them is 1. Which of the arrays has another shape than you expect?",
        ),
        _Said(
            r"ncompatible types for broadcasting: input type=\w+(\[[\d,]*\]) and requested "
            r"type=\w+(\[[\d,]*\])",
            r"an array of shape \1 does not fit one of shape \2",
            "Shapes are compared from their last sizes on, and two sizes fit if they are equal or "
            "one of them is 1. Which of the arrays has another shape than you expect?",
        ),
        _Said(
            r"could not broadcast input array from shape \(([\d, ]*?),?\) into shape "
            r"\(([\d, ]*?),?\)",
            r"an array of shape (\1) does not fit into the place for it, of shape (\2)",
            "Was the array that is filled made too small, or is the slice of it another one than "
            "you expect?",
        ),
        _Said(
            r"(?:float|int)\(\) argument must be .*, not '(list|tuple)'",
            r"something of type `\1` stands where a number is expected",
            f"`[float(x) for x in values]` makes a number of each of several values. Or: {_ORDER}",
        ),
        _Said(
            r"(?:float|int)\(\) argument must be .*, not 'dict'",
            "something of type `dict` stands where a number is expected",
            _ORDER,
        ),
        _Said(
            r"(?:float|int)\(\) argument must be .*, not 'NoneType'",
            "None stands where a number is expected",
            "A method that changes or starts something returns None: `append`, `sort`, "
            "`copy_to_host_async`. Is what such a method returned kept? Or was a `return` "
            "forgotten?",
        ),
        _Said(
            r"too many values to unpack \(expected (\d+)",
            r"what is unpacked there has more parts than the \1 names on the left",
            _PARTS,
        ),
        _Said(
            r"not enough values to unpack \(expected (\d+), got (\d+)\)",
            r"what is unpacked there has \2 parts, and \1 names stand on the left",
            _PARTS,
        ),
        _Said(
            r"object of type '(int|float|bool)' has no len\(\)",
            r"something of type `\1` stands where a tuple, a list or an array is expected",
            "A shape is a tuple: `x.shape` is the whole of it, and `x.shape[0]` one number.",
        ),
        _Said(
            r"'(int|float|bool)' object is not iterable",
            r"something of type `\1` stands where a list, or a row of other values, is expected",
            "`range(n)` is the row of numbers from 0 to n - 1: a loop over it makes n rounds.",
        ),
        _Said(
            r"matmul input operand \d must have ndim at least 1",
            "a single number stands in a matrix product, where an array is expected",
            "Which name is that? A loop gives the name after `for` a new value in each round.",
        ),
        _Said(
            r"cannot unpack non-iterable (\w+) object",
            r"something of type `\1` was unpacked, as if it were a tuple",
            _PARTS,
        ),
        _Said(
            r"only integers, slices \(`:`\), ellipsis",
            "something that is no whole number, slice or array of them was used as an index",
            f"`items()` of a dict gives pairs of (key, value). {_ORDER}",
        ),
        _Said(
            r"RecursionError",
            "a function calls itself again and again, without an end",
            "Which function was to be called there? It may have another name.",
        ),
        _Said(
            r"Sharding' object is not callable",
            "a sharding was called, as if it were a function",
            "`x.sharding` is an attribute of an array: no brackets follow.",
        ),
        _Said(
            r"'(?:\w+\.)*(\w+)' object is not callable",
            r"a value of type `\1` was called, or stands where a function is expected",
            "`f(x)` calls a function, and `x[i]` indexes a value. Does a value stand there, or a "
            "name in quotes, where a function is meant?",
        ),
        _Said(
            r"shard_map in_specs",
            "`in_specs` do not fit the arguments of the function that jax.shard_map calls",
            "in_specs hold one spec for each argument, in the order of the arguments. Of a tree of "
            "arrays, that is a spec for all of them, or a tree of specs like it.",
        ),
        _Said(
            r"device_put device specification must be a tree prefix of.*a subtree of type\s+<class "
            r"'(list|tuple)'>",
            r"a \1 stands where `jax.device_put` takes a device or a sharding",
            "device_put takes one device, or one sharding, for an array: it deals nothing out. A "
            "sharding over a mesh of the devices splits an array.",
        ),
        _Said(
            r"requires ndarray or scalar arguments, got <class 'dict'>",
            "a dict stands where an array or a number is expected",
            "jax.tree.map goes by its first tree: where that is a number, the function gets the "
            "whole of the others. A sum of trees begins with a tree of zeros.",
        ),
        _Said(
            r"pytree structure error: different types.* has a subtree of type\s+<class "
            r"'(?:\w+\.)*(\w+)'>.* of different type\s+<class '[\w.]*(?:Array|Tracer)\w*'>",
            r"trees that are taken together are to be alike: one has a `\1` where another has an "
            "array",
            _ONE_STRUCTURE,
        ),
        _Said(
            r"pytree structure error: different types.* has a subtree of type\s+<class "
            r"'(?:\w+\.)*(\w+)'>.* of different type\s+<class '(?:\w+\.)*(\w+)'>",
            r"trees that are taken together are to be alike: one has a `\1` where another has a "
            r"`\2`",
            _ONE_STRUCTURE,
        ),
        _Said(
            r"contracting dimensions to have the same shape, got \((\d+),?\) and \((\d+),?\)",
            r"a matrix product of arrays that do not fit each other: \1 columns, and \2 rows",
        ),
        _Said(
            r"cannot access local variable '(\w+)'",
            r"`\1` has no value yet on this line: no line on the way here gave it one",
            "Which `if` or loop gives it one, and what if that is passed by? In a function, a name "
            "that some line gives a value is the function's own, whatever it means outside.",
        ),
        _Said(
            r"Expected a callable value, got",
            "a value stands where a function is expected",
            "`jax.jit(f)` returns another function, which can be called: `jax.jit(f)(x)`. And "
            "`f(x)` is what f returns.",
        ),
        _Said(
            r"^KeyError: '([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)'$",
            r"there is no `\1` where it was asked for: not every shell sets a variable of that "
            "name",
            "`os.environ.pop(name, None)` removes a variable where there is one, and "
            "`os.environ.get(name)` gives None where there is none.",
        ),
        _Said(
            r"^TypeError: str expected, not (\w+)$",
            r"an environment variable was given something of type `\1`, and its value can only be "
            "text",
            "`str(0.3)` makes a text of a number. `os.environ.pop(name, None)` removes a variable.",
        ),
        _Said(
            r"^ValueError: index can't contain negative values$",
            "`pad` was told to add fewer than 0 rows or columns: the array is larger already",
            "How large is the array that you want, and how large the one that you have?",
        ),
        _Said(
            r"^KeyError: '(\w+)'$",
            r"a dict was asked for `\1`, and has no such key",
            "What was put into that dict, and was anything left out? Or were two values exchanged, "
            "where they were unpacked or where they were passed on?",
        ),
        _Said(
            r"unhashable type: '(?:numpy\.ndarray|\w*ArrayImpl|dict|list)'",
            "an array, or a tree of arrays, stands where something hashable is expected: a device, "
            "a static argument, the key of a dict",
            "Which argument of this call is that? jax.device_put takes one tree of arrays first.",
        ),
        _Said(
            r"^RuntimeError: Unknown backend:? '?\w+'? requested, but no platforms",
            "there is no device here of the platform that is asked for",
            "Not every machine has the same devices. Which device was given, or holds the data?",
        ),
        _Said(
            r"^StopIteration\b",
            "`next` found no item, or no item that fits, and had no other value to give",
            "An iterator gives each item once, to whoever asks first: does the loop around this "
            "line take items of the same one? And `next(items, None)` gives None at the end.",
        ),
        _Said(
            r"Array has been deleted|Buffer has been deleted or donated|deleted or donated buffer",
            "an array was used after it had been donated or deleted",
            "A call that donates an argument deletes it. What the call returned takes its place.",
        ),
        _Said(
            r"Expected \d+ per-device arrays \(this is how many devices are addressable",
            hint="A sharding has devices of its own, which need not be all of jax.devices(). What "
            "does it say of its devices, and of the block of each?",
        ),
        _Said(
            r"jax\.Device' object does not support the context manager",
            "a `jax.Device` is no block, and stands in a `with`",
            "jax.default_device(device) is a block: in it, new arrays are made on the device.",
        ),
        _Said(
            r"to_device\(\) argument 1 must be str",
            "`to_device` was asked of a NumPy array, whose own method knows no device of JAX",
            "jax.device_put(x, device) takes NumPy arrays as it takes those of JAX.",
        ),
        _Said(
            r"IndexError: (list|tuple) index out of range",
            hint="How many entries are there, and which index is asked for here? Index 0 is the "
            "first, and there is none after the last.",
        ),
        _Said(
            r"Argument types differ from the types for which this computation was compiled",
            hint="What `compile` returns takes arrays of the shapes and dtypes for which it was "
            "compiled, and no others. By what does your code find it again?",
        ),
        _Said(
            r"IndexError: no such group",
            "a match was asked for a group that its pattern does not have",
            "What stands in parentheses is a group, from 1 on; group(0) is all that was found.",
        ),
        _Said(
            r"where must be None or a boolean array",
            hint="A comparison, such as `mask > 0`, makes an array of True and False.",
        ),
        _Said(
            r"Received incompatible devices for jitted computation",
            "a jitted function was called with arrays that are on different devices",
            "An array stays where it was made: jax.device_put returns a new one, and "
            "jax.default_device moves none. Which array of this call, or which sharding, names the "
            "other devices?",
        ),
        _Said(
            r"Shapes must be 1D sequences of concrete values",
            "a shape needs the number of a value that jit is still tracing and that has none yet",
            "The shapes of a program are known before it runs. A number that decides a shape can "
            "come from outside the jitted function, or be a static argument of it.",
        ),
        _Said(
            r"`length` argument to `scan` expects a concrete",
            "the length of a scan needs the number of a value that jit is still tracing and that "
            "has none yet",
            "jax.lax.fori_loop takes a length that is known only when the program runs.",
        ),
        _Said(
            r"TracerIntegerConversionError|__index__\(\) method was called",
            "`range`, an index or the like needs the whole number of a value that jit is still "
            "tracing and that has none yet",
            "A loop in Python needs a length that is known before the program runs. "
            "jax.lax.fori_loop is a loop of the program.",
        ),
        _Said(
            r"TracerArrayConversionError|The numpy\.ndarray conversion method",
            "NumPy was asked to convert a value that jit is still tracing and that has no numbers "
            "yet",
            _NO_NUMBERS,
        ),
        _Said(
            r"TracerBoolConversionError|Attempted boolean conversion",
            "`if`, `while` or `and` needs a number of a value that jit is still tracing",
            _NO_NUMBERS,
        ),
        _Said(
            r"The '(\w+)' attribute is not available on traced array",
            r"`\1` was asked of a value that jit is still tracing: it has no device yet, and lies "
            r"in no memory",
            "What is inside a jitted function stands for an array of a later call. There, "
            "jax.device_put takes a kind of memory, jax.memory.Space.Device or .Host.",
        ),
        _Said(
            r"The (?!__)(\w+)\(\) method was called on traced array|"
            r"method is not available on traced array",
            "a method of an array was called on a value that jit is still tracing: it has no "
            "numbers, no memory and no device yet",
            "What is inside a jitted function stands for an array of a later call. Ask the arrays "
            "that go in, or those that come out.",
        ),
        _Said(
            r"ConcretizationTypeError|Abstract tracer value encountered where concrete",
            "a number was asked of a value that jit is still tracing and that has none yet",
            _NO_NUMBERS,
        ),
        _Said(
            r"UnexpectedTracerError|leaked tracer|escaped the scope",
            "a value that jit was tracing was kept after the trace, and is no array",
        ),
        _Said(
            r"Cannot extract graph node from different trace level, got (\w+)\(",
            r"a model with a `\1` is used in a traced function, and comes from outside of it",
            "What is static, or is found outside, is no argument that jit traces. Let the model "
            "come in as one, or its state.",
        ),
        _Said(
            r"Cannot mutate (\w+) from a different trace level",
            r"a `\1` of a model was to change in a traced function, and comes from outside of it",
            "Does the model come into that function as an argument? What nnx.merge makes shares "
            "the variables of its state, unless it is told copy=True.",
        ),
        _Said(
            r"Gradient only defined for scalar-output functions",
            "the function to differentiate returned something else than one number",
            "If it returns a loss and something beside it, the loss comes first, and has_aux=True "
            "says so. If it returns a loss for each row, take their mean.",
        ),
        _Said(
            r"grad requires real- or complex-valued inputs.* but got (\w+)",
            r"a gradient was asked with respect to whole numbers (\1)",
            "jax.grad differentiates by the first argument, unless argnums says otherwise. Which "
            "argument comes first here?",
        ),
        _Said(
            r"sharded? .*rank (\d+)|is only valid for values of rank at least (\d+)",
            "a PartitionSpec names more dimensions than its array has",
            "P() fits every array, a single number too: it splits nothing. Does this array get a "
            "sharding that is meant for another one?",
        ),
        _Said(
            r"shard_map applied to the function '(\w+)' was given an out_specs entry which is too "
            r"long.*out_specs(\S*) is (P\(.*?\)) which .*has shape (\w+\[[\d,]*\])",
            r"`out_specs\2` is \3, and what `\1` returns there is \4: it has fewer dimensions",
            "A number has no dimension to split. `x[None]` gives it one, and n devices then make "
            "an array of n of them.",
        ),
        _Said(
            r"shard_map applied to the function '\w+' was given argument arrays with axis sizes "
            r"that are not evenly divisible.*?of shape (\w+\[[\d,]*\]), where \S+ is bound to "
            r"\S+ parameter '(\w+)'\S* corresponds to (in_specs\S*) of value (P\(.*?\)), which "
            r"maps array axis (\d+) \(of size (\d+)\) to mesh axis '(\w+)' \(of size (\d+)\)",
            r"`\3` is \4: it splits dimension \5 of `\2`, which is \1, over the \8 devices of the "
            r'axis "\7", and \6 is no multiple of \8',
            "Which dimension of that array is to be split? In a spec, a None stands for each "
            "dimension before it.",
        ),
        _Said(
            r"(in_specs\[\d+\]\S*) is (P\(.*?\)) which has length (\d+), but the passed "
            r"args\[\d+\](\S*), where \S+ is bound to \S+ parameter '(\w+)', has shape \S+, which "
            r"has rank (\d+)",
            r"`\1` is \2: it is for arrays of \3 dimensions or more, and `\5\4` has \6",
            "The specs stand in the order of the parameters. Is each of them in its place?",
        ),
        _Said(
            r"DuplicateSpecError.*?but (P\(.*?\)) has duplicate entries for `(\w+)`",
            r"\1 names the axis \2 twice: an axis of the mesh splits one dimension of an array",
            "Which of these dimensions is to be split? The others get None.",
        ),
        _Said(
            r"pytree structure error: different lengths of (?:tuple|list) at key path\s+shard_map "
            r"(in_specs|out_specs).*? of length (\d+),.* of length (\d+)",
            r"`\1` has \2 entries, and there are \3 values for them",
            "in_specs has an entry for each argument of the call, and out_specs one for each value "
            "that is returned.",
        ),
        _Said(
            r"scan body output must be a pair",
            "the body of a scan returns a pair (carry, output), and this one does not: was its "
            "`return` forgotten?",
        ),
        _Said(
            r"Memory kind mismatch with xla::PjRtBuffers|PjRtBuffer's memory kind does not match",
            "one device_put was to change both the devices and the kind of memory",
            "x.sharding.with_memory_kind(...) keeps the devices of x, and changes the kind alone.",
        ),
        _Said(
            r"device_put device specification must be a tree prefix of",
            "the tree of devices or shardings does not fit the tree of arrays",
            "One sharding fits a whole tree. A tree of them has the keys of the arrays' tree: "
            "which keys does yours have?",
        ),
        _Said(
            r"(?m)^ValueError: pytree structure error",
            "two trees that are taken together have different structures",
            "Is one of them of a single param, and the other of all? Or were two values exchanged, "
            "where they were unpacked?",
        ),
        _Said(
            r"Sharding passed to jit does not match the sharding on the respective arg\. Got jit "
            r"sharding: .*?spec=(P\(.*?\)),.*?arg sharding: .*?spec=(P\(.*?\)),.*?arg type: (\S+)",
            r"`in_shardings` says \1 of an argument \3 that lies as \2",
            "jit moves no array that was placed: in_shardings must say where it is. A result of "
            "the call before lies as out_shardings said. Without in_shardings, jit takes each "
            "argument as it comes.",
        ),
        _Said(
            r"^ZeroDivisionError",
            "",
            "Which number is 0 there, and which line made it? `//` and divmod round down: what is "
            "below 1 becomes 0.",
        ),
        _Said(
            r"Too few leaves for PyTreeDef",
            "",
            "Of the gradient of a function from jax.shard_map, JAX says this where `out_specs` "
            "promise with P() that a result is the same on all devices, and nothing makes it so. "
            "Over which axes are the devices' parts added up, or averaged?",
        ),
        _Said(
            r"memory_space of all inputs passed to",
            "one operation got arrays in two kinds of memory, the device's and the host's",
        ),
        _Said(
            r"unbound axis name:? (\w+)",
            r"no axis is called `\1` here: psum, pmean and the like take the name that pmap or "
            "shard_map has given to an axis",
            "By which name does this code's pmap or shard_map call its axis? Under jit alone there "
            "is none: there, the mean of a sharded array is the mean over all its devices.",
        ),
        _Said(
            r"'str' object has no attribute 'partitions'",
            "a text stands where a PartitionSpec is expected",
            'jax.P("data") is a spec that names an axis.',
        ),
        _Said(
            r"'(?:jaxlib\._jax\.)?(P|NamedSharding)' object has no attribute 'size'",
            r"a `\1` stands where a mesh is expected",
            "jax.NamedSharding(mesh, spec): the mesh comes first. That of x is x.sharding.mesh.",
        ),
        _Said(
            r"incompatible function arguments.{1,200}mesh: object, spec: object",
            "a NamedSharding is made of a mesh and of a spec, in this order",
        ),
        _Said(
            r"The context mesh cannot be empty",
            "jax.shard_map was given no mesh, and none is set around its call",
            "jax.shard_map takes a mesh: `mesh=mesh`.",
        ),
        _Said(
            r"jax\.(device_put_\w+) is deprecated",
            r"JAX has no `\1` any more",
            "jax.device_put takes a sharding. Over a mesh of the devices, a spec with its axis "
            "cuts the first dimension: device i gets slice i, and nothing else.",
        ),
        _Said(
            r"passed to device_put is not the same on each process",
            "jax.device_put was given other numbers in each process; for an array of all processes "
            "it takes the whole of it, the same in each",
            "Which function makes an array of all processes from the part that each has read?",
        ),
        _Said(
            r"process_id < num_processes. Got process_id=(-?\d+), num_processes=(-?\d+)",
            r"a process was to join as number \1 of \2, counted from 0",
        ),
        _Said(
            r"spans? non-addressable",
            "a value was asked of an array of which other processes hold a part",
            "A process can read its own shards, and what each process holds whole.",
        ),
        _Said(
            r"spec=P\(\(('\w+'), ('\w+')\).{1,99} is partitioned (\d+) times, but the dimension "
            r"size is (\d+)",
            r"an axis of length \4 cannot be cut into \3 equal parts: the spec names \1 and \2",
            "Two axes of the mesh in one place of a spec cut one axis of the array, into as many "
            "parts as both make together. Over which of them is it to be cut?",
        ),
        _Said(
            r"is partitioned (\d+) times, but (?:does not evenly divide the dimension size|the "
            r"dimension size is) (\d+)",
            r"an axis of length \2 cannot be cut into \1 equal parts",
            "JAX makes equal parts only. Which axis of the array does the spec cut, and over which "
            "axis of the mesh? If that is meant, rows are missing.",
        ),
        _Said(
            r"Resource axis: (\w+) of .{1,200} is not found in mesh: (\([^()]*\))",
            r"the mesh has no axis `\1`: its axes are \2",
        ),
        _Said(
            r"Length of sharding.spec \((\d+)\) must be equal to aval's ndim \((\d+)\)",
            r"the spec speaks of \1 axes, and the array has \2",
            "Do all arrays of this tree have the axis that the spec names?",
        ),
        _Said(
            r"canonicalize_value\(\).{1,200}Invoked with types: NoneType",
            "None stands where an array is expected: was the `return` of a callback forgotten?",
        ),
        _Said(
            r"cannot select an axis to squeeze out which has size not equal to one",
            "an axis longer than 1 was to be squeezed away",
        ),
    )
)

_OF_THE_CALL = re.compile(
    r"interpreting argument to <function|Non-hashable static arguments|positional argument|"
    r"unexpected keyword argument|got multiple values for argument"
)
"""What is raised by a call before anything of the function runs."""
_OF_PLACES = re.compile(r"Received incompatible devices|memory_space of all inputs passed to")
_NAMED = re.compile(r"<function (?:\w+\.|<locals>\.)*(\w+) at 0x\w+>")
_CLEANED = (
    (_NAMED, r"`\1`"),
    (re.compile(r"<weakref at 0x\w+; to '\w+' at 0x\w+ \((\w+)\)>"), r"`\1`"),
    (re.compile(r"<(?:\w+\.|<locals>\.)+(\w+) object at 0x\w+>"), r"<\1>"),
    (re.compile(r"<(\w+) object (?:\w+\.|<locals>\.)*(\w+) at 0x\w+>"), r"<\1>"),
    (re.compile(r"\b(?:\w+\.(?:<locals>\.)?)+(\w+\(\)) (?=missing|takes|got)"), r"\1 "),
    (re.compile(r"(?<= at )/[^\s:]*/(?=[^\s/:]+\.py:\d)"), ""),
    (re.compile(r"\bjaxlib\._jax\.ArrayImpl\b"), "jax.Array"),
    (re.compile(r"\bjaxlib\._jax\.Device\b"), "jax.Device"),
    (re.compile(r"[\[{(][^\n]*?\bArray\([^\n]*\n.*", re.DOTALL), "..."),
)
"""What says nothing to a learner: addresses, the grader's own classes, the folder of a file whose
name follows, the contents of arrays."""


def in_words(message: str) -> str:
    """An exception in plain words, and below them its own, at most `MAX_LINES` lines of them."""
    found = _found(message)
    words = found[1].expand(found[0].words) if found else ""
    own = cleaned(message)
    if not words:
        return own
    lines = [line for line in own.splitlines() if line.strip()]
    more = ["..."] if len(lines) > MAX_LINES else []
    return "\n".join([words, *map(shortened, lines[:MAX_LINES]), *more])


def shortened(text: str, most: int = MAX_LENGTH) -> str:
    """A text of at most so many characters, and "..." for those that it had more."""
    return text if len(text) <= most else f"{text[:most]} ..."


def _found(message: str) -> tuple[_Said, re.Match[str]] | None:
    message = message[:LONGEST]
    found = ((row, pattern.search(message)) for pattern, row in _TABLE)
    return next(((row, match) for row, match in found if match), None)


def hint_for(message: str) -> str:
    """Where to look for what an exception says, or ""."""
    found = _found(message)
    return found[0].hint if found else ""


def is_known(message: str) -> bool:
    """Whether there are plain words for this exception."""
    return bool((found := _found(message)) and found[0].words)


def is_of_a_call(message: str) -> bool:
    """Whether this is raised by the call of a function, before anything in it runs."""
    return bool(_OF_THE_CALL.search(message[:LONGEST]))


def is_of_places(message: str) -> bool:
    """Whether this is raised where arrays meet that are in different places."""
    return bool(_OF_PLACES.search(message[:LONGEST]))


def cleaned(message: str) -> str:
    """An exception's own words, without addresses, folders of files, and the numbers of arrays."""
    message = message[:LONGEST]
    for pattern, plain in _CLEANED:
        message = pattern.sub(plain, message)
    return message


def without_treedefs(text: str) -> str:
    """A text in which a tree is written as Python would: `{'w': *, 'b': *}`, `Adam(*, *)`."""
    text, rest = text[:LONGEST], text[LONGEST:]
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
    return text + rest
