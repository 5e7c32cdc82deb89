"""A plugin of pytest: which of several workers runs what.

`--dist loadgroup` would send a group to one worker, but pytest-xdist 3.8 marks groups in a name
that pytest 9.2 does not read.
"""

import re
from typing import Any

import pytest

_EXERCISE = re.compile(r"\bex\d\d")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send what belongs together to one worker, in the order of the list."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid) or nodeid

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def group(nodeid: str) -> str:
    """What one worker runs alone: the variants of an exercise, for which it runs the reference
    once, and the tests that wait for the site."""
    path, _, name = nodeid.partition("::")
    if path.endswith("/test_exercises.py") and (exercise := _EXERCISE.search(name)):
        return exercise[0]
    return "site" if path.endswith("/test_site.py") else ""
