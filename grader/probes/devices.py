"""Starts JAX's backend in a worker, with the devices a job asked for."""

import platform as python_platform

import jax

from grader.record import Machine


def start(platform: str, devices: int) -> Machine:
    """Start `devices` simulated CPU devices, or the machine's GPUs.

    Raises:
      RuntimeError: the plugin's own error, or no GPU.
    """
    jax.config.update("jax_num_cpu_devices", max(devices, 1) if platform == "cpu" else 1)
    jax.config.update("jax_platforms", "cpu" if platform == "cpu" else "cuda,cpu")
    found = jax.devices() if platform == "cpu" else jax.devices("gpu")
    return Machine(
        platform=found[0].platform,
        device_kind=found[0].device_kind,
        devices=len(found),
        simulated=platform == "cpu" and len(found) > 1,
        jax=jax.__version__,
        python=python_platform.python_version(),
    )
