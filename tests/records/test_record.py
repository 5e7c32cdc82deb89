"""Records and reports as versioned data, and the schemas that are published for them."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from conftest import ROOT, Cli

from grader.app import schemas
from grader.app.report import as_json
from grader.records.record import RECORD_VERSION, Record, decode_record
from grader.records.verdict import Report, Reports, Verdict, encode

RECORDS = sorted((ROOT / "tests" / "golden" / "records").glob("*.json"))


def schema(kind: str) -> Any:
    """The published schema."""
    return json.loads((ROOT / "docs" / "reference" / f"{kind}.schema.json").read_text("utf-8"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_survives_encoding(path: Path) -> None:
    record = decode_record(path.read_bytes())
    assert record.submission is not None
    assert decode_record(encode(record)) == record


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_saved_records_follow_the_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_bytes()), schema("record"))


def test_every_document_has_its_version() -> None:
    assert json.loads(encode(Record("ex", "", "", 0)))["version"] == RECORD_VERSION
    assert json.loads(as_json(Reports(0, [])))["version"] == 1


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_refused_by_its_number(version: int) -> None:
    raw = msgspec.json.encode({"version": version, "unknown": "shape"})
    with pytest.raises(msgspec.ValidationError, match=f"^record version {version}, this grader"):
        decode_record(raw)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"version":1}', b'{"version":"1"}'])
def test_bytes_that_are_not_a_record_are_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_record(raw)


@pytest.mark.parametrize("kind", ["record", "report"])
def test_the_published_schema_is_what_the_grader_prints(kind: str, grader: Cli) -> None:
    """After a change: `grader schema KIND > docs/reference/KIND.schema.json`."""
    ran = grader("schema", kind)
    assert ran.returncode == 0
    assert ran.stdout == (ROOT / "docs" / "reference" / f"{kind}.schema.json").read_text("utf-8")
    jsonschema.Draft202012Validator.check_schema(schema(kind))


def test_the_schemas_refuse_what_is_wrong() -> None:
    passed = Report("ex", "", "", 0, [Verdict("a", "", "pass", "source")])
    report = json.loads(as_json(Reports(0, [passed])))
    jsonschema.validate(report, schema("report"))
    report["reports"][0]["verdicts"][0]["status"] = "passed"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, schema("report"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": 1}, schema("record"))


def test_an_unknown_kind_of_schema_raises() -> None:
    with pytest.raises(KeyError):
        schemas.text("verdict")
