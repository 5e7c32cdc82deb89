"""Fresh processes that say which GPU settings JAX read, on a machine without a GPU.

JAX looks for plugins in folders called `jax_plugins`. The one written here reads the
settings as the CUDA plugin does, with the same function of jaxlib, and says what it read.
It registers no device, so that the process goes on with the CPU.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "says_what_it_reads"
PLUGIN = """
import json
from jaxlib import xla_client

def initialize():
    options = xla_client.generate_pjrt_gpu_plugin_options()
    known = ("allocator", "memory_fraction", "preallocate")
    print("READ", json.dumps({k: options[k] for k in known if k in options}), flush=True)
"""


def run_all(programs):
    """Run programs side by side; `programs` is a list of (code, environment variables).

    Returns for each (settings as JAX read them or None, what the plugin here raised or "",
    last line that it printed).
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "jax_plugins" / NAME
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(PLUGIN)
        started = [_start(code, shell, folder) for code, shell in programs]
        return [_heard(process) for process in started]


def _start(code, shell, folder):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "JAX_"))}
    environment = {**kept, "PYTHONPATH": folder, "JAX_PLATFORMS": "cpu", **shell}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes)


def _heard(process):
    printed, said = process.communicate(timeout=100)
    read = [line[5:] for line in printed.splitlines() if line.startswith("READ ")]
    rest = [line for line in printed.splitlines() if not line.startswith("READ ")]
    settings = json.loads(read[0]) if read else None
    return settings, _raised(said), rest[-1] if rest else ""


def _raised(said):
    """The error of the plugin here: a real one may be installed, and log its own beside it."""
    about = said.partition(f"jax_plugins.{NAME}.initialize()")[2]
    traceback = about.partition("Traceback (most recent call last):\n")[2]
    return next((line for line in traceback.splitlines() if line[:1].strip()), "")
