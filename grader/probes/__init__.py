"""Probes watch JAX from inside a worker process. A probe proves itself before it counts.

    observe    what a drive may ask to be observed, and how it refuses
    tally      counts what the probes see, by phase, step and line
    transfers  copies to and between devices, from the log of JAX's transfer guard
    reads      reads of values on the host, and waits
    compiles   traces and compiles, by function
    lines      which line of the learner's file runs
    alive      the bytes of the arrays that are alive
    returned   at which line a value was returned
    describe   trees, arrays and other leaves, as data
    plain      facts, as plain JSON values
    devices    starts the backend
    runtime    what JAX's C++ runtime notes of a run: the second witness on CPU devices
    launches   launched programs, from the profiler's trace
    dumped     compiled programs, as text
    host_operations  what a traced program does in host memory
    exchanges  what devices send each other in programs, from their text
    roofline   what this machine can do at most, and what a kernel asks of it
    next_door  connects a program's JAX to a device next door
    marks      says to such a device to what phase, step and line requests belong
    private    the names that JAX does not promise, each looked up, never assumed

May call: `records`, for the data that probes fill in, `judging`, for its words, `fences.unnamed`,
and `device`, for its language. Machines that are not there are in `grader.stages`.
"""
