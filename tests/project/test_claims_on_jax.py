"""`make claims`, all proofs on another JAX: what it makes of them. No environment is made here."""

import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

import claims
import claims_on_jax as script

LEDGER = claims.Ledger(ROOT)


def test_it_knows_the_claims_of_every_proof() -> None:
    bound = script.claims_of()
    assert {proof.name: [name for name, _ in proof.bound] for proof in LEDGER.proofs} == bound


def test_it_wants_that_jax_and_pins_all_else() -> None:
    wanted = script.wanted("0.11.2")
    assert wanted[:2] == ["jax==0.11.2", "jaxlib==0.11.2"]
    assert [need for need in wanted[2:] if need.startswith("jax")] == []
    assert "pytest" in wanted
    pins = script.constraints()
    assert "\nnumpy==" in pins
    assert not any(f"\n{name}==" in pins for name in script.OF_JAX)


@pytest.mark.parametrize(
    ("failed", "told", "code"),
    [
        (set(), set(), 0),
        ({"test_tree_map_has_moved"}, {"S0-17"}, 0),
        (set(), {"S0-17"}, 1),
        ({"test_tree_map_has_moved"}, set(), 1),
        ({"test_tree_map_has_moved"}, {"S0-18"}, 1),
    ],
)
def test_it_compares_what_failed_with_what_the_ledger_says(
    failed: set[str], told: set[str], code: int, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(script, "environment", lambda jax, folder: Path("python"))
    monkeypatch.setattr(script, "run", lambda python, report: failed)
    monkeypatch.setattr(script, "told", lambda jax: told)
    assert script.main(["0.11.2", "--folder", str(tmp_path)]) == code
    out = capsys.readouterr().out
    assert f"on jax 0.11.2, {len(failed)} verdicts differ" in out
    for claim in told ^ ({"S0-17"} if failed else set()):
        assert f"claims: {claim} on jax 0.11.2: its proof" in out


def test_the_ledger_is_what_it_reads() -> None:
    versions = {version for claim in LEDGER.claims.values() for version in claim.differs}
    for version in versions | {"0.11.2"}:
        said = {claim.id for claim in LEDGER.claims.values() if version in claim.differs}
        assert script.told(version) == said


def test_an_environment_that_cannot_be_made_is_told_in_a_line(monkeypatch, capsys) -> None:
    def fails(jax: str, folder: Path) -> Path:
        raise subprocess.CalledProcessError(1, ["pip"])

    monkeypatch.setattr(script, "environment", fails)
    assert script.main(["0.0.1"]) == 2
    assert "no environment with jax 0.0.1" in capsys.readouterr().err


def test_no_run_is_no_agreement(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: None)
    (tmp_path / "proofs.xml").write_text("<testsuites/>")
    with pytest.raises(RuntimeError, match="no proof has run"):
        script.run(Path("python"), tmp_path / "proofs.xml")
