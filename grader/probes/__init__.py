"""Probes watch JAX from inside a worker process. A probe proves itself before it counts.

`observer` collects, `transfers`, `reads` and `compiles` watch, `describe` describes
arrays, `devices` starts the backend. `private` is the only module of the course that
touches `jax._src`-level names.
"""
