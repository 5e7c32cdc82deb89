"""ex29: two processes, one array.

`grader check ex29` starts two processes with this file, and then three, on CPU devices;
`grader hint ex29` helps.
"""

import jax
from functools import partial

from jax.distributed import initialize
from jax.sharding import NamedSharding, PartitionSpec
import numpy as np


def join(address, count, index):
    """Make this process number `index` of `count`, which meet at `address` ("host:port")."""
    initialize(coordinator_address=address, num_processes=int(count), process_id=int(index))


def data_mesh():
    """All devices of all processes, in a mesh with one axis, "data"."""
    return jax.sharding.Mesh(np.array(jax.devices()), ("data",))


def global_batch(mesh, rows):
    """Return one array of all processes' rows, split over "data"."""
    spec = PartitionSpec("data", None)
    shape = (len(rows) * jax.process_count(), *rows.shape[1:])
    return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), rows, shape)


def mean(batch):
    """Return the mean over all rows of all processes, a Python float, in each process."""
    mesh = batch.sharding.mesh

    @partial(jax.shard_map, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec())
    def over_all(rows):
        return jax.lax.pmean(rows.mean(), "data")

    return jax.jit(over_all)(batch).item()
