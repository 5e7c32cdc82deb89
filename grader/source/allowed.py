"""The table of what an answer may use: modules, their names, built-in names, methods.

It is an allow-list. A module that has no row is refused, and so is a name that its row does not
list. A row of numeric functions allows every public name but a few; a test holds these rows
against the installed packages, so that no module hides behind one of them. How a file is held
against the table is in `grader.source.policy`.
"""

import builtins
import collections.abc
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A module that an answer may use, or an object that is treated as one.

    `names` lists what may be used of it, `but` what may not; where `names` is None, that is
    every public name but those. Modules inside it have rows of their own. A row that is
    `on_request` holds where `Exercise.allowed_modules` names the module.
    """

    module: str
    names: frozenset[str] | None
    reason: str
    but: frozenset[str] = frozenset()
    on_request: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _some(module: str, reason: str, names: str = "", *, on_request: bool = False) -> Row:
    return Row(module, _words(names), reason, on_request=on_request)


def _all(module: str, reason: str, but: str = "") -> Row:
    return Row(module, None, reason, _words(but))


_PURE = "it computes, and reaches nothing"
_ARRAYS = "functions of arrays"
_LAYERS = "layers and optimizers are functions of arrays"
_ROWS = (
    # Python's own.
    _all("__future__", "it changes how a file is read, and nothing else"),
    _some("abc", _PURE, "ABC abstractmethod"),
    _all("bisect", _PURE),
    _all("cmath", _PURE),
    _some("collections", _PURE, "ChainMap Counter OrderedDict abc defaultdict deque namedtuple"),
    _all("collections.abc", "names of kinds, for annotations"),
    _some(
        "contextlib",
        "blocks; not those that move stdout or the folder",
        "AbstractContextManager ContextDecorator ExitStack closing contextmanager nullcontext "
        "suppress",
    ),
    _some("copy", _PURE, "copy deepcopy replace"),
    _some(
        "dataclasses",
        "not `make_dataclass`, which takes names as text",
        "FrozenInstanceError InitVar KW_ONLY asdict astuple dataclass field fields is_dataclass "
        "replace",
    ),
    _some("decimal", _PURE, "Decimal"),
    _some(
        "enum",
        _PURE,
        "Enum Flag IntEnum IntFlag StrEnum auto member nonmember property unique",
    ),
    _some("fractions", _PURE, "Fraction"),
    _some(
        "functools",
        "not `update_wrapper`, which sets attributes by their names",
        "cache cached_property cmp_to_key lru_cache partial reduce singledispatch total_ordering "
        "wraps",
    ),
    _all("heapq", _PURE),
    _all("itertools", _PURE),
    _some("json", "text and back; no files", "JSONDecodeError dumps loads"),
    _all("math", _PURE),
    _some("numbers", _PURE, "Complex Integral Number Rational Real"),
    _some(
        "operator",
        "`attrgetter` and `methodcaller` with texts that stand in the file; not `call`",
        "abs add and_ attrgetter concat contains countOf delitem eq floordiv ge getitem gt index "
        "indexOf inv invert is_ is_not itemgetter le lshift lt matmul methodcaller mod mul ne neg "
        "not_ or_ pos pow rshift setitem sub truediv truth xor iadd iand ifloordiv imatmul imul "
        "isub itruediv",
    ),
    _some("pprint", "it prints", "pformat pprint"),
    _some(
        "queue",
        "queues, without the threads",
        "Empty Full LifoQueue PriorityQueue Queue SimpleQueue",
    ),
    _some(
        "random",
        "not `SystemRandom`, which asks the system",
        "Random choice choices expovariate gauss getrandbits normalvariate randint random "
        "randrange sample seed shuffle triangular uniform",
    ),
    _some(
        "re",
        _PURE,
        "A ASCII DOTALL I IGNORECASE M MULTILINE Match Pattern S VERBOSE X compile error escape "
        "findall finditer fullmatch match search split sub subn",
    ),
    _some("statistics", _PURE, "fmean mean median pstdev pvariance quantiles stdev variance"),
    _some(
        "string",
        "not `Formatter`, which reaches attributes by text",
        "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits punctuation whitespace",
    ),
    _some("textwrap", _PURE, "dedent fill indent shorten wrap"),
    _some("types", "names of kinds; not those that hold code", "MappingProxyType SimpleNamespace"),
    _some(
        "typing",
        "not `get_type_hints`, which runs text as code",
        "Annotated Any AnyStr Callable ClassVar Concatenate Dict Final FrozenSet Generator Generic "
        "Iterable Iterator List Literal LiteralString Mapping MutableMapping NamedTuple Never "
        "NewType NoReturn NotRequired Optional ParamSpec Protocol Required Self Sequence Set "
        "Sized SupportsFloat SupportsIndex SupportsInt TYPE_CHECKING Text Tuple Type TypeAlias "
        "TypeGuard TypeVar TypeVarTuple TypedDict Union Unpack assert_never cast final overload "
        "override runtime_checkable",
    ),
    _some(
        "warnings",
        "a library's warnings may be silenced",
        "catch_warnings filterwarnings simplefilter warn",
    ),
    # What only some exercises ask for.
    _some("os", "settings of the process", "environ getenv putenv unsetenv", on_request=True),
    _some(
        "time",
        "times, where the exercise is about them",
        "monotonic monotonic_ns perf_counter perf_counter_ns sleep time time_ns",
        on_request=True,
    ),
    _some(
        "threading",
        "threads, where the exercise is about them",
        "Condition Event Lock RLock Semaphore Thread",
        on_request=True,
    ),
    _some("jax.extend", "see `jax.extend.backend`"),
    _some("jax.extend.backend", "which backends there are", "backends", on_request=True),
    # NumPy.
    _all(
        "numpy",
        f"{_ARRAYS}; not files, not tests, not what describes the machine",
        "bmat char core ctypeslib f2py fromfile fromregex genfromtxt get_include info lib load "
        "loadtxt ma memmap polynomial rec recarray record save savetxt savez savez_compressed "
        "seterrcall show_config show_runtime strings test testing",
    ),
    _all("numpy.dtypes", "types of numbers"),
    _all("numpy.emath", _ARRAYS),
    _all("numpy.exceptions", "what NumPy raises"),
    _all("numpy.fft", _ARRAYS, "test"),
    _all("numpy.linalg", _ARRAYS, "test"),
    _all("numpy.random", _ARRAYS, "bit_generator mtrand test"),
    _all("numpy.typing", "names of kinds, for annotations", "test"),
    # JAX.
    _some(
        "jax",
        "transformations, devices and arrays; not settings, watchers, callbacks and clients",
        "Array Device NamedSharding P Ref ShapeDtypeStruct Shard block_until_ready checkpoint "
        "checkpoint_policies clear_caches closure_convert copy_to_host_async custom_gradient "
        "custom_jvp custom_vjp debug_infs debug_nans default_backend default_device "
        "default_matmul_precision default_prng_impl device_count device_get device_put "
        "device_put_replicated device_put_sharded devices disable_jit ds empty_ref enable_x64 "
        "ensure_compile_time_eval eval_shape float0 free_ref freeze fwd_and_bwd "
        "get_abstract_mesh get_mesh grad hessian host_count host_id host_ids jacfwd jacobian "
        "jacrev jit jvp legacy_prng_key linear_transpose linearize local_device_count "
        "local_devices make_array_from_callback make_array_from_process_local_data "
        "make_array_from_single_device_arrays make_jaxpr make_mesh named_call named_scope new_ref "
        "numpy_dtype_promotion numpy_rank_promotion pmap process_count process_index "
        "process_indices remat reshard set_mesh shard_map smap softmax_custom_jvp "
        "threefry_partitionable typeof use_abstract_mesh value_and_grad vjp vmap",
    ),
    _some(
        "jax.ad_checkpoint",
        "what is kept for the backward pass",
        "Offloadable Recompute Saveable checkpoint checkpoint_name checkpoint_policies "
        "print_saved_residuals remat",
    ),
    _some(
        "jax.config",
        "settings may be read",
        "jax_default_device jax_enable_x64 jax_num_cpu_devices jax_platforms x64_enabled",
    ),
    _some("jax.core", "kinds, to ask whether a value is one", "ShapedArray Tracer"),
    _some("jax.custom_batching", _ARRAYS, "custom_vmap sequential_vmap"),
    _some(
        "jax.custom_derivatives",
        _ARRAYS,
        "SymbolicZero closure_convert custom_gradient custom_jvp custom_vjp linear_call "
        "zero_from_primal",
    ),
    _some(
        "jax.debug",
        "it prints, and calls back; checks see both",
        "callback inspect_array_sharding print visualize_array_sharding visualize_sharding",
    ),
    _some("jax.distributed", "hosts find each other", "initialize is_initialized shutdown"),
    _all("jax.dtypes", "types of numbers"),
    _all("jax.errors", "what JAX raises"),
    _some("jax.experimental", "parts of it, each with its row", "enable_x64 primal_tangent_dtype"),
    _some(
        "jax.experimental.checkify",
        _ARRAYS,
        "Error all_checks automatic_checks check check_error checkify debug_check div_checks "
        "float_checks index_checks nan_checks user_checks",
    ),
    _some("jax.experimental.compute_on", "where a program computes", "compute_on"),
    _some(
        "jax.experimental.layout",
        "how an array lies in memory",
        "Format Layout explicit_layout with_layout_constraint",
    ),
    _some(
        "jax.experimental.mesh_utils",
        "the order of devices in a mesh",
        "create_device_mesh create_hybrid_device_mesh",
    ),
    _some(
        "jax.experimental.multihost_utils",
        "arrays of several hosts",
        "assert_equal broadcast_one_to_all global_array_to_host_local_array "
        "host_local_array_to_global_array process_allgather sync_global_devices",
    ),
    _some("jax.experimental.pjit", "an older name of `jax.jit`", "pjit"),
    _some("jax.experimental.shard_map", "an older place of `jax.shard_map`", "shard_map"),
    _some("jax.flatten_util", _ARRAYS, "ravel_pytree"),
    _all("jax.image", _ARRAYS),
    _all("jax.lax", _ARRAYS),
    _all("jax.lax.linalg", _ARRAYS),
    _some("jax.memory", "kinds of memory", "Space"),
    _all("jax.nn", _ARRAYS),
    _all("jax.nn.initializers", _ARRAYS),
    _all("jax.numpy", f"{_ARRAYS}; not files", "from_dlpack fromfile load save savez"),
    _all("jax.numpy.fft", _ARRAYS),
    _all("jax.numpy.linalg", _ARRAYS),
    _all("jax.ops", _ARRAYS),
    _some(
        "jax.profiler",
        "names in a trace, and a trace of one's own",
        "StepTraceAnnotation TraceAnnotation annotate_function start_trace stop_trace trace",
    ),
    _all("jax.random", _ARRAYS),
    _all("jax.ref", _ARRAYS),
    _some("jax.scipy", "each part has its row"),
    _all("jax.scipy.cluster", _ARRAYS, "vq"),
    _all("jax.scipy.fft", _ARRAYS),
    _all("jax.scipy.integrate", _ARRAYS),
    _all("jax.scipy.interpolate", _ARRAYS),
    _all("jax.scipy.linalg", _ARRAYS),
    _all("jax.scipy.ndimage", _ARRAYS),
    _all("jax.scipy.signal", _ARRAYS),
    _some("jax.scipy.sparse", "see `jax.scipy.sparse.linalg`"),
    _all("jax.scipy.sparse.linalg", _ARRAYS),
    _all("jax.scipy.special", _ARRAYS),
    _some(
        "jax.scipy.stats",
        "each distribution has its row",
        "gaussian_kde mode rankdata sem",
    ),
    *(
        _all(f"jax.scipy.stats.{name}", _ARRAYS)
        for name in ("bernoulli", "beta", "expon", "gamma", "laplace", "norm", "poisson", "t")
    ),
    _all("jax.scipy.stats.multivariate_normal", _ARRAYS),
    _all("jax.scipy.stats.uniform", _ARRAYS),
    _all("jax.sharding", "how arrays are split over devices"),
    _some("jax.stages", "kinds, for annotations", "Compiled Lowered Traced Wrapped"),
    _all("jax.tree", "functions of trees"),
    _all("jax.tree_util", "functions of trees; not the register itself", "default_registry"),
    _all("jax.typing", "names of kinds, for annotations"),
    # What is built on JAX.
    _all(
        "optax",
        _LAYERS,
        "assignment contrib experimental microbatching perturbations projections second_order",
    ),
    _all("optax.losses", _LAYERS),
    _all("optax.schedules", _LAYERS),
    _all("optax.transforms", _LAYERS),
    _all("optax.tree", _LAYERS),
    _all("optax.tree_utils", _LAYERS, "functools typing"),
    _all("haiku", _LAYERS, "config experimental mixed_precision testing"),
    _all("haiku.data_structures", _LAYERS),
    _all("haiku.initializers", _LAYERS),
    _all("haiku.nets", _LAYERS),
    _all("haiku.pad", _LAYERS),
    _some("flax", "each part has its row"),
    _some("flax.core", "frozen dicts", "FrozenDict copy freeze pop unfreeze"),
    _some(
        "flax.jax_utils",
        "copies on each device",
        "pad_shard_unpad prefetch_to_device replicate unreplicate",
    ),
    _all(
        "flax.linen",
        _LAYERS,
        "activation attention batch_apply combinators dtypes fp8_ops initializers "
        "kw_only_dataclasses linear meta module normalization pooling recurrent spmd stochastic "
        "summary transforms",
    ),
    _all("flax.linen.initializers", _LAYERS, "jax"),
    _all(
        "flax.nnx",
        f"{_LAYERS}; not the parts that it is made of",
        "bridge compat deprecations display extract filterlib graph graphlib helpers metrics "
        "module nn object optimizer proxy_caller pytreelib register_data_type "
        "register_variable_name reprlib rnglib set_graph_mode set_graph_updates spmd "
        "statelib summary tracers training transforms traversals variablelib variables "
        "visualization wrappers",
    ),
    _all("flax.nnx.initializers", _LAYERS, "tp"),
    _some("flax.struct", "data classes", "PyTreeNode dataclass field"),
    _some("flax.training", "see its parts"),
    _some("flax.training.train_state", "a state of training", "TrainState"),
    _some(
        "flax.traverse_util",
        "functions of trees",
        "flatten_dict path_aware_map unflatten_dict",
    ),
)


_GONE = "JAX took it away; it is `{}` now"
RENAMED = {
    "jax.tree_map": _GONE.format("jax.tree.map"),
    "jax.tree_multimap": _GONE.format("jax.tree.map"),
    "jax.tree_leaves": _GONE.format("jax.tree.leaves"),
    "jax.tree_flatten": _GONE.format("jax.tree.flatten"),
    "jax.tree_unflatten": _GONE.format("jax.tree.unflatten"),
    "jax.tree_structure": _GONE.format("jax.tree.structure"),
    "jax.tree_reduce": _GONE.format("jax.tree.reduce"),
    "jax.tree_transpose": _GONE.format("jax.tree.transpose"),
    "jax.tree_util.tree_multimap": _GONE.format("jax.tree.map"),
    "jax.partial": "it is `functools.partial`",
    "jax.ops.index_update": _GONE.format("x.at[index].set(y)"),
    "jax.ops.index_add": _GONE.format("x.at[index].add(y)"),
    "jax.experimental.pjit": "`jax.jit` does the same",
    "jax.experimental.maps": _GONE.format("jax.shard_map"),
    "jax.effects_barrier": "it waits for effects; `jax.block_until_ready` waits for arrays",
    "jax.cuda": 'JAX has no such module; jax.devices("gpu") lists the GPUs',
}
"""What to say of names that JAX once had, or that people expect of it."""


def table(requested: Sequence[str] = ()) -> dict[str, Row]:
    """The rows by module, without those `on_request` that are not in `requested`."""
    return {row.module: row for row in _ROWS if not row.on_request or row.module in requested}


def known() -> tuple[Row, ...]:
    """Every row."""
    return _ROWS


BUILTINS = _words(
    "Ellipsis False None NotImplemented True __debug__ __doc__ abs aiter all "
    "anext any ascii bin bool bytearray bytes callable chr classmethod complex delattr dict dir "
    "divmod enumerate filter float format frozenset getattr hasattr hash hex id int isinstance "
    "issubclass iter len list map max min next object oct ord pow print property range repr "
    "reversed round set setattr slice sorted staticmethod str sum super tuple type "
    "zip"
) | {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
"""Python's own names that an answer may use: none that runs text, opens files or asks."""

