"""The ledger of claims: every row is proved by code that can fail, and told the same everywhere."""

import re

import pytest
from conftest import ROOT

import claims
import record_claims

LEDGER = claims.Ledger(ROOT)
ROWS = list(LEDGER.claims.values())
BOUND = [(proof, *bound) for proof in LEDGER.proofs for bound in proof.bound]
NEEDS_GPU = [claim for claim in ROWS if claim.gpu]
PAGES = [p for p in sorted((ROOT / "docs" / "documents").glob("*.md")) if p.stem != "index"]
NUMBER = re.compile(r"S(\d)-(\d\d)")


def test_the_ledger_is_whole() -> None:
    numbers = [tuple(map(int, NUMBER.fullmatch(claim.id).groups())) for claim in ROWS]
    assert len(ROWS) == 117
    assert numbers == sorted(set(numbers))
    assert {claim.document for claim in ROWS} == set(claims.DOCUMENTS)
    assert {claim.verdict for claim in ROWS} == set(claims.VERDICTS)
    assert all(claim.claim and claim.truth and claim.topic and claim.lines for claim in ROWS)


@pytest.mark.parametrize("claim", ROWS, ids=lambda claim: claim.id)
def test_every_claim_is_proved(claim: claims.Claim) -> None:
    assert LEDGER.proofs_of(claim.id)


@pytest.mark.parametrize(("proof", "name", "verdict"), BOUND, ids=lambda x: getattr(x, "name", x))
def test_a_proof_can_fail_and_proves_the_verdict_of_the_ledger(
    proof: claims.Proof, name: str, verdict: str
) -> None:
    assert proof.asserts
    assert LEDGER.claims[name].verdict == verdict


def test_names_of_proofs_are_unique() -> None:
    names = [proof.name for proof in LEDGER.proofs]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("claim", NEEDS_GPU, ids=lambda claim: claim.id)
def test_what_only_a_gpu_can_show_waits_for_a_gpu(claim: claims.Claim) -> None:
    """A proof that needs one, and words for the reader until it has run there."""
    assert any(proof.gpu for proof in LEDGER.proofs_of(claim.id))
    assert re.match(r"recorded on .+, \d{4}-\d\d-\d\d$|not yet recorded$", LEDGER.on_gpu(claim.id))


def test_lessons_tell_the_verdicts_of_the_ledger() -> None:
    assert len(LEDGER.boxes) > 18
    for box in LEDGER.boxes:
        claim = LEDGER.claims[box.id]
        assert (box.document, box.verdict) == (claim.document, claim.verdict), box


def test_no_box_escapes_the_pattern() -> None:
    """A box that is spelt otherwise would be seen by nobody."""
    for path in sorted((ROOT / "docs" / "lessons").glob("*.py")):
        text = path.read_text("utf-8")
        assert len(re.findall(r"(?m)^!!!.*S\d-\d\d", text)) == len(claims.BOX.findall(text)), path


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_document_page_tells_each_of_its_claims_once(path: object) -> None:
    told = claims.ONE.findall(path.read_text("utf-8"))
    assert sorted(told) == [claim.id for claim in ROWS if claim.document == path.stem]


def test_there_is_a_page_for_each_document() -> None:
    assert {path.stem for path in PAGES} == set(claims.DOCUMENTS)


def test_the_reader_of_proofs_can_refuse(tmp_path) -> None:
    path = tmp_path / "test_claims_x.py"
    path.write_text('@pytest.mark.proves("S0-01: false")\ndef test_a():\n    assert True\n')
    (proof,) = claims._proofs_of(path)
    assert proof.bound == (("S0-01", "false"),)
    assert not proof.asserts
    path.write_text('@pytest.mark.proves("S0-01 false")\ndef test_a():\n    assert f()\n')
    with pytest.raises(claims.ClaimError, match="test_a"):
        list(claims._proofs_of(path))


def test_a_recording_counts_only_for_the_code_that_ran(tmp_path) -> None:
    proof = next(proof for proof in LEDGER.proofs if proof.gpu)
    name = proof.bound[0][0]
    device = claims.Device("A GPU", "1", "0.11", "2026-01-01")
    ledger = claims.Ledger(ROOT)
    ledger.recorded = {"0" * 16: device}
    assert ledger.on_gpu(name) == "not yet recorded"
    ledger.recorded = {proof.key: device for proof in ledger.proofs_of(name)}
    assert ledger.on_gpu(name) == "recorded on A GPU, driver 1, jax 0.11, 2026-01-01"


def test_only_a_proof_that_passed_on_a_gpu_is_recorded(tmp_path) -> None:
    gpu = [proof for proof in LEDGER.proofs if proof.gpu]
    here = next(proof for proof in LEDGER.proofs if not proof.gpu)
    junit = tmp_path / "tests.xml"
    cases = [f'<testcase name="{gpu[0].name}"/>', f'<testcase name="{here.name}"/>']
    cases += [f'<testcase name="{proof.name}"><failure/></testcase>' for proof in gpu[1:]]
    junit.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    device = claims.Device("NVIDIA A1", "1", "0.11", "2026-01-01")
    path = record_claims.write(tmp_path, record_claims.passed(junit), LEDGER.proofs, device)
    assert path.name == "claims.nvidia-a1.json"
    (tmp_path / "docs" / "recorded").mkdir(parents=True)
    path.rename(tmp_path / "docs" / "recorded" / path.name)
    assert claims.recorded(tmp_path) == {gpu[0].key: device}


def test_nothing_is_recorded_without_a_gpu(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert record_claims.main(["--junit", "x", "--out", str(tmp_path)]) == 1
    assert "found no GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
