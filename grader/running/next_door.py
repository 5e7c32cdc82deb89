"""Devices next door for the workers of a session: one device and one book for each worker.

Runs in the grader's own process. The devices are forked by a nursery, which is started once and
only where it is asked for. What a book says of a submission is in `grader.judging.witness`.
"""

import os
import threading
from collections.abc import Mapping

from grader.device.nursery import Nursery
from grader.device.options import Options
from grader.device.start import CouldNotStart, Device
from grader.judging import witness
from grader.records.book import Compute, NotABook
from grader.records.record import Witnessed

_NAMES = ("GRADER_DEVICE", "TF_CPP_MIN_LOG_LEVEL")


class Doors:
    """Starts devices; `problem` says why it cannot, once that is known."""

    def __init__(self) -> None:
        self.problem = ""
        self._nursery: Nursery | None = None
        self._lock = threading.Lock()
        self._ready: dict[int, Device] = {}

    def open(self) -> None:
        """Begin to get ready, while something else is done."""
        with self._lock:
            if self._nursery is None:
                self._nursery = Nursery()

    def possible(self, devices: int) -> bool:
        """Whether such a device can be had; the first one waits for the first worker."""
        self.open()
        with self._lock:
            if self.problem or self._ready:
                return not self.problem
            try:
                self._ready[devices] = self._start(Options(devices=devices))
            except (CouldNotStart, OSError) as error:
                self.problem = str(error)
            return not self.problem

    def start(self, devices: int, flops: float = 0.0) -> Device:
        """A device for one worker; with `flops`, it does no more of them in a second.

        Raises:
          CouldNotStart: it does not start.
        """
        with self._lock:
            if not flops and (ready := self._ready.pop(devices, None)):
                return ready
            return self._start(Options(devices=devices, compute=Compute(flops=flops)))

    def _start(self, options: Options) -> Device:
        assert self._nursery is not None
        device = self._nursery.start(options)
        device.admit(os.geteuid())  # the fork server hands it on to its worker's user
        return device

    def close(self) -> None:
        """End the nursery, and a device that nobody took."""
        with self._lock:
            for device in self._ready.values():
                device.close()
            self._ready.clear()
            if self._nursery is not None:
                self._nursery.close()
            self._nursery = None


def environment(device: Device) -> Mapping[str, str]:
    """What a worker needs in its environment, beside what every worker has."""
    return {name: device.environment[name] for name in _NAMES}


def finish(device: Device) -> Witnessed:
    """End a device, and count what its book says."""
    try:
        return witness.witnessed(device.finish())
    except (NotABook, OSError) as error:
        return Witnessed(problem=f"the device's book cannot be read: {error}")