METHODS = _words(
    "__abs__ __add__ __aenter__ __aexit__ __aiter__ __and__ __anext__ __bool__ __call__ "
    "__contains__ __delitem__ __divmod__ __enter__ __eq__ __exit__ __float__ __floordiv__ "
    "__format__ __ge__ __getitem__ __gt__ __hash__ __iadd__ __ilshift__ __imul__ __init__ __int__ "
    "__invert__ __ior__ __isub__ __iter__ __itruediv__ __le__ __len__ __lshift__ __lt__ "
    "__matmul__ __missing__ __mod__ __mul__ "
    "__ne__ __neg__ __next__ __or__ __pos__ __post_init__ __pow__ __radd__ __repr__ __reversed__ "
    "__rmatmul__ __rmul__ __round__ __rshift__ __rsub__ __rtruediv__ __setitem__ __str__ __sub__ "
    "__truediv__ __xor__"
)
"""Methods with two underscores at each end that a class may define, and that may be called."""

NAMING = frozenset(("__doc__", "__name__", "__qualname__"))
"""Attributes that tell one function from another."""

READABLE = METHODS | NAMING | {"__version__"}
"""Attributes with two underscores at each end that may be read."""

BINDABLE = (
    METHODS
    | {"__all__", "__match_args__", "__slots__"}
    | _words("__author__ __copyright__ __date__ __email__ __license__ __version__")
)
"""Names with two underscores at each end that a file may bind."""

