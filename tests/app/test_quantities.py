"""Sizes and rates as they are typed, refused and shown."""

import click
import pytest

from grader.app.next_door.quantities import Rate, Size, shown


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1GiB", 1 << 30),
        ("512MiB", 512 << 20),
        ("1.5 KiB", 1536),
        ("2GB", 2_000_000_000),
        ("3kB", 3000),
        ("3KB", 3000),
        ("1TiB", 1 << 40),
        ("5B", 5),
        ("1000000", 1_000_000),
        ("2e9", 2_000_000_000),
        (" 1GiB ", 1 << 30),
    ],
)
def test_a_size_is_read(text: str, count: int) -> None:
    assert Size().convert(text, None, None) == count
    assert Rate().convert(f"{text.strip()}/s", None, None) == float(count)


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "1Gb", "1gib", "1G", "-1GiB", "0", "0.4", "1iB", "nan", "inf", "1e999", "1GiB/s"],
)
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Size().convert(text, None, None)
    assert caught.value.message == f"{text!r} is not a size; write 1GiB, 512MiB or 2000000"


@pytest.mark.parametrize("text", ["12GiB", "12Gb/s", "0GiB/s", "/s", "1GiB/h", "1GiB/s/s", "-1B/s"])
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Rate().convert(text, None, None)
    assert caught.value.message == f"{text!r} is not a rate; write 12GiB/s or 100MB/s"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (824, "824 bytes"),
        (1536, "1.5 KiB"),
        (100 * 1024, "100 KiB"),
        (12 << 20, "12 MiB"),
        (1 << 30, "1 GiB"),
        (1 << 50, "1024 TiB"),
    ],
)
def test_a_count_is_shown(count: int, text: str) -> None:
    assert shown(count) == text
