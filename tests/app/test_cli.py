"""The command line in its own process: help, exit codes, files, and what it does not import."""

import json
import sys
from pathlib import Path

import jsonschema
import pytest
from conftest import ROOT, Cli, python, stamped

from grader.app import versions
from grader.app.cli import cli
from grader.course import catalog

STEM = "ex07_quiet_loop"
COMMANDS = sorted(cli.commands)
STARTER = ROOT / "exercises" / f"{STEM}.py"
CHECKED = "ex07_starter.json"


def only_line(text: str) -> str:
    """The one line that a wrong command may print."""
    assert text.count("\n") == 1, text
    return text.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, grader: Cli) -> None:
    ran = grader(command, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"Example:\n  grader {command}" in ran.stdout or f"\n    grader {command}" in ran.stdout


def test_all_commands_of_the_design_are_there() -> None:
    wanted = {"list", "status", "check", "hint", "reset", "solution", "doctor", "judge"}
    assert wanted <= set(COMMANDS)


def test_no_command_shows_the_help(grader: Cli) -> None:
    ran = grader()
    assert ran.returncode == 2
    assert "Commands:" in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "No such command"),
        (["check"], "which exercise?"),
        (["reset"], "which exercise?"),
        (["hint"], "Missing argument"),
        (["check", "ex99"], "no exercise `ex99`"),
        (["check", "ex07_quite_loop"], "did you mean ex07_quiet_loop?"),
        (["check", "ex07", "--device", "tpu"], "'tpu' is not one of"),
        (["check", "ex07", "--devices", "0"], "0 is not in the range"),
        (["check", "ex07", "--seed", "-1"], "-1 is not in the range"),
        (["check", "ex07", "--timeout", "soon"], "'soon' is not a valid float"),
        (["check", "ex07", "--format", "xml"], "'xml' is not one of"),
        (["check", "ex07", "--frobnicate"], "No such option"),
        (["check", "ex07", "--submission", "none.py"], "no file none.py"),
        (["check", "ex07", "--submission", "."], f"no {STEM}.py in the folder ."),
        (["check", f"elsewhere/{STEM}.py"], f"no file elsewhere/{STEM}.py"),
        (["check", "--all", "--submission", f"exercises/{STEM}.py"], "one file for"),
        (
            ["check", "ex01"],
            "no exercises/ex01_find_devices.py here: go to the course's folder, or `grader reset",
        ),
        (["hint", "ex99"], "no exercise `ex99`"),
        (["solution", "ex99"], "no exercise `ex99`"),
        (["schema", "verdict"], "'verdict' is not one of"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_command_is_code_2(arguments: list[str], said: str, grader: Cli) -> None:
    ran = grader(*arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    if ran.stderr.startswith("grader:"):
        only_line(ran.stderr)


def test_list(grader: Cli) -> None:
    lines = grader("list").stdout.splitlines()
    assert len(lines) == len(list((ROOT / "exercises").glob("ex*.py")))
    assert "ex07  quiet_loop         Report losses without stalling the loop" in lines


@pytest.mark.parametrize("level", ["1", "2"])
def test_the_list_is_the_same_where_python_drops_asserts_and_docstrings(
    level: str, grader: Cli
) -> None:
    ran = grader("list", PYTHONOPTIMIZE=level)
    assert (ran.stdout, ran.stderr) == (grader("list").stdout, "")
    shown = grader("judge", CHECKED, PYTHONOPTIMIZE=level).stdout
    assert shown == grader("judge", CHECKED).stdout


def test_solution(grader: Cli) -> None:
    ran = grader("solution", "ex07")
    assert ran.stdout == (ROOT / "solutions" / f"{STEM}.py").read_text("utf-8")


def test_version(grader: Cli) -> None:
    assert grader("--version").stdout.startswith("grader, version ")


LIGHT = (
    "import sys\n"
    "from grader.course import catalog\n"
    "from grader.app import cli\n"
    "if sys.argv[1:]:\n"
    "    try:\n"
    "        cli.cli.main(sys.argv[1:], standalone_mode=False)\n"
    "    except SystemExit:\n"
    "        pass\n"
    "else:\n"
    "    entries = catalog.entries()\n"
    "    assert entries\n"
    "    assert all(entry.exercise.checks for entry in entries)\n"
    "heavy = {'jax', 'jaxlib', 'numpy', 'flax', 'haiku', 'optax'} & set(sys.modules)\n"
    "raise SystemExit(f'imported {sorted(heavy)}' if heavy else 0)\n"
)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["list"],
        ["check", "--help"],
        ["status"],
        ["hint", "ex07"],
        ["reset", "ex07"],
        ["solution", "ex07"],
        ["schema", "record"],
        ["judge", CHECKED],
    ],
    ids=lambda arguments: "-".join(map(str, arguments[:2])) or "all_checks",
)
def test_the_command_line_is_light(arguments: list[str], folder: Path) -> None:
    """The catalogue, every check and every command but those that run code: no JAX, no NumPy.

    Comparing arrays while judging needs NumPy; nothing needs JAX.
    """
    stamped(CHECKED, folder)
    code = LIGHT.replace("'numpy', ", "") if arguments[:1] == ["judge"] else LIGHT
    ran = python("-c", code, *arguments, folder=folder)
    assert ran.returncode == 0, ran.stderr


