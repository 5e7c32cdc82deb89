"""`grader watch`, as a learner meets it: real saves, real keys, a real terminal.

Most files here are not valid Python, because such a file is judged without a worker.
"""

import io
import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, Cli
from pseudo_terminals import IN_A_SHELL, Running
from rich.console import Console

from grader.app import progress
from grader.app.hints import lesson_link
from grader.app.progress import Rank, Standing
from grader.app.remembered import Remembered, State, digest
from grader.course import catalog

ALL = catalog.entries()
ONE, OTHER, THIRD = (catalog.find(name) for name in ("ex01", "ex05", "ex09"))
BROKEN = "def ("
WAITS = "watching exercises/"
type Golden = Callable[[str, str], None]


def path_of(folder: Path, entry: catalog.Entry) -> Path:
    """Where the learner's file is."""
    return folder / "exercises" / entry.file_name


def solution(entry: catalog.Entry) -> str:
    """The text of a file that passes."""
    return entry.solution.read_text("utf-8")


def endless(entry: catalog.Entry) -> str:
    """The text of a file that never ends."""
    return solution(entry).replace("    try:\n", "    while True:\n        pass\n    try:\n")


def save(folder: Path, entry: catalog.Entry, text: str) -> None:
    """Replace a file in one step, as editors do."""
    beside = folder / "exercises" / f".{entry.file_name}.swp"
    beside.write_text(text, "utf-8")
    beside.replace(path_of(folder, entry))


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A learner's folder with all exercises solved but three, whose files are not valid Python."""
    (tmp_path / "exercises").mkdir()
    for entry in ALL:
        text = BROKEN if entry in (ONE, OTHER, THIRD) else solution(entry)
        path_of(tmp_path, entry).write_text(text, "utf-8")
        if text != BROKEN:
            State(tmp_path).put(
                entry.stem, Remembered(digest(text), 0, solved_once=True, checksum=entry.checksum)
            )
    return tmp_path


def own_lines(text: str) -> str:
    """The text with a mark in place of each report, and of what differs from run to run."""
    text = text.replace(f"{ROOT}/", "")
    for entry in (ONE, OTHER, THIRD):
        text = text.replace(entry.exercise.title, f"(title of {entry.id})")
        text = text.replace(lesson_link(entry), f"(lesson of {entry.id})")
    text = re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", re.sub(r"\d+\.\d s", "n.n s", text))
    for left in range(4):
        text = text.replace(f"{len(ALL) - left} of {len(ALL)} solved", f"all but {left} solved")
    text = re.sub("[━╺╸]+", "(bar)", text)
    more = r"(\n  a hint: [^\n]*)?"
    report = r"(?ms)^(ex\d\d_\w+): \(title.*?^ex\d\d_\w+: [^\n]*" + more
    return re.sub(report, r"(report of \1)", text)


def test_from_the_first_unsolved_to_the_last(course: Path, golden: Golden) -> None:
    """The whole course, without a terminal: so no keys are offered."""
    with Running(course, "watch") as watch:
        watch.until(WAITS)
        save(course, ONE, solution(ONE))
        watch.until(WAITS, 2)
        save(course, THIRD, BROKEN + "(")
        watch.until(WAITS, 3)
        path_of(course, THIRD).unlink()
        watch.until(WAITS, 4)
        save(course, THIRD, solution(THIRD))
        watch.until(WAITS, 5)
        save(course, OTHER, solution(OTHER))
        watch.until(WAITS, 6)
        save(course, OTHER, BROKEN)
        watch.until(WAITS, 7)
        watch.process.send_signal(signal.SIGINT)
        assert watch.end() == 130
        golden("watch/course.txt", own_lines(watch.until("grader: stopped")))


def test_keys_and_what_they_show(course: Path, golden: Golden) -> None:
    """On a terminal of 60 columns, whose settings are as before when `q` has ended the watch."""
    with Running(course, "watch", columns=60) as watch:
        watch.until("keys:")
        assert watch.settings_now() != watch.settings, "keys are read without Enter"
        watch.press("h")
        watch.until("hint 1 of")
        watch.press("x\x1b[Ah\x1bOqN")  # nothing, an arrow, a hint, a key of a keypad, the next
        watch.until("keys:", 2)
        children = psutil.Process(watch.process.pid).children(recursive=True)
        assert children, "a session is kept"
        watch.press("q")
        assert watch.end() == 130
        text = watch.until("grader: stopped")
        assert watch.settings_now() == watch.settings
        assert psutil.wait_procs(children, timeout=60)[1] == []
    assert "hint 2 of" in text
    assert f"now {OTHER.stem}: exercises/{OTHER.file_name}" in text
    shown = re.findall(r"(?m)^.* of \d+ solved\nnow .*$|^keys: .*$", text)
    golden("watch/keys.txt", own_lines("\n".join(shown)) + "\n")


