"""The memory of all devices, as accounts: who has taken how much, and whether more fits.

Bytes are booked when a client asks, before anything runs, as a GPU's allocator gives them
out: so what fits does not hang on who is faster. A client may be held to a fraction of a
device, or take that fraction at once, as JAX's allocator does. Nothing here holds an array.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grader.records.book import Usage

_SHOWN = 10
"""How many of the largest arrays an error names."""


@dataclass(frozen=True)
class Held:
    """What an account holds for one buffer."""

    bytes: int
    what: str
    """`float32[1024,1024]`."""


class Full(Exception):
    """Memory that was asked for does not fit; the message is what a client is told."""

    def __init__(self, message: str, device: int, wanted: int, in_use: int) -> None:
        super().__init__(message)
        self.device, self.wanted, self.in_use = device, wanted, in_use


@dataclass(eq=False)
class Account:
    """What one client has taken, by device and buffer."""

    limits: list[int]
    """Bytes that it may take of each device."""
    preallocated: bool
    held: list[dict[int, Held]] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)
    largest: list[int] = field(default_factory=list)
    allocations: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.limits)
        self.held = [{} for _ in range(count)]
        for sums in (self.used, self.peak, self.largest, self.allocations):
            sums += [0] * count


class Ledger:
    """The accounts of one machine. Its callers hold a lock."""

    def __init__(self, devices: int, memory: int) -> None:
        self.memory = memory
        self.in_use = [0] * devices
        self.peak = [0] * devices
        self._accounts: list[Account] = []

    def open(self, fraction: float, preallocate: bool) -> Account:
        """A new account that may take `fraction` of each device, or takes it at once.

        Where others have taken more than the rest, it gets what is left.
        """
        wanted = int(self.memory * min(max(fraction, 0.0), 1.0))
        limits = [
            min(wanted, self.memory - self._taken(device)) if preallocate else wanted
            for device in range(len(self.in_use))
        ]
        account = Account(limits, preallocate)
        self._accounts.append(account)
        return account

    def close(self, account: Account) -> None:
        """Give back all that an account holds."""
        for device, used in enumerate(account.used):
            self.in_use[device] -= used
        if account in self._accounts:
            self._accounts.remove(account)

    def taken(self, device: int) -> int:
        """Bytes of a device that nobody else can have: what is in use, and what is set aside."""
        return self._taken(device)

    def _taken(self, device: int) -> int:
        return sum(
            each.limits[device] if each.preallocated else each.used[device]
            for each in self._accounts
        )

    def check(self, account: Account, wanted: Mapping[int, int], what: str) -> None:
        """See that so many bytes fit on each device.

        Raises:
          Full: they do not.
        """
        for device, count in wanted.items():
            used = account.used[device]
            free = account.limits[device] - used
            if not account.preallocated:
                free = min(free, self.memory - self._taken(device))
            if count > free:
                raise Full(self._words(account, device, count, what), device, count, used)

    def _words(self, account: Account, device: int, wanted: int, what: str) -> str:
        used = account.used[device]
        others = self._taken(device) - (account.limits[device] if account.preallocated else used)
        largest = sorted(account.held[device].values(), key=lambda each: -each.bytes)[:_SHOWN]
        lines = [
            f"Out of memory while trying to allocate {wanted} bytes for {what} on device {device}:",
            f"{used} bytes are in use by {len(account.held[device])} arrays, and the limit is "
            f"{account.limits[device]} bytes.",
            *([f"Other programs hold {others} of the device's bytes."] if others else []),
            *(["The largest arrays:"] if largest else []),
            *(f"  {each.bytes} bytes  {each.what}" for each in largest),
        ]
        return "\n".join(lines)

    def momentary(self, account: Account, wanted: Mapping[int, int]) -> None:
        """Note a peak: so many bytes more, taken and given back at once."""
        for device, count in wanted.items():
            account.peak[device] = max(account.peak[device], account.used[device] + count)
            self.peak[device] = max(self.peak[device], self.in_use[device] + count)

    def take(self, account: Account, device: int, buffer: int, held: Held) -> int:
        """Book a buffer that was seen to fit; returns what is in use on the device."""
        account.held[device][buffer] = held
        account.used[device] += held.bytes
        account.largest[device] = max(account.largest[device], held.bytes)
        account.allocations[device] += 1
        self.in_use[device] += held.bytes
        self.momentary(account, {device: 0})
        return self.in_use[device]

    def give_back(self, account: Account, device: int, buffer: int) -> int:
        """Free a buffer; returns what is in use on the device."""
        held = account.held[device].pop(buffer)
        account.used[device] -= held.bytes
        self.in_use[device] -= held.bytes
        return self.in_use[device]

    def stats(self, account: Account) -> list[dict[str, int]]:
        """`memory_stats` of each device, with the names that JAX has for a GPU's."""
        return [
            {
                "bytes_in_use": account.used[device],
                "peak_bytes_in_use": account.peak[device],
                "bytes_limit": account.limits[device],
                "largest_alloc_size": account.largest[device],
                "num_allocs": account.allocations[device],
                "bytes_reserved": 0,
                "pool_bytes": account.limits[device]
                if account.preallocated
                else account.used[device],
                "peak_pool_bytes": account.limits[device]
                if account.preallocated
                else account.peak[device],
            }
            for device in range(len(self.in_use))
        ]

    def usage(self) -> list[Usage]:
        """Of each device, over all clients."""
        return [Usage(used, peak) for used, peak in zip(self.in_use, self.peak, strict=True)]
