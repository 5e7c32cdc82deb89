"""The command line: parses, calls, renders, exits. No JAX, and no decisions of its own.

Exit codes: 0 all passed; 1 a check failed; 2 the command or the exercise files are
wrong; 3 nothing failed but something could not be checked; 4 the grader itself broke.
"""

import io
import sys
from pathlib import Path
from typing import Any

import click

from grader import __version__, catalog

EXIT = """\b
Exit codes: 0 all passed; 1 a check failed; 2 the command or the files are
wrong; 3 nothing failed but something could not be checked; 4 the grader broke.
"""


class Wrong(click.ClickException):
    """The command or the exercise files are wrong."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """One line on stderr."""
        click.echo(f"grader: {self.message}", err=True)


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


@click.group(epilog=EXIT, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="grader")
def cli() -> None:
    """Judge exercises on what your arrays really did.

    \b
    grader list          what there is to solve
    grader check ex07    run exercises/ex07_quiet_loop.py and judge it
    grader hint ex07     a hint for what failed; again for more
    """


def _option(name: str, kind: click.ParamType[Any], text: str, default: Any = None) -> Any:
    """An option that says its default, where it has one."""
    shown = default is not None
    return click.option(name, type=kind, help=text, default=default, show_default=shown)


def format_option(command: Any) -> Any:
    """`--format`, for a person or for a program."""
    forms = click.Choice(["text", "json"])
    return click.option("--format", "form", type=forms, default="text", show_default=True)(command)


def grading_options(command: Any) -> Any:
    """The options of every command that grades."""
    where = "A file, or a folder of exercise files.  [default: exercises/]"
    seed = "Seed of the secret inputs, to repeat a grading.  [default: fresh]"
    platforms, seeds = click.Choice(["auto", "cpu", "gpu"]), click.IntRange(0, (1 << 63) - 1)
    folder = click.Path(file_okay=False, path_type=Path)
    options = (
        _option("--submission", click.Path(path_type=Path), where),
        _option("--device", platforms, "Where to run.", "auto"),
        _option("--devices", click.IntRange(1, 64), "How many, instead of what is needed."),
        _option("--target", click.STRING, "A machine to compile for, e.g. h200x8; none is needed."),
        _option("--seed", seeds, seed),
        _option("--timeout", click.FloatRange(1, 3600), "Seconds for one run of the code.", 60.0),
        format_option,
        _option("--save", folder, "Save each record in this folder, for `grader judge`."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@cli.command("list", epilog=example("grader list"))
def list_() -> None:
    """List the exercises."""
    for entry in catalog.entries():
        click.echo(f"{entry.id}  {entry.stem.split('_', 1)[1]:<18} {entry.exercise.title}")


@cli.command(epilog=example("grader status"))
def status() -> None:
    """Show which exercises you have solved, and what is next."""
    from grader import overview

    for line in overview.status_lines(Path.cwd()):
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
@grading_options
def check(exercise: tuple[str, ...], everything: bool, **options: Any) -> None:
    """Run submissions and judge them."""
    if not exercise and not everything:
        raise Wrong("which exercise? `grader check ex07`, or `grader check --all`")
    named: dict[catalog.Entry, str] = {}
    for name in exercise:
        named.setdefault(_find(name), name)
    if everything:
        named = dict.fromkeys(catalog.entries(), "")
    _grade(list(named), tuple(named.values()), options)


@cli.command(epilog=example("grader selftest"))
@grading_options
def selftest(**options: Any) -> None:
    """Grade the reference solutions on this machine: all must pass."""
    from grader import overview

    if options["submission"] is None:
        options["submission"] = catalog.course_root() / "solutions"
    for line in overview.devices_lines(options["device"]):
        click.echo(line, err=options["form"] == "json")
    sys.exit(_run(catalog.entries(), (), options, brief=True, closing=overview.next_command()))


@cli.command(epilog=example("grader watch ex07"))
@click.argument("exercise")
@grading_options
def watch(exercise: str, **options: Any) -> None:
    """Judge an exercise each time you save it; Ctrl-C ends it."""
    from grader import batch

    try:
        batch.watch(_find(exercise), exercise, batch.Wanted(**options))
    except batch.Unusable as error:
        raise Wrong(str(error)) from None
    except batch.GraderBroke as error:
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
    from grader import batch

    try:
        code = batch.run(entries, names, batch.Wanted(**options), brief=brief)
    except batch.Unusable as error:
        raise Wrong(str(error)) from None
    except batch.GraderBroke as error:
        raise Broke(str(error)) from None
    if closing and options["form"] == "text":
        click.echo(closing)
    return code


@cli.command(epilog=example("grader hint ex07"))
@click.argument("exercise")
def hint(exercise: str) -> None:
    """Give a hint for what failed last; again for a stronger one."""
    from grader import overview
    from grader.batch import SITE

    for line in overview.next_hint(_find(exercise), Path.cwd(), SITE):
        click.echo(line)


@cli.command(epilog=example("grader reset ex07", "grader reset --all"))
@click.argument("exercise", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Reset all exercises.")
def reset(exercise: tuple[str, ...], everything: bool) -> None:
    """Write a fresh starter; your version is kept beside it."""
    from grader import files

    if not exercise and not everything:
        raise Wrong("which exercise? `grader reset ex07`, or `grader reset --all`")
    entries = catalog.entries() if everything else [_find(name) for name in exercise]
    try:
        for entry in entries:
            click.echo(files.reset(entry, Path.cwd()))
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
    from grader import doctor as examine

    sys.exit(examine.run(form))


@cli.command(
    epilog=example("grader check ex07 --save records", "grader judge records/ex07_quiet_loop.json")
)
@click.argument("record", type=click.Path(path_type=Path))
@format_option
def judge(record: Path, form: str) -> None:
    """Judge a saved record again; nothing is run."""
    from grader import batch

    try:
        sys.exit(batch.judge_saved(record, form))
    except batch.Unusable as error:
        raise Wrong(str(error)) from None


@cli.command(epilog=example("grader schema report > report.schema.json"))
@click.argument("kind", type=click.Choice(["record", "report"]))
def schema(kind: str) -> None:
    """Print the JSON Schema of records or of `--format json`."""
    from grader import schemas

    click.echo(schemas.text(kind))


def main() -> None:
    """Run the command line; every end is an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what it cannot encode, it shows as escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
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