def test_the_newest_save_is_judged_next_and_none_is_lost(course: Path) -> None:
    """Three files are saved while another is judged."""
    save(course, ONE, endless(ONE))
    with Running(course, "watch", "--timeout", "4", columns=200) as watch:
        watch.until("running on")
        for entry in (OTHER, THIRD, OTHER):
            save(course, entry, f"# {len(watch.text())}\n{BROKEN}")
        path_of(course, ALL[-1]).write_text(BROKEN, "utf-8")
        text = watch.until("keys:")
    judged = re.findall(r"^(?:  FAIL  )?(ex\d\d_\w+)(?:: \w+ .*blocked| .* source)", text, re.M)
    assert judged == [ONE.stem, ALL[-1].stem, OTHER.stem, THIRD.stem]
    assert f"now {ALL[-1].stem}" in text


def test_a_file_that_is_not_an_exercise_starts_no_check(course: Path) -> None:
    with Running(course, "watch") as watch:
        watch.until(WAITS)
        for name in ("notes.txt", "mine.py", f"{ONE.file_name}.1", f".{ONE.file_name}.swp"):
            (course / "exercises" / name).write_text(BROKEN, "utf-8")
        save(course, OTHER, BROKEN)
        text = watch.until(WAITS, 2)
    assert text.count(": 1 fail, ") == 2


def test_a_folder_that_disappears_is_reported(course: Path) -> None:
    with Running(course, "watch", columns=100) as watch:
        watch.until("keys:")
        shutil.rmtree(course / "exercises")
        assert watch.end() == 2
        assert "exercises is gone, or was replaced" in watch.until("start `grader watch` again")
        assert watch.settings_now() == watch.settings


def test_a_pass_that_cannot_be_remembered(course: Path) -> None:
    shutil.rmtree(course / ".grader")
    (course / ".grader").write_text("in the way", "utf-8")
    save(course, ONE, solution(ONE))
    with Running(course, "watch") as watch:
        text = watch.until(WAITS)
    assert "all 10 checks pass" in text
    assert "this pass is not remembered: can .grader/ be written?" in text
    assert f"0 of {len(ALL)} solved; now {ONE.stem}" in text


def test_each_check_is_one_json_document(course: Path) -> None:
    with Running(course, "watch", "--format", "json", columns=100) as watch:
        watch.until("\n}\n")
        assert watch.settings_now() == watch.settings, "no keys: their answers are not JSON"
        save(course, ONE, solution(ONE))
        text = watch.until("\n}\n", 3)
    documents = []
    while text.strip():
        document, length = json.JSONDecoder().raw_decode(text)
        documents.append((document["reports"][0]["exercise"], document["exit_code"]))
        text = text[length:].lstrip()
    assert documents == [(ONE.stem, 1), (ONE.stem, 0), (OTHER.stem, 1)]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, "q"])
def test_the_terminal_is_given_back_while_a_check_runs(course: Path, end: str | int) -> None:
    save(course, ONE, endless(ONE))
    with Running(course, "watch", columns=100) as watch:
        watch.until("running on")
        children = psutil.Process(watch.process.pid).children(recursive=True)
        if isinstance(end, str):
            watch.press(end)
        else:
            watch.process.send_signal(end)
        assert watch.end() == 128 + (end if isinstance(end, int) else signal.SIGINT)
        assert watch.settings_now() == watch.settings
    assert psutil.wait_procs(children, timeout=60)[1] == []


def test_a_terminal_that_closes_ends_the_watch(course: Path) -> None:
    with Running(course, "watch", columns=100) as watch:
        watch.until("keys:")
        children = psutil.Process(watch.process.pid).children(recursive=True)
        watch.hang_up()
        watch.end()
    assert children
    assert psutil.wait_procs(children, timeout=60)[1] == []


