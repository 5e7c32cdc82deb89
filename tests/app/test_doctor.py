"""`grader doctor`: what it finds, and how it shows JAX's own errors about the environment."""

import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import Cli

from grader.app import doctor
from grader.app.next_door.borrowed import NoDevice

# Setting -> texts that the answer contains: JAX's own error, and what the doctor says about it.
WRONG = {
    "JAX_PLATFORMS=gpu": ("Unable to initialize backend", "write `cuda` or `cuda,cpu`"),
    "JAX_PLATFORMS=cude": ("'cude'", "which backends may start"),
    "JAX_ENABLE_X64=maybe": ("invalid truth value 'maybe'", "64-bit types"),
    "XLA_FLAGS=--xla_nonsense=1": ("Unknown flag in XLA_FLAGS: --xla_nonsense=1", "aborts"),
}


def test_the_answer_as_text(grader: Cli) -> None:
    ran = grader("doctor", JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="3", XLA_FLAGS="")
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert f"jax       {version('jax')}" in lines
    assert "backend   cpu: 3 x cpu" in lines
    at = lines.index("JAX_NUM_CPU_DEVICES=3")
    assert lines[at + 1].strip() == "how many CPU devices to simulate"


def test_the_answer_as_json(grader: Cli) -> None:
    ran = grader("doctor", "--format", "json", JAX_PLATFORMS="cpu")
    found = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (found["version"], found["backend"], found["devices"]) == (1, "cpu", 1)
    assert found["environment"]["JAX_PLATFORMS"] == "cpu"
    assert found["versions"]["jaxlib"] == version("jaxlib")
    assert found["error"] == ""


@pytest.mark.parametrize("setting", WRONG)
def test_an_environment_that_keeps_jax_from_starting(setting: str, grader: Cli) -> None:
    name, _, value = setting.partition("=")
    ran = grader("doctor", **{name: value})
    assert (ran.returncode, ran.stderr) == (3, "")
    assert "backend   FAILED: " in ran.stdout
    assert f"{name}={value}\n" in ran.stdout
    assert all(said in ran.stdout for said in WRONG[setting])


def test_a_process_that_is_killed_is_reported_by_its_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import os, signal\nprint('before', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(doctor, "_PROBE", code)
    assert doctor.examine().error == "JAX was killed by SIGSEGV before it named a device"


def test_a_device_next_door_is_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.run("text") == 0
    assert re.search(
        r"^next door a device starts in [\d.]+ s; `grader", capsys.readouterr().out, re.M
    )

    def refuse(options: object) -> None:
        raise NoDevice("no device next door could be started: no protocol")

    monkeypatch.setattr(doctor, "borrowed", refuse)
    assert doctor.run("json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["next_door_seconds"] == 0
    assert found["next_door_problem"] == "no device next door could be started: no protocol"


def test_an_error_without_a_message_shows_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On jax 0.12, JAX_PLATFORMS=cuda without its plugin ends in a bare `assert`."""
    (tmp_path / "bare.py").write_text("assert 1 == 2\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(doctor, "_PROBE", doctor._PROBE.replace("import jax", "import bare"))
    assert doctor.examine().error == "AssertionError: assert 1 == 2"


def test_what_plugins_print_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loud = "import sys\nprint('\\x1b[2J', file=sys.stderr)\n" + doctor._PROBE
    monkeypatch.setattr(doctor, "_PROBE", loud)
    assert doctor.run("text") == 0
    assert "JAX printed while it started:\n  \\x1b[2J\n" in capsys.readouterr().out


def test_lines_for_a_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    found = f"JAX found 1 cpu device; default backend cpu (jax {version('jax')}"
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    first, second = doctor.device_lines("cpu")
    assert first.startswith(found)
    assert second.startswith("no GPU in use")
    monkeypatch.setattr(doctor, "unsupported", lambda: "jax is not installed")
    (only,) = doctor.device_lines("cpu")
    assert only.endswith("): jax is not installed")
    assert "JAX_PLATFORMS" not in os.environ, "nothing is changed"
