"""Files and commands that are wrong: the message, the line, the exit code; nothing left.

In-process tests share one session; the others run `python -m grader` as a learner does.
What hostile code does is in test_isolation.py.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import fenced
from fenced import FILE, ROOT, TOKEN, Place
from grader.record import Verdict
from grader.report import console, print_report

type Ran = subprocess.CompletedProcess[str]
STARTER = (ROOT / "solutions" / FILE).read_text("utf-8")
TRAIN = "def train(step, params, batches):\n"
RUN = "    params, losses = params, []\n    for b in batches:\n        params, loss = step(params, b)\n        losses.append(loss)\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One session for all files."""
    with fenced.place(tmp_path_factory.mktemp("bad")) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A learner's folder with a starter that fails."""
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / FILE).write_text(
        fenced.submission(TRAIN + RUN + "    return params, losses\n"), "utf-8"
    )
    return tmp_path


def grader(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None, prefix: tuple[str, ...] = ()
) -> Ran:
    """Run the command line in `folder`."""
    return subprocess.run(
        [*prefix, sys.executable, "-P", "-m", "grader", *arguments],
        cwd=folder,
        env=environ(environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def environ(more: dict[str, str]) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [more.get("PYTHONPATH", ""), str(ROOT)]))
    return {**os.environ, **more, "PYTHONPATH": path}


def first_failure(place: Place, text: str) -> tuple[Verdict, int]:
    """The first failed verdict of a file with this text, and the report's exit code."""
    _, report = place.grade(text)
    return next(v for v in report.verdicts if v.status == "fail"), report.exit_code


# Files that are never run.

SOURCES = {
    "syntax error": (STARTER.replace("for batch in", "for batch"), "SyntaxError", 18),
    "indentation": (STARTER.replace("    losses = []", "  losses = []"), "IndentationError", 17),
    "empty": ("", "the file is empty", None),
    "only blanks": ("\n\n  \n", "the file is empty", None),
    "missing function": (STARTER.replace("def train", "def _train", 1), "no `train`", None),
    "renamed function": (STARTER.replace("def train", "def training"), "`training`", None),
    "wrong signature": (STARTER.replace("train(step, params,", "train(step, params, rate,"), "rate", 10),
    "async": (STARTER.replace("def train", "async def train"), "`async def train`", 10),
    "edited outside": (STARTER.replace("0.05", "0.06"), "`sgd_step` is changed", None),
    "statement at top level": (STARTER + "\nprint('hello')\n", "print('hello')", 39),
    "given function lost": (STARTER[: STARTER.index("@jax.jit")], "it is gone", None),
    "deep nesting": (STARTER.replace("losses = []", "losses = " + "(" * 500 + ")" * 500), "too many nested", 17),
    "long chain": (STARTER.replace("losses = []", "losses = a" + ".b" * 20_000), "", None),
    "deep signs": (STARTER.replace("losses = []", "losses = " + "-" * 20_000 + "1"), "", None),
}


@pytest.mark.parametrize("name", SOURCES)
def test_source(name: str, place: Place) -> None:
    text, says, line = SOURCES[name]
    verdict, code = first_failure(place, text)
    assert (verdict.check, code) == ("source", 1)
    assert says in verdict.observed + verdict.expected
    assert verdict.expected
    if line is not None:
        assert verdict.culprits[0].line == line


BYTES = {
    "wrong encoding": (STARTER.replace("Keep", "Gör").encode("latin-1"), "save the file as UTF-8", 20),
    "binary": (b"\x7fELF\0\0\0", "binary data", None),
    "utf-16": (STARTER.encode("utf-16"), "binary data", None),
    "too large": (b"#" * 2_000_000, "2,000,000 bytes", None),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str, folder: Path) -> None:
    raw, says, line = BYTES[name]
    (folder / "exercises" / FILE).write_bytes(raw)
    ran = grader(folder, "check", "ex07", "--format", "json")
    assert (ran.returncode, ran.stderr) == (1, "")
    verdict = json.loads(ran.stdout)["reports"][0]["verdicts"][0]
    assert (verdict["check"], verdict["status"]) == ("source", "fail")
    assert says in verdict["observed"]
    if line is not None:
        assert verdict["culprits"][0]["line"] == line


# Files that run, and are wrong.

