"""A device next door: a JAX device in another process, with a book of all that reached it.

A program's JAX speaks to it through the client of XLA's IFRT proxy, which every jaxlib ships.
This is the server, in two processes. The *front* speaks with programs and keeps the accounts
and the book; it never runs a program. The *executor* owns XLA, and may die of what it runs.

    options      how a device is started: devices, memory, links
    flags        XLA's options that name files, which it leaves out
    start        starts one, says what a program's environment needs, and ends it
    nursery      a process that forks devices, which are ready at once
    setup        what a front and whoever started it say to each other

    front        the front's process: gRPC, sessions, host buffers
    session      one client's requests, and its arrays by their handles
    transfers    its copies from the host and to it
    moving       its copies between devices, and arrays put together anew
    running      its programs and launches
    handles      what these parts need of the session
    holding      what one client holds: buffers, booked, counted and freed
    arrays       arrays, buffers and where they lie, without data
    arriving     host buffers on their way
    ledger       accounts of memory
    writing      writes the book
    marks        how a worker says to what its requests belong
    bridge       the side channel, for what XLA's client cannot carry
    machine      the front's side of the executor

    executor     the executor's process: it meets JAX
    programs     reads, checks and compiles programs
    schedule     queues of work on engines, and modelled time

    wire         what these processes say to each other
    packing      arrays in a payload
    dtypes       types of elements
    errors       errors, as clients get them
    protocol     XLA's messages, as the installed jaxlib speaks them
    descriptors  finds their descriptions in jaxlib
    kept         keeps them in the user's cache folder
    path         what a program's import path gets; JAX finds it there

May call: `records`, `fences`. JAX is imported only in processes that this room starts, never
where `start` is called. What a program's own process needs is in `grader.probes.next_door`,
and what a book says is in `grader.records.book`.
"""
