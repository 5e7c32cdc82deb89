"""Judges files each time they are saved: one exercise, or all of `exercises/`.

The file that was saved last is judged next, and reported in full. Files that were saved before
it and still wait are judged after it, and get one line each. When nothing waits, and the file
saved last has passed, the next unsolved exercise is named and judged. Then the next grading is
prepared, while nobody waits for it.

How saves are noticed is in `grader.app.saves`, how keys are read in `grader.app.keys`.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from grader.app import hints, keys, progress, report
from grader.app.files import FOLDER, Unusable, is_own, path_of
from grader.app.grading import Wanted, grade_all, open_session, target_of
from grader.app.saves import FolderGone, saves
from grader.course import catalog
from grader.course.catalog import Entry
from grader.running.grade import look_ahead
from grader.running.session import NoDevice, Session
from grader.running.sides import Reference


def watch_one(entry: Entry, name: str, wanted: Wanted) -> None:
    """Judge one file now and after every save, until interrupted.

    Raises:
      Unusable: a file or its folder is missing, or JAX cannot be used at all.
      GraderBroke: a fault of the grader itself.
    """
    _run(_Watch, {path_of(entry, name, wanted.submission): entry}, wanted)


def watch_course(wanted: Wanted) -> None:
    """Judge whatever is saved in `exercises/`, and lead from one unsolved exercise to the next.

    Raises:
      Unusable, GraderBroke: as `watch_one`.
    """
    if wanted.submission is not None:
        raise Unusable("--submission needs an exercise: `grader watch ex07 --submission ...`")
    if not FOLDER.is_dir():
        raise Unusable(
            "no exercises/ here: go to the course's folder, or `grader reset --all` writes all "
            "exercises here"
        )
    files = {FOLDER / entry.file_name: entry for entry in catalog.entries()}
    _run(_CourseWatch, files, wanted)


def _run(kind: "type[_Watch]", files: Mapping[Path, Entry], wanted: Wanted) -> None:
    target_of(wanted)  # before anything is run
    with open_session(list(files.values()), wanted) as session:
        watch = kind(files, session, wanted)
        try:
            if wanted.form == "text":
                with keys.listen(stop="q") as pressed:
                    watch.follow(pressed)
            else:
                watch.follow(keys.Keys(offered=False))
        except FolderGone as gone:
            raise Unusable(f"{gone} is gone, or was replaced; start `grader watch` again") from gone


class _Watch:
    """Watches one file, and judges it at the start."""

    def __init__(self, files: Mapping[Path, Entry], session: Session, wanted: Wanted) -> None:
        self.files, self.session, self.wanted = files, session, wanted
        self.out = report.console()
        self.text = wanted.form == "text"
        self.takes_keys = False
        self.current: Path | None = None
        """The file that was saved last or is to be done next; None if nothing is left to do."""
        self.passed = False
        """Whether `current` passed the last time it was judged."""
        self.waiting: list[Path] = []
        """The files to judge; the next one is the last."""
        self.settled = False
        """Whether everything is judged, and the user was told so."""
        self.ahead: dict[Path, Reference] = {}
        """What is prepared for the next grading, of one file at most."""

    @property
    def here(self) -> Entry | None:
        """The exercise whose file is `current`."""
        return self.files[self.current] if self.current else None

    def follow(self, pressed: keys.Keys) -> None:
        """Judge, and listen to keys, until interrupted.

        Raises:
          FolderGone: no more saves can be noticed.
        """
        self.takes_keys = pressed.offered
        self.begin()
        for saved in saves(self.files):
            self.notice(saved)
            while key := pressed.next():
                self.press(key)
            if self.waiting:
                self.judge(self.waiting.pop())
            elif not self.settled:
                self.settle()

    def begin(self) -> None:
        """Choose what to judge first."""
        self.notice(list(self.files))

    def notice(self, saved: Sequence[Path]) -> None:
        """Judge `saved`, whose newest is last, before everything that waits."""
        if saved:
            self.current = saved[-1]
            self.waiting = [path for path in self.waiting if path not in saved] + [*saved]

    def judge(self, path: Path) -> None:
        """Judge a file; the current one is reported in full, any other in one line."""
        self.settled = False
        is_current = path == self.current
        passed = self.grade(path, brief=not is_current)
        if is_current:
            self.passed = passed

    def grade(self, path: Path, *, brief: bool) -> bool:
        """Grade and print; returns whether every check passed."""
        entry = self.files[path]
        if not path.is_file():
            self.say(f"{path} is not there; `grader reset {entry.id}` writes the starter")
            return False
        work, ahead = [(entry, path)], self.ahead.pop(path, None)
        return (
            grade_all(
                work, self.session, self.wanted, brief=brief, ahead=ahead, outlives_readers=False
            )
            == 0
        )

    def settle(self) -> None:
        """Say that the next save is waited for, and prepare its grading."""
        self.settled = True
        now = time.strftime("%H:%M:%S")
        self.say(f"\n{now}  {self.watched()}")
        if self.takes_keys:
            self.say("keys: " + self.offered())
        self.say("")
        if self.current and self.current.is_file() and self.current not in self.ahead:
            entry, target = self.files[self.current], target_of(self.wanted)
            with suppress(NoDevice):  # the report has said so
                self.ahead = {self.current: look_ahead(entry, self.session, target)}

    def watched(self) -> str:
        """What is watched, and what to do."""
        return f"watching {self.current}: save it to check again"

    def offered(self) -> str:
        """What each key does."""
        return "h hint, q quit" if self.remembered() else "q quit"

    def remembered(self) -> bool:
        """Whether there are hints for the current file, since its grading is remembered."""
        return self.current is not None and is_own(self.current, self.files[self.current].stem)

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        if key == "h" and self.here and self.remembered():
            for line in hints.next_hint(self.here, Path.cwd(), "press h"):
                indent = " " * (len(line) - len(line.lstrip()))
                report.print_folded(indent, line.lstrip(), self.out)
            self.say("")

    def say(self, text: str) -> None:
        """Print for a person; a program that reads JSON gets nothing else."""
        if self.text:
            self.out.print(text)


class _CourseWatch(_Watch):
    """Watches all of `exercises/`; shows progress, and leads on when an exercise passes."""

    introduced = False
    """Whether the current exercise was introduced, and its progress shown, just now."""

    def begin(self) -> None:
        """Begin with the first exercise that is not solved, if there is one."""
        left = progress.unsolved(progress.standings(Path.cwd()))
        self.notice([FOLDER / entry.file_name for entry in left[:1]])

    def judge(self, path: Path) -> None:
        """As in `_Watch`, but the progress may change."""
        self.introduced = False
        super().judge(path)

    def settle(self) -> None:
        """Lead on from an exercise that has passed, or else wait."""
        found = progress.standings(Path.cwd())
        left = progress.unsolved(found, after=self.here)
        if self.passed and self.here in left:
            self.say("\nthis pass is not remembered: can .grader/ be written?")
        elif self.passed and left:
            self.say("")
            self.introduce(left[0], found)
            return
        if not self.introduced and self.text:
            self.say("")
            progress.print_progress(found, self.here if left else None, self.out)
        super().settle()

    def introduce(self, entry: Entry, found: Sequence[progress.Standing]) -> None:
        """Make an exercise the current one, name it, and judge it in one line."""
        self.settled = False
        self.current = FOLDER / entry.file_name
        if self.text:
            progress.print_progress(found, entry, self.out)
            self.say(f"  {entry.exercise.title}")
            report.print_folded("  read  ", hints.lesson_link(entry), self.out)
        self.passed = self.grade(self.current, brief=True)
        self.introduced = not self.passed

    def watched(self) -> str:
        """What is watched, and what to do."""
        what = "watching exercises/: save a file to check it"
        if self.here is None or self.passed or self.takes_keys:
            return what
        return f"{what}; a hint: grader hint {self.here.id}"

    def offered(self) -> str:
        """What each key does."""
        return "h hint, n next unsolved, q quit"

    def press(self, key: str) -> None:
        """As in `_Watch`; the key n goes on to the next unsolved exercise."""
        super().press(key)
        if key == "n":
            found = progress.standings(Path.cwd())
            left = progress.unsolved(found, after=self.here)
            others = [entry for entry in left if entry != self.here]
            if others:
                self.introduce(others[0], found)
            else:
                self.say("no other exercise is left to do\n")