LAZY = """class Lazy:
    def __init__(self, value):
        self.value = value

    def __array__(self, dtype=None, copy=None):
        return jax.device_get(self.value)

    def __float__(self):
        return float(self.value)

    def __len__(self):
        return 1


"""
EQUAL = """class Equal:
    def __eq__(self, other):
        return True

    def __float__(self):
        return 0.0


"""
RETURNED = {
    "nothing": ("", "    pass", "runs", "it returned a NoneType"),
    "one value": ("", "    return params", "runs", "it returned a dict"),
    "three values": ("", "    return params, [], 1", "runs", "it returned a tuple of 3"),
    "NaN": ("", RUN + '    return params, [float("nan") for _ in losses]', "same_losses", "NaN"),
    "float16": ("", RUN + "    return params, [x.astype(jnp.float16) for x in jax.device_get(losses)]", "same_losses", "`ndarray`"),
    "one too few": ("", RUN + "    return params, [float(x) for x in losses[1:]]", "same_losses", "6 values"),
    "wrong shape": ("", RUN + "    return jax.tree.map(lambda p: p[None], params), [float(x) for x in losses]", "same_params", "shape"),
    "wrong dtype": ("", RUN + "    return jax.tree.map(lambda p: p.astype(int), params), [float(x) for x in losses]", "same_params", "dtype int32"),
    "lazy": (LAZY, RUN + "    return params, [Lazy(x) for x in losses]", "same_losses", "`Lazy`"),
    "lazy as a whole": (LAZY, RUN + "    return params, Lazy(losses[0])", "same_losses", "`Lazy`"),
    "equal to everything": (EQUAL, RUN + "    return params, [Equal() for _ in losses]", "same_losses", "of type `Equal`"),
    "equal parameters": (EQUAL, RUN + "    return Equal(), [float(x) for x in losses]", "same_params", "a single value"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_returned(name: str, place: Place) -> None:
    before, body, check, says = RETURNED[name]
    verdict, code = first_failure(place, fenced.submission(before + TRAIN + body + "\n"))
    assert (verdict.check, code) == (check, 1), verdict
    assert says in verdict.observed, verdict
    assert not place.left()


def test_an_object_in_the_name_of_a_float(place: Place) -> None:
    named = EQUAL.replace(":\n", ':\n    __qualname__ = "float"\n', 1)
    text = fenced.submission(named + TRAIN + RUN + "    return params, [Equal() for _ in losses]\n")
    _, report = place.grade(text, policy=False)
    verdict = next(v for v in report.verdicts if v.status == "fail")
    assert verdict.check == "same_losses"
    assert verdict.observed == "an object of type `float`"


def test_report_of_an_exception(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Their traceback, their lines only."""
    text = (fenced.ATTACKS / "exception.py").read_text("utf-8")
    _, report = place.grade(fenced.submission(text))
    print_report(report, console(), "https://site")
    shown = capsys.readouterr().out
    assert "observed  ValueError: no batch is good enough" in shown
    assert f"at        {FILE}:20" in shown
    assert f"called by {FILE}:16 (train)" in shown
    assert "site-packages" not in shown
    assert "grader/" not in shown


# Commands.

COMMANDS = {
    "missing file": (("check", "ex07", "--submission", "no.py"), "no file no.py"),
    "folder without it": (("check", "ex07", "--submission", "."), f"no {FILE} in the folder ."),
    "unknown exercise": (("check", "ex07_quite_loop"), "did you mean ex07_quiet_loop?"),
    "unlike any": (("check", "zzz"), "`grader list` shows them all"),
    "nothing named": (("check",), "which exercise?"),
    "no such option": (("check", "ex07", "--fast"), "No such option"),
    "bad device": (("check", "ex07", "--device", "tpu"), "'tpu' is not one of"),
    "not a record": (("judge", f"exercises/{FILE}"), "is no record"),
    "no record": (("judge", "none.json"), "No such file"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command(name: str, folder: Path) -> None:
    arguments, says = COMMANDS[name]
    ran = grader(folder, *arguments)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert says in ran.stderr
    assert len(ran.stderr.splitlines()) <= 4  # click puts the usage before a wrong option
    assert "Traceback" not in ran.stderr


def test_no_exercise_here(tmp_path: Path) -> None:
    ran = grader(tmp_path, "check", "ex07")
    assert ran.returncode == 2
    assert "`grader reset ex07` writes a fresh one" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_unreadable_file(folder: Path) -> None:
    (folder / "exercises" / FILE).unlink()
    (folder / "exercises" / FILE).symlink_to(folder / "nowhere")
    ran = grader(folder, "check", "ex07", "--submission", "exercises")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"no {FILE} in the folder exercises" in ran.stderr


# The machine.


def metadata(folder: Path, package: str, version: str) -> dict[str, str]:
    """An environment in which `package` seems to be installed in another version."""
    info = folder / "site" / f"{package}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder / "site")}


@pytest.mark.parametrize(("package", "version"), [("jax", "0.10.2"), ("jax", "0.13.0"), ("jaxlib", "0.9")])
def test_versions(package: str, version: str, folder: Path) -> None:
    ran = grader(folder, "check", "ex07", environment=metadata(folder, package, version))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{package} {version} is installed" in ran.stderr
    assert 'pip install "jax>=0.11,<0.13"' in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def modules(folder: Path, **sources: str) -> dict[str, str]:
    """An environment in which these modules come first."""
    for name, source in sources.items():
        path = folder / "site" / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return {"PYTHONPATH": str(folder / "site")}


def test_jax_that_raises(folder: Path) -> None:
    broken = modules(folder, jax="raise ImportError('libjax.so: no such file\\nmore lines')")
    ran = grader(folder, "check", "ex07", environment=broken)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "grader: JAX cannot be imported: `import jax`: ImportError: libjax.so: no such file\n"


def test_jax_that_exits(folder: Path) -> None:
    ran = grader(folder, "check", "ex07", environment=modules(folder, jax="import os; os._exit(5)"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "grader: JAX cannot be imported: exit code 5\n"


PLUGIN = "def initialize():\n    raise RuntimeError('the driver is too old')\n"


def test_plugin_that_raises(folder: Path) -> None:
    """It does not matter on simulated devices, and is no output of the learner's code."""
    broken = modules(folder, **{"jax_plugins.broken": PLUGIN})
    ran = grader(folder, "check", "ex07", "--device", "cpu", environment=broken)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "FAIL  same_losses" in ran.stdout
    assert "driver" not in ran.stdout


def test_plugin_that_raises_where_a_gpu_is_asked_for(folder: Path) -> None:
    broken = modules(folder, **{"jax_plugins.broken": PLUGIN})
    ran = grader(folder, "check", "ex07", "--device", "gpu", environment=broken)
    assert (ran.returncode, ran.stderr) == (3, "")
    assert "the driver is too old" in ran.stdout
    assert "Traceback" not in ran.stdout


def test_plugin_that_dies(folder: Path) -> None:
    dying = modules(folder, **{"jax_plugins.broken": "import os\nos.abort()\n"})
    ran = grader(folder, "check", "ex07", "--device", "cpu", environment=dying)
    assert ran.returncode == 3
    assert "JAX did not live to name one: killed by signal 6" in ran.stdout
    assert "Traceback" not in ran.stderr + ran.stdout


def test_no_home(folder: Path) -> None:
    environment = environ({})
    for name in ("HOME", "USER", "LOGNAME", "TERM", "LANG", "TMPDIR"):
        environment.pop(name, None)
    command = [sys.executable, "-P", "-m", "grader", "check", "ex07"]
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "FAIL  same_losses" in ran.stdout
    assert {path.name for path in folder.iterdir()} == {"exercises", ".grader"}


def test_read_only_folder(folder: Path) -> None:
    """It is graded all the same; nothing is remembered. Root must do without its rights."""
    folder.chmod(0o555)
    drop = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--ambient-caps", "-all")
    ran = grader(folder, "check", "ex07", prefix=drop if os.geteuid() == 0 else ())
    folder.chmod(0o755)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "FAIL  same_losses" in ran.stdout
    assert [path.name for path in folder.iterdir()] == ["exercises"]


def test_two_graders_in_one_folder(folder: Path) -> None:
    command = [sys.executable, "-P", "-m", "grader", "check", "ex07", "--format", "json"]
    both = [
        subprocess.Popen(command, cwd=folder, env=environ({}), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [1, 1]
    reports = [json.loads(text)["reports"][0] for text in said]
    statuses = [[(v["check"], v["status"]) for v in report["verdicts"]] for report in reports]
    assert statuses[0] == statuses[1]
    assert reports[0]["seed"] != reports[1]["seed"]
    assert [path.name for path in (folder / ".grader").iterdir()] == ["ex07_quiet_loop.json"]


# Ends from outside.

HANG = fenced.submission(TRAIN + "    while True: pass\n")


def started(folder: Path, token: str) -> "subprocess.Popen[str]":
    """A grader in a session of its own, whose learner's code hangs."""
    (folder / "exercises" / FILE).write_text(HANG, "utf-8")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "grader", "check", "ex07", "--device", "cpu"],
        cwd=folder,
        env=environ({TOKEN: token}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(token: str, count: int, seconds: float) -> set[int]:
    """Processes with the token, once there are `count`, or 0 if that is wanted."""
    deadline = time.monotonic() + seconds
    found = fenced.processes(token)
    while (len(found) < count if count else found) and time.monotonic() < deadline:
        time.sleep(0.02)
        found = fenced.processes(token)
    return found


ENDS = {
    "Ctrl-C": (os.killpg, signal.SIGINT, 130),
    "SIGINT to the grader alone": (os.kill, signal.SIGINT, 130),
    "SIGTERM": (os.kill, signal.SIGTERM, -signal.SIGTERM),
    "SIGKILL": (os.kill, signal.SIGKILL, -signal.SIGKILL),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("processes", [2, 8], ids=["while JAX is imported", "while the code runs"])
def test_end(name: str, processes: int, folder: Path) -> None:
    send, number, code = ENDS[name]
    token, files = f"token-{uuid.uuid4().hex}", fenced.files_left()
    process = started(folder, token)
    # The grader and its fork server; then for each of two files three processes.
    assert len(wait_for(token, processes, 30)) >= processes
    if processes > 2:
        time.sleep(0.5)
    send(process.pid, number)
    _, errors = process.communicate(timeout=10)
    assert not wait_for(token, 0, 2.0)
    assert process.returncode == code
    assert errors.strip() == ("grader: stopped" if number == signal.SIGINT else "")
    assert fenced.files_left() == files