INSIDE = _words(
    "ag_await ag_code ag_frame as_python_traceback co_cellvars co_code co_consts co_filename "
    "co_firstlineno co_freevars co_names co_varnames cr_await cr_code cr_frame cr_origin f_back "
    "f_builtins f_code f_globals f_lasti f_lineno f_locals f_trace func_closure func_code "
    "func_globals gi_code gi_frame gi_yieldfrom tb_frame tb_lasti tb_lineno tb_next"
)
"""Attributes of frames, coroutines, tracebacks and code objects: all of them lead outside."""

HANDLES = _words(
    "buffer_from_pyval builtins call_primitive client compile_and_load "
    "compile_and_load_ifrt_program compile_ifrt_program compiler_ir create_hlo_output_callback "
    "ctypes def_abstract_eval def_bind_with_trace def_effectful_abstract_eval "
    "def_effectful_abstract_eval2 def_impl defragment deserialize_executable dma_map dma_unmap "
    "dump dumps fdel fget fset func get_stream_for_external_ready_events heap_profile live_arrays "
    "live_buffers live_executables make_python_callback_from_host_send_and_recv memmap mro obj "
    "poison_execution register runtime_executable serialize_executable setflags sys to_dlpack "
    "tofile traceback unsafe_buffer_pointer unsafe_client_pointer unsafe_raw_buffer "
    "with_traceback"
)
"""Attributes that lead to files, to raw memory, to the runtime below JAX or to a module.

`obj` is an `AttributeError`'s, and may be a module. An object that the file made may have
attributes of these names.
"""

