"""What only a GPU can show of the grader; `make gpu` and `pytest -m gpu` run it."""

import json
import subprocess
import sys
from typing import Any

import pytest
from conftest import ROOT

from grader.course.catalog import Entry, entries
from grader.running.session import Options, Session

pytestmark = pytest.mark.gpu

ENTRIES = entries()


@pytest.fixture(scope="module")
def gpus() -> int:
    with Session(Options(device="gpu"), ["jax", "grader.worker.serve"]) as session:
        found = session.gpus()
    assert found, "JAX finds no GPU here: what marks these tests is not there"
    return found


def report(entry: Entry, path: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "grader", "check", entry.id, "--submission", path]
    options = ["--device", "gpu", "--format", "json"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["reports"][0]
    return found


def test_reads_on_a_gpu_are_seen_at_their_line(gpus: int) -> None:
    entry = next(entry for entry in ENTRIES if entry.id == "ex07")
    found = report(entry, "exercises")
    failed = [v for v in found["verdicts"] if v["status"] == "fail"]
    assert [v["check"] for v in failed] == ["no_reads_in_loop"]
    assert failed[0]["culprits"][0]["text"] == "losses.append(float(loss))"


def test_every_probe_proves_itself_on_a_gpu(gpus: int) -> None:
    code = "from grader.probes import devices; from grader.worker.observer import Observer; "
    code += "devices.start('gpu', 1); print(Observer().missing)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["{}"], done.stdout + done.stderr


def test_the_fence_stands_on_a_gpu(gpus: int) -> None:
    fences = report(ENTRIES[0], "solutions")["machine"]["isolation"]
    assert any(line.startswith("namespaces") for line in fences), fences


KNOWN_COPIES = """
import jax, numpy as np, tempfile, pathlib
from grader.probes.runtime import device_copies
device = jax.devices()[0]
host = np.ones(1_000_003, np.float32)
with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder):
        placed = jax.device_put(host, device).block_until_ready()
        jax.device_put(placed, device, may_alias=False).block_until_ready()
        np.asarray(placed)
    (trace,) = pathlib.Path(folder).rglob("*.xplane.pb")
    data = jax.profiler.ProfileData.from_file(str(trace))
for kind in ("H2D", "D2D", "D2H"):
    copied = sum(copy.nbytes or 0 for copy in device_copies(data) if copy.kind == kind)
    print(kind, copied >= host.nbytes)
"""


def test_a_known_copy_of_each_kind_is_in_the_planes_of_a_gpu(gpus: int) -> None:
    command = [sys.executable, "-c", KNOWN_COPIES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    seen = done.stdout.splitlines()[-3:]
    assert seen == ["H2D True", "D2D True", "D2H True"], done.stdout + done.stderr
