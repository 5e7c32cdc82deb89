"""The proofs of claims are themselves tried: each must fail where its verdict is false.

`proving` says what a counter-example is. That a proof passes on its real subject is the test that
it is.
"""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
import test_claims_d2l_gpus
import test_claims_dgx
import test_claims_gpu_memory
import test_claims_haiku_gpu
from conftest import ROOT

import claims

MODULES = (
    test_claims_d2l_gpus,
    test_claims_dgx,
    test_claims_gpu_memory,
    test_claims_haiku_gpu,
)
LEDGER = claims.Ledger(ROOT)
NOT_TRIED = {
    "test_on_a_gpu_the_rate_depends_on_the_type_by_which_units_it_uses",
    "test_on_a_gpu_the_advantage_depends_on_how_much_cpu_it_is_compared_with",
    "test_on_a_gpu_a_loop_over_numpy_batches_works_and_copies_each_and_costs_time",
    "test_between_two_gpus_an_array_costs_its_copy_at_every_call",
    "test_on_several_gpus_the_exchange_costs_time_that_a_better_cut_does_not",
    "test_on_a_gpu_a_pool_that_grows_can_be_full_of_holes",
    "test_on_a_gpu_the_next_batch_is_copied_while_a_step_runs_and_a_read_prevents_it",
    "test_on_a_gpu_the_pool_is_taken_once_without_any_jit_and_not_at_all_on_request",
    "test_on_a_gpu_box_jit_on_the_cpu_takes_no_gpu_memory",
    "test_on_a_gpu_layers_can_be_fetched_one_at_a_time",
    "test_on_a_gpu_a_pinned_array_reaches_the_device_no_slower_than_numpy_data",
    "test_on_a_gpu_an_array_larger_than_the_pool_is_an_error_not_a_dead_process",
    "test_on_a_gpu_device_put_returns_before_the_copy_has_ended",
    "test_on_a_gpu_resident_data_is_faster_than_transferred_data",
    "test_on_a_gpu_ten_numbers_are_slower_than_on_the_cpu_and_ten_million_faster",
}
"""Proofs without a counter-example: only a GPU could run it."""
Proof = Callable[..., None]


def counterexamples() -> list[Any]:
    """(proof, arguments) of each, named by its proof and by what it is."""
    functions = {name: f for module in MODULES for name, f in vars(module).items()}
    return [
        pytest.param(functions[proof.name], mark.kwargs, id=f"{proof.name}-{mark.args[0]}")
        for proof in LEDGER.proofs
        for mark in reversed(functions[proof.name].pytestmark)
        if mark.name == "unless"
    ]


def demand_that_it_fails(proof: Proof, arguments: dict[str, Any], folder: Path) -> None:
    """Raises AssertionError unless one of the proof's own asserts fails.

    Another exception shows nothing, and passes through; nor does an assert inside JAX.
    """
    wanted = proof.__code__.co_varnames[: proof.__code__.co_argcount]
    if "tmp_path" in wanted:
        arguments = arguments | {"tmp_path": folder}
    with pytest.raises((AssertionError, pytest.fail.Exception)) as failed:
        proof(**arguments)
    origin = traceback.extract_tb(failed.tb)[-1].filename
    assert not Path(origin).is_relative_to(Path(jax.__file__).parent), origin


@pytest.mark.parametrize(("proof", "arguments"), counterexamples())
def test_a_proof_fails_where_its_verdict_is_false(
    proof: Proof, arguments: dict[str, Any], tmp_path: Path
) -> None:
    demand_that_it_fails(proof, arguments, tmp_path)


def test_every_claim_of_a_proof_that_runs_here_has_a_counterexample() -> None:
    assert [
        f"{proof.name}: {claim}"
        for proof in LEDGER.proofs
        for claim, _ in proof.bound
        if not proof.gpu and claim not in proof.tried
    ] == []


def test_what_is_not_tried_is_known_by_name() -> None:
    """And the ledger says it of each claim that has no tried proof at all."""
    untried = [proof for proof in LEDGER.proofs if not proof.counterexamples]
    assert {proof.name for proof in untried} == NOT_TRIED
    assert all(proof.gpu for proof in untried)
    without = {name for name in LEDGER.claims if not LEDGER.tried(name)}
    assert without == {"S1-12", "S2-01", "S3-11"}
    for name in without:
        assert claims.NO_COUNTEREXAMPLE in LEDGER.one(name, "documents/x.md")


def test_a_proof_that_passes_or_breaks_is_no_failure(tmp_path: Path) -> None:
    def proof(make: Any = len) -> None:
        assert make([]) == 0

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        demand_that_it_fails(proof, {}, tmp_path)
    with pytest.raises(ZeroDivisionError):
        demand_that_it_fails(proof, {"make": lambda _: 1 / 0}, tmp_path)
    with pytest.raises(TypeError, match="unexpected keyword"):
        demand_that_it_fails(proof, {"maker": len}, tmp_path)
    demand_that_it_fails(proof, {"make": lambda _: 1}, tmp_path)
