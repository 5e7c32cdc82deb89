"""Systems that are not Linux, as far as they can be played here.

macOS: what only Linux has is taken away from every Python, the grader's and its workers'. Windows:
one line says what to do.
"""

import json
from pathlib import Path

from conftest import ROOT, python

LIKE_MACOS = """\
import ctypes, os, platform, signal, sys, sysconfig
os.environ["_PYTHON_SYSCONFIGDATA_NAME"] = sysconfig._get_sysconfigdata_name()
sys.platform, platform.system = "darwin", lambda: "Darwin"
for module, names in {
    os: ["memfd_create", "unshare", "setns", "pidfd_open", "sched_getaffinity", "O_PATH",
         "setresuid", "setresgid", *filter(lambda name: name.startswith("CLONE_"), dir(os))],
    signal: ["pidfd_send_signal"],
}.items():
    for name in names:
        vars(module).pop(name, None)

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if self._name is None and name in ("prctl", "capset", "mount", "syscall"):
            raise AttributeError(name)
        return super().__getattr__(name)

ctypes.CDLL = Library
"""


def test_where_there_is_no_fork_and_no_fence_verdicts_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(LIKE_MACOS, "utf-8")
    (tmp_path / "exercises").mkdir()
    for name in ("ex10_diagnose.py", "ex14_donate.py"):
        solved = (ROOT / "solutions" / name).read_bytes()
        (tmp_path / "exercises" / name).write_bytes(solved)
    starter = (ROOT / "exercises" / "ex01_find_devices.py").read_bytes()
    (tmp_path / "exercises" / "ex01_find_devices.py").write_bytes(starter)
    ran = python(
        *("-m", "grader", "check", "1", "10", "14", "--device", "cpu", "--format", "json"),
        folder=tmp_path,
        PYTHONPATH=f"{tmp_path / 'path'}:{ROOT}",
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    reports = json.loads(ran.stdout)["reports"]
    statuses = [{verdict["status"] for verdict in one["verdicts"]} for one in reports]
    assert "fail" in statuses[0]
    assert statuses[1:] == [{"pass"}, {"pass"}]
    for one in reports:
        assert one["made"]["system"].startswith("Darwin ")
        (fence,) = one["machine"]["isolation"]
        assert fence == "refused: fences (this system has no fork that is safe)"


def test_windows_is_told_what_to_do_in_one_line(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from grader.app import cli\n"
        "sys.platform = 'win32'\n"
        "sys.argv = ['grader', 'check', 'ex07']\n"
        "cli.main()\n"
    )
    ran = python("-c", code, folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "grader: this grader needs Linux, or WSL2 on Windows, or macOS\n"
