"""Which operations a learner's program may hold: the grader's own list, nothing else.

A serialised program is hostile input. It may name any custom call that jaxlib registers,
among them calls into Python at an address that it makes up. So every operation and every
custom-call target of the module is looked up here; what is not listed is refused. The
module comes from `grader.program.loading`. Nothing here compiles or runs.
"""

import re
from collections import Counter
from collections.abc import Iterator

from jax.interpreters.mlir import ir

_STRUCTURE = "builtin.module func.func func.call func.return"

_STABLEHLO = """
abs add all_gather all_reduce all_to_all and atan2 batch_norm_grad batch_norm_inference
batch_norm_training bitcast_convert broadcast broadcast_in_dim case cbrt ceil cholesky clamp
collective_broadcast collective_permute compare complex concatenate constant convert convolution
cosine count_leading_zeros divide dot dot_general dynamic_slice dynamic_update_slice exponential
exponential_minus_one fft floor gather get_dimension_size get_tuple_element if imag iota is_finite
log log_plus_one logistic map maximum minimum multiply negate not optimization_barrier or pad
partition_id popcnt power real reduce reduce_precision reduce_scatter reduce_window remainder
replica_id reshape return reverse rng rng_bit_generator round_nearest_afz round_nearest_even rsqrt
scatter select select_and_scatter shift_left shift_right_arithmetic shift_right_logical sign sine
slice sort sqrt subtract tan tanh transpose triangular_solve tuple while xor
"""

_INCIDENTAL = "custom_call constant convert"

_CHLO = """
_asin_acos_kernel acos acosh asin asinh atan atanh bessel_i1e conj constant constant_like cosh
digamma erf erf_inv erfc is_inf is_neg_inf is_pos_inf lgamma mulhi next_after polygamma ragged_dot
scan sinh square tan top_k zeta
"""

_SDY = """
all_gather all_reduce all_slice all_to_all collective_permute constant manual_computation mesh
named_computation propagation_barrier reduce_scatter replicated_to_unreduced reshard return
sharded_to_unreduced sharding_constraint sharding_group
"""

OPERATIONS = frozenset(_STRUCTURE.split()).union(
    *(
        {f"{dialect}.{name}" for name in names.split()}
        for dialect, names in (("stablehlo", _STABLEHLO), ("chlo", _CHLO), ("sdy", _SDY))
    )
)
"""Everything JAX lowers to, except what talks to the outside (infeed, outfeed, send, recv)."""

_PLACEMENT = """
Sharding SPMDFullToShardShape SPMDShardToFullShape annotate_device_placement
xla.sdy.FuncResultSharding xla.sdy.GlobalToLocalShape xla.sdy.LocalToGlobalShape
xla.sdy.PropagationBarrier xla.sdy.ShardingGroup
"""

_LINEAR_ALGEBRA = """
Eigh Qr ProductOfElementaryHouseholderReflectors LuDecomposition
cu_lu_pivots_to_permutation cu_cholesky_update_ffi tridiagonal_solve_perturbed_ffi
cusolver_geev_ffi cusolver_geqrf_ffi cusolver_gesdd_ffi cusolver_gesvd_ffi cusolver_gesvdj_ffi
cusolver_gesvdp_ffi cusolver_getrf_ffi cusolver_orgqr_ffi cusolver_ormqr_ffi cusolver_potrf_ffi
cusolver_syevd_ffi cusolver_syrk_ffi cusolver_sytrd_ffi cusparse_gtsv2_ffi
"""

_OTHER = "cu_threefry2x32_ffi ApproxTopK mhlo.topk mhlo.erf"

CUSTOM_CALLS = frozenset(f"{_PLACEMENT} {_LINEAR_ALGEBRA} {_OTHER}".split())
"""Targets known by name. LAPACK's, of which there is one for each dtype, match `_LAPACK`."""

_LAPACK = re.compile(
    r"lapack_[sdcz](gees|geev|gehrd|geqp3|geqrf|gesdd|gesvd|getrf|gtsv|(he|sy)evd|(he|sy)trd"
    r"|(or|un)(gqr|mqr)|potrf|trsm)_ffi"
)


def refused(module: ir.Module) -> list[str]:
    """Describe every kind of operation outside the list, with counts; empty if there is none."""
    counts = Counter(_forbidden(module))
    return [text if count == 1 else f"{text}, {count} times" for text, count in counts.items()]


def operations(module: ir.Module) -> dict[str, int]:
    """How often the module runs each operation that computes something, whatever the dtypes.

    An operation inside a function counts as often as the function is called. JAX writes one
    function for all calls with the same shapes, so the number of functions depends on the
    sizes. Structure, placement, constants and conversions are left out.
    """
    left_out = {*_STRUCTURE.split(), *(f"stablehlo.{n}" for n in _INCIDENTAL.split())}
    found: Counter[str] = Counter()
    for times, body in _functions(module):
        names = Counter(operation.name for operation in body)
        found.update({name: times * n for name, n in names.items() if name not in left_out})
    return dict(found)


def _functions(module: ir.Module) -> Iterator[tuple[int, list[ir.Operation]]]:
    """Each function, and how often it is called: 1 if never. None that calls itself."""
    bodies = {_symbol(f.operation): list(_walk(f.operation)) for f in module.body}
    calls = {name: Counter(filter(None, map(_called, body))) for name, body in bodies.items()}
    callers_left = Counter(callee for callees in calls.values() for callee in callees)
    times = Counter({name: 1 for name in bodies if not callers_left[name]})
    ready = list(times)
    while ready:
        name = ready.pop()
        yield times[name], bodies[name]
        for callee, count in calls[name].items():
            times[callee] += times[name] * count
            callers_left[callee] -= 1
            if not callers_left[callee] and callee in bodies:
                ready.append(callee)


def _symbol(operation: ir.Operation) -> str:
    """The name by which a function is called, or ""."""
    if "sym_name" not in operation.attributes:
        return ""
    return ir.StringAttr(operation.attributes["sym_name"]).value


def _called(operation: ir.Operation) -> str:
    """The function that an operation calls, or ""."""
    names = {"func.call": "callee", "stablehlo.composite": "decomposition"}
    if operation.name not in names:
        return ""
    return ir.FlatSymbolRefAttr(operation.attributes[names[operation.name]]).value


def _forbidden(module: ir.Module) -> Iterator[str]:
    for operation in _walk(module.operation):
        if operation.name == "stablehlo.custom_call":
            target = ir.StringAttr(operation.attributes["call_target_name"]).value
            if target not in CUSTOM_CALLS and not _LAPACK.fullmatch(target):
                yield _call_in_words(target)
        elif operation.name == "stablehlo.composite":
            # CHLO operations travel as composites; what they decompose into is walked as well.
            name = ir.StringAttr(operation.attributes["name"]).value
            if name not in OPERATIONS:
                yield f"the composite `{name}`"
        elif operation.name not in OPERATIONS:
            yield f"the operation `{operation.name}`"


def _walk(operation: ir.Operation) -> Iterator[ir.Operation]:
    # A stack, not recursion: nesting is the sender's choice.
    pending = [operation]
    while pending:
        current = pending.pop()
        yield current
        for region in current.regions:
            for block in region:
                pending.extend(inner.operation for inner in block)


def _call_in_words(target: str) -> str:
    if "callback" in target:
        return f"a call back into Python (`{target}`)"
    if re.search("triton|mosaic|tpu_custom_call", target):
        return f"a hand-written kernel (`{target}`)"
    return f"the custom call `{target}`"
