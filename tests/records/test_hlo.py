"""The parser of HLO text, on saved texts of each version and backend.

`golden/hlo/generate.py` wrote the texts. Older forms, which no version at hand prints any more,
are single lines in this file.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from grader.records import hlo
from grader.records.record import Collective

GOLDEN = sorted((ROOT / "tests" / "golden" / "hlo").glob("*.txt"))
BACKENDS = {"cpu-0.11.2", "cpu-0.12.0.1", "gpu-0.12.0.1"}

# Computed by hand from the shapes in generate.py: float32, one eighth of the rows on each device.
ROWS, WHOLE = 8 * 32 * 4, 64 * 32 * 4
GRADIENTS = 32 * 16 * 4 + 16 * 8 * 4
COLLECTIVES = {
    "step": {"all-reduce": GRADIENTS},
    "scan": {"all-reduce": GRADIENTS},
    "gather": {"all-gather": WHOLE},
    "groups": {"all-reduce": 16 * 16 * 4},
    "to_host": {},
    "collectives": {
        "all-reduce": ROWS,
        "all-gather": WHOLE,
        "collective-permute": ROWS,
        "all-to-all": ROWS,
        "reduce-scatter": ROWS // 8,
    },
}

TRIPS = ', backend_config={"known_trip_count":{"n":"%d"}}'


def case_of(path: Path) -> tuple[str, str]:
    case, backend = path.stem.split(".", 1)
    return case, backend


def one(line: str) -> list[Collective]:
    return hlo.read(f"HloModule m\n\nENTRY %main {{\n  {line}\n}}\n").collectives


def test_every_case_is_saved_for_every_backend() -> None:
    assert {case_of(path) for path in GOLDEN} == {(c, b) for c in COLLECTIVES for b in BACKENDS}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_collectives_and_their_bytes(path: Path) -> None:
    found = hlo.read(path.read_text(encoding="utf-8")).collectives
    assert {c.op: c.nbytes for c in found} == COLLECTIVES[case_of(path)[0]]
    assert all(c.count == 1 for c in found)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_aliases(path: Path) -> None:
    donated = case_of(path)[0] == "step"
    aliases = hlo.read(path.read_text(encoding="utf-8")).aliases
    assert aliases == ({"0": 0, "1": 1} if donated else {})


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_host_copies_are_seen_where_the_device_has_its_own_memory(path: Path) -> None:
    case, backend = case_of(path)
    copies = hlo.read(path.read_text(encoding="utf-8")).host_copies
    assert copies == (case == "to_host" and backend.startswith("gpu"))


def test_no_path_of_a_machine_is_saved() -> None:
    assert not [path.name for path in GOLDEN if '"/' in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("line", "op", "nbytes"),
    [
        ("%a = f32[4]{0} all-reduce-start(%x), replica_groups={{0,1}}", "all-reduce", 16),
        (
            "%a = (f32[4]{0}, bf16[2,3]{1,0}) all-reduce-start(%x, %y), replica_groups={{0,1}}",
            "all-reduce",
            28,
        ),
        (
            "%a = ((f32[4]{0}, s8[3]{0}), (f32[4]{0}, s8[3]{0})) all-reduce-start(%x, %y)",
            "all-reduce",
            19,
        ),
        (
            "ROOT %a = (f32[2]{0}, f32[16]{0:T(1024)S(1)}) all-gather-start(%x)",
            "all-gather",
            64,
        ),
        (
            "%a = (f32[2]{0}, f32[2]{0}, u32[], u32[]) collective-permute-start(%x)",
            "collective-permute",
            8,
        ),
        (
            "%a = ((f32[16]{0}), f32[2]{0}, s32[]) reduce-scatter-start(%x)",
            "reduce-scatter",
            8,
        ),
        ("%a = (s4[3]{0}, /*index=1*/s4[3]{0}) all-to-all(%x, %y)", "all-to-all", 4),
        ("%a = f8e4m3fn[<=5,2]{1,0} ragged-all-to-all(%x)", "ragged-all-to-all", 10),
        (
            "a = pred[7]{0} collective-broadcast(x), replica_groups={{0,1}}",
            "collective-broadcast",
            7,
        ),
    ],
)
def test_asynchronous_and_older_forms(line: str, op: str, nbytes: int) -> None:
    assert one(line) == [Collective(op, nbytes, 1)]


@pytest.mark.parametrize(
    ("groups", "counted"),
    [
        ("{{0,1},{2,3}}", True),
        ("{{0},{1},{2},{3}}", False),
        ("[4,2]<=[8]", True),
        ("[8,1]<=[2,4]T(1,0)", False),
        ("mesh['a'=4,'b'=2] {'b'}", True),
        ("mesh['a'=8,'b'=1] {'b'}", False),
        ("mesh['a'=8] {'a':(2)4}", True),
        ("@mesh['a'=1,'b'=8] {'a'}", False),
        ("{}", True),
    ],
)
def test_a_group_of_one_device_moves_nothing(groups: str, counted: bool) -> None:
    line = f"%a = f32[4]{{0}} all-reduce(%x), replica_groups={groups}, to_apply=%add"
    assert bool(one(line)) is counted


def test_equal_collectives_become_one_with_a_count() -> None:
    line = "  %a.{} = f32[4]{{0}} all-gather(%x), dimensions={{0}}\n"
    text = "HloModule m\n\nENTRY %main {\n" + line.format(1) + line.format(2) + "}\n"
    assert hlo.read(text).collectives == [Collective("all-gather", 16, 2)]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_loop_of_known_length_multiplies_the_runs_of_its_collectives(path: Path) -> None:
    found = hlo.read(path.read_text(encoding="utf-8")).collectives
    assert all(c.runs == (5 if case_of(path)[0] == "scan" else 1) for c in found)


@pytest.mark.parametrize(("inner", "runs"), [(TRIPS % 3, 12), ("", 0)])
def test_loops_within_loops(inner: str, runs: int) -> None:
    text = f"""HloModule m

