"""What only a GPU can settle: the list of it, and the programs that no claim's proof holds.

The list is `docs/claims/experiments.toml`. Most of its programs are proofs of claims and stand in
`test_claims_*.py`. The figures are measured apart, by `docs/_build/gpu_figures.py`.
"""

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT, experiments_in_order, python
from proving import fresh

import claims
import gpu_figures
import gpu_statements
import recordings

EXPERIMENTS = gpu_statements.experiments(ROOT)
LEDGER = claims.Ledger(ROOT)


def test_every_experiment_of_the_ledger_is_listed_with_tests_that_exist() -> None:
    ids = [each.id for each in EXPERIMENTS]
    used = {name for claim in LEDGER.claims.values() for name in claim.gpu.split(",") if name}
    assert len(ids) == len(set(ids))
    assert used <= set(ids)
    assert set(ids) == {f"G{number}" for number in range(1, 19) if number != 8}
    texts = [path.read_text("utf-8") for path in (ROOT / "tests" / "site").glob("test_*.py")]
    marked = re.findall(r"@pytest\.mark\.gpu\n(?:@.*\n|    .*\n|\)\n)*def (\w+)", "\n".join(texts))
    named = [name for each in EXPERIMENTS for name in each.tests]
    assert len(named) == len(set(named))
    assert set(named) <= set(marked)
    assert {proof.name for proof in LEDGER.proofs if proof.gpu} <= set(named)


def test_every_experiment_but_that_of_two_gpus_has_figures() -> None:
    assert {each.id for each in EXPERIMENTS} - {"G18"} == set(gpu_figures.EXPERIMENTS)
    assert len(set(gpu_figures.keys().values())) == len(gpu_figures.EXPERIMENTS)


def test_figures_are_shown_where_their_code_is_still_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = tmp_path / "docs" / "recorded"
    recorded.mkdir(parents=True)
    device = {"kind": "A GPU", "driver": "1", "jax": "0.11", "date": "2026-01-01"}
    figures = {gpu_figures.keys()["G2"]: {"a | b": "1 MiB"}, "of other code": {"c": "2 MiB"}}
    text = {"version": recordings.VERSION, "device": device, "experiments": figures}
    (recorded / "experiments.a-gpu.json").write_text(json.dumps(text))
    found = gpu_statements.measured(tmp_path)
    label = recordings.Device(**device).label
    assert found == {"G2": [gpu_statements.Measured(label, {"a | b": "1 MiB"})]}
    monkeypatch.setattr(gpu_statements, "measured", lambda root: found)
    shown = gpu_statements.table(ROOT, LEDGER)
    assert "| Measured | on A GPU, driver 1, jax 0.11, 2026-01-01 |" in shown
    assert r"| a \| b | 1 MiB |" in shown
    assert "2 MiB" not in shown
    assert shown.count("**Expected:**") == 1
    link = gpu_statements.fill("Quick. <!-- gpu: G2 -->", ROOT, LEDGER, lambda uri: uri)
    assert "measured: G2" in link


def test_a_gpu_settles_first_what_most_depends_on() -> None:
    """`make gpu` runs all tests that need a GPU; these first, and in the order of the list."""
    command = [*["-m", "pytest", "-m", "gpu", "--collect-only", "-q"], ROOT / "tests" / "site"]
    ran = python(*command, f"--ignore={ROOT / 'tests/site/test_site.py'}")
    collected = re.findall(r"::(test_(?:on_a_gpu|between_two|on_several)_\w+)", ran.stdout)
    wanted = experiments_in_order()
    assert len(wanted) > 25
    assert collected[: len(wanted)] == wanted


@pytest.mark.gpu
def test_on_a_gpu_the_platform_gpu_wants_the_plugins_of_all_makers() -> None:
    program = "import jax; jax.devices()"
    assert "'rocm'" in fresh(program, gpu=True, may_fail=True, JAX_PLATFORMS="gpu").err


@pytest.mark.gpu
def test_on_a_gpu_a_late_read_costs_less_than_one_at_once() -> None:
    program = """
import time, jax, jax.numpy as jnp
step = jax.jit(lambda w: (w @ w / 2048, w.sum()))
start = jnp.ones((2048, 2048))
def seconds(late, sets_out):
    w, before, began = start, None, time.perf_counter()
    for _ in range(50):
        w, loss = step(w)
        if sets_out: loss.copy_to_host_async()
        if not late: float(loss)
        elif before is not None: float(before)
        before = loss
    float(loss)
    return time.perf_counter() - began
ways = [(False, False), (True, False), (True, True)]
seconds(*ways[0])
print(*(min(seconds(*way) for _ in range(5)) for way in ways))
"""
    at_once, late, set_out = map(float, fresh(program, gpu=True).out.split())
    assert min(late, set_out) < at_once


