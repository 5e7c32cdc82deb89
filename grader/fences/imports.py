"""Starts a Python of the grader's that imports nothing from the folder it is started in.

A learner's folder may hold a `jax.py`, and a checkout that is worked in is a learner's folder too.
So a process gets neither its working folder nor the package's on its import path: it finds the
package `grader` by its file. What is on the path in `PYTHONPATH` is for whoever starts it.
"""

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
_START = """\
import importlib.util, runpy, sys
found = importlib.util.spec_from_file_location(
    "grader", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
sys.modules["grader"] = importlib.util.module_from_spec(found)
found.loader.exec_module(sys.modules["grader"])
module = sys.argv[2]
del sys.argv[1:3]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this very package in a new Python."""
    return [sys.executable, "-P", "-c", _START, str(PACKAGE), module, *arguments]
