"""The program ground: export, refusal of hostile blobs, measurement, timed pairs.

`program_cases.py` exports in one process, as a learner's worker does; `MEASURER` gets only
bytes and inputs, in another process. Both have eight simulated devices.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from conftest import ROOT
from numpy.typing import NDArray
from program_cases import COLUMNS, Exports

from grader.judging.arrays import load
from grader.program.export import MAX_LINES, SIZE_LIMIT
from grader.records.record import Collective, Leaf, Measured, Timing
from grader.running.messages import MeasureJob, Measurements

MEASURER = """
import sys, msgspec
from grader.running.messages import MeasureJob
from grader.worker.serve import measured
jobs = msgspec.json.decode(sys.stdin.buffer.read(), type=list[MeasureJob])
answers = msgspec.json.encode([measured(job) for job in jobs])
sys.stdout.buffer.write(answers)
"""
NAIVE = """
import sys, jax
from jax import export
program = export.deserialize(bytearray(sys.stdin.buffer.read()))
print(jax.jit(program.call)(*(jax.numpy.ones(a.shape) for a in program.in_avals)))
"""
COUNTED = """
import jax
from grader.program.allowlist import operations
inner = jax.jit(lambda x: x * 2)  # JAX writes it once for all calls with the same shapes
both = jax.jit(lambda x, y: (inner(x), inner(y)))
for sizes in ((4, 4), (4, 8)):
    lowered = both.lower(*(jax.ShapeDtypeStruct((n,), "float32") for n in sizes))
    print(lowered.as_text().count("stablehlo.multiply"), operations(lowered.compiler_ir()))
