"""The command line: parses, calls, renders, exits. No JAX, and no decisions of its own.

Exit codes: 0 all passed; 1 a check failed; 2 the command or the exercise files are
wrong; 3 nothing failed but something could not be checked; 4 the grader itself broke.
"""

import io
import json
import os
import signal
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click

from grader import __version__
from grader.app.next_door.quantities import Rate, Size
from grader.course import catalog

EXIT = """\b
Exit codes: 0 all passed; 1 a check failed; 2 the command or the files are
wrong; 3 nothing failed but something could not be checked; 4 the grader broke.
"""


RUN_EXIT = """\b
The exit code and the signals are the program's. 2 is also a wrong command, and
3 a machine on which the device could not be started: stderr then says so.
"""


class Wrong(click.ClickException):
    """The command or the exercise files are wrong."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """One line on stderr."""
        click.echo(f"grader: {self.message}", err=True)


class Unable(Wrong):
    """Nothing is wrong with the command, and it could not be done."""

    exit_code = 3


class Broke(Wrong):
    """The grader itself broke."""

    exit_code = 4


def example(*lines: str) -> str:
    """The epilog of a command."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def _find(name: str) -> catalog.Entry:
    try:
        return catalog.find(name)
    except catalog.UnknownExercise as error:
        raise Wrong(str(error)) from None


class _ClosedPipe(Exception):
    """Nobody reads any more. click would take it for an exit code of 1, which is a verdict."""


