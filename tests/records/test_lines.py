"""Lines are counted as Python counts them, also in what shows a stack."""

import ast

import pytest

from grader.records.lines import lines_of
from grader.records.stack_dump import frames_in
from grader.source.file import File

SEPARATORS = ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_only_pythons_own_ends_end_a_line(separator: str) -> None:
    source = f"# one{separator}two\nx = 1\n"
    line = ast.parse(source).body[0].lineno
    assert lines_of(source)[line - 1] == File(source).lines[line - 1] == "x = 1"
    stack = 'Thread 0x1\n  File "f.py", line 2 in f\n'
    assert [frame.text for frame in frames_in(stack, "f.py", source)] == ["x = 1"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_each_of_pythons_ends_ends_one(end: str) -> None:
    assert lines_of(f"a{end}b{end}") == ["a", "b", ""]
