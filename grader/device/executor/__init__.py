"""The executor: owns XLA, runs programs, and may die of what it runs.

    process      the executor's process: it meets JAX
    programs     reads, checks and compiles programs
    schedule     queues of work on engines, and modelled time

May call: `messages`. It knows nothing of clients, accounts and the book.
"""
