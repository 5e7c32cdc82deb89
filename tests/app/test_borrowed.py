"""The options of a device on the command line: what they become, and how they are refused."""

from pathlib import Path

import pytest

from grader.app.next_door import borrowed
from grader.app.next_door.borrowed import NoDevice, Unusable, Wanted, options_of, writable
from grader.device.options import Options
from grader.device.start import CouldNotStart
from grader.program import targets
from grader.records.book import Compute, Link


def test_nothing_is_modelled_unless_asked_for() -> None:
    assert options_of(Wanted()) == Options()


def test_options_are_taken_over() -> None:
    found = options_of(Wanted(devices=3, memory=1 << 20, link=1e9))
    assert (found.devices, found.memory, found.host_link) == (3, 1 << 20, Link(1e9))
    assert (found.device_link, found.compute) == (Link(), Compute())


@pytest.mark.parametrize("name", targets.names())
def test_every_target_can_be_modelled_a_thousandth_as_fast(name: str) -> None:
    target, speed = targets.find(name), targets.speed(name)
    found = options_of(Wanted(like=name))
    assert (found.like, found.devices) == (name, target.devices)
    assert found.memory == target.memory_bytes // 1000
    assert found.host_link.bandwidth == speed.host_bandwidth / 1000
    assert found.device_link.bandwidth == target.node_bandwidth / 1000
    assert found.compute == Compute(speed.flops / 1000, target.memory_bandwidth / 1000)
    assert speed.host_bandwidth < target.node_bandwidth < target.memory_bandwidth


def test_what_is_given_beside_a_machine_comes_first() -> None:
    found = options_of(Wanted(devices=2, memory=4096, link=5.0, like="h200x8"))
    assert (found.devices, found.memory, found.host_link.bandwidth) == (2, 4096, 5.0)
    assert found.device_link == options_of(Wanted(like="h200x8")).device_link


def test_a_machine_of_no_name_is_refused_with_the_names() -> None:
    with pytest.raises(Unusable, match=r"^--like: no target h300; there are h200x8, "):
        options_of(Wanted(like="h300"))


def test_a_book_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert options_of(Wanted(book=Path("a.book"))).book == tmp_path / "a.book"
    assert not (tmp_path / "a.book").exists()


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unusable, match=r"^--book .* is a folder; name a file in it$"):
        options_of(Wanted(book=tmp_path))
    with pytest.raises(Unusable, match=r"^--perfetto .*: there is no folder .*/no; make it first$"):
        writable("--perfetto", tmp_path / "no" / "x.json")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(Unusable, match=r"^--book .*: you may not write there; name another file$"):
        writable("--book", tmp_path / "x")


def test_a_device_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(options: Options) -> None:
        raise CouldNotStart(f"no protocol for {options.devices} devices")

    monkeypatch.setattr(borrowed, "start", refuse)
    with (
        pytest.raises(NoDevice, match="could be started: no protocol for 8 devices"),
        borrowed.borrowed(Options()),
    ):
        raise AssertionError
    monkeypatch.setattr(borrowed, "unsupported", lambda: "jax is not installed")
    with pytest.raises(NoDevice, match=r"^jax is not installed$"), borrowed.borrowed(Options()):
        raise AssertionError
