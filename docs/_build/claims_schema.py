"""Prints the JSON Schema of `docs/claims/claims.json`, which is offered beside it.

    python docs/_build/claims_schema.py > docs/claims/claims.schema.json

It is derived from the type in `claims`.
"""

import msgspec

import claims


def text() -> str:
    """The schema, as indented JSON."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(list[claims.Claim]),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


if __name__ == "__main__":
    print(text(), end="")