def test_a_grading_imports_no_jax_in_this_process(folder: Path) -> None:
    code = (
        "import sys\n"
        "from grader.app import cli\n"
        "sys.argv = ['grader', 'check', 'ex07']\n"
        "try:\n"
        "    cli.main()\n"
        "except SystemExit as end:\n"
        "    assert end.code == 1, end.code\n"
        "assert 'jax' not in sys.modules\n"
    )
    ran = python("-c", code, folder=folder)
    assert ran.returncode == 0, ran.stderr
    assert "no_reads_in_loop" in ran.stdout


def test_check_prints_one_valid_document_as_json(grader: Cli, folder: Path) -> None:
    ran = grader("check", "ex07", "--format", "json", "--seed", "5", "--save", folder / "saved")
    assert (ran.returncode, ran.stderr) == (1, "")
    document = json.loads(ran.stdout)
    schema = json.loads((ROOT / "docs/reference/report.schema.json").read_text("utf-8"))
    jsonschema.validate(document, schema)
    (report,) = document["reports"]
    assert (document["exit_code"], report["exercise"], report["seed"]) == (1, STEM, 5)
    assert report["path"] == f"exercises/{STEM}.py"
    again = grader("judge", folder / "saved" / f"{STEM}.json", "--format", "json")
    assert json.loads(again.stdout)["reports"][0]["verdicts"] == report["verdicts"]


def test_several_exercises_get_a_line_each(grader: Cli, folder: Path) -> None:
    """A file that is not whole needs no worker, so this is quick."""
    for path in (ROOT / "exercises").glob("ex*.py"):
        (folder / "exercises" / path.name).write_text("import os\n", "utf-8")
    ran = grader("check", "--all")
    assert ran.returncode == 1
    lines = ran.stdout.splitlines()
    assert len(lines) == len(list((ROOT / "exercises").glob("ex*.py")))
    assert all(line.startswith("  FAIL  ex") and "in the file" in line for line in lines)


def test_a_named_path_is_graded(grader: Cli, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / f"{STEM}.py").write_text("", "utf-8")
    ran = grader("check", "7", f"mine/{STEM}.py")
    assert ran.returncode == 1
    assert "mine" not in ran.stdout, "the first name of an exercise counts"
    ran = grader("check", f"mine/{STEM}.py")
    assert "the file is empty" in ran.stdout


def test_hints_go_from_mild_to_plain(grader: Cli) -> None:
    said = [grader("hint", "ex07").stdout for _ in range(4)]
    assert [text.splitlines()[0] for text in said] == [
        "hint 1 of 3:",
        "hint 2 of 3:",
        "hint 3 of 3:",
        "hint 3 of 3:",
    ]
    assert "more: grader hint ex07" in said[0]
    assert "grader solution ex07 shows one answer" in said[2] == said[3]
    place = "docs/lessons/04-the-inner-loop.py, paragraph reading-stops-the-loop"
    assert all(place in text for text in said)
    assert "ex07  quiet_loop         not checked" in grader("status").stdout


def test_hints_are_for_what_failed(grader: Cli) -> None:
    assert grader("check", "ex07").returncode == 1
    assert grader("hint", "ex07").stdout.startswith("hint 1 of 4 for no_reads_in_loop:")
    assert grader("hint", "ex07").stdout.startswith("hint 2 of 4 for no_reads_in_loop:")
    assert grader("check", "ex07").returncode == 1
    assert grader("hint", "ex07").stdout.startswith("hint 3 of 4"), "the same failure goes on"


def test_hints_speak_of_a_file_that_was_not_run_and_of_one_that_is_solved(
    grader: Cli, folder: Path
) -> None:
    path = folder / "exercises" / "ex04_place_model.py"
    starter = (ROOT / "exercises" / path.name).read_text()
    path.write_text(starter + "def (")
    assert grader("check", "ex04").returncode == 1
    assert "fix what `expected` and `observed` name" in grader("hint", "ex04").stdout
    raising = starter.replace("return params, opt_state, batch\n", "raise RuntimeError(device)\n")
    path.write_text(raising)
    assert grader("check", "ex04").returncode == 1
    assert "`observed` is Python's or JAX's own message" in grader("hint", "ex04").stdout
    path.write_text((ROOT / "solutions" / path.name).read_text())
    assert grader("check", "ex04").returncode == 0
    assert grader("hint", "ex04").stdout.startswith("ex04 is solved")
    path.write_text(starter)
    assert "solved before; changed since the last check" in grader("status").stdout


