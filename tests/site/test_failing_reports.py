"""The page of wrong submissions: their wrong lines, and what is said of them, from their files."""

import shutil
from pathlib import Path

import pytest
from conftest import ROOT

import failing_reports

PAGE = ROOT / "docs" / "instructors" / "what-a-failure-says.md"
SOLUTION = ["import jax", "", "def f(x):", '    """Of x."""', "    # Why.", "    return x + 1"]
SHOWN = 10


def test_the_page_shows_ten_of_different_exercises() -> None:
    page = PAGE.read_text("utf-8")
    named = failing_reports.MARKER.findall(page)
    assert len(named) == SHOWN == len({number for number, _ in named})
    filled = failing_reports.fill(page, ROOT)
    assert filled.count("\nFAIL  ") == filled.count("hl_lines=") == SHOWN
    assert "{{ failure" not in filled


@pytest.mark.parametrize(
    ("wrong", "lines"),
    [
        (["import jax", "", "def f(x):", '    """Of x."""', "    return x - 1"], [6]),
        (["import jax", "import numpy", "", *SOLUTION[2:4], "    return x + 1  # right"], []),
        (["import jax", "", "def f(x):", '    """Of x."""', "    y = x", "    return y"], [6, 7]),
        (["import jax", "", "def f(x):", '    """Of x."""', "    pass"], [6]),
        (SOLUTION[:-1], []),
    ],
)
def test_wrong_lines_are_those_that_differ(wrong: list[str], lines: list[int]) -> None:
    assert failing_reports.wrong_lines(["# expect: a_check", *wrong], SOLUTION) == lines


def test_what_cannot_be_shown_fails_the_build(tmp_path: Path) -> None:
    stem, name = "ex01_first", "a_mistake"
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / f"{stem}.py").write_text("\n".join(SOLUTION))
    variant = tmp_path / "tests" / "variants" / stem / "wrong" / f"{name}.py"
    message = tmp_path / "tests" / "golden" / "messages" / stem / f"{name}.txt"
    marker = f"{{{{ failure: ex01 {name} }}}}"

    def refused(marker: str) -> str:
        with pytest.raises(failing_reports.FailureError) as error:
            failing_reports.fill(marker, tmp_path)
        return str(error.value)

    assert "no exercise ex02" in refused(marker.replace("ex01", "ex02"))
    assert "no tests/variants" in refused(marker)
    variant.parent.mkdir(parents=True)
    variant.write_text("\n".join(["# expect: a_check", *SOLUTION[:-1], "    return x"]))
    assert "no tests/golden" in refused(marker)
    message.parent.mkdir(parents=True)
    message.write_text("FAIL  a_check\n")
    assert "return x\n" in failing_reports.fill(marker, tmp_path)
    variant.write_text("\n".join(["# expect: a_check", *SOLUTION[:-1]]))
    assert "only lacks lines" in refused(marker)
    long = [f"    x = x + {n}" for n in range(failing_reports.MAX_LINES)]
    variant.write_text("\n".join(["# expect: a_check", *SOLUTION[:-1], *long]))
    assert "more than" in refused(marker)
    shutil.rmtree(tmp_path / "solutions")
