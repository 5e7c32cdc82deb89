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


def test_every_claim_of_every_proof_has_a_counterexample() -> None:
    """Those of a proof that needs a GPU run here: they are machines without one."""
    assert [
        f"{proof.name}: {claim}"
        for proof in LEDGER.proofs
        for claim, _ in proof.bound
        if claim not in proof.tried
    ] == []


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
