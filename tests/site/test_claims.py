"""The ledger of claims: every row is proved by code that can fail, and told the same everywhere."""

import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest
from conftest import ROOT

import claims
import claims_schema
import record_claims
import recordings

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
def test_a_proof_proves_the_verdict_of_the_ledger(
    proof: claims.Proof, name: str, verdict: str
) -> None:
    assert LEDGER.claims[name].verdict == verdict


def test_names_of_proofs_are_unique() -> None:
    names = [proof.name for proof in LEDGER.proofs]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("claim", NEEDS_GPU, ids=lambda claim: claim.id)
def test_what_only_a_gpu_can_show_waits_for_a_gpu(claim: claims.Claim) -> None:
    """A proof that needs one, and words for the reader until it has run there."""
    assert any(proof.gpu for proof in LEDGER.proofs_of(claim.id))
    on_gpu = LEDGER.on_gpu(claim.id)
    assert on_gpu == claims.NOT_RECORDED or re.match(r"recorded on .+, \d{4}-\d\d-\d\d$", on_gpu)


def test_what_nothing_has_shown_names_its_source_and_gives_no_bare_verdict() -> None:
    ledger = claims.Ledger(ROOT)
    ledger.recorded = {}
    expected = [claim for claim in ROWS if ledger.is_expected(claim.id)]
    assert [claim.id for claim in expected] == ["S1-12", "S2-01", "S3-07", "S3-11"]
    for claim in expected:
        assert claim.sources
        assert ledger.verdict(claim) == f"{claims.NOT_RECORDED}: {claim.verdict}"
    sentence = ledger.measured_and_expected()
    assert (
        f"{len(ROWS) - len(expected)} are shown by runs. {len(expected)} are expected" in sentence
    )


def test_what_one_gpu_can_show_is_recorded_and_what_takes_two_says_so() -> None:
    waiting = {claim.id for claim in ROWS if LEDGER.on_gpu(claim.id) == claims.NOT_RECORDED}
    two = {
        name
        for proof in LEDGER.proofs
        if proof.gpu and proof.key not in LEDGER.recorded
        for name, _ in proof.bound
    }
    assert waiting == two == {"S2-09", "S3-01", "S3-03", "S3-09"}
    assert f"Of the {len(ROWS)}, 4 have a second proof" in LEDGER.measured_and_expected()


def test_a_verdict_is_bare_once_its_proof_ran_on_a_gpu() -> None:
    ledger = claims.Ledger(ROOT)
    device = claims.Device("A GPU", "1", "0.11", "2026-01-01")
    ledger.recorded = {proof.key: device for proof in ledger.proofs}
    assert not any(ledger.is_expected(claim.id) for claim in ROWS)
    assert ledger.verdict(ledger.claims["S3-11"]) == ledger.claims["S3-11"].verdict


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


def test_the_ledger_follows_the_schema_that_is_published_with_it() -> None:
    """After a change: `python docs/_build/claims_schema.py > docs/claims/claims.schema.json`."""
    published = (ROOT / "docs" / "claims" / "claims.schema.json").read_text("utf-8")
    assert published == claims_schema.text()
    schema = json.loads(published)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads((ROOT / "docs" / "claims" / "claims.json").read_bytes()), schema)


@pytest.mark.parametrize(
    "wrong",
    [{"verdict": "wrong"}, {"gpu": "G"}, {"id": "7"}, {"truth": ""}, {"differs": {"x": ""}}],
)
def test_the_schema_refuses_what_is_wrong(wrong: dict[str, Any]) -> None:
    row = msgspec.to_builtins(ROWS[0])
    schema = json.loads(claims_schema.text())
    jsonschema.validate([row], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([row | wrong], schema)


def test_the_page_of_the_ledger_offers_both_files() -> None:
    page = (ROOT / "docs" / "claims" / "index.md").read_text("utf-8")
    assert "(claims.json)" in page
    assert "(claims.schema.json)" in page


def test_the_reader_of_proofs_can_refuse(tmp_path) -> None:
    path = tmp_path / "test_claims_x.py"
    bound, test = '@pytest.mark.proves("S0-01: false")\n', "def test_a(f=g):\n    assert f()\n"
    path.write_text(f'{bound}@pytest.mark.unless("an f", f=h)\n{test}')
    (proof,) = claims._proofs_of(path)
    assert proof.bound == (("S0-01", "false"),)
    (tried,) = proof.counterexamples
    assert (tried.claims, tried.words) == (("S0-01",), "an f")
    for refused in (
        f'@pytest.mark.proves("S0-01 false")\n{test}',
        f'{bound}@pytest.mark.unless("an f")\n{test}',
        f"{bound}@pytest.mark.unless(f=h)\n{test}",
        f'{bound}@pytest.mark.unless("S0-02: an f", f=h)\n{test}',
    ):
        path.write_text(refused)
        with pytest.raises(claims.ClaimError, match="test_a"):
            list(claims._proofs_of(path))


def test_a_recording_counts_only_for_the_code_that_ran(tmp_path) -> None:
    proof = next(proof for proof in LEDGER.proofs if proof.gpu)
    name = proof.bound[0][0]
    device = claims.Device("A GPU", "1", "0.11", "2026-01-01")
    ledger = claims.Ledger(ROOT)
    ledger.recorded = {"0" * 16: device}
    assert ledger.on_gpu(name) == claims.NOT_RECORDED
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


def test_claims_that_were_recorded_in_a_rehearsal_are_refused_by_name(tmp_path) -> None:
    folder = tmp_path / "docs" / "recorded"
    folder.mkdir(parents=True)
    posing = claims.Device("rehearsal", "unknown", "0.11", "2026-01-01", rehearsed=True)
    path = record_claims.write(folder, set(), LEDGER.proofs, posing)
    with pytest.raises(recordings.RecordingError, match=f"{path.name}: recorded in a rehearsal"):
        claims.recorded(tmp_path)


def test_nothing_is_recorded_without_a_gpu(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert record_claims.main(["--junit", "x", "--out", str(tmp_path)]) == 1
    assert "found no GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
