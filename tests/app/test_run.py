"""`grader run` and `grader device` on a real device next door, from outside."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import ROOT, Cli, python
from pseudo_terminals import PATIENCE, Running

from grader.device.flags import left_out
from grader.records import book

KNOWN = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("data",))
batch = jax.device_put(np.ones((4, 256), np.float32), NamedSharding(mesh, P("data")))

@jax.jit
def step(x):
    return (x * x).sum()

for _ in range(5):
    loss = step(batch)
own = jax.device_put(batch, batch.sharding, may_alias=False)
print(float(loss), jax.devices()[0].device_kind, len(jax.devices()), jax.devices("cpu")[0].platform)
print(sys.argv[1:], sys.stdin.read())
sys.exit(7)
"""
ENDLESS = """
import jax, jax.numpy as jnp
print(float(jax.jit(jnp.sum)(jnp.ones(8))), flush=True)
import time
while True:
    time.sleep(0.05)
"""
TOO_MUCH = """
import jax, jax.numpy as jnp
try:
    jnp.zeros((1 << 20,)).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print(str(error).split(":")[0])
"""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A run of a program whose traffic is known, and the folder with all that it left."""
    folder = tmp_path_factory.mktemp("known")
    (folder / "train.py").write_text(KNOWN, "utf-8")
    keep = ("--book", "it.book", "--perfetto", "it.json", "--devices", "2", "--memory", "64MiB")
    words = ("-m", "grader", "run", *keep, "-m", "train", "--devices", "9", "-h")
    return python(*words, folder=folder, stdin="typed", COLUMNS="80"), folder


def test_streams_arguments_and_exit_code_are_the_programs(known: tuple[Any, Path]) -> None:
    ran, _ = known
    assert ran.returncode == 7, ran.stderr
    assert ran.stdout == "1024.0 next door 2 cpu\n['--devices', '9', '-h'] typed\n"


def test_the_book_has_what_the_program_did(known: tuple[Any, Path]) -> None:
    _, folder = known
    found = book.read(folder / "it.book")
    assert found.problem == ""
    assert (found.opening.devices, found.opening.memory) == (2, 64 << 20)
    copies = [entry for entry in found.entries if entry.event == "h2d" and entry.bytes == 2048]
    assert sorted(entry.device for entry in copies) == [0, 1]
    reads = [entry for entry in found.entries if entry.event == "d2h"]
    assert [entry.bytes for entry in reads] == [4]
    launches = [entry for entry in found.entries if entry.program == "jit_step"]
    assert [entry.event for entry in launches] == ["compile"] + ["launch"] * 5
    ops = [collective.op for collective in launches[0].collectives]
    assert ops == ["all-reduce"]


def test_the_page_says_what_the_book_has(known: tuple[Any, Path]) -> None:
    ran, folder = known
    counts = book.count(book.read(folder / "it.book").entries)
    assert "train on 2 devices next door, 64 MiB each" in ran.stderr
    copies = f"{counts['h2d'].number:,} ({counts['h2d'].bytes:,} bytes)"
    assert f"copies in      {copies}\n" in ran.stderr
    assert "copies out     1 (4 bytes), read by the host; " in ran.stderr
    assert "copies within  2 (4,096 bytes)\n" in ran.stderr
    assert re.search(r"jit_step  launched 5 times, .*; one launch: 1 all-reduce of 4", ran.stderr)
    assert re.search(r"\n  compute +0-1 +\|.*[.+#-].*\|\n", ran.stderr)
    assert max(map(len, ran.stderr.splitlines())) <= 80


def test_the_trace_has_what_the_book_has(known: tuple[Any, Path]) -> None:
    _, folder = known
    entries = book.read(folder / "it.book").entries
    trace = json.loads((folder / "it.json").read_text("utf-8"))
    drawn = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    for kind in ("h2d", "d2h", "copy", "compile"):
        assert len([e for e in drawn if e["cat"] == kind]) == book.count(entries)[kind].number


def test_figures_as_json_are_the_last_line(folder: Path, grader: Cli) -> None:
    (folder / "small.py").write_text(TOO_MUCH, "utf-8")
    ran = grader("run", "--memory", "1MiB", "--format", "json", "small.py")
    assert (ran.returncode, ran.stdout) == (0, "RESOURCE_EXHAUSTED\n"), ran.stderr
    found = json.loads(ran.stderr.splitlines()[-1])
    assert (found["version"], found["devices"], found["memory"]) == (1, 8, 1 << 20)
    assert found["refused"] >= 1
    assert all(peak["bytes"] <= 1 << 20 for peak in found["peaks"])


def test_flags_that_the_device_leaves_out_are_named_once(folder: Path) -> None:
    flags = "--xla_dump_to=/nowhere --xla_dump_hlo_as_text --xla_cpu_enable_fast_math=false"
    keep = (sys.executable, "-m", "grader", "run", "--devices", "1", "small.py")
    (folder / "small.py").write_text("import jax; print(jax.jit(lambda x: x + 1)(1.0))\n", "utf-8")
    ran = subprocess.run(
        keep,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "2.0\n"
    (said,) = (line for line in ran.stderr.splitlines() if "XLA_FLAGS" in line)
    assert said.startswith(
        "grader: the device leaves out --xla_dump_to, --xla_dump_hlo_as_text of XLA_FLAGS"
    )


@pytest.mark.parametrize("flags", ["", " ", "--xla_cpu_enable_fast_math=false", "/no/such/file"])
def test_flags_that_name_no_files_are_not_spoken_of(flags: str) -> None:
    assert left_out(flags) == []


def test_flags_in_a_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "flags").write_text("--xla_dump_to=/a\n--xla_dump_to=/b --xla_x=1", "utf-8")
    assert left_out(str(tmp_path / "flags")) == ["--xla_dump_to"]


def test_ctrl_c_ends_the_program_and_the_page_still_comes(folder: Path) -> None:
    (folder / "endless.py").write_text(ENDLESS, "utf-8")
    with Running(folder, "run", "--devices", "1", "endless.py", columns=60) as running:
        running.until("8.0\n")
        running.press("\x03")
        assert running.end() == -signal.SIGINT
        text = running.until("timeline of ")
    assert "KeyboardInterrupt" in text, "the program met Ctrl-C as it always does"
    page = text[text.index("endless.py on 1 device next door") :]
    assert max(map(len, page.splitlines())) <= 60


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "Missing argument 'PROGRAM...'"),
        (["run", "none.py"], "no file none.py; a module's name goes after -m"),
        (["run", "--frobnicate", "x.py"], "No such option"),
        (["run", "--memory", "1Gb", "x.py"], "'--memory': '1Gb' is not a size; write 1GiB"),
        (["run", "--link", "fast", "x.py"], "'--link': 'fast' is not a rate; write 12GiB/s"),
        (["run", "--devices", "0", "x.py"], "0 is not in the range"),
        (["run", "--like", "h300", "{here}"], "--like: no target h300; there are h200x8"),
        (["run", "--book", ".", "{here}"], "--book . is a folder; name a file in it"),
        (["run", "--perfetto", "no/x", "{here}"], "--perfetto no/x: there is no folder no"),
        (["device", "--memory", "much"], "'much' is not a size"),
        (["device", "--book", "."], "--book . is a folder"),
        (["device", "x.py"], "Got unexpected extra argument"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_command_is_code_2(arguments: list[str], said: str, grader: Cli) -> None:
    ran = grader(*(word.format(here=__file__) for word in arguments))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_no_device_is_code_3(folder: Path, grader: Cli) -> None:
    broken = folder / "elsewhere" / "jaxlib-9.9.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: jaxlib\nVersion: 9.9\n")
    ran = grader("run", __file__, PYTHONPATH=f"{broken.parent}{os.pathsep}{ROOT}")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("grader: jaxlib 9.9 is installed, this grader supports")


def lent(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "grader", "device", "--devices", "1", "--print-env", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_device_is_lent_to_another_program(tmp_path: Path) -> None:
    with lent(tmp_path, "--format", "json", "--book", "it.book") as lender:
        assert lender.stdout is not None
        environment = json.loads(lender.stdout.read())  # it ends, though the lender goes on
        assert lender.poll() is None
        code = "import jax, numpy; print(jax.device_put(numpy.ones(3)).sum(), jax.devices())"
        ran = python("-c", code, **environment)
        assert environment["GRADER_DEVICE_PID"] == str(lender.pid)
        lender.send_signal(signal.SIGTERM)
        _, said = lender.communicate(timeout=PATIENCE)
    assert (ran.returncode, ran.stdout[:4]) == (0, "3.0 "), ran.stderr
    assert lender.returncode == 0
    assert "a device for others on 1 device next door" in said
    assert "copies in      1 (12 bytes)" in said
    assert book.read(tmp_path / "it.book").problem == ""


def test_the_lines_for_a_notebook_work_as_the_page_has_them(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/device.md").read_text("utf-8")
    (block,) = re.findall(r"In a notebook, .*:\n\n((?:    .*\n)+)", page)
    ends = "import jax; print(jax.devices()[0].device_kind, flush=True); device.terminate()"
    command = str(Path(sys.executable).parent)
    ran = python(
        "-c",
        f"{textwrap.dedent(block)}\n{ends}",
        folder=tmp_path,
        PATH=command + os.pathsep + os.environ["PATH"],
    )
    assert (ran.returncode, ran.stdout) == (0, "next door\n"), ran.stderr


def test_a_device_that_is_killed_is_missed(tmp_path: Path) -> None:
    with lent(tmp_path, "--format", "json") as lender:
        assert lender.stdout is not None
        assert json.loads(lender.stdout.read())
        children = psutil.Process(lender.pid).children(recursive=True)
        fronts = [each for each in children if "grader.device.front.process" in each.cmdline()]
        assert len(fronts) == 1
        fronts[0].kill()
        _, said = lender.communicate(timeout=PATIENCE)
    assert lender.returncode == 3
    assert "grader: the device has ended by itself: its process was killed" in said


def test_a_shell_reads_the_lines_and_ends_the_device(tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m grader device --devices 1 --print-env"
    script = f"""
    eval "$({command} 2>said &)"
    {shlex.quote(sys.executable)} -c 'import jax; print(jax.devices()[0].device_kind)'
    kill $GRADER_DEVICE_PID
    while kill -0 $GRADER_DEVICE_PID 2>&-; do sleep 0.1; done
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.stdout == "next door\n", ran.stderr
    assert "a device for others" in (tmp_path / "said").read_text("utf-8")


def test_a_lent_device_ends_with_the_session_that_it_was_started_in(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "words = [sys.executable, '-m', 'grader', 'device', '--devices', '1', '--print-env']\n"
        "device = subprocess.Popen(words, stdout=subprocess.PIPE)\n"
        "device.stdout.read()\n"
        "print(device.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        assert shell.stdout is not None
        assert shell.stderr is not None
        assert shell.stdout.readline()
        shell.kill()
        said = shell.stderr.read()  # to the end of all that have it: the device, too
    assert "a device for others on 1 device next door" in said
