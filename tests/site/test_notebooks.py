"""The runner of lessons: it executes, keeps, refuses to hide an error, and fills in figures.

Lessons here are small files in a temporary folder. What the built site shows is in `test_site`.
"""

import json
import re
import sys

import pytest

import captures
import exercise_pages
import lesson
import lesson_pages
import notebooks
import recordings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:(zmq|jupyter_client|traitlets)")

COUNTED = '''# %% [markdown]
"""
# Counted
It is {{ answer }}.
"""

# %%
from pathlib import Path
with Path("runs").open("a") as runs:
    runs.write("x")
answer = 6 * 7
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lessons").mkdir()
    return tmp_path / "lessons"


def written(folder, text, name="01-one.py"):
    path = folder / name
    path.write_text(text)
    return path


def cells(*sources):
    return "\n\n".join(f"# %%\n{source}" for source in sources) + "\n"


def loaded(path, **options):
    return notebooks.load(path, path.parent.parent / "cache", **options)


def text_of(outputs):
    return "".join(output["text"] for output in outputs)


# Errors: each names file, line and cell.


def test_a_raising_cell_is_an_error_with_file_line_and_cell(folder):
    path = written(folder, cells("a = 1", "\nb = 2\n\nb / (a - 1)"))
    with pytest.raises(lesson.LessonError) as caught:
        loaded(path)
    assert str(caught.value).startswith(f"{path}:8: cell 2 raised\n")
    assert path.read_text().splitlines()[8 - 1] == "b / (a - 1)"
    assert "ZeroDivisionError" in str(caught.value)


def test_an_error_inside_a_function_names_the_line_that_called_it(folder):
    path = written(folder, cells("def f():\n    return {}[1]", "x = 1\nf()"))
    with pytest.raises(lesson.LessonError, match=re.escape(f"{path}:7: cell 2")):
        loaded(path)


def test_a_syntax_error_is_an_error(folder):
    path = written(folder, cells("a = 1", "a = = 2"))
    with pytest.raises(lesson.LessonError, match=re.escape(f"{path}:5: cell 2")):
        loaded(path)


def test_a_slow_cell_times_out(folder):
    path = written(folder, cells("a = 1", "import time\ntime.sleep(60)"))
    with pytest.raises(lesson.LessonError) as caught:
        loaded(path, cell_seconds=1)
    assert str(caught.value) == f"{path}:5: cell 2 ran longer than 1 s"


def test_a_cell_that_kills_its_kernel_is_an_error(folder):
    path = written(folder, cells("import os\nos._exit(3)"))
    with pytest.raises(lesson.LessonError, match=re.escape(f"{path}:2: cell 1 killed")):
        loaded(path)


def test_text_before_the_first_cell_is_an_error(folder):
    path = written(folder, "x = 1\n\n# %%\ny = 2\n")
    with pytest.raises(lesson.LessonError, match=re.escape(f"{path}:1:")):
        loaded(path)


def test_a_failed_run_is_not_kept(folder):
    path = written(folder, cells("1 / 0"))
    for _ in range(2):
        with pytest.raises(lesson.LessonError):
            loaded(path)
    assert not list(folder.parent.rglob("*.json"))


# Figures.


def test_figures_are_formatted_and_may_stand_before_their_cell(folder):
    path = written(folder, COUNTED.replace("{{ answer }}", "{{ answer }} or {{ answer:.1f }}"))
    run = loaded(path)
    notebook = lesson_pages.assemble(lesson.read(path), run, [])
    assert notebook.cells[0].source.endswith("It is 42 or 42.0.")


def test_an_unknown_figure_is_an_error_with_its_line(folder):
    path = written(folder, COUNTED.replace("answer }}", "anwser }}"))
    with pytest.raises(lesson.LessonError) as caught:
        loaded(path)
    assert str(caught.value).startswith(f"{path}:4: figure {{{{ anwser }}}}: KeyError")


def test_a_figure_that_does_not_fit_its_format_is_an_error(folder):
    path = written(folder, COUNTED.replace("answer }}", "answer:%Q }}"))
    with pytest.raises(lesson.LessonError, match=r":4: figure .* ValueError"):
        loaded(path)


# The cache.


def runs(folder):
    return len((folder / "runs").read_text())


def test_a_second_load_runs_nothing_and_gives_the_same(folder):
    path = written(folder, COUNTED)
    assert loaded(path) == loaded(path)
    assert runs(folder) == 1


def test_a_change_of_prose_runs_nothing(folder):
    loaded(written(folder, COUNTED))
    loaded(written(folder, COUNTED.replace("It is", "It was")))
    assert runs(folder) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda folder, patch: written(folder, COUNTED.replace("6 * 7", "7 * 6")),
        lambda folder, patch: written(folder, COUNTED.replace("{{ answer", "{{ answer:.1f")),
        lambda folder, patch: written(folder, "x = 1\n", "_helper.py"),
        lambda folder, patch: patch.setattr(notebooks, "installed_versions", lambda: ("jax==0",)),
    ],
    ids=["code", "figure", "helper module", "version"],
)
def test_a_change_that_matters_runs_again(folder, change, monkeypatch):
    path = written(folder, COUNTED)
    loaded(path)
    change(folder, monkeypatch)
    loaded(path)
    assert runs(folder) == 2
    assert len(list(folder.parent.rglob("*.json"))) == 1, "the older run is dropped"


def test_versions_name_python_and_jax():
    versions = notebooks.installed_versions()
    assert versions[0] == sys.version
    assert any(name.startswith("jax==") for name in versions)


def test_a_helper_is_no_lesson(folder):
    written(folder, "x = 1\n", "_helper.py")
    assert notebooks.lesson_paths(folder) == []


def test_a_change_of_the_device_runs_again_what_shows_one(folder, monkeypatch):
    monkeypatch.setattr(notebooks, "GRADER", folder.parent / "grader")
    room = folder.parent / "grader" / "device"
    room.mkdir(parents=True)
    (folder / "_next_door.py").write_text("x = 1\n")
    plain = written(folder, COUNTED)
    shows = written(folder, "# %%\nimport _next_door\n" + COUNTED, "02-two.py")
    for text in ("old", "new"):
        (room / "front.py").write_text(text)
        loaded(plain)
        loaded(shows)
    assert runs(folder) == 1 + 2


# Outputs.


def test_output_streams_are_merged_and_what_steers_jax_is_cleared(folder, monkeypatch):
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    source = "import os\nfor i in range(3):\n    print(i, flush=True)\n"
    path = written(folder, cells(source + 'print({k for k in os.environ if "JAX" in k})'))
    (output,) = loaded(path).outputs[0]
    assert output["text"] == "0\n1\n2\n{'JAX_PLATFORMS'}\n"


# A device next door. What runs on one is in the lessons; here there is none.

NEXT_DOOR = notebooks.LESSONS / "_next_door.py"
WITHOUT = """
import sys
import _next_door
_next_door.GRADER = [sys.executable, "-c", "import sys; sys.exit('grader: no device: no grpc')"]
ran = _next_door.run("one.py", "print(1)", "--devices", "1")
"""


@pytest.fixture
def without(folder):
    (folder / NEXT_DOOR.name).write_text(NEXT_DOOR.read_text())
    prose = '# %% [markdown]\n"""\n# One\n\n{{ ran_lines }}\n"""\n\n'
    return written(folder, prose + cells(WITHOUT, "if ran.book:\n    ran_lines = len(ran.printed)"))


def test_a_page_without_its_device_is_an_error_that_says_why(without):
    with pytest.raises(lesson.LessonError, match=r"no device next door.*no device: no grpc"):
        loaded(without)


def test_a_lesson_without_its_device_says_why_and_goes_on(without, folder, monkeypatch):
    outputs, figures = notebooks.execute(lesson.read(without), 60, {"JAX_PLATFORMS": "cpu"})
    assert text_of(outputs[0]).splitlines()[0] == (
        "No device next door here: grader: no device: no grpc"
    )
    assert not isinstance(figures["ran_lines"], str)
    monkeypatch.setattr(notebooks, "lesson_paths", lambda: [without])
    monkeypatch.setattr(recordings, "device", lambda: MADE_UP)
    assert notebooks.main(["record", "--out", str(folder / "rec")]) == 0


DRAWS = "import matplotlib.pyplot as plt\nplt.subplots(figsize=(1, 1))\nplt.show()"


def test_a_picture_needs_words_and_takes_the_colour_of_the_page(folder):
    path = written(folder, f"# %%\n{DRAWS}\n")
    run = loaded(path)
    with pytest.raises(lesson.LessonError, match=re.escape(f"{path}:2: a picture needs alt")):
        lesson_pages.assemble(lesson.read(path), run, [])
    path = written(folder, f'# %% alt="Empty axes."\n{DRAWS}\n')
    (cell,) = lesson_pages.assemble(lesson.read(path), run, []).cells
    svg = cell.outputs[0].data["image/svg+xml"]
    assert svg.startswith("<svg")
    assert "currentColor" in svg


# Recordings. The device is made up, here only.

MADE_UP = recordings.Device("Made-up GPU", "1.2.3", "0.0", "2000-01-01")


def stream(text):
    return [{"output_type": "stream", "name": "stdout", "text": text}]


def test_a_hash_covers_the_code_up_to_a_cell_and_no_prose():
    first = lesson.code_hashes(["a", "b", "c"])
    second = lesson.code_hashes(["a", "B", "c"])
    assert first[0] == second[0]
    assert not set(first[1:]) & set(second[1:])
    assert len(set(first)) == 3


def recorded(folder, code="print('cpu')"):
    path = written(folder, cells("x = 1", code))
    where = recordings.write(folder / "rec", lesson.read(path), [[], stream("gpu\n")], MADE_UP)
    assert where.name == "01-one.made-up-gpu.json"
    return path


def test_a_recording_becomes_a_tab_and_survives_new_prose(folder):
    path = recorded(folder)
    path.write_text('# %% [markdown]\n"""\n# New words\n"""\n\n' + path.read_text())
    notebook, stale = lesson_pages.build(path, folder / "rec", folder.parent / "cache")
    assert stale == []
    last = json.loads(notebook.read_text())["cells"][-1]
    (tab,) = last["metadata"]["recorded"]
    assert tab["label"] == "Made-up GPU, driver 1.2.3, jax 0.0, 2000-01-01"
    assert tab["outputs"] == stream("gpu\n")


def test_changed_code_retires_a_recording_and_says_so(folder):
    path = recorded(folder)
    path.write_text(path.read_text().replace("'cpu'", "'CPU'"))
    notebook, stale = lesson_pages.build(path, folder / "rec", folder.parent / "cache")
    assert stale == ["01-one.made-up-gpu.json: 1 stale outputs dropped"]
    assert json.loads(notebook.read_text())["cells"][-1]["metadata"]["recorded"] == []


def test_a_changed_helper_retires_a_recording(folder):
    (folder / "_helper.py").write_text("word = 1")
    path = recorded(folder, "import _helper")
    (kept,) = recordings.of_lesson(folder / "rec", lesson.read(path))
    assert recordings.stale(lesson.read(path), kept) == 0
    (folder / "_helper.py").write_text("word = 2")
    assert recordings.stale(lesson.read(path), kept) == 1


def test_a_recording_of_another_version_is_refused(folder):
    path = recorded(folder)
    (kept,) = (folder / "rec").glob("*.json")
    kept.write_text(kept.read_text().replace('"version": 1', '"version": 99'))
    with pytest.raises(recordings.RecordingError, match="recording version 99"):
        recordings.of_lesson(folder / "rec", lesson.read(path))


def test_what_was_recorded_in_a_rehearsal_is_refused_by_name(folder):
    path = written(folder, cells("x = 1"))
    posing = recordings.Device("rehearsal", "unknown", "0.0", "2000-01-01", rehearsed=True)
    where = recordings.write(folder / "rec", lesson.read(path), [stream("gpu\n")], posing)
    with pytest.raises(recordings.RecordingError, match=f"{where.name}: recorded in a rehearsal"):
        lesson_pages.build(path, folder / "rec", folder.parent / "cache")
    where.write_text(where.read_text().replace('"rehearsed": true', '"rehearsed": false'))
    with pytest.raises(
        recordings.RecordingError, match="recorded in a rehearsal"
    ):  # its kind tells
        recordings.read(where)


def test_a_lesson_that_fails_keeps_no_other_from_being_recorded(folder, monkeypatch, capsys):
    written(folder, cells("1 / 0"))
    (folder / "02-two.py").write_text(
        (folder / "01-one.py").read_text().replace("1 / 0", "print(1)")
    )
    monkeypatch.setattr(notebooks, "LESSONS", folder)
    monkeypatch.setattr(notebooks, "lesson_paths", lambda: sorted(folder.glob("0*.py")))
    monkeypatch.setattr(recordings, "device", lambda: MADE_UP)
    assert notebooks.main(["record", "--out", str(folder / "rec")]) == 1
    assert [path.name for path in (folder / "rec").iterdir()] == ["02-two.made-up-gpu.json"]
    assert "01-one.py:" in capsys.readouterr().err
    assert notebooks.main(["record", "--out", str(folder / "rec"), "02"]) == 0
    assert notebooks.main(["record", "--out", str(folder / "rec"), "03"]) == 1
    assert capsys.readouterr().err.startswith("no lesson 03")


def test_a_cell_that_raises_is_told_of_and_the_others_are_recorded(folder, monkeypatch, capsys):
    path = written(folder, cells("print(1)", "1 / 0", "print(3)"))
    monkeypatch.setattr(notebooks, "lesson_paths", lambda: [path])
    monkeypatch.setattr(recordings, "device", lambda: MADE_UP)
    assert notebooks.main(["record", "--out", str(folder / "rec")]) == 1
    (kept,) = recordings.of_lesson(folder / "rec", lesson.read(path))
    assert [text_of(outputs) for outputs in kept.cells.values()] == ["1\n", "3\n"]
    assert "01-one.py:5: cell 2 raised" in capsys.readouterr().err


def test_what_is_not_recorded_may_raise(folder, monkeypatch, capsys):
    path = written(folder, cells("print(1)", "1 / 0").replace("# %%\n1", "# %% gpu=false\n1"))
    monkeypatch.setattr(notebooks, "lesson_paths", lambda: [path])
    monkeypatch.setattr(recordings, "device", lambda: MADE_UP)
    assert notebooks.main(["record", "--out", str(folder / "rec")]) == 0
    assert capsys.readouterr().err == ""


def test_a_recorded_kernel_finds_the_nodes_packages_and_gpus(folder, monkeypatch):
    kept = "import os; print(os.environ['PYTHONPATH'], os.environ['CUDA_VISIBLE_DEVICES'])"
    path = written(folder, cells(kept))
    monkeypatch.setenv("PYTHONPATH", "wheels")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(notebooks, "lesson_paths", lambda: [path])
    monkeypatch.setattr(recordings, "device", lambda: MADE_UP)
    assert notebooks.main(["record", "--out", str(folder / "rec")]) == 0
    (kept,) = recordings.of_lesson(folder / "rec", lesson.read(path))
    assert "wheels 3" in json.dumps(kept.cells)


def test_recording_without_a_gpu_says_so_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert notebooks.main(["record", "--out", str(tmp_path / "rec")]) == 1
    assert capsys.readouterr().err == "nothing recorded: JAX found no GPU here, only the CPU\n"
    assert not (tmp_path / "rec").exists()


# Captures, with a stand-in for the grader.

CODES = {"exercises": 1, "solutions": 0}
STUB = """
import json, os, pathlib, sys
words = sys.argv[1:]
print("called with", *words[:6])
print("in", os.getcwd() + "/exercises", file=sys.stderr)
open("calls", "a").write("x")
if words[0] == "judge":
    kind = json.loads(pathlib.Path(words[1]).read_text())["path"]
else:
    kind = words[words.index("--submission") + 1].split("/")[0]
if "--save" in words:
    record = {"path": kind, "submission": {"values": {"x": [{"shape": [2], "data": "heavy"}]}}}
    for path in pathlib.Path(kind).iterdir():
        saved = pathlib.Path(words[words.index("--save") + 1], path.stem + ".json")
        saved.write_text(json.dumps(record))
sys.exit(CODES[kind])
"""


@pytest.fixture
def grader(tmp_path):
    for name in ("grader", "exercises", "solutions"):
        (tmp_path / name).mkdir()
    (tmp_path / "grader" / "cli.py").write_text("x = 1\n")
    for name in ("exercises", "solutions"):
        (tmp_path / name / "ex07_quiet_loop.py").write_text("x = 1\n")
    return lambda **codes: captures.Grader(
        tmp_path,
        tmp_path / "cache",
        (sys.executable, "-c", f"CODES = {CODES | codes}\n{STUB}"),
    )


def test_a_capture_is_the_output_of_the_command_without_our_paths(grader, tmp_path):
    text = grader().fill("before\n\n    {{ capture: check ex07 starter }}\n\nafter\n")
    assert text == (
        "before\n\n"
        "    ```{ .console .no-copy .capture }\n"
        "    $ grader check ex07\n"
        "    called with check ex07 --submission exercises/ex07_quiet_loop.py --device cpu\n"
        "    in exercises\n"
        "    ```\n\nafter\n"
    )


def test_the_record_of_a_starter_is_kept_without_values(grader, tmp_path):
    for _ in range(2):
        record = grader().record("ex07")
        assert record == {"path": "exercises", "submission": {"values": {"x": [{"shape": [2]}]}}}
    assert calls(tmp_path) == 1


def calls(tmp_path):
    return len((tmp_path / "calls").read_text())


def test_a_capture_runs_once_until_grader_or_exercise_change(grader, tmp_path):
    for _ in range(2):
        grader().capture("check ex07 solution")
    assert calls(tmp_path) == 1
    (tmp_path / "grader" / "cli.py").write_text("x = 2\n")
    grader().capture("check ex07 solution")
    assert calls(tmp_path) == 2
    (tmp_path / "exercises" / "ex07_quiet_loop.py").write_text("x = 2\n")
    grader().capture("check ex07 solution")
    assert calls(tmp_path) == 3


def test_captures_of_many_exercises_take_one_run_a_folder(grader, tmp_path):
    for name in ("exercises", "solutions"):
        (tmp_path / name / "ex08_boundary_copy.py").write_text("x = 1\n")
    grader().prepare()
    assert calls(tmp_path) == 2 + 4  # two runs; and each of four records is printed
    for request in ("check ex07 starter", "check ex08 solution"):
        assert "called with judge" in grader().capture(request)[1]
    grader().prepare()
    assert calls(tmp_path) == 2 + 4


def test_another_exercises_checks_retire_no_capture(grader, tmp_path):
    for name in ("ex07_quiet_loop", "ex08_boundary_copy"):
        (tmp_path / "grader" / "checks" / name).mkdir(parents=True)
    grader().capture("check ex07 solution")
    (tmp_path / "grader" / "checks" / "ex08_boundary_copy" / "checks.py").write_text("x = 2\n")
    grader().capture("check ex07 solution")
    assert calls(tmp_path) == 1
    (tmp_path / "grader" / "checks" / "ex07_quiet_loop" / "checks.py").write_text("x = 2\n")
    grader().capture("check ex07 solution")
    assert calls(tmp_path) == 2


@pytest.mark.parametrize(
    ("request_", "codes"),
    [
        ("check ex07 starter", {"exercises": 0}),
        ("check ex07 starter", {"exercises": 3}),
        ("check ex07 solution", {"solutions": 1}),
        ("check ex07 solution", {"solutions": 4}),
        ("check ex08 starter", {}),
        ("check ex07 answer", {}),
        ("list", {}),
    ],
)
def test_a_capture_that_shows_something_else_is_an_error(grader, request_, codes):
    with pytest.raises(captures.CaptureError):
        grader(**codes).capture(request_)


def test_an_undecided_solution_is_shown_and_not_kept(grader, tmp_path):
    for _ in range(2):
        grader(solutions=3).capture("check ex07 solution")
    assert calls(tmp_path) == 2


# Exercise pages.

ABOUT = """
EXERCISE = Exercise(title="T", lesson="lessons/04-x", anchor="one", edits=("f",))
"""
FACTS = 'TWO = "two"'
CHECKS = '''
from facts import TWO

