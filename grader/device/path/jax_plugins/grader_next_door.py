"""Found by JAX, where `grader` has put this folder on a program's import path.

JAX calls `initialize` of every module in the namespace package `jax_plugins` before it starts
a backend. Nothing happens here unless the program's environment names a device.
"""

import os

if os.environ.get("GRADER_DEVICE"):
    from grader.probes.next_door import initialize
else:

    def initialize() -> None:
        """Nothing: no device was asked for."""