@pytest.mark.gpu
@pytest.mark.gpus
def test_between_two_gpus_a_guard_sees_a_copy_from_the_first_call() -> None:
    program = """
import jax, jax.numpy as jnp
step = jax.jit(lambda params, batch: params + batch)
params, elsewhere = jax.device_put(jnp.ones(3), jax.devices()[1]), jnp.ones(3)
with jax.transfer_guard_device_to_device("disallow"):
    try: step(params, elsewhere)
    except jax.errors.JaxRuntimeError as error: print(error)
"""
    assert "Disallowed device-to-device transfer" in fresh(program, gpu=True).out


@pytest.mark.gpu
def test_on_a_gpu_what_the_compiler_counts_is_near_the_peak() -> None:
    program = """
import jax, jax.numpy as jnp
device = jax.devices()[0]
x = jax.device_put(jnp.ones((4096, 4096)), device).block_until_ready()
step = jax.jit(lambda x: jnp.sort(jnp.sort(x, axis=0) * 2, axis=1)).lower(x).compile()
before = device.memory_stats()
memory = step.memory_analysis()
step(x).block_until_ready()
counted = before["bytes_in_use"] + memory.output_size_in_bytes + memory.temp_size_in_bytes
after = device.memory_stats()["peak_bytes_in_use"]
assert after > before["peak_bytes_in_use"], "what was there before is the peak"
print(after / counted)
"""
    ratio = float(fresh(program, gpu=True).out)
    assert 0.9 < ratio < 1.2


@pytest.mark.gpu
def test_on_a_gpu_a_made_up_topology_has_eight_devices() -> None:
    program = "import jax; jax.config.update('jax_mock_gpu_topology', '1x8x1'); "
    assert fresh(program + "print(jax.device_count())", gpu=True).out == "8"


KNOWN = {"S0-01", "G2"}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("A GPU is quick.", 1),
        ("A GPU is quick. <!-- gpu: G2 -->", 0),
        ("A GPU is quick. <!-- gpu: S0-01, G2 -->", 0),
        ("A GPU is quick. <!-- gpu: G3 -->", 1),
        ("A GPU is quick. <!-- gpu: perhaps -->", 1),
        ("A GPU is quick. <!-- gpu: source: a data sheet -->", 0),
        ("A GPU is quick. <!-- gpu: source: -->", 1),
        ("A GPU is quick (S0-01).", 0),
        ("A GPU is quick (S0-02).", 1),
        ("<!-- gpu: G2 -->\n\nA GPU is quick.", 1),
        ("By NVLink.\n\nOn H200.", 2),
        ("# A GPU\n\n`GPU`\n\n```\nGPU\n```\n\n<quiz>\nA GPU?\n</quiz>\n\n[GPU](gpu.md)", 0),
    ],
)
def test_what_is_said_of_gpus_and_bound_to_nothing_is_found(text: str, count: int) -> None:
    assert len(list(gpu_statements.unbound(text, KNOWN))) == count


def test_every_statement_about_gpus_is_bound() -> None:
    assert len(gpu_statements.pages(ROOT)) > 20
    gpu_statements.check(ROOT, LEDGER)


def test_the_build_names_what_is_not_bound(tmp_path: Path) -> None:
    (tmp_path / "docs" / "lessons").mkdir(parents=True)
    (tmp_path / "docs" / "index.md").write_text("A GPU is quick.\n")
    with pytest.raises(gpu_statements.UnboundError, match=r"docs/index.md: A GPU is quick\."):
        gpu_statements.check(tmp_path, LEDGER)


def test_marks_lead_to_what_they_name_and_are_gone_where_they_name_nothing() -> None:
    def fill(text: str) -> str:
        return gpu_statements.fill(text, ROOT, LEDGER, lambda uri: f"../{uri}")

    assert fill("Quick. <!-- gpu: G18 -->") == (
        'Quick. <small>[<a href="../claims/experiments.md#g18">expected: G18</a>]</small>'
    )
    assert ">measured: G2</a>" in fill("Quick. <!-- gpu: G2 -->")
    assert '<a href="../claims/index.md#s0-01">S0-01</a>' in fill("Quick. <!-- gpu: S0-01 -->")
    assert fill("Quick. <!-- gpu: nothing claimed -->") == "Quick."
    assert fill("Quick. <!-- gpu: source: a sheet -->") == "Quick."
    shown = fill(gpu_statements.EXPERIMENTS)
    assert all(f"{{ #{each.id.lower()} }}" in shown for each in EXPERIMENTS)
