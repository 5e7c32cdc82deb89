"""A device's beginning and end: what it refuses, how it is fenced, and what it leaves: nothing."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from raw import FOUR, Raw

from grader.device import setup, start
from grader.device.messages import kept, protocol
from grader.device.nursery import Nursery
from grader.device.options import Options
from grader.device.start import CouldNotStart
from grader.records import book


def processes() -> list[psutil.Process]:
    """All processes of any device, but those of other tests' modules and other users."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        line = " ".join(process.info["cmdline"] or ())
        mine = (process.info["environ"] or {}).get("TMPDIR") == os.environ["TMPDIR"]
        if "-m grader.device" in line and mine and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def folders() -> set[Path]:
    """What devices keep in the file system. Other people's devices have folders of other names."""
    places = os.environ["XDG_RUNTIME_DIR"], tempfile.gettempdir()
    return {folder for place in places for folder in Path(place).glob("grader-device-*")}


def in_memory(folder: Path) -> Path:
    """The other folder of a device."""
    return setup.SHARED / folder.name


def gone(found: Callable[[], object], before: object) -> bool:
    """Whether something is as it was before, after a while."""
    deadline = time.monotonic() + 30
    while found() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    return found() == before


def test_a_forked_device_works_as_one_that_was_spawned(forked: Nursery) -> None:
    with forked.start(Options(devices=2)) as device:
        client = Raw(device)
        assert client.devices == [0, 1]
        assert client.get(client.put(FOUR, [4])) == FOUR
        client.close()


def test_a_nursery_has_no_thread_but_one(forked: Nursery) -> None:
    assert psutil.Process(forked._process.pid).num_threads() == 1


def test_nothing_is_left_of_a_device_that_was_closed(forked: Nursery, tmp_path: Path) -> None:
    before, files = len(processes()), folders()
    path = tmp_path / "book.jsonl"
    device = forked.start(Options(devices=1, book=path))
    client = Raw(device)
    client.put(FOUR, [4])
    assert len(processes()) == before + 2
    folder = Path(device.environment["GRADER_DEVICE"])
    assert in_memory(folder).is_dir()
    found = device.finish()
    client.close()
    assert found.problem == ""
    assert path.exists()
    assert gone(lambda: len(processes()), before)
    assert folders() == files
    assert not in_memory(folder).exists()
    device.close()


@pytest.mark.parametrize("victim", ["front", "executor"])
def test_nothing_is_left_where_a_part_is_killed(victim: str, forked: Nursery) -> None:
    before, files = len(processes()), folders()
    known = {each.pid for each in processes()}
    with forked.start(Options(devices=1)) as device:
        executor, front = sorted(
            (each for each in processes() if each.pid not in known), key=lambda each: each.pid
        )
        (executor if victim == "executor" else front).kill()
        if victim == "front":  # the executor ends at once, unasked
            assert gone(lambda: len(processes()), before)
            with pytest.raises(OSError, match=r"has ended|Broken pipe|reset"):
                device.counts()
    assert gone(lambda: len(processes()), before)
    assert folders() == files
    assert not in_memory(Path(device.environment["GRADER_DEVICE"])).exists()


def swept(base: Path) -> set[Path]:
    """What is left after a sweep. A process that ends loses its name before its locks."""
    start.sweep(base)
    return folders()


