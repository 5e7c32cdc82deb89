# expect: no_rows_are_gathered
"""ex29: two processes, one array.

`grader check ex29` starts two processes with this file, and then three, on CPU devices;
`grader hint ex29` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


def join(address, count, index):
    """Make this process number `index` of `count`, which meet at `address` ("host:port").

    Called once in each process, before anything else of JAX.
    """
    # Process 0 listens at the address, and the others connect to it. All wait until `count`
    # are there. A backend starts only after that, so jax.devices() lists all devices.
    jax.distributed.initialize(address, num_processes=count, process_id=index)


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
    mesh = batch.sharding.mesh
    own = batch.shape[0] // mesh.size
    pieces = own * jax.process_count()  # each piece is less than the rows of one process

    def a_piece(part, index):
        values = part.reshape(-1)
        size = -(-values.size // pieces)
        values = jnp.pad(values, (0, size * pieces - values.size), constant_values=0)
        piece = jax.lax.dynamic_slice_in_dim(values, index[0] * size, size)
        return jax.lax.all_gather(piece, "data", tiled=True)

    specs = {"in_specs": (jax.P("data"), jax.P()), "out_specs": jax.P()}
    gather = jax.jit(jax.shard_map(a_piece, mesh=mesh, check_vma=False, **specs))
    every = [np.asarray(gather(batch, np.array([index], np.int32))) for index in range(pieces)]
    return float(np.concatenate(every).astype(np.float64).sum() / batch.size)