%inner (p: f32[4]) -> f32[4] {{
  %sum = f32[4]{{0}} all-reduce(%p), to_apply=%add
}}

%outer (q: f32[4]) -> f32[4] {{
  %loop = f32[4]{{0}} while(%q), condition=%cond, body=%inner{inner}
}}

ENTRY %main (r: f32[4]) -> f32[4] {{
  %loop.1 = f32[4]{{0}} while(%r), condition=%cond, body=%outer{TRIPS % 4}
}}
"""
    assert hlo.read(text).collectives == [Collective("all-reduce", 16, 1, runs)]


BRANCHES = ("branch_computations={%yes, %no}", "true_computation=%yes, false_computation=%no")


@pytest.mark.parametrize("branches", BRANCHES)
@pytest.mark.parametrize(("trips", "runs"), [(1, 1), (4, 0)])
def test_how_often_a_branch_inside_a_loop_runs_is_not_known(
    branches: str, trips: int, runs: int
) -> None:
    text = f"""HloModule m

%yes (p: f32[4]) -> f32[4] {{
  %sum = f32[4]{{0}} all-reduce(%p), to_apply=%add
}}

%no (n: f32[4]) -> f32[4] {{
  %same = f32[4]{{0}} copy(%n)
}}

%body (q: f32[4]) -> f32[4] {{
  %branch = f32[4]{{0}} conditional(%c, %q, %q), {branches}
}}

ENTRY %main (r: f32[4]) -> f32[4] {{
  %loop = f32[4]{{0}} while(%r), condition=%cond, body=%body{TRIPS % trips}
}}
"""
    assert hlo.read(text).collectives == [Collective("all-reduce", 16, 1, runs)]


@pytest.mark.parametrize(("inner", "work"), [(TRIPS % 3, 12 * (2 * 4 * 5 * 6 + 24) + 24), ("", 0)])
def test_work_counts_as_often_as_it_runs(inner: str, work: int) -> None:
    """A product of (4, 5) and (5, 6), and a sum of the result, in 3 times 4 rounds; then a tanh."""
    text = f"""HloModule m