def test_no_hint_is_offered_for_a_file_that_is_not_remembered(grader: Cli, folder: Path) -> None:
    (folder / "mine.py").write_text("def (")
    ran = grader("check", "ex04", "--submission", "mine.py")
    assert ran.returncode == 1
    assert "grader hint" not in ran.stdout
    assert "--seed" in ran.stdout


def test_of_a_whole_folder_a_missing_file_fails_its_own_exercise(grader: Cli, folder: Path) -> None:
    for path in (folder / "exercises").iterdir():
        path.write_text("def (")
    ran = grader("check", "--all", "--submission", "exercises", "--format", "json")
    reports = json.loads(ran.stdout)["reports"]
    assert (ran.returncode, len(reports)) == (1, len(catalog.entries()))
    observed = {one["exercise"]: one["verdicts"][0]["observed"] for one in reports}
    assert "No such file" in observed["ex04_place_model"]
    assert "No such file" not in observed[STEM]
    (folder / "empty").mkdir()
    ran = grader("check", "--all", "--submission", "empty")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "in the folder empty" in ran.stderr


def test_status_as_json_says_of_each_exercise_whether_it_is_solved(
    grader: Cli, folder: Path
) -> None:
    told = json.loads(grader("status", "--format", "json").stdout)
    lines = grader("status").stdout.splitlines()
    assert told["version"] == 1
    assert len(told["exercises"]) == len(lines) - 1 > 0
    assert {one["status"] for one in told["exercises"]} == {"open", "no file"}
    assert lines[-1] == f"next: grader check {told['next']}"
    one = next(one for one in told["exercises"] if one["id"] == "ex07")
    assert one == {
        "id": "ex07",
        "name": "ex07_quiet_loop",
        "status": "open",
        "said": "not checked",
    }


def test_status_knows_what_was_checked(grader: Cli, folder: Path) -> None:
    def line() -> str:
        return next(one for one in grader("status").stdout.splitlines() if one.startswith("ex07"))

    assert line().endswith("not checked")
    grader("check", "ex07")
    assert line().endswith("not yet")
    path = folder / "exercises" / f"{STEM}.py"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert line().endswith("not yet"), "line ends are no change"
    path.write_text("changed", "utf-8")
    assert line().endswith("changed since the last check")
    path.write_bytes(b"\xff")
    assert line().endswith("changed since the last check")
    path.unlink()
    assert line().endswith("no file; grader reset ex07")
    assert "next: grader reset ex01" in grader("status").stdout, "there is nothing to check"


def test_reset_loses_nothing(grader: Cli, folder: Path) -> None:
    path = folder / "exercises" / f"{STEM}.py"
    for number, mine in ((1, "first"), (2, "second")):
        path.write_text(mine, "utf-8")
        said = f"exercises/{STEM}.py is fresh; your version is exercises/{STEM}.py.{number}\n"
        assert grader("reset", "ex07").stdout == said
        assert path.with_name(f"{STEM}.py.{number}").read_text("utf-8") == mine
        assert "TODO" in path.read_text("utf-8")
    assert grader("reset", "ex07").stdout == f"exercises/{STEM}.py is the fresh starter already\n"
    path.unlink()
    assert grader("reset", "ex07").stdout == f"exercises/{STEM}.py written\n"
    assert len(list(path.parent.iterdir())) == 3


def test_reset_where_nothing_can_be_written(grader: Cli, folder: Path) -> None:
    (folder / "exercises" / f"{STEM}.py").unlink()
    (folder / "exercises").rmdir()
    (folder / "exercises").write_text("a file in the way", "utf-8")
    ran = grader("reset", "ex07")
    assert ran.returncode == 2
    only_line(ran.stderr)


def test_remembering_is_no_duty(grader: Cli, folder: Path) -> None:
    """A folder that cannot be written still gets its verdicts and hints."""
    (folder / ".grader").write_text("in the way", "utf-8")
    assert grader("hint", "ex07").stdout.startswith("hint 1 of 3:")
    assert grader("status").returncode == 0
    (folder / "exercises" / f"{STEM}.py").write_text("", "utf-8")
    assert grader("check", "ex07").returncode == 1


