"""Fences around a process that runs a learner's code: what it may reach, use and leave behind.

Linux only, but for `imports`, which keeps the working folder out of the import path of a new
Python; elsewhere nothing is fenced. `namespaces` hides files, processes and the network,
`limits` caps memory and processes and drops privileges, `family` lets whole families of
processes end together, `unnamed` makes files without a name, and `system` has the calls of the
C library for all of them. Every fence returns lines that say what it achieved. A line that
begins with `REFUSED` says what it did not achieve, and why.

May call: nothing of the grader. How the fences are put together is in
`grader.running.forkserver`.
"""