"""
GRADIENT = COLUMNS * COLUMNS * 4


def python(*arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, *arguments], input=stdin, capture_output=True, env=environment, timeout=200
    )


def measurements(jobs: list[MeasureJob]) -> list[Measurements]:
    done = python("-c", MEASURER, stdin=msgspec.json.encode(jobs))
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(done.stdout, type=list[Measurements])


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """Every program of `program_cases`, with its inputs."""
    out = tmp_path_factory.mktemp("program") / "exports.json"
    done = python(str(Path(__file__).with_name("program_cases.py")), str(out))
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(out.read_bytes(), type=Exports)


def hostile(exports: Exports) -> dict[str, bytes]:
    blob, noise = exports.programs["donated"].blob, random.Random(1)
    cut = {f"cut_{share}": blob[: len(blob) * share // 10] for share in range(1, 10)}
    random_bytes = {f"random_{size}": noise.randbytes(size) for size in (1, 40, 4000)}
    bent = {f"bent_{number}": bytes(_bent(blob, noise)) for number in range(20)}
    empty = {"empty": b"", "zeros": bytes(1000), "large": bytes(SIZE_LIMIT + (1 << 20))}
    return cut | random_bytes | bent | empty


def _bent(blob: bytes, noise: random.Random) -> bytearray:
    bent = bytearray(blob)
    for _ in range(40):
        bent[noise.randrange(len(bent))] = noise.randrange(256)
    return bent


@pytest.fixture(scope="module")
def measured(exports: Exports) -> dict[str, Measured]:
    """Every exported program and every hostile blob, measured in one process."""
    blobs = {name: program.blob for name, program in exports.programs.items() if program.blob}
    blobs["other_inputs"] = exports.programs["step"].blob
    blobs["fewer_inputs"] = exports.programs["step"].blob
    inputs = exports.inputs | {
        "other_inputs": [[*reversed(exports.inputs["step"][0])]],
        "fewer_inputs": [exports.inputs["step"][0][:1]],
    }
    job = MeasureJob(blobs | hostile(exports), {}, inputs)
    return measurements([job])[0].submission


@pytest.fixture(scope="module")
def timed(exports: Exports) -> dict[str, Measurements]:
    """Four submissions, each timed against `step` at four times its time."""
    jobs = {
        name: MeasureJob(
            {"step": exports.programs[name].blob},
            {"step": exports.programs["step"].blob},
            {"step": exports.inputs["step"]},
            timed="step",
            at_most=4,
            seed=3,
        )
        for name in ("step", "donated", "slow", "wrong")
    }
    return dict(zip(jobs, measurements([*jobs.values()]), strict=True))


def values(leaf: Leaf) -> "NDArray[np.float32]":
    assert leaf.data is not None
    return load(leaf.data).astype(np.float32)


HONEST = [
    "step",
    "donated",
    "method",
    "partial",
    "slow",
    "wrong",
    "explicit",
    "unjitted",
    "shard_map",
    "pmap",
    "pmap_donated",
    "to_device",
    "pinned_single",
    "pinned_donated",
    "trees",
    "unused",
    "key",
    "struct",
    "linear_algebra",
]


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_are_exported_and_run(
    exports: Exports, measured: dict[str, Measured], name: str
) -> None:
    assert exports.programs[name].problem == ""
    assert (measured[name].problem, measured[name].refused) == ("", [])
    assert measured[name].outputs or name == "struct"  # its input has no values


@pytest.mark.parametrize("name", ["step", "donated", "explicit"])
def test_a_data_parallel_step_has_one_all_reduce_of_the_gradient(
    measured: dict[str, Measured], name: str
) -> None:
    found = measured[name]
    assert found.collectives == [Collective("all-reduce", GRADIENT, 1)]
    assert found.in_shardings == ["P() on data=8", "P('data') on data=8"]
    assert found.out_shardings == ["P() on data=8"]
    assert found.signature is not None
    assert found.signature.devices == 8
    assert found.signature.arguments == ("float32[32,32]", "float32[64,32]")
    assert found.flops > 0


@pytest.mark.parametrize("name", ["method", "partial"])
def test_donation_is_found_behind_methods_and_partials(
    measured: dict[str, Measured], name: str
) -> None:
    assert measured[name].aliases == measured["donated"].aliases
    assert measured[name].collectives == measured["donated"].collectives


def test_without_a_mesh_there_is_no_collective(measured: dict[str, Measured]) -> None:
    assert measured["unjitted"].collectives == []
    assert measured["unjitted"].in_shardings == ["1 device", "1 device"]


def test_the_same_step_gives_the_same_numbers_everywhere(measured: dict[str, Measured]) -> None:
    one, eight = (values(measured[name].outputs[0]) for name in ("unjitted", "donated"))
    wrong = values(measured["wrong"].outputs[0])
    np.testing.assert_allclose(one, eight, rtol=1e-5, atol=1e-6)
    assert not np.allclose(one, wrong, rtol=1e-5, atol=1e-6)


def test_donation_survives_export(measured: dict[str, Measured]) -> None:
    donated, kept = measured["donated"], measured["step"]
    assert (donated.donated, donated.aliases) == ([0], {"0": 0})
    assert (kept.donated, kept.aliases) == ([], {})
    assert donated.memory is not None
    assert kept.memory is not None
    assert (donated.memory.aliased, kept.memory.aliased) == (GRADIENT, 0)
    assert donated.memory.peak < kept.memory.peak


def test_donation_counts_flat_arguments(measured: dict[str, Measured]) -> None:
    assert measured["trees"].donated == [0, 1]
    assert measured["trees"].aliases == {"0": 0, "1": 1}
    assert (measured["unused"].donated, measured["unused"].aliases) == ([1], {"0": 1})


def test_memory_kinds_survive(measured: dict[str, Measured]) -> None:
    pinned = "P('data') on data=8 pinned_host"
    assert measured["to_device"].in_shardings == [pinned]
    assert measured["to_device"].out_memory_kinds == ["pinned_host"]
    assert measured["to_device"].outputs[0].memory_kind == "pinned_host"
    assert measured["pinned_single"].in_shardings == ["1 device pinned_host"]
    assert measured["pinned_single"].out_memory_kinds == ["device"]
    assert measured["pinned_donated"].aliases == {"0": 0}


def test_shard_map_and_pmap(measured: dict[str, Measured]) -> None:
    assert measured["shard_map"].collectives == [Collective("all-reduce", 8 * COLUMNS * 4, 1)]
    assert measured["pmap"].collectives == [Collective("all-reduce", 4 * 4, 1)]
    assert measured["pmap"].outputs[0].shard_shape == (1, 4)
    assert (measured["pmap"].aliases, measured["pmap_donated"].aliases) == ({}, {"0": 0})


def test_unknown_tree_nodes_travel_as_tuples(measured: dict[str, Measured]) -> None:
    signature = measured["trees"].signature
    assert signature is not None
    assert signature.out_tree == "PyTreeDef(((*, *), (*, *), None))"
    assert signature.results[1] == "bfloat16[]"


def test_an_input_without_values_is_compiled_and_not_run(measured: dict[str, Measured]) -> None:
    assert measured["struct"].memory is not None
    assert measured["struct"].outputs == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("printing", "calls back into Python (jax.debug.print): it cannot leave this process"),
        ("calling", "calls back into Python (jax.pure_callback): it cannot leave this process"),
        ("branching", "`branching` cannot be traced: `if`, `while` or `and` needs a number"),
        ("number", "`number` is not a function, but of type `int`"),
        ("constants", "an array it closes over became a constant of the program"),
    ],
)
def test_what_cannot_be_exported_is_named(exports: Exports, name: str, words: str) -> None:
    assert words in exports.programs[name].problem
    assert exports.programs[name].blob == b""
    assert exports.programs[name].problem.count("\n") <= MAX_LINES, "what explains it, and no more"


def test_a_naive_receiver_dies_of_the_forged_callback(exports: Exports) -> None:
    assert python("-c", NAIVE, stdin=exports.programs["unjitted"].blob).returncode == 0
    assert python("-c", NAIVE, stdin=exports.programs["forged"].blob).returncode < 0


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("forged", "holds a call back into Python (`xla_ffi_python_cpu_callback`)"),
        ("outside", "holds the custom call `unheard_of`, 2 times"),
        ("lying_shape", "its signature says (tensor<1073741824x1024xf32>)"),
        ("lying_result", "its signature says (tensor<8x4xf32>) -> (tensor<1073741824x1024xf32>)"),
        ("lying_tree", "it is not a program JAX can read"),
        ("too_many_devices", "it was exported for 4096 devices, this machine has 8"),
        ("other_platform", "it was exported for cuda, not for cpu"),
        ("unused_lie", "it is not a program JAX can read"),
        ("static", "it takes 1 array arguments, the exercise passes 2"),
        ("huge", "it needs 49,152.0 GiB, more than this machine has"),
        ("large", "the program is larger than 16 MiB"),
        ("empty", "it is not a program JAX can read"),
        ("other_inputs", "argument 0 is float32[32,32], the exercise passes float32[64,32]"),
        ("fewer_inputs", "it takes 2 array arguments, the exercise passes 1"),
    ],
)
def test_hostile_programs_are_refused_in_words(
    measured: dict[str, Measured], name: str, problem: str
) -> None:
    assert problem in measured[name].problem
    assert measured[name].outputs == []
    assert bool(measured[name].refused) == (name in ("forged", "outside"))


def test_damaged_bytes_are_refused(exports: Exports, measured: dict[str, Measured]) -> None:
    damaged = [name for name in hostile(exports) if not name.startswith("bent_")]
    assert len(damaged) > 10
    assert [name for name in damaged if not measured[name].problem] == []
    # A changed byte may lie where nothing reads it, so most are refused, not all.
    bent = [found for name, found in measured.items() if name.startswith("bent_")]
    assert sum(bool(found.problem) for found in bent) > len(bent) / 2
    assert not any("\n" in found.problem for found in measured.values())


@pytest.mark.parametrize(
    ("name", "verdict"), [("step", "pass"), ("donated", "pass"), ("slow", "fail")]
)
def test_timed_against_the_reference(
    timed: dict[str, Measurements], name: str, verdict: str
) -> None:
    timing: Timing = timed[name].timing["step"]
    assert timing.verdict == verdict, timing
    assert timed[name].submission["step"].problem == ""


def test_a_wrong_result_in_a_timed_run_is_found(timed: dict[str, Measurements]) -> None:
    assert timed["wrong"].timing == {}
    problem = timed["wrong"].submission["step"].problem
    assert "in a timed run on secret inputs, result 0 differs from the reference's" in problem


def test_an_operation_is_counted_once_for_each_call() -> None:
    same, different = python("-c", COUNTED).stdout.decode().splitlines()
    assert (same[0], different[0]) == ("1", "2")
    assert same[1:] == different[1:]
    assert "'stablehlo.multiply': 2" in same
