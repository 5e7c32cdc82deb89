"""The index that `assets/search.js` searches: one entry for each section of each page.

Input: the index that Material's search plugin wrote, and the ledger. Output, in `search/`:
`course_index.js`, which the search reads when somebody searches, and two stubs in the places where
Material's script looks at once, so that opening a page fetches no index.
"""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

from claims import Ledger

_SPACE = re.compile(r"\s+")
_TAG = re.compile(r"<[^>]+>")
_LEDGER = "claims/"


def write(site: Path, ledger: Ledger) -> None:
    """Replace Material's index by ours."""
    folder = site / "search"
    path = folder / "search_index.json"
    if not path.is_file():
        return
    data = json.loads(path.read_text("utf-8"))
    config = data["config"]
    entries = [_entry(doc) for doc in data["docs"] if not _is_table(doc["location"])]
    entries += _claims(ledger)
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    (folder / "course_index.js").write_text(f"self.courseIndex={text};\n", "utf-8")
    stub = json.dumps({"config": config, "docs": []})
    path.write_text(stub, "utf-8")
    (folder / "search_index.js").write_text(f"var __index={stub};\n", "utf-8")


def _is_table(location: str) -> bool:
    """The ledger's page has one text for all claims; each gets an entry of its own instead."""
    return location.startswith(f"{_LEDGER}#")


def _entry(doc: dict[str, Any]) -> dict[str, str]:
    """Location, title and plain text. The ledger's page itself is found by its title alone."""
    location = doc["location"]
    text = "" if location == _LEDGER else _plain(doc["text"])
    return {"l": location, "t": _plain(doc["title"]), "x": text}


def _claims(ledger: Ledger) -> list[dict[str, str]]:
    return [
        {
            "l": f"{_LEDGER}#{claim.id.lower()}",
            "t": f"{claim.id}: {claim.verdict}",
            "x": _plain(f"{claim.claim}. {claim.truth} ({claim.document}, {claim.topic})"),
        }
        for claim in ledger.claims.values()
    ]


def _plain(text: str) -> str:
    return _SPACE.sub(" ", unescape(_TAG.sub(" ", text)).replace("`", "")).strip()