def test_output_that_the_stream_cannot_encode(grader: Cli, folder: Path) -> None:
    (folder / "exercises" / f"{STEM}.py").write_text("größe = (\n", "utf-8")
    ran = grader("check", "ex07", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ran.returncode == 1
    assert "gr\\xf6\\xdfe = (" in ran.stdout


def test_a_closed_pipe_is_no_fault(folder: Path) -> None:
    code = f"{sys.executable} -m grader list | true; exit ${{PIPESTATUS[0]}}"
    script = f"import subprocess; print(subprocess.run(['bash', '-c', {code!r}], "
    script += "capture_output=True, text=True).stderr)"
    ran = python("-c", script, folder=folder)
    assert "broke" not in ran.stdout


def test_a_fault_of_the_grader_is_code_4(folder: Path) -> None:
    code = (
        "import sys\n"
        "from grader.course import catalog\n"
        "from grader.app import cli\n"
        "def entries():\n"
        "    raise ZeroDivisionError('a fault of ours')\n"
        "catalog.entries = entries\n"
        "sys.argv = ['grader', 'list']\n"
        "cli.main()\n"
    )
    ran = python("-c", code, folder=folder)
    assert ran.returncode == 4
    assert ran.stderr.splitlines() == [
        "grader: the grader itself broke (ZeroDivisionError: a fault of ours, <string>:5)",
        "grader: this is not your mistake; please report these two lines",
    ]


def test_a_jax_too_old_or_new_is_code_2(folder: Path) -> None:
    for found in ("0.10.9", "0.13.0", "1.0", "unknown"):
        code = (
            "import sys\n"
            "from grader.app import cli\n"
            "from grader.app import versions\n"
            f"versions.version = lambda package: {found!r}\n"
            "sys.argv = ['grader', 'check', 'ex07']\n"
            "cli.main()\n"
        )
        ran = python("-c", code, folder=folder)
        assert ran.returncode == 2
        assert f"jax {found} is installed, this grader supports 0.11 and 0.12" in only_line(
            ran.stderr
        )


def test_the_installed_versions_are_supported() -> None:
    assert versions.unsupported() == ""


def test_fewer_devices_than_an_exercise_takes_are_no_failure(grader: Cli) -> None:
    done = grader("check", "ex03", "--submission", ROOT / "solutions", "--devices", "2")
    assert done.returncode == 3
    assert "it takes 3 devices, and --devices says 2" in done.stdout
    assert "FAIL" not in done.stdout


def test_status_forgets_what_was_solved_under_other_checks(grader: Cli, folder: Path) -> None:
    path = folder / "exercises" / "ex02_mixed_devices.py"
    path.write_bytes((ROOT / "solutions" / path.name).read_bytes())
    assert grader("check", "ex02").returncode == 0
    assert "ex02  mixed_devices      solved" in grader("status").stdout
    state = folder / ".grader" / "ex02_mixed_devices.json"
    known = json.loads(state.read_bytes())
    assert known["checksum"] == catalog.find("ex02").checksum
    state.write_text(json.dumps(known | {"checksum": "other"}), "utf-8")
    said = "solved before; its checks have changed since the last check"
    assert f"ex02  mixed_devices      {said}" in grader("status").stdout


def test_update_names_what_it_did(grader: Cli, folder: Path) -> None:
    assert grader("update", "ex07").stdout == f"exercises/{STEM}.py is up to date\n"
    assert grader("update").returncode == 2
    assert "is not there" in grader("update", "--all").stdout


@pytest.mark.parametrize(
    ("number", "raised"),
    [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "Terminated"), ("SIGHUP", "SystemExit")],
)
def test_a_signal_in_a_callback_that_may_raise_nothing_comes_again(
    number: str, raised: str
) -> None:
    program = f"""
import os, signal, sys, time, weakref
from grader.__main__ import come_again
from grader.app import cli, keys

sys.unraisablehook = come_again
signal.signal(signal.SIGTERM, cli._terminated)
signal.signal(signal.SIGHUP, keys._end)
thing = set()
kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.{number}))
try:
    del thing
    time.sleep(60)
except BaseException as error:
    print(type(error).__name__)
"""
    ran = python("-c", program)
    assert (ran.stdout.strip(), ran.stderr) == (raised, "")


def test_an_exit_that_is_no_signal_s_is_reported_as_ever() -> None:
    program = """
import sys, time, weakref
from grader.__main__ import come_again

sys.unraisablehook = come_again
thing = set()
kept = weakref.ref(thing, lambda _: sys.exit(2))
del thing
time.sleep(0.1)
print("goes on")
"""
    ran = python("-c", program)
    assert ran.stdout == "goes on\n"
    assert "SystemExit: 2" in ran.stderr