@EXERCISE.check(ground="observed", after=("a",))
def waits_never(record):
    """The loop never waits.

    More words.
    """

@EXERCISE.check(ground="program", anchor=TWO)
def same_losses(record):
    """The losses are the same."""

def helper(record):
    """No check."""
'''


def package(folder, about=ABOUT, checks=CHECKS):
    """The folder of an exercise."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"__init__": about, "facts": FACTS, "checks": checks}.items():
        written(folder, text, f"{name}.py")
    return folder


def test_the_table_of_checks_is_read_from_source_without_importing_it(tmp_path):
    found = package(tmp_path, "raise SystemExit\n" + ABOUT, "raise SystemExit\n" + CHECKS)
    assert exercise_pages.read(found) == exercise_pages.Exercise(
        "lessons/04-x",
        "one",
        (
            exercise_pages.Check("waits_never", "The loop never waits.", "observed", ""),
            exercise_pages.Check("same_losses", "The losses are the same.", "program", "two"),
        ),
        edits=("f",),
    )


def no_record(exercise):
    raise AssertionError(f"{exercise}: no picture is asked for")


def test_an_exercise_page_names_checks_grounds_and_paragraphs(tmp_path):
    folder = package(tmp_path / "grader" / "checks" / "ex07_quiet_loop")
    (tmp_path / "docs" / "lessons").mkdir(parents=True)
    written(tmp_path / "docs" / "lessons", '# %% [markdown]\n"""\n# 04 X\n"""\n', "04-x.py")
    (tmp_path / "exercises").mkdir()
    written(tmp_path / "exercises", "x = 1\n\n\ndef f():\n    pass\n", "ex07_quiet_loop.py")
    author, meta = "# ex07 T\n\nDo it.\n\nMore.", {"minutes": 15, "level": "easy", "why": "So."}
    text = exercise_pages.page(tmp_path, "ex07_quiet_loop", author, meta, no_record)
    assert text.startswith("# ex07 T\n\nDo it.\n\nAbout 15 minutes · Difficulty: easy · Lesson: ")
    assert "**Why it matters.** So." in text
    assert 'hl_lines="4-5"' in text
    assert "[04 X](../lessons/04-x.ipynb#" in text
    assert "--target" not in text
    one, two = (f"../lessons/04-x.ipynb#{anchor}" for anchor in ("one", "two"))
    assert f"| `waits_never`<br>[The loop never waits.]({one}) | observed |\n" in text
    assert f"| `same_losses`<br>[The losses are the same.]({two}) | program |\n" in text
    assert "{{ capture: check ex07 starter }}" in text
    aimed = CHECKS.replace('"program"', '"target"')
    package(folder, checks=aimed)
    assert "grader check ex07 --target h200x8" in exercise_pages.page(
        tmp_path, "ex07_quiet_loop", author, {}, no_record
    )


@pytest.mark.parametrize(
    ("about", "checks"),
    [
        ("x = 1\n", CHECKS),
        (ABOUT, CHECKS.split("@")[0]),
        (ABOUT, CHECKS.replace('    """The losses are the same."""', "    1")),
        (ABOUT, CHECKS.replace("anchor=TWO", "anchor=TWO.lower()")),
    ],
    ids=["no exercise", "no checks", "no docstring", "anchor known only at run time"],
)
def test_an_incomplete_exercise_is_an_error(tmp_path, about, checks):
    with pytest.raises(exercise_pages.ExerciseError, match=r"(__init__|checks)\.py:\d+: "):
        exercise_pages.read(package(tmp_path, about, checks))
