# expect: processes_know_each_other
"""ex29: two processes, one array.

`grader check ex29` starts two processes with this file, and then three, on CPU devices;
`grader hint ex29` helps.
"""

import jax
import numpy as np


def join(address, count, index):
    """Make this process number `index` of `count`, which meet at `address` ("host:port").

    Called once in each process, before anything else of JAX.
    """
    jax.distributed.initialize(
        address, num_processes=count, process_id=index, local_device_ids=[0]
    )


def data_mesh():
    """All devices of all processes, in a mesh with one axis, "data"."""
    return jax.sharding.Mesh(np.array(jax.devices()), ("data",))


def global_batch(mesh, rows):
    """Return one array of all processes' rows, split over "data".

    `rows` (NumPy, float32) are those that this process has read. No other process has them,
    and every process has equally many. They stay on this process's devices.
    """
    # Each process puts its own rows on its own devices. They only have to agree on the shape of
    # the whole, which follows from the sharding. No row travels.
    sharding = jax.NamedSharding(mesh, jax.P("data"))
    return jax.make_array_from_process_local_data(sharding, rows)


def mean(batch):
    """Return the mean over all rows of all processes, a Python float, in each process."""
    # Every process runs this line, and so the same program: an all-reduce adds the partial
    # sums. Each process has a copy of the result, which it can read.
    return float(batch.mean())
