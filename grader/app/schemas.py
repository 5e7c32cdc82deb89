"""Prints the JSON Schemas of records and of `--format json`.

They are derived from the types in `grader.records.record` and `grader.records.verdict`.
"""

import msgspec

from grader.records.record import Record
from grader.records.verdict import Reports


def text(kind: str) -> str:
    """The schema of a "record" or a "report", as indented JSON."""
    schema = msgspec.json.schema({"record": Record, "report": Reports}[kind])
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
