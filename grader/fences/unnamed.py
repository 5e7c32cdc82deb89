"""Makes files without a name: what is written to them is gone when they are closed.

They lie in memory where this Python can ask Linux for that. Some builds cannot, and on other
systems there is no such call: there they lie in the folder for temporary files.
"""

import os
import tempfile


def unnamed(label: str) -> int:
    """The descriptor of a new, empty file, open for reading and writing, and not inherited.

    Raises:
      OSError: there is no room for it.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create(label)
    with tempfile.TemporaryFile(prefix=label) as file:
        return os.dup(file.fileno())
