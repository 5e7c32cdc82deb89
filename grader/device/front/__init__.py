"""The front: speaks with programs, keeps the accounts and the book, and never runs a program.

    process      the front's process: gRPC, sessions, host buffers
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
    bridge       the side channel, for what XLA's client cannot carry
    machine      its side of the executor

May call: `messages`, and beside this folder how a device is started. JAX is never imported.
"""
