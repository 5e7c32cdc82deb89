"""A hand-written test of ex01, with no grader: import the file, call it once, assert."""

import runpy
import sys

import jax

answers = runpy.run_path(sys.argv[1])
cpu = jax.devices("cpu")[0]
assert answers["num_gpus"]() == 0
assert answers["try_gpu"](0) == cpu
assert answers["try_gpu"](5) == cpu
assert answers["try_all_gpus"]() == [cpu]