class _Commands(click.Group):
    """The commands of `grader`."""

    def invoke(self, ctx: click.Context) -> Any:
        """As click's own."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ClosedPipe from error


@click.group(cls=_Commands, epilog=EXIT, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="grader")
def cli() -> None:
    """Judge exercises on what your arrays really did.

    \b
    grader list          what there is to solve
    grader check ex07    run exercises/ex07_quiet_loop.py and judge it
    grader watch         judge what you save, from one exercise to the next
    grader hint ex07     a hint for what failed; again for more
    """


def _option(name: str, kind: click.ParamType[Any], text: str, default: Any = None) -> Any:
    """An option that says its default, where it has one."""
    shown = default is not None
    return click.option(name, type=kind, help=text, default=default, show_default=shown)


def format_option(command: Any, more: str = "") -> Any:
    """`--format`, for a person or for a program."""
    forms = click.Choice(["text", "json", *filter(None, [more])])
    return click.option("--format", "form", type=forms, default="text", show_default=True)(command)


def verbose_option(command: Any) -> Any:
    """`--verbose`, for reports that a person reads."""
    said = "Print each check's title, not only its name."
    return click.option("-v", "--verbose", is_flag=True, help=said)(command)


def _only(_: click.Context, option: click.Parameter, given: tuple[Path, ...]) -> Path | None:
    """The only value of an option that click would else take the last of."""
    if len(given) > 1:
        named = ", ".join(str(path) for path in given)
        name = option.opts[0]
        raise Wrong(
            f"{name} was given {len(given)} times ({named}); run the command once for each, or "
            "name a folder that holds the files of one student"
        )
    return given[0] if given else None


def grading_options(command: Any) -> Any:
    """The options of every command that grades."""
    where = "A file, or a folder of exercise files.  [default: exercises/]"
    seed = "Seed of the secret inputs, to repeat a grading.  [default: fresh]"
    platforms, seeds = (
        click.Choice(["auto", "cpu", "gpu", "next-door"]),
        click.IntRange(0, (1 << 63) - 1),
    )
    folder = click.Path(file_okay=False, path_type=Path)
    options = (
        click.option(
            "--submission",
            type=click.Path(path_type=Path),
            help=where,
            multiple=True,
            callback=_only,
        ),
        _option("--device", platforms, "Where to run.", "auto"),
        _option("--devices", click.IntRange(1, 64), "How many, instead of what is needed."),
        _option("--target", click.STRING, "A machine to compile for, e.g. h200x8; none is needed."),
        _option("--seed", seeds, seed),
        _option("--timeout", click.FloatRange(1, 3600), "Seconds for one run of the code.", 60.0),
        partial(format_option, more="jsonl"),
        _option("--save", folder, "Save each record in this folder, for `grader judge`."),
        verbose_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@cli.command("list", epilog=example("grader list"))
def list_() -> None:
    """List the exercises."""
    for entry in catalog.entries():
        click.echo(f"{entry.id}  {entry.stem.split('_', 1)[1]:<18} {entry.exercise.title}")


@cli.command(epilog=example("grader status", "grader status --format json"))
@format_option
def status(form: str) -> None:
    """Show which exercises you have solved, and what is next."""
    from grader.app import progress

    if form == "json":
        click.echo(json.dumps(progress.status_document(Path.cwd()), indent=2))
        return
    for line in progress.status_lines(Path.cwd()):
        click.echo(line)


@cli.command(
    epilog=example(
        "grader check ex07",
        "grader check --all --format json",
        "grader check 7 --submission ~/mine.py",
        "grader check ex22 --target h200x8",
    )
    + f"\n\n{EXIT}"
)
@click.argument("exercise", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Check all exercises.")
@click.option("--fresh", is_flag=True, help="Neither use nor leave a server.")
@grading_options
def check(exercise: tuple[str, ...], everything: bool, fresh: bool, **options: Any) -> None:
    """Run submissions and judge them.

    At a terminal, a server with JAX loaded stays for the next check; `grader stop` ends it.
    """
    from grader.app import lingering

    if not exercise and not everything:
        raise Wrong("which exercise? `grader check ex07`, or `grader check --all`")
    named = dict.fromkeys(catalog.entries(), "") if everything else _named(exercise)
    options["kept"] = lingering.wanted(fresh=fresh)
    _grade(list(named), tuple(named.values()), options)


def _named(names: Iterable[str]) -> dict[catalog.Entry, str]:
    """Exercise -> what names it, once: the path of its file, if one is given."""
    found: dict[catalog.Entry, str] = {}
    for name in names:
        entry = _find(name)
        before = found.setdefault(entry, name)
        if before.endswith(".py") and name.endswith(".py") and before != name:
            raise Wrong(f"two files of one exercise, {before} and {name}: check one at a time")
        if name.endswith(".py"):
            found[entry] = name
    return found


@cli.command(epilog=example("grader stop"))
def stop() -> None:
    """End the servers that checks left behind."""
    from grader.app import lingering

    click.echo(lingering.stop_line())


@cli.command(epilog=example("grader selftest"))
@grading_options
def selftest(**options: Any) -> None:
    """Grade the reference solutions on this machine: all must pass."""
    from grader.app import doctor as examine
    from grader.app import progress

    if options["submission"] is None:
        options["submission"] = catalog.course_root() / "solutions"
    for line in examine.device_lines(options["device"]):
        click.echo(line, err=options["form"] != "text")
    sys.exit(_run(catalog.entries(), (), options, brief=True, closing=progress.next_command()))


@cli.command(epilog=example("grader watch", "grader watch ex07"))
@click.argument("exercise", required=False)
@grading_options
def watch(exercise: str | None, **options: Any) -> None:
    """Judge what you save until Ctrl-C: one exercise, or all of exercises/."""
    from grader.app import files, grading, watching

    wanted = grading.Wanted(**options)
    try:
        if exercise is None:
            watching.watch_course(wanted)
        else:
            watching.watch_one(_find(exercise), exercise, wanted)
    except files.Unusable as error:
        raise Wrong(str(error)) from None
    except grading.GraderBroke as error:
        raise Broke(str(error)) from None


def _grade(entries: list[catalog.Entry], names: tuple[str, ...], options: dict[str, Any]) -> None:
    sys.exit(_run(entries, names, options, brief=len(entries) > 1))


def _run(
    entries: list[catalog.Entry],
    names: tuple[str, ...],
    options: dict[str, Any],
    *,
    brief: bool,
    closing: str = "",
) -> int:
    from grader.app import files, grading

    try:
        code = grading.run(entries, names, grading.Wanted(**options), brief=brief)
    except files.Unusable as error:
        raise Wrong(str(error)) from None
    except grading.GraderBroke as error:
        raise Broke(str(error)) from None
    if closing and options["form"] == "text":
        click.echo(closing)
    return code


@cli.command(epilog=example("grader hint ex07", "grader hint ex07 no_reads_in_loop"))
@click.argument("exercise")
@click.argument("check", required=False, default="")
def hint(exercise: str, check: str) -> None:
    """Give a hint for what failed last, or for one CHECK; again for a stronger one."""
    from grader.app import hints

    for line in hints.next_hint(_find(exercise), Path.cwd(), about=check):
        click.echo(line)


@cli.command(epilog=example("grader reset ex07", "grader reset --all"))
@click.argument("exercise", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Reset all exercises.")
def reset(exercise: tuple[str, ...], everything: bool) -> None:
    """Write a fresh starter; your version is kept beside it."""
    from grader.app import reset as starters

    if not exercise and not everything:
        raise Wrong("which exercise? `grader reset ex07`, or `grader reset --all`")
    entries = catalog.entries() if everything else [_find(name) for name in exercise]
    try:
        for entry in entries:
            click.echo(starters.reset(entry, Path.cwd()))
    except (catalog.NoStarter, OSError) as error:
        raise Wrong(str(error)) from None


@cli.command(epilog=example("grader update ex07", "grader update --all"))
@click.argument("exercise", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Update all exercises.")
def update(exercise: tuple[str, ...], everything: bool) -> None:
    """Bring a new version of the starter into your file; your version is kept beside it."""
    from grader.app import updating

    if not exercise and not everything:
        raise Wrong("which exercise? `grader update ex07`, or `grader update --all`")
    entries = catalog.entries() if everything else [_find(name) for name in exercise]
    try:
        for entry in entries:
            click.echo(updating.update(entry, Path.cwd()))
    except (catalog.NoStarter, OSError) as error:
        raise Wrong(str(error)) from None


@cli.command(epilog=example("grader solution ex07"))
@click.argument("exercise")
def solution(exercise: str) -> None:
    """Print the reference solution."""
    click.echo(_find(exercise).solution.read_text("utf-8"), nl=False)


@cli.command(epilog=example("grader doctor", "grader doctor --format json"))
@format_option
def doctor(form: str) -> None:
    """Say what JAX finds on this machine, and what the environment makes of it."""
    from grader.app import doctor as examine

    sys.exit(examine.run(form))


def device_options(command: Any) -> Any:
    """The options of every command that starts a device next door."""
    file = click.Path(path_type=Path)
    options = (
        _option("--devices", click.IntRange(1, 64), "How many devices.  [default: 8]"),
        _option("--memory", Size(), "Memory of each, e.g. 1GiB.  [default: a share of this one's]"),
        _option("--link", Rate(), "Speed between host and device, e.g. 12GiB/s.  [default: full]"),
        _option("--like", click.STRING, "Model a machine, 1000 times slower, e.g. h200x8."),
        _option("--book", file, "Keep the book here: all that reached the device, as JSON lines."),
        _option("--perfetto", file, "Write a trace here that ui.perfetto.dev opens."),
        format_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@cli.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    epilog=example(
        "grader run train.py --epochs 3",
        "grader run --devices 4 --memory 1GiB --link 1GiB/s train.py",
        "grader run --perfetto train.json -m package.train",
    )
    + f"\n\n{RUN_EXIT}",
)
@device_options
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as in `python -m`.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True)
def run_(program: tuple[str, ...], module: bool, **options: Any) -> None:
    """Run a program on a device next door, and say what reached it.

    The device is a JAX device in another process, with memory of its own: copies are copies there,
    and memory runs out. It needs no GPU. The page goes to stderr when the program has ended.
    """
    from grader.app.next_door import borrowed, run

    trace, form = options.pop("perfetto"), options.pop("form")
    try:
        wanted = borrowed.Wanted(**options)
        sys.exit(run.run(program, wanted, module=module, trace=trace, form=form))
    except borrowed.Unusable as error:
        raise Wrong(str(error)) from None
    except borrowed.NoDevice as error:
        raise Unable(str(error)) from None


@cli.command(
    epilog=example("grader device", "grader device --print-env > device.sh & ", ". ./device.sh")
)
@device_options
@click.option("--print-env", is_flag=True, help="Print nothing else, and close stdout then.")
def device(print_env: bool, **options: Any) -> None:
    """Start a device next door for another shell or a notebook; Ctrl-C ends it."""
    from grader.app.next_door import borrowed, lent

    trace, form = options.pop("perfetto"), options.pop("form")
    try:
        wanted = borrowed.Wanted(**options)
        sys.exit(lent.lend(wanted, trace=trace, print_env=print_env, form=form))
    except borrowed.Unusable as error:
        raise Wrong(str(error)) from None
    except borrowed.NoDevice as error:
        raise Unable(str(error)) from None


@cli.command("install-target", epilog=example("grader install-target"))
def install_target() -> None:
    """Install what `--target` compiles with (Linux, 0.7 GB); your own packages stay as they are."""
    from grader.app import install

    try:
        for line in install.install():
            click.echo(line)
    except install.NotInstalled as error:
        raise Unable(str(error)) from None


@cli.command(
    epilog=example("grader check ex07 --save records", "grader judge records/ex07_quiet_loop.json")
)
@click.argument("record", type=click.Path(path_type=Path))
@format_option
@verbose_option
def judge(record: Path, form: str, *, verbose: bool) -> None:
    """Judge a saved record again; nothing is run."""
    from grader.app import files, grading

    try:
        sys.exit(grading.judge_saved(record, form, verbose=verbose))
    except files.Unusable as error:
        raise Wrong(str(error)) from None


@cli.command(epilog=example("grader schema report > report.schema.json"))
@click.argument("kind", type=click.Choice(["record", "report"]))
def schema(kind: str) -> None:
    """Print the JSON Schema of records or of `--format json`."""
    from grader.app import schemas

    click.echo(schemas.text(kind))


class Terminated(KeyboardInterrupt):
    """Somebody asked this process to end: everything ends as with Ctrl-C, with another code."""

    code = 128 + signal.SIGTERM


def _terminated(*_: object) -> None:
    raise Terminated


def main() -> None:
    """Run the command line; every end is an exit code.

    Raises:
      KeyboardInterrupt: Ctrl-C; `Terminated`, where a robot asked for the end.
    """
    if sys.platform == "win32":
        click.echo("grader: this grader needs Linux, or WSL2 on Windows, or macOS", err=True)
        sys.exit(2)
    signal.signal(signal.SIGTERM, _terminated)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what it cannot encode, it shows as escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort as error:  # click's word for what it caught
        is_ours = isinstance(error.__cause__, Terminated)
        raise (Terminated if is_ours else KeyboardInterrupt) from None
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except _ClosedPipe:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)  # what is still in the buffer goes nowhere
        sys.exit(141)
    except Exception as error:  # noqa: BLE001 (whatever it is, the person gets an exit code)
        _say_broken(error)
        sys.exit(4)


def _say_broken(error: Exception) -> None:
    """A fault of ours: say so, and where, without a page of traceback."""
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    what = f"{type(error).__name__}: {error}, {where}"
    click.echo(f"grader: the grader itself broke ({what})", err=True)
    click.echo("grader: this is not your mistake; please report these two lines", err=True)
