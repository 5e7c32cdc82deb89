"""Runs small files under the probes, as a worker does; the program that `test_probes` starts.

Standard input: JSON, name -> source. Standard output: JSON, name -> what was observed.
Each source defines `run(make)`; `make(shape=(), dtype="float32")` gives a fresh array of
ones on the default device, and the probes do not count its transfer. A source that mentions
`observe` defines `run(make, observe)`.
"""

import json
import sys
from typing import Any

import jax
import msgspec
import numpy as np
from jax._src import pjit
from jax._src.interpreters import pxla
from jax._src.lib import _profiler

from grader.probes import devices, private
from grader.records.record import Outcome
from grader.worker import learner
from grader.worker.observer import Observer

PATH = "exercises/ex.py"


def observe(name: str, source: str) -> Any:
    """Run one file, and return what was observed."""
    observer = Observer()

    def make(shape: tuple[int, ...] = (), dtype: str = "float32") -> Any:
        with observer.unwatched():
            return jax.device_put(np.ones(shape, dtype))

    with observer.watching(PATH):
        module = learner.load(PATH, source, observer.follow)
        with observer.phase("run"):
            module.run(make, observer) if "observe" in source else module.run(make)
        with observer.phase("after"):
            jax.device_put(np.ones(5, np.int8))
        observer.prove_again()
    return msgspec.to_builtins(observer.observed(Outcome("finished")))


def state() -> list[Any]:
    """Everything that the probes replace."""
    array = private.array_type()
    names = (*private.READS, *private.WAITS, *private.COPIES)
    replaced = [id(array.__dict__[name]) for name in names]
    calls = [id(pjit._get_fastpath_data), id(pxla.MeshExecutable.create_cpp_call)]
    calls.append(id(_profiler.ProfilerSession))
    return [*replaced, *calls, id(jax.block_until_ready), str(jax.config.jax_transfer_guard)]


def main() -> None:
    """Observe every file, and say whether the probes left JAX as it was."""
    devices.start("cpu", 2)
    before = state()
    found = {name: observe(name, source) for name, source in json.load(sys.stdin).items()}
    json.dump({"found": found, "restored": before == state(), "jax": jax.__version__}, sys.stdout)


if __name__ == "__main__":
    main()