MAKERS = _words(
    "dataclasses.dataclass flax.nnx.dataclass flax.struct.dataclass functools.total_ordering "
    "functools.wraps jax.tree_util.register_dataclass jax.tree_util.register_pytree_node "
    "jax.tree_util.register_pytree_node_class jax.tree_util.register_pytree_with_keys "
    "jax.tree_util.register_pytree_with_keys_class jax.tree_util.register_static "
    "typing.final typing.override typing.runtime_checkable"
)
"""Functions that change the class or function they are given: they may be given the file's own."""

BINDING = _words(
    "abc.abstractmethod contextlib.contextmanager flax.linen.compact flax.linen.nowrap "
    "flax.nnx.jit flax.nnx.remat functools.cache functools.cached_property functools.lru_cache "
    "haiku.transparent jax.checkpoint jax.jit jax.named_call jax.remat typing.override"
)
"""Decorators whose result is bound to its object, as a method is."""

TRACING = _words("flax.nnx.jit flax.nnx.remat jax.checkpoint jax.jit jax.remat")
"""Those of them that may take the object apart, if it is a node of trees, and call with another."""

NODES = frozenset(maker for maker in MAKERS if ".register_" in maker) | _words(
    "flax.nnx.dataclass flax.struct.dataclass"
)
"""Functions that make a class a node of trees."""