def test_a_watch_that_is_stopped_and_continued(course: Path) -> None:
    """Ctrl-Z gives the terminal back to the shell; keys work again afterwards."""
    with Running(course, "watch", columns=100, launcher=IN_A_SHELL) as watch:
        watch.until("keys:")
        watch.press("\x1a")
        watch.until("stopped, and typing is shown")
        watch.press("h")
        watch.until("hint 1 of")
        watch.press("q")
        assert watch.end() == 130
        assert watch.settings_now() == watch.settings


def test_a_watch_of_one_exercise(course: Path) -> None:
    with Running(course, "watch", "ex01", columns=100) as watch:
        assert "keys: h hint, q quit" in watch.until("keys:")
        save(course, ONE, solution(ONE))
        save(course, OTHER, solution(OTHER))
        text = watch.until(f"watching exercises/{ONE.file_name}: save it to check again", 2)
        watch.press("h")
        watch.until("ex01 is solved")
    assert "all 10 checks pass" in text
    assert OTHER.stem not in text
    assert "solved" not in text, "no progress"


def test_a_file_elsewhere_has_no_hints(course: Path) -> None:
    (course / "mine.py").write_text(BROKEN, "utf-8")
    with Running(course, "watch", "ex01", "--submission", "mine.py", columns=100) as watch:
        assert "keys: q quit" in watch.until("keys:")


def test_without_a_folder_to_watch(grader: Cli, folder: Path) -> None:
    assert "--submission needs an exercise" in grader("watch", "--submission", "x.py").stderr
    shutil.rmtree(folder / "exercises")
    ran = grader("watch")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "no exercises/ here" in ran.stderr
    assert "`grader reset --all`" in ran.stderr


def test_an_exercise_that_lacks_a_device_does_not_end_the_watch(course: Path) -> None:
    """The output says that it cannot run here, and the watch goes on."""
    path_of(course, ONE).write_text(solution(ONE), "utf-8")
    State(course).put(ONE.stem, Remembered(digest(solution(ONE)), 0, checksum=ONE.checksum))
    save(course, OTHER, solution(OTHER))
    with Running(course, "watch", "--devices", "1") as watch:
        text = watch.until(WAITS)
        save(course, OTHER, BROKEN)
        watch.until(WAITS, 2)
    assert "--devices says 1" in text


def standing(rank: Rank, number: int) -> Standing:
    """An exercise of that rank."""
    return Standing(ALL[number], rank, "")


def test_which_exercise_comes_next() -> None:
    """The next unsolved one, and after the last the first; those not checked here come last."""
    ranks = [Rank.OPEN, Rank.COULD_NOT_CHECK, Rank.SOLVED, Rank.NO_FILE, Rank.OPEN]
    found = [standing(rank, number) for number, rank in enumerate(ranks)]
    assert progress.unsolved(found) == [ALL[n] for n in (0, 4, 3, 1)]
    assert progress.unsolved(found, after=ALL[2]) == [ALL[n] for n in (4, 0, 3, 1)]
    assert progress.unsolved(found, after=ALL[4]) == [ALL[n] for n in (0, 4, 3, 1)]
    assert progress.unsolved(found[2:3]) == []
    assert progress.solved(found) == 1


def test_what_was_solved_and_could_not_be_checked_again_comes_last(course: Path) -> None:
    text = path_of(course, ALL[1]).read_text("utf-8")
    State(course).put(
        ALL[1].stem, Remembered(digest(text), 3, solved_once=True, checksum=ALL[1].checksum)
    )
    found = progress.standings(course)
    assert found[1].said == "solved before; could not check"
    assert progress.unsolved(found) == [ONE, OTHER, THIRD, ALL[1]]
    assert progress.solved(found) == len(ALL) - 4


@pytest.mark.parametrize("columns", [60, 30])
def test_a_bar_grows_with_what_is_solved(columns: int) -> None:
    """Each exercise is one cell of the bar, if the terminal is wide enough."""
    wholes = []
    for done in (0, len(ALL) // 2, len(ALL)):
        ranks = [Rank.SOLVED if n < done else Rank.OPEN for n in range(len(ALL))]
        out = Console(file=io.StringIO(), force_terminal=True, width=columns, no_color=True)
        progress.print_progress([standing(r, n) for n, r in enumerate(ranks)], None, out)
        assert isinstance(out.file, io.StringIO)
        shown = out.file.getvalue().splitlines()
        assert all(len(line) <= columns for line in shown)
        wholes.append(shown[0].count("━"))
    assert wholes[0] == 0 < wholes[1] < wholes[2]
    if columns == 60:
        assert wholes == [0, len(ALL) // 2, len(ALL)]
