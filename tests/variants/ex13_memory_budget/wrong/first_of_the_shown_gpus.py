# expect: gives_the_gpu
"""ex13: let two processes share one GPU."""

import os

import jax


def start(share, grow):
    """Set this process's part of the GPU's memory, and return the GPU, a jax.Device."""
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)
    os.environ["XLA_CLIENT_MEM_FRACTION"] = str(share)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" if grow else "true"
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "default"
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if "," in shown:
        os.environ["CUDA_VISIBLE_DEVICES"] = shown.split(",")[0]
    return jax.devices()[0]
