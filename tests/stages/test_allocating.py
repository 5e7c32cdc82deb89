"""The staged start of a GPU client: which memory settings reach it, and what it reports."""

import json

import pytest
from conftest import python

CASES = """
import json, os
import jax
jax.config.update("jax_platforms", "cpu")
cpus = jax.devices()
from types import ModuleType
from unittest import mock
from grader.stages import allocating
from grader.probes.private import Gone

FIRST = "def start(share, grow):\\n    import jax\\n    return jax.devices()[0]\\n"
LAST = FIRST.replace("[0]", "[-1]")

def seen(shell, source=FIRST, gpus=1):
    import linecache
    module = ModuleType("submission")
    module.__file__ = "ex.py"
    linecache.cache["ex.py"] = (len(source), None, source.splitlines(True), "ex.py")
    return allocating.started(module, shell, 0.3, True, gpus)

SET = '''def start(share, grow):
    import os
    os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.25"
    os.environ["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = "0=64M"
    del os.environ["PATH"]
    os.putenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30")
'''
before = dict(os.environ)
found = {
    "empty": seen({}),
    "shell": seen({"XLA_PYTHON_CLIENT_PREALLOCATE": "0", "XLA_CLIENT_MEM_FRACTION": ".4"}),
    "set": seen({}, SET),
    "after it": seen({}),
    "last": seen({}, LAST, 3),
    "first": seen({}, FIRST, 3),
    "refused": seen({"XLA_PYTHON_CLIENT_ALLOCATOR": "none"}),
    "restored": dict(os.environ) == before and jax.devices() == cpus,
    "reported": allocating.reported("def start(share, grow): 1 / 0", 0.3, True),
}
with mock.patch.object(allocating.machines.bridge_module().xla_client, "make_c_api_client"):
    del allocating.machines.bridge_module().xla_client.make_c_api_client
    try:
        seen({})
    except Gone as gone:
        found["gone"] = str(gone)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    done = python("-c", CASES)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_empty_shell_leaves_everything_to_the_client(found):
    assert found["empty"]["options"] == {"allocator": "default"}
    assert found["empty"]["answer"] == "the GPU"
    assert found["empty"]["line"] == 3


def test_what_the_shell_sets_reaches_the_client(found):
    options = {"allocator": "default", "memory_fraction": 0.4, "preallocate": False}
    assert found["shell"]["options"] == options


def test_what_start_sets_reaches_the_client_that_is_created_after_it(found):
    assert found["set"]["options"] == {"allocator": "default", "memory_fraction": 0.25}
    assert found["set"]["answer"] == "None"


def test_what_start_makes_of_other_variables_is_noted(found):
    assert found["set"]["foreign"] == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",  # by os.putenv, so os.environ does not have it
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=64M",
        "PATH": None,
    }
    assert found["shell"]["foreign"] == {}
    assert found["after it"]["foreign"] == {}


def test_what_start_gave_a_value_is_noted(found):
    assert "XLA_CLIENT_MEM_FRACTION" in found["set"]["put"]
    assert found["after it"]["put"] == []


def test_the_first_gpu_is_told_from_the_others(found):
    assert found["first"]["answer"] == "the GPU"
    assert found["last"]["answer"] == "GPU 3 of 3, not the first that JAX lists"


def test_a_refused_setting_is_reported_and_leaves_only_the_cpu(found):
    assert found["refused"]["options"] is None
    assert "XLA_PYTHON_CLIENT_ALLOCATOR" in found["refused"]["complaint"]
    assert found["refused"]["answer"] == "a CPU device"


def test_the_stage_restores_everything(found):
    assert found["restored"]


def test_a_missing_private_name_is_reported(found):
    assert "make_c_api_client" in found["gone"]


def test_a_real_process_that_fails_reports_its_exception(found):
    assert found["reported"] == {"problem": "ZeroDivisionError: division by zero"}
