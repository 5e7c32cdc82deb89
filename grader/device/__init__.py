"""A device next door: a JAX device in another process, with a book of all that reached it.

A program's JAX speaks to it through the client of XLA's IFRT proxy, which every jaxlib ships.
This is the server, in two processes. The *front* speaks with programs and keeps the accounts
and the book; it never runs a program. The *executor* owns XLA, and may die of what it runs.

    options      how a device is started: devices, memory, links
    flags        XLA's options that name files, which it leaves out
    start        starts one, says what a program's environment needs, and ends it
    nursery      a process that forks devices, which are ready at once
    setup        what a front and whoever started it say to each other
    path         what a program's import path gets; JAX finds it there

    front        the front's process, and what it does for each client
    executor     the executor's process
    messages     what these processes, and programs, say to each other

May call: `records`, `fences`. JAX is imported only in processes that this room starts, never
where `start` is called. What a program's own process needs is in `grader.probes.next_door`,
and what a book says is in `grader.records.book`.
"""