UNFLATTENED = frozenset(node for node in NODES if ".register_pytree_" in node)
"""Those of them whose objects a function of the file puts together again."""

PLAIN_BASES = _words(
    "abc.ABC collections.ChainMap collections.Counter collections.OrderedDict "
    "collections.defaultdict collections.deque contextlib.AbstractContextManager "
    "contextlib.ContextDecorator enum.Enum enum.Flag enum.IntEnum enum.IntFlag "
    "types.SimpleNamespace typing.Generic typing.NamedTuple typing.Protocol typing.TypedDict"
) | {f"collections.abc.{name}" for name in collections.abc.__all__}
"""Bases that give an object nothing that leads anywhere, under whatever name."""

NO_BASES = frozenset(("warnings.catch_warnings",))
"""Classes that hold a module in each object: nothing builds on them."""

WATCHERS = _words(
    "explain_cache_misses log_compiles monitoring thread_guard transfer_guard "
    "transfer_guard_device_to_device transfer_guard_device_to_host "
    "transfer_guard_host_to_device"
)
"""What the grader watches with."""

ARRAY_ATTRIBUTES = _words(
    "T addressable_data addressable_shards all any argmax argmin argpartition argsort astype at "
    "aval block_until_ready byteswap choose clear_cache clip clone committed compress conj "
    "conjugate copy copy_to_host_async cumprod cumsum delete device device_buffer device_buffers "
    "devices diagonal dot dtype eval_shape flat flatten format global_shards imag is_deleted "
    "is_fully_addressable is_fully_replicated is_ready item itemsize lower mT max mean min nbytes "
    "ndim nonzero on_device_size_in_bytes platform prod ptp ravel real repeat reshape round "
    "searchsorted shape sharding size sort squeeze std sum swapaxes take to_device tobytes tolist "
    "trace traceback transpose unsafe_buffer_pointer unsafe_raw_buffer var view weak_type"
)
"""Attributes of arrays and of jitted functions: nothing replaces them, not even in a model."""
