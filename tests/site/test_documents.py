"""The pages of the four documents: each of their programs runs, on one device and on eight."""

import pytest
from conftest import ROOT

import programs

PROGRAMS = sorted((ROOT / programs.FOLDER).glob("*.py"))
PAGES = sorted((ROOT / "docs" / "documents").glob("*.md"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_runs_in_silence_on_one_device(path) -> None:
    ended = programs.run(path, 1)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_runs_in_silence_on_eight_devices(path) -> None:
    """The site shows the output of this run, and keeps it in its cache."""
    assert programs.Programs(ROOT, ROOT / ".cache" / "site").output(path.stem)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_checks_what_it_shows(path) -> None:
    """It asserts its point, so that a page cannot show output that says something else."""
    assert "\nassert " in path.read_text("utf-8") or "np.testing." in path.read_text("utf-8")


def test_every_program_is_on_one_page() -> None:
    shown = [name for page in PAGES for name in programs.MARKER.findall(page.read_text("utf-8"))]
    assert sorted(shown) == [path.stem for path in PROGRAMS]
    assert len(shown) > len(PAGES)


def test_a_missing_or_failing_program_stops_the_build(tmp_path) -> None:
    folder = tmp_path / programs.FOLDER
    folder.mkdir(parents=True)
    (folder / "raises.py").write_text("raise ValueError('on purpose')")
    (folder / "silent.py").write_text("pass")
    (folder / "warns.py").write_text("import warnings; print(1); warnings.warn('oh')")
    (folder / "speaks.py").write_text("print('once')")
    here = programs.Programs(tmp_path, tmp_path / "cache")
    for name, message in (
        ("gone", "no program"),
        ("raises", "on purpose"),
        ("silent", "code 0"),
        ("warns", "oh"),
    ):
        with pytest.raises(programs.ProgramError, match=message):
            here.fill(f"text\n\n{{{{ program: {name} }}}}\n")
    filled = here.fill("{{ program: speaks }}\n")
    assert "print('once')" in filled
    assert "\nonce\n" in filled
    assert len(list((tmp_path / "cache" / "programs").iterdir())) == 1
