"""Judging any record of the schema: it never raises, and a forged one is its own failure.

Records are generated: facts of any form, leaves that say one thing and hold another, absent
names. The references are real, from saved records, so that a check which raises on a submission
is shown to be sound.
"""

import json
from typing import Any

import msgspec
import pytest
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.course import catalog
from grader.course.catalog import Entry
from grader.judging.judge import judge
from grader.records.record import (
    Collective,
    Event,
    Leaf,
    Measured,
    Memory,
    Observed,
    Outcome,
    Program,
    Record,
    Timing,
    decode_record,
)
from grader.records.verdict import Report, Reports, encode

SAVED = [
    record
    for path in sorted((ROOT / "tests" / "golden" / "records").glob("*.json"))
    if (record := decode_record(path.read_bytes())).reference
]
EXERCISES = [entry.stem for entry in catalog.entries()]
MANY = settings(
    max_examples=50,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
SMALL = st.integers(-2, 9)
NPY = st.sampled_from(
    [leaf.data for r in SAVED if r.reference for v in r.reference.values.values() for leaf in v]
)
LEAVES = st.builds(
    Leaf,
    path=st.sampled_from(["", "[0]", "['w']", ".x", "[a key of type K]"]),
    kind=st.sampled_from(["jax", "numpy", "python", "other"]),
    type=st.sampled_from(["jax.Array", "float", "float32", "str", "NoneType", "Lazy"]),
    shape=st.lists(SMALL, max_size=3).map(tuple),
    dtype=st.sampled_from(["", "float32", "int32", "bfloat16", "<U3", "complex64"]),
    platform=st.sampled_from(["", "cpu", "gpu"]),
    devices=st.lists(SMALL, max_size=3).map(tuple),
    committed=st.none() | st.booleans(),
    memory_kind=st.none() | st.sampled_from(["device", "pinned_host"]),
    spec=st.none() | st.text(max_size=5),
    shard_shape=st.none() | st.lists(SMALL, max_size=3).map(tuple),
    parts=st.dictionaries(SMALL, st.lists(st.tuples(SMALL, SMALL), max_size=2).map(tuple)),
    deleted=st.booleans(),
    buffer=st.none() | SMALL,
    data=st.none() | st.binary(max_size=200) | NPY,
)
EVENTS = st.builds(
    Event,
    kind=st.sampled_from(
        ["h2d", "d2h", "d2d", "compile", "trace", "wait", "async_copy", "exchange"]
    ),
    phase=st.text(max_size=4),
    step=SMALL,
    line=st.none() | st.integers(-5, 10**6),
    count=SMALL,
    nbytes=st.none() | SMALL,
)
MEASURED = st.builds(
    Measured,
    name=st.text(max_size=3),
    problem=st.sampled_from(["", "it does not compile"]),
    donated=st.lists(SMALL, max_size=2),
    aliases=st.dictionaries(st.text(max_size=2), SMALL, max_size=2),
    reused=st.dictionaries(st.sampled_from(["0", "1", "x"]), SMALL, max_size=2),
    collectives=st.lists(st.builds(Collective, st.text(max_size=3), SMALL, SMALL, SMALL)),
    operations=st.dictionaries(st.text(max_size=3), SMALL, max_size=2),
    memory=st.none() | st.builds(Memory, SMALL, SMALL, SMALL, SMALL, SMALL),
    flops=st.floats(allow_nan=True),
    outputs=st.lists(LEAVES, max_size=2),
)


def named(values: st.SearchStrategy[Any], names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Values under names that checks ask for, and under others."""
    return st.dictionaries(st.sampled_from([*names, "else"]), values, max_size=4)


def observed(names: list[str]) -> st.SearchStrategy[Observed]:
    """What a worker may have sent, of a run that finished."""
    forms = st.lists(st.sampled_from(["*", "mapping", "sequence", "a class `K`"]), max_size=4)
    return st.builds(
        Observed,
        st.just(Outcome("finished")),
        values=named(st.lists(LEAVES, max_size=3), names),
        trees=named(st.text(max_size=9), names),
        forms=named(forms, names),
        facts=named(JSON, names),
        events=st.lists(EVENTS, max_size=4),
        programs=named(st.builds(Program, st.text(max_size=3), st.binary(max_size=9)), names),
        missing_probes=st.dictionaries(st.sampled_from(["reads", "transfers"]), st.just("why")),
    )


def whole(report: Report) -> bool:
    """Whether a report can be written as JSON and read again."""
    text = encode(Reports(report.exit_code, [report]))
    return json.loads(text)["reports"][0]["exercise"] == report.exercise


@MANY
@given(st.data())
def test_a_forged_record_is_the_submissions_own_failure(data: st.DataObject) -> None:
    """Some names are as they were, some hold anything, some are gone."""
    saved = data.draw(st.sampled_from(SAVED))
    real = saved.reference
    assert real is not None
    names = [*real.facts, *real.values]
    forged = data.draw(observed(names))
    mixed = {
        part: {**getattr(real, part), **getattr(forged, part)}
        for part in ("values", "trees", "forms", "facts")
    }
    for part in mixed.values():
        for gone in data.draw(st.sets(st.sampled_from(names), max_size=2)):
            part.pop(gone, None)
    submission = msgspec.structs.replace(forged, **mixed)
    record = msgspec.structs.replace(saved, submission=submission, findings=[], broken="")
    report = judge(record, Entry(saved.exercise).exercise)
    assert [verdict.fault for verdict in report.verdicts if verdict.fault] == []
    assert report.exit_code in (0, 1, 3)
    assert whole(report)


@pytest.mark.parametrize("stem", EXERCISES)
@settings(MANY, max_examples=5)
@given(data=st.data())
def test_no_record_of_the_schema_raises(stem: str, data: st.DataObject) -> None:
    """Here the reference is made up as well: whose fault it is cannot be told."""
    exercise = Entry(stem).exercise
    names = ["losses", "params", "state", "runs", "answers"]
    timing = st.builds(
        Timing,
        st.sampled_from(["pass", "fail", "undecided"]),
        NUMBERS,
        SMALL,
        SMALL,
        NUMBERS,
        st.tuples(NUMBERS, NUMBERS),
    )
    record = Record(
        stem,
        "exercises/ex.py",
        "x = 1\n",
        0,
        machine=SAVED[0].machine,
        submission=data.draw(st.none() | observed(names)),
        reference=data.draw(st.none() | observed(names)),
        measured=data.draw(named(MEASURED, ["step", "predict", "mean"])),
        reference_measured=data.draw(named(MEASURED, ["step", "predict", "mean"])),
        timing=data.draw(named(timing, ["loop"])),
    )
    report = judge(record, exercise)
    assert len(report.verdicts) == 2 + len(exercise.checks) - report.left_out
    assert whole(report)


def test_saved_records_with_a_reference_were_found() -> None:
    assert len(SAVED) >= 3
    assert {"ex01_find_devices", "ex07_quiet_loop"} <= {record.exercise for record in SAVED}
