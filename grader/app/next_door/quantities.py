"""Sizes and rates as a person types and reads them: `1GiB`, `12GiB/s`.

They are kinds of option for the command line. Plain text and numbers; no device is known here.
"""

import math
import re

import click

_QUANTITY = re.compile(
    r"(?P<number>\d+(?:\.\d+)?(?:e\d+)?) *(?:(?P<prefix>[kKMGT]?)(?P<binary>i?)B)?(?P<per>/s)?"
)
_STEPS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class Size(click.ParamType[int]):
    """Bytes: `1GiB`, `512MiB`, `2GB`, or a plain number. At least one byte."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The size in bytes."""
        if isinstance(value, int):
            return value
        found = _read(str(value), rate=False)
        if found is None or int(found) < 1:
            self.fail(f"{value!r} is not a size; write 1GiB, 512MiB or 2000000", param, ctx)
        return int(found)


class Rate(click.ParamType[float]):
    """Bytes a second: `12GiB/s`, `100MB/s`. More than none."""

    name = "rate"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The rate in bytes a second."""
        if isinstance(value, float):
            return value
        found = _read(str(value), rate=True)
        if not found:
            self.fail(f"{value!r} is not a rate; write 12GiB/s or 100MB/s", param, ctx)
        return found


def _read(text: str, *, rate: bool) -> float | None:
    """The bytes that a text names, or None if it names none. Only a rate has `/s`."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or bool(found["per"]) != rate or (found["binary"] and not found["prefix"]):
        return None
    power = "KMGT".find(found["prefix"].upper()) + 1 if found["prefix"] else 0
    number = float(found["number"]) * (1024 if found["binary"] else 1000) ** power
    return number if math.isfinite(number) else None


def shown(count: float) -> str:
    """`512 bytes`, `1.5 KiB`, `12 MiB`, `3 GiB`: a count of bytes with at most 3 digits."""
    power = 0
    while count >= 999.5 and power < len(_STEPS) - 1:
        count, power = count / 1024, power + 1
    digits = f"{count:.0f}" if power == 0 or count >= 99.95 else f"{count:.3g}"
    return f"{digits} {'byte' if digits == '1' and power == 0 else _STEPS[power]}"
