"""What JAX compiles in a block, as text: it writes its programs to a folder, if asked to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import jax


@contextmanager
def programs() -> Iterator[list[str]]:
    """Programs in StableHLO, in the order of their names, filled in at the end of the block."""
    found: list[str] = []
    before = jax.config.values["jax_dump_ir_to"]
    with TemporaryDirectory() as folder:
        jax.config.update("jax_dump_ir_to", folder)
        try:
            yield found
        finally:
            jax.config.update("jax_dump_ir_to", before)
        found += [path.read_text("utf-8") for path in sorted(Path(folder).rglob("*.mlir"))]
