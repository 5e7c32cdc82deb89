"""Probes watch JAX from inside a worker process. A probe proves itself before it counts.

`observer` collects, `transfers`, `reads` and `compiles` watch, `describe` describes
arrays, `devices` starts the backend. `private` and `staging` are the only modules of the
course that lean on names JAX does not promise; `starting` and `broken` use them for machines
that do not work.
"""