STARTER = """
import sys, time
from grader.device.start import start
from grader.device.options import Options
device = start(Options(devices=1))
print(device.environment["GRADER_DEVICE"], flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_device_ends_with_whoever_has_started_it(sent: signal.Signals) -> None:
    before, files = len(processes()), folders()
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as starter:
        assert starter.stdout is not None
        folder = Path(starter.stdout.readline().decode().strip())
        assert (folder / "socket").is_socket()
        assert len(processes()) == before + 2
        starter.send_signal(sent)
    assert gone(lambda: len(processes()), before)
    assert not in_memory(folder).exists()
    assert list(folder.glob("*")) == []
    left = folders() - files
    assert left <= {folder}  # where temporary files are root's, a front's user cannot remove it
    for each in left:
        os.utime(each, (0, 0))
    assert gone(lambda: swept(folder.parent), files)


def test_what_a_device_leaves_that_was_killed_with_its_starter_goes_with_the_next_start() -> None:
    known, files = {each.pid for each in processes()}, folders()
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as starter:
        assert starter.stdout is not None
        folder = Path(starter.stdout.readline().decode().strip())
        for each in processes():
            if each.pid not in known:
                each.kill()
        starter.kill()
    assert gone(lambda: {each.pid for each in processes()}, known)
    assert folders() - files == {folder}
    assert in_memory(folder).is_dir()
    os.utime(folder, (0, 0))
    assert gone(lambda: swept(folder.parent), files)
    assert not in_memory(folder).exists()


def test_a_folder_in_use_is_not_swept(forked: Nursery) -> None:
    with forked.start(Options(devices=1)) as device:
        folder = Path(device.environment["GRADER_DEVICE"])
        os.utime(folder, (0, 0))
        start.sweep(folder.parent)
        assert (folder / "socket").is_socket()


def test_its_sockets_and_its_book_are_for_their_owner_alone(forked: Nursery) -> None:
    with forked.start(Options(devices=1)) as device:
        folder = Path(device.environment["GRADER_DEVICE"])
        for name in ("socket", "bridge", "book.jsonl"):
            assert (folder / name).stat().st_mode & 0o777 == 0o600, name


@pytest.mark.skipif("os.geteuid() != 0", reason="only root gives processes users of their own")
def test_front_and_executor_are_users_of_their_own() -> None:
    before = {each.pid for each in processes()}
    with start.start(Options(devices=1)):
        users = [each.uids().real for each in processes() if each.pid not in before]
    assert len(set(users)) == 2
    assert 0 not in users


@pytest.mark.skipif("os.geteuid() != 0", reason="only root becomes another user")
def test_a_user_is_let_in_and_others_are_not(forked: Nursery) -> None:
    with forked.start(Options(devices=1)) as device:
        folder = Path(device.environment["GRADER_DEVICE"])
        for parent in folder.parents:
            parent.chmod(parent.stat().st_mode | 0o011)
        assert not connects(12345, folder)
        device.admit(12345)
        assert connects(12345, folder)
        assert not connects(12346, folder)


def connects(user: int, folder: Path) -> bool:
    """Whether a process of this user can be a client."""
    with socket.socket(socket.AF_UNIX) as end:
        os.seteuid(user)
        try:
            end.connect(str(folder / "bridge"))
        except PermissionError:
            return False
        finally:
            os.seteuid(0)
    return True


def test_what_belongs_to_the_device_cannot_be_looked_into(forked: Nursery) -> None:
    """Not even a process of the same user reads their memory or their open files."""
    with forked.start(Options(devices=1)):
        for process in processes():
            if process.pid != forked._process.pid:
                assert Path(f"/proc/{process.pid}/mem").stat().st_uid == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(devices=0), "0 devices"),
        (Options(devices=65), "1 to 64"),
        (Options(memory=0), "0 bytes"),
        (Options(book=Path("/no/such/folder/book")), "No such file"),
    ],
)
def test_options_that_no_device_can_have(options: Options, words: str) -> None:
    with pytest.raises(CouldNotStart, match=words):
        start.start(options)


@pytest.mark.parametrize("broken", ["executor", "front"])
def test_a_part_that_does_not_start_is_named(
    broken: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / ("jax" if broken == "executor" else "grpc")
    fake.mkdir()
    (fake / "__init__.py").write_text("raise RuntimeError('broken on purpose')")
    environment = start.process_environment()
    monkeypatch.setattr(
        start,
        "process_environment",
        lambda: {**environment, "PYTHONPATH": f"{tmp_path}:{environment['PYTHONPATH']}"},
    )
    words = "executor died" if broken == "executor" else "broken on purpose"
    with pytest.raises(CouldNotStart, match=words):
        start.start(Options(devices=1))


def test_a_protocol_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_KNOWN", frozenset())
    with pytest.raises(protocol.Unknown, match="speaks a protocol that is not known here"):
        protocol.described()


def test_descriptions_are_kept_and_a_damaged_file_is_not_believed(tmp_path: Path) -> None:
    assert kept.load(tmp_path) is None
    data = protocol.described()
    kept.save(tmp_path, data)
    assert kept.load(tmp_path) == data
    (file,) = tmp_path.iterdir()
    for damage in (file.read_bytes()[:-1], b"", file.read_bytes()[:100] + b"x" * 100):
        file.write_bytes(damage)
        assert kept.load(tmp_path) is None
    kept.save(tmp_path / file.name, data)  # no folder can be there
    kept.save(tmp_path, data)
    assert kept.load(tmp_path) == data


def test_a_file_that_is_no_library_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "libjax_common.so"
    library.write_bytes(b"\n\x08x.proto\x12" * 100)
    monkeypatch.setattr(kept, "library", lambda: library)
    with pytest.raises(protocol.Unknown, match="cannot be read: no description of"):
        protocol.described()


def test_a_book_that_nobody_closed_is_known_as_cut_off(tmp_path: Path, forked: Nursery) -> None:
    path = tmp_path / "book.jsonl"
    known = {each.pid for each in processes()}
    with forked.start(Options(devices=1, book=path)) as device:
        client = Raw(device)
        client.put(FOUR, [4])
        device.counts()
        found = (each for each in processes() if each.pid not in known)
        max(found, key=lambda each: each.pid).kill()  # the front is forked last
        client.close()
    assert book.read(path).problem == "the book was cut off after 3 entries"
