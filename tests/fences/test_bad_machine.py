"""Broken machines, and signals from outside: the message, the exit code, nothing left."""

import json
import os
import signal
import subprocess
import time
import uuid
from functools import partial
from pathlib import Path
from subprocess import PIPE

import fenced
import pytest
from fenced import FILE, TOKEN, Ran

CHECK = fenced.command("check", "ex07")
VERSIONS = (("jax", "0.10.2"), ("jax", "0.13.0"), ("jaxlib", "0.9"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A learner's folder with a file that runs and fails `same_losses`."""
    (tmp_path / "exercises").mkdir()
    wrong = fenced.submission(
        "def train(step, params, batches):\n"
        "    for batch in batches:\n"
        "        params, _ = step(params, batch)\n"
        "    return params, []\n"
    )
    (tmp_path / "exercises" / FILE).write_text(wrong, "utf-8")
    return tmp_path


def check(folder: Path, environment: dict[str, str], *options: str) -> Ran:
    """Run `grader check ex07` in a changed environment."""
    return fenced.run(folder, [*CHECK, *options], fenced.environ(environment))


def metadata(folder: Path, package: str, version: str) -> dict[str, str]:
    """An environment in which this version of `package` seems to be installed."""
    info = folder / "site" / f"{package}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder / "site")}


@pytest.mark.parametrize(("package", "version"), VERSIONS)
def test_unsupported_versions_are_refused(package: str, version: str, folder: Path) -> None:
    ran = check(folder, metadata(folder, package, version))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{package} {version} is installed" in ran.stderr
    assert 'pip install "jax>=0.11,<0.13"' in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def modules(folder: Path, **sources: str) -> dict[str, str]:
    """An environment in which these modules are found before the installed ones."""
    for name, source in sources.items():
        path = folder / "site" / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return {"PYTHONPATH": str(folder / "site")}


def test_jax_that_raises(folder: Path) -> None:
    broken = modules(folder, jax="raise ImportError('libjax.so: no such file\\nmore lines')")
    ran = check(folder, broken)
    assert (ran.returncode, ran.stdout) == (2, "")
    says = "`import jax`: ImportError: libjax.so: no such file"
    assert ran.stderr == f"grader: JAX cannot be imported: {says}\n"


def test_jax_that_exits(folder: Path) -> None:
    ran = check(folder, modules(folder, jax="import os; os._exit(5)"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "grader: JAX cannot be imported: exit code 5\n"


# Stands in for the CUDA plugin.
PLUGIN = "def initialize():\n    raise RuntimeError('the driver is too old')\n"


@pytest.mark.parametrize("plugin", [PLUGIN, "import os\nos.abort()\n"], ids=["raises", "dies"])
def test_a_broken_plugin_and_simulated_devices(plugin: str, folder: Path) -> None:
    """It does not matter there, and what it prints is not taken for the learner's output."""
    broken = modules(folder, **{"jax_plugins.xla_cuda13": plugin})
    ran = check(folder, broken, "--device", "cpu")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "FAIL  same_losses" in ran.stdout
    assert "driver" not in ran.stdout


def test_plugin_that_raises_where_a_gpu_is_asked_for(folder: Path) -> None:
    broken = modules(folder, **{"jax_plugins.xla_cuda13": PLUGIN})
    ran = check(folder, broken, "--device", "gpu")
    assert (ran.returncode, ran.stderr) == (3, "")
    assert "the driver is too old" in ran.stdout
    assert "Traceback" not in ran.stdout


def test_plugin_that_dies_where_a_gpu_is_asked_for(folder: Path) -> None:
    dying = modules(folder, **{"jax_plugins.xla_cuda13": "import os\nos.abort()\n"})
    ran = check(folder, dying, "--device", "gpu")
    assert ran.returncode == 3
    assert "JAX did not live to name one: killed by signal 6" in ran.stdout
    assert "Traceback" not in ran.stderr + ran.stdout


def test_a_check_needs_no_home(folder: Path) -> None:
    environment = fenced.environ()
    for name in ("HOME", "USER", "LOGNAME", "TERM", "LANG", "TMPDIR"):
        environment.pop(name, None)
    ran = fenced.run(folder, CHECK, environment)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "FAIL  same_losses" in ran.stdout
    assert {path.name for path in folder.iterdir()} == {"exercises", ".grader"}


def test_a_folder_that_is_read_only(folder: Path) -> None:
    """The file is graded, and nothing is remembered. Root gives up its capabilities first."""
    folder.chmod(0o555)
    drop = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--ambient-caps", "-all"]
    ran = fenced.run(folder, [*drop, *CHECK] if os.geteuid() == 0 else CHECK)
    folder.chmod(0o755)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "FAIL  same_losses" in ran.stdout
    assert [path.name for path in folder.iterdir()] == ["exercises"]


def test_two_graders_in_one_folder(folder: Path) -> None:
    start = partial(subprocess.Popen, cwd=folder, env=fenced.environ(), stdout=PIPE, text=True)
    both = [start([*CHECK, "--format", "json"]) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [1, 1]
    reports = [json.loads(text)["reports"][0] for text in said]
    statuses = [[(v["check"], v["status"]) for v in report["verdicts"]] for report in reports]
    assert statuses[0] == statuses[1]
    assert reports[0]["seed"] != reports[1]["seed"]
    assert [path.name for path in (folder / ".grader").iterdir()] == ["ex07_quiet_loop.json"]


# Signals from outside.

HANG = fenced.submission("def train(step, params, batches):\n    while True: pass\n")


def started(folder: Path, token: str) -> "subprocess.Popen[str]":
    """A grader in a session of its own, whose learner's code hangs."""
    (folder / "exercises" / FILE).write_text(HANG, "utf-8")
    return subprocess.Popen(
        [*CHECK, "--device", "cpu"],
        cwd=folder,
        env=fenced.environ({TOKEN: token}),
        stdout=PIPE,
        stderr=PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(token: str, count: int, seconds: float) -> set[int]:
    """Wait until `count` processes have the token, or with 0 until none has; return them."""
    deadline = time.monotonic() + seconds
    found = fenced.processes(token)
    while (len(found) < count if count else found) and time.monotonic() < deadline:
        time.sleep(0.02)
        found = fenced.processes(token)
    return found


ENDS = {
    "Ctrl-C": (os.killpg, signal.SIGINT, 130),
    "SIGINT to the grader alone": (os.kill, signal.SIGINT, 130),
    "SIGTERM": (os.kill, signal.SIGTERM, 128 + signal.SIGTERM),
    "SIGKILL": (os.kill, signal.SIGKILL, -signal.SIGKILL),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("processes", [2, 8], ids=["while JAX is imported", "while the code runs"])
def test_a_signal_ends_the_grader_and_leaves_nothing(
    name: str, processes: int, folder: Path
) -> None:
    send, number, code = ENDS[name]
    token, files = f"token-{uuid.uuid4().hex}", fenced.files_left()
    process = started(folder, token)
    # First the grader and its fork server; then three more processes for each of two files.
    assert len(wait_for(token, processes, 30)) >= processes
    if processes > 2:
        time.sleep(0.5)
    send(process.pid, number)
    _, errors = process.communicate(timeout=10)
    assert not wait_for(token, 0, 2.0)
    assert process.returncode == code
    assert errors.strip() == ("" if number == signal.SIGKILL else "grader: stopped")
    assert fenced.files_left() == files