%inner (p: (f32[4,5], f32[5,6])) -> f32[4,6] {{
  %a = f32[4,5]{{1,0}} get-tuple-element(%p), index=0
  %b = f32[5,6]{{1,0}} get-tuple-element(%p), index=1
  %dot.1 = f32[4,6]{{1,0}} dot(%a, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  %sum = f32[4,6]{{1,0}} add(%dot.1, %dot.1)
}}

%outer (q: f32[4]) -> f32[4] {{
  %loop = f32[4]{{0}} while(%q), condition=%cond, body=%inner{inner}
}}

ENTRY %main (r: f32[4,6]) -> f32[4,6] {{
  %loop.1 = f32[4]{{0}} while(%r), condition=%cond, body=%outer{TRIPS % 4}
  %out = f32[4,6]{{1,0}} tanh(%r)
}}
"""
    assert hlo.read(text).work == work


def test_a_computation_that_is_called_twice_runs_twice() -> None:
    text = """HloModule m

%part (p: f32[4]) -> f32[4] {
  %sum = f32[4]{0} all-reduce(%p), to_apply=%add
}

ENTRY %main (r: f32[4]) -> f32[4] {
  %one = f32[4]{0} call(%r), to_apply=%part
  %two = f32[4]{0} call(%one), to_apply=%part
}
"""
    assert hlo.read(text).collectives == [Collective("all-reduce", 16, 1, 2)]


def test_a_reduction_works_on_each_number_as_its_computation_says() -> None:
    text = """HloModule m

%twice (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %product = f32[] multiply(%a, %b)
  %sum = f32[] add(%product, %b)
}

ENTRY %main (x: f32[4,6], zero: f32[]) -> f32[4] {
  %x = f32[4,6]{1,0} parameter(0)
  %zero = f32[] parameter(1)
  %out = f32[4]{0} reduce(%x, %zero), dimensions={1}, to_apply=%twice
}
"""
    assert hlo.read(text).work == 2 * 4 * 6


def test_a_window_works_on_each_of_its_numbers_for_each_result() -> None:
    text = """HloModule m

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %sum = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4,6], zero: f32[]) -> f32[4,2] {
  %x = f32[4,6]{1,0} parameter(0)
  %zero = f32[] parameter(1)
  %out = f32[4,2]{1,0} reduce-window(%x, %zero), window={size=1x5}, to_apply=%add
}
"""
    assert hlo.read(text).work == 4 * 2 * 5


def test_a_fourier_transform_works_on_each_number_as_often_as_its_length_can_be_halved() -> None:
    text = """HloModule m

ENTRY %main (x: f32[3,256]) -> c64[3,129] {
  %x = f32[3,256]{1,0} parameter(0)
  %out = c64[3,129]{1,0} fft(%x), fft_type=RFFT, fft_length={256}
}
"""
    assert hlo.read(text).work == 3 * 256 * 8 * 5 // 2


def test_the_condition_of_a_loop_is_work_too() -> None:
    """It is looked at before each of 4 rounds, and once more."""
    text = """HloModule m

%condition (p: f32[5]) -> pred[] {
  %big = f32[5]{0} exponential(%p)
}

%body (q: f32[5]) -> f32[5] {
  %same = f32[5]{0} reverse(%q), dimensions={0}
}

ENTRY %main (r: f32[5]) -> f32[5] {
  %loop = f32[5]{0} while(%r), condition=%condition, body=%body%s
}
"""
    assert hlo.read(text.replace("%s", TRIPS % 4)).work == 5 * 5
    assert hlo.read(text.replace("%s", "")).work == 0


def test_a_product_of_complex_numbers_is_four_of_real_ones() -> None:
    text = """HloModule m

