"""Asks Lighthouse what it thinks of six pages of the site that `make site` has built.

Each page must get at least 100 for accessibility and for best practices, and 95 for search engines.
Needs a Chromium and npx, which brings Lighthouse itself. Exit code 1 if a page gets less, 2 if
Lighthouse could not be run.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from serving import chromium, served

LIGHTHOUSE = "lighthouse@12.8.2"
SECONDS = 120
"""For one page; the first includes what npm fetches."""
LEAST = {"accessibility": 100, "best-practices": 100, "seo": 95}
PAGES = (
    "",
    "symptoms/",
    "lessons/12-meshes-and-shardings/",
    "exercises/ex07_quiet_loop/",
    "claims/",
    "instructors/",
)


def audited(address: str, browser: str) -> dict[str, Any] | str:
    """Lighthouse's report on a page, or why there is none."""
    command = [
        *("npx", "--yes", LIGHTHOUSE, address, "--quiet", "--output=json"),
        f"--only-categories={','.join(LEAST)}",
        "--chrome-flags=--headless --no-sandbox",
    ]
    environment = {**os.environ, "CHROME_PATH": browser, "npm_config_fetch_retries": "0"}
    try:
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        report: dict[str, Any] = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        return f"{address}: nothing after {SECONDS} s"
    except json.JSONDecodeError:
        return (ran.stderr.strip().splitlines() or [f"it ended with code {ran.returncode}"])[-1]
    return report


def reports(address: str, browser: str) -> Iterator[dict[str, Any] | str]:
    """What `audited` says of each page: of the first alone, while npx fills its cache, and then of
    two at a time."""
    addresses = [f"{address}/{page}" for page in PAGES]
    yield audited(addresses[0], browser)
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(partial(audited, browser=browser), addresses[1:])


def lacking(report: dict[str, Any]) -> list[str]:
    """The audits that cost a category a point."""
    counted = {
        audit["id"]
        for category in report["categories"].values()
        for audit in category["auditRefs"]
        if audit["weight"]
    }
    scores = {name: report["audits"][name]["score"] for name in sorted(counted)}
    return [name for name, score in scores.items() if score is not None and score < 1]


def main() -> int:
    """Audit the pages, print a table, and return the exit code."""
    site = Path(__file__).resolve().parent.parent / "site"
    browser = chromium()
    for what, there in (("site/: run `make site`", site.is_dir()), ("Chromium", browser)):
        if not there:
            print(f"lighthouse: there is no {what}", file=sys.stderr)
            return 2
    if not shutil.which("npx"):
        print("lighthouse: there is no npx; it comes with Node.js", file=sys.stderr)
        return 2
    table, poor = Table("page", *LEAST, "what costs points"), False
    with served(site) as address:
        for page, report in zip(PAGES, reports(address, browser), strict=True):
            if isinstance(report, str):
                print(f"lighthouse: {report}", file=sys.stderr)
                return 2
            scores = {name: round(100 * report["categories"][name]["score"]) for name in LEAST}
            poor |= any(scores[name] < least for name, least in LEAST.items())
            table.add_row(page or "/", *map(str, scores.values()), ", ".join(lacking(report)))
    Console().print(table)
    return 1 if poor else 0


if __name__ == "__main__":
    sys.exit(main())
