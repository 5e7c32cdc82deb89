"""Which worker runs what, seen in a small run of pytest with two workers."""

import os
import re
import subprocess
import sys

from conftest import ROOT
from scheduling import group

TESTS = """
import time
import pytest

@pytest.mark.parametrize("name", ["ex07-one", "ex08-one", "ex07-two", "ex08-two", "ex07_starter"])
def test_a_variant(name):
    time.sleep(0.1)

def test_something_else():
    time.sleep(0.1)
"""


def test_one_worker_runs_all_variants_of_an_exercise(tmp_path):
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "test_exercises.py").write_text(TESTS, "utf-8")
    words = ["-m", "pytest", "-c", os.devnull, f"--rootdir={tmp_path}", "-p", "scheduling"]
    words += ["-p", "no:cacheprovider", "-n", "2", "-v", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"\[(gw\d)\].*PASSED.*\[(ex\d\d)", done.stdout)
    assert len(ran) == 5
    assert len(set(ran)) == 2, "an exercise has two workers"


def test_what_belongs_together():
    exercises = "tests/checks/test_exercises.py::"
    assert group(f"{exercises}test_right_variants_pass[ex07-one]") == "ex07"
    assert group(f"{exercises}test_the_starter_fails[ex07_quiet_loop]") == "ex07"
    assert group(f"{exercises}test_something_was_found") == ""
    assert group("tests/site/test_site.py::test_no_page_is_empty") == "site"
    assert group("tests/app/test_cli.py::test_check[ex07]") == ""
