"""Machines that are not there, and programs whose costs are known: what a drive stages.

    machines    machines with other devices, on which JAX's own code runs
    starting    what JAX says as it starts on such a machine
    allocating  what JAX hands to the GPU's allocator, in a fresh process
    hosts       several processes that find each other, as hosts of a cluster do
    one_host    one of them, from inside
    loop        what a training loop works with: batches, reads, copies, steps
    busy_step   a step whose device is busy, and takes none of the host's cores
    held       steps that are held until the host comes for the next one
    clock       programs of known cost, and a clock that counts nothing else
    failing     an error that a step raises, and whether a submission hides it
    drawn       what a submission may take for granted: no zeros, no number that its file names

A stage is proved before it counts: if JAX does not see it, it raises `Gone`, and what would be
judged on it is *could not check*. What only one exercise stages is in that exercise's folder.

May call: `probes`, `judging`, `records`, `fences`. Nothing is judged here.
"""
