"""Keeps the text of the programs that JAX compiles in a block.

JAX itself writes them to a folder when its option `jax_dump_ir_to` is set. What the text means
is for the caller to say.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import jax


@contextmanager
def programs() -> Iterator[list[str]]:
    """A list that is filled when the block ends: programs in StableHLO, in order of their names."""
    found: list[str] = []
    before = jax.config.values["jax_dump_ir_to"]
    with TemporaryDirectory() as folder:
        jax.config.update("jax_dump_ir_to", folder)
        try:
            yield found
        finally:
            jax.config.update("jax_dump_ir_to", before)
        found += [path.read_text("utf-8") for path in sorted(Path(folder).rglob("*.mlir"))]