ENTRY %main (a: c64[4,5], b: c64[5,6]) -> c64[4,6] {
  %a = c64[4,5]{1,0} parameter(0)
  %b = c64[5,6]{1,0} parameter(1)
  %dot = c64[4,6]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    assert hlo.read(text).work == 4 * 2 * 4 * 5 * 6


def test_what_a_library_solves_is_work_for_each_column_of_the_result() -> None:
    text = """HloModule m

ENTRY %main (a: f32[8,8], b: f32[8,3]) -> f32[8,3] {
  %a = f32[8,8]{1,0} parameter(0)
  %b = f32[8,3]{1,0} parameter(1)
  %x = f32[8,3]{1,0} custom-call(%a, %b), custom_call_target="lapack_strsm_ffi"
}
"""
    assert hlo.read(text).work == 8 * 8 * 3


@pytest.mark.parametrize(
    ("line", "work"),
    [
        ("c64[4,8]{1,0} multiply(%c, %c)", 6 * 4 * 8),
        ("c64[4,8]{1,0} add(%c, %c)", 2 * 4 * 8),
        ("f32[4,8]{1,0} sort(%r), dimensions={1}", 4 * 8 * 3),
        ('(f32[4,8]{1,0}, s32[4,8]{1,0}) custom-call(%r), custom_call_target="TopK"', 4 * 8 * 3),
        (
            '(f32[8,8]{0,1}, f32[8]{0}) custom-call(%m), custom_call_target="lapack_ssyevd_ffi"',
            9 * 8 * 8 * 8,
        ),
    ],
)
def test_work_that_one_instruction_hides(line: str, work: int) -> None:
    text = f"""HloModule m

ENTRY %main (c: c64[4,8], r: f32[4,8], m: f32[8,8]) -> f32[4,8] {{
  %c = c64[4,8]{{1,0}} parameter(0)
  %r = f32[4,8]{{1,0}} parameter(1)
  %m = f32[8,8]{{1,0}} parameter(2)
  %x = {line}
}}
"""
    assert hlo.read(text).work == work


def test_done_operations_and_names_of_collectives_do_not_count() -> None:
    assert one("%all-gather-done = f32[16]{0} all-gather-done(%all-gather-start)") == []
    assert one("%all-reduce.1 = f32[4]{0} fusion(%all-reduce), calls=%all-reduce") == []


@pytest.mark.parametrize(
    ("line", "copies"),
    [
        ("%c = (f32[4]{0:S(5)}, f32[4]{0}, u32[]) copy-start(%host)", 0),
        ("%c = (f32[4]{0}, f32[4]{0:S(5)}, u32[]) copy-start(%host)", 1),
        ("%c = (f32[4]{0:S(5)}, f32[4]{0}, u32[]) copy-start(%device)", 1),
        ("%c = f32[4]{0} copy(%host)", 1),
        ("%c = f32[4]{0} copy(f32[4]{0:S(5)} %host)", 1),
        ("%c = f32[4]{0} copy(%device)", 0),
    ],
)
def test_copies_between_memories(line: str, copies: int) -> None:
    parameters = "  %host = f32[4]{0:S(5)} parameter(0)\n  %device = f32[4]{0} parameter(1)\n"
    assert hlo.read(f"HloModule m\n\n{parameters}  {line}\n").host_copies == copies


def test_aliases_of_several_and_nested_outputs() -> None:
    table = "{ {}: (3, {}, may-alias) }"
    assert hlo.read(f"HloModule m, input_output_alias={table}, e=1\n").aliases == {"0": 3}
    table = "{ {0}: (2, {}, may-alias), {1}: (0, {4}, must-alias) }"
    found = hlo.read(f"HloModule m, input_output_alias={table}, e={{(1, {{}})}}\n").aliases
    assert found == {"0": 2, "1": 4}


def test_the_parser_loads_without_jax() -> None:
    code = "import sys, grader.records.hlo; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
