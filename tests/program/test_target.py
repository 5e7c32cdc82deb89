"""The target ground: programs compiled for a machine nobody has, by the CUDA plugin, without a GPU.

`target_cases.py` exports in one process; the fenced worker that compiles gets only bytes. The
last tests show that the plugin, which is installed beside this environment, disturbs no other
program, and that lessons compile for targets too.
"""

import json
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from conftest import ROOT, Cli, python
from made_up import add, always, exercise, record, statuses
from program_cases import COLUMNS
from target_cases import WIDE

from grader.judging.checking import Failure, Unable
from grader.judging.judge import judge, worth_compiling, worth_timing
from grader.judging.programs import target_program, target_reference
from grader.program import targets
from grader.records import hlo
from grader.records.record import (
    Collective,
    Measured,
    Observed,
    Outcome,
    Program,
    Record,
    Signature,
    Target,
)
from grader.running import sides
from grader.running.grade import _compile
from grader.running.launch import ForkServer
from grader.running.messages import Targeted
from grader.running.session import Options, Session

H200 = targets.find("h200x8")
SOLUTION = ROOT / "solutions" / "ex22_pmap_to_jit.py"
MATRIX = WIDE * WIDE * 4
JAXLIB = version("jaxlib")


def package(place: Path, name: str, number: str) -> Path:
    """Put a package without modules into `place/target-packages`; return its metadata folder."""
    info = place / "target-packages" / f"{name.replace('-', '_')}-{number}.dist-info"
    info.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
    (info / "METADATA").write_text(text, "utf-8")
    return info


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Program]:
    """Every program of `target_cases`."""
    out = tmp_path_factory.mktemp("exported") / "programs.json"
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = python(ROOT / "tests" / "program" / "target_cases.py", out, **flags)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(out.read_bytes(), type=dict[str, Program])


@pytest.fixture(scope="module")
def compiling(session: Session) -> Session:
    """A session that is ready to compile for targets."""
    assert session.start_compilers() == "", "`make test` runs `grader install-target`"
    return session


@pytest.fixture(scope="module")
def compiled(exported: dict[str, Program], compiling: Session) -> dict[str, Measured]:
    """Every exported program, compiled for 8 x H200 by one worker."""
    found = sides.compile_for(compiling, H200, exported)
    assert found.problem == ""
    return found.programs


# The targets.


@pytest.mark.parametrize("name", targets.names())
def test_a_target_has_a_source_for_every_figure(name: str) -> None:
    target = targets.find(name)
    assert target.devices == target.nodes * target.per_node
    assert min(target.memory_bytes, target.memory_bandwidth, target.node_bandwidth) > 0
    assert bool(target.network_bandwidth) == (target.nodes > 1)
    wanted = {"shape", "config", "memory_bytes", "node_bandwidth"}
    wanted |= {"network_bandwidth"} if target.nodes > 1 else set()
    assert set(target.sources) == wanted
    assert all("https://" in text or "openxla/xla: " in text for text in target.sources.values())


def test_the_targets_of_the_course() -> None:
    assert targets.names() == ["h200x8", "h100x8", "a100x8", "h200x2x8"]
    assert (H200.device_kind, H200.devices, H200.memory_bytes) == ("NVIDIA H200", 8, 151397597184)
    assert targets.topology(targets.find("h200x2x8")) == "1x2x8"
    assert 'device_description_str: "NVIDIA H200"' in targets.config("h200x8")
    assert "feature_extension: NONE" in targets.config("a100x8")


@pytest.mark.parametrize(
    "arguments", [["--target", "h2"], ["--target", "h200x8", "--devices", "3"]]
)
def test_a_wrong_target_is_a_wrong_command(arguments: list[str], grader: Cli) -> None:
    ran = grader("check", "ex07", *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr in (
        "grader: no target h2; there are h200x8, h100x8, a100x8, h200x2x8\n",
        "grader: --target simulates a device for each of its own: no --device, no --devices\n",
    )


# What the compiler says about a program.


def test_collectives_and_their_bytes(compiled: dict[str, Measured]) -> None:
    gradient = Collective("all-reduce", COLUMNS * COLUMNS * 4)
    for name in ("step", "donated", "explicit"):
        assert compiled[name].problem == ""
        assert compiled[name].collectives == [gradient]
    assert [c.op for c in compiled["shard_map"].collectives] == ["all-reduce"]
    assert compiled["pmap"].problem == ""
    assert [c.op for c in compiled["pmap"].collectives] == ["all-reduce"]


def test_donation_goes_with_the_program(compiled: dict[str, Measured]) -> None:
    assert (compiled["step"].donated, compiled["step"].aliases) == ([], {})
    assert (compiled["donated"].donated, compiled["donated"].aliases) == ([0], {"0": 0})
    memory = compiled["donated"].memory
    assert memory is not None
    assert memory.aliased == COLUMNS * COLUMNS * 4


def test_arguments_that_no_machine_here_could_hold(compiled: dict[str, Measured]) -> None:
    memory = compiled["large"].memory
    assert memory is not None
    assert memory.arguments == MATRIX + MATRIX // 8
    assert compiled["large"].collectives == [Collective("all-reduce", MATRIX)]
    assert memory.peak < H200.memory_bytes


def test_host_memory_is_kept_apart(compiled: dict[str, Measured]) -> None:
    """Kinds of memory, and donation within each, reach the GPU's compiler."""
    found, memory = compiled["offloaded"], compiled["offloaded"].memory
    assert memory is not None
    assert (memory.host_arguments, memory.host_outputs) == (MATRIX // 8, MATRIX // 8)
    assert memory.arguments == MATRIX // 8
    assert found.host_copies == 2
    assert found.out_memory_kinds == ["device", "pinned_host"]
    assert found.aliases == {"0": 1, "1": 0}
    assert compiled["pinned_donated"].aliases == {"0": 0}
    assert compiled["to_device"].in_shardings == ["P('data') on data=8 pinned_host"]
    assert compiled["pinned_single"].host_copies + compiled["to_device"].host_copies > 0


def test_all_that_jax_lowers_to_compiles(compiled: dict[str, Measured]) -> None:
    for name in ("trees", "unused", "key", "linear_algebra"):
        assert compiled[name].problem == ""
        assert compiled[name].signature is not None
        assert compiled[name].outputs == [], "nothing is run"


def test_programs_that_are_refused(
    exported: dict[str, Program], compiled: dict[str, Measured]
) -> None:
    assert "the program calls back into Python" in exported["printing"].problem
    assert "a call back into Python" in compiled["forged"].problem
    assert "the custom call `unheard_of`, 2 times" in compiled["outside"].problem
    assert compiled["for_cpu"].problem == "it was exported for cpu, not for cuda"
    assert compiled["nonsense"].problem.startswith("it is not a program JAX can read")


@pytest.mark.parametrize("name", targets.names()[1:])
def test_every_target_compiles(name: str, exported: dict[str, Program], compiling: Session) -> None:
    one = {"donated": exported["donated"]}
    found = sides.compile_for(compiling, targets.find(name), one)
    assert found.problem == ""
    assert found.programs["donated"].collectives[0].op == "all-reduce"


def test_memories_of_results() -> None:
    layout = "{(f32[8]{0:S(5)})->(f32[8]{0}, (u32[]{:S(5)}, bf16[2,2]{1,0:T(8)S(5)}))}"
    text = f"HloModule jit_f, entry_computation_layout={layout}, num_partitions=8\n"
    assert hlo.result_memories(text) == ["device", "pinned_host"]
    one = text.replace("(f32[8]{0}, (u32[]{:S(5)}, bf16[2,2]{1,0:T(8)S(5)}))", "f32[8]{0:S(5)}")
    assert hlo.result_memories(one) == ["pinned_host"]


# What can go wrong.


def test_a_plugin_that_raises(
    exported: dict[str, Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = package(tmp_path, "jax-cuda13-plugin", JAXLIB) / "entry_points.txt"
    plugin.write_text("[jax_plugins]\nbroken = broken\n", "utf-8")
    text = "def initialize():\n    raise RuntimeError('no such library')\n"
    (plugin.parents[1] / "broken.py").write_text(text, "utf-8")
    tmp_path.chmod(0o755)
    monkeypatch.setenv(targets.FOLDER, str(tmp_path))
    with Session(Options("cpu"), ["jax", "grader.program"]) as broken:
        assert broken.start_compilers() == ""
        found = sides.compile_for(broken, H200, {"step": exported["step"]})
    assert found.programs == {}
    assert found.problem.startswith("JAX's CUDA plugin does not compile for 8 x NVIDIA H200: ")
    assert found.problem.endswith("(RuntimeError: no such library)")


def test_a_compile_that_takes_too_long(
    exported: dict[str, Program], compiling: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "TARGET_SECONDS", 0.0)
    found = sides.compile_for(compiling, H200, {"step": exported["step"]})
    assert found.programs["step"].problem == (
        "the process that compiles it for 8 x NVIDIA H200 ended: still running after 0 s"
    )


@dataclass
class Compiles:
    """A reference with this outcome of compiling."""

    found: Targeted

    def targeted(self) -> "Future[Targeted]":
        future: Future[Targeted] = Future()
        future.set_result(self.found)
        return future


@pytest.mark.parametrize(
    ("mine", "theirs", "problem"),
    [
        (Targeted({"f": Measured("f")}), Targeted({"f": Measured("f")}), ""),
        (Targeted({"f": Measured("f", "bad")}), Targeted({"f": Measured("f")}), ""),
        (Targeted(problem="broken"), Targeted(problem="broken"), "broken"),
        (
            Targeted({"f": Measured("f", "bad")}),
            Targeted({"f": Measured("f", "no ptxas")}),
            "the reference's `f`: no ptxas",
        ),
    ],
)
def test_what_fails_for_the_reference_too_is_not_the_learners(
    mine: Targeted,
    theirs: Targeted,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    session: Session,
) -> None:
    monkeypatch.setattr("grader.running.grade.compile_for", lambda *_: mine)
    made = record(Observed(Outcome("finished"), targeted={"f": Program("f", b"x")}), target=H200)
    _compile(made, session, Compiles(theirs), H200)  # type: ignore[arg-type]
    assert made.target_problem == problem
    found = target_program(made, "f")
    assert isinstance(found, Unable) == bool(problem)
    assert isinstance(found, Failure) == (not problem and bool(mine.programs["f"].problem))
    assert (target_reference(made, "f") is None) == bool(problem)


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        ("", "compiling for a target needs JAX's CUDA plugin, and no GPU: "),
        (
            "0.9",
            "JAX's CUDA plugin must be of jaxlib's version, not jax-cuda13-plugin 0.9 and jaxlib "
            f"{JAXLIB}: ",
        ),
        (JAXLIB, ""),
    ],
)
def test_a_missing_or_wrong_plugin_is_found_by_its_metadata(
    plugin: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(targets.FOLDER, str(tmp_path))
    if plugin:
        package(tmp_path, "jax-cuda13-plugin", plugin)
    assert targets.missing() == (problem and f"{problem}`grader install-target`")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert targets.missing().endswith("which is for Linux")


def test_a_plugin_in_the_environment_itself_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is so where JAX was installed for a GPU."""
    monkeypatch.setenv(targets.FOLDER, str(tmp_path / "empty"))
    assert targets.import_path() == [str(tmp_path / "empty" / "target-packages")]
    package(tmp_path, "jax-cuda12-plugin", JAXLIB)
    monkeypatch.syspath_prepend(tmp_path / "target-packages")
    assert (targets.import_path(), targets.missing()) == ([], "")


def test_without_the_plugin_all_other_checks_are_judged(grader: Cli, tmp_path: Path) -> None:
    """The other checks pass, time among them; the report says how to get the plugin; exit 3."""
    command = ("check", "ex22", "--target", "h200x8", "--submission", SOLUTION, "--format", "json")
    ran = grader(*command, **{targets.FOLDER: str(tmp_path)})
    assert (ran.returncode, ran.stderr) == (3, "")
    (report,) = json.loads(ran.stdout)["reports"]
    unable = [v for v in report["verdicts"] if v["status"] != "pass"]
    assert [v["ground"] for v in unable if v["ground"] != "timing"] == ["target"]
    assert unable[0]["reason"].endswith(": `grader install-target`")
    assert report["target"] == "8 x NVIDIA H200"


# What is judged, and when.


def aimed(target: Target | None, **fields: object) -> Record:
    """A record with or without a target."""
    return record(target=target, **fields)


def test_without_a_target_its_checks_are_left_out() -> None:
    made = exercise(a=None)
    add(made, "b", always(Failure("x", "y")), "target", ("a",))
    add(made, "c", always(None), "timing", ("b",))
    report = judge(aimed(None), made)
    assert statuses(report) == dict.fromkeys(("source", "runs", "a", "c"), "pass")
    assert (report.left_out, report.target, report.exit_code) == (1, "", 0)
    report = judge(aimed(H200), made)
    assert (report.left_out, report.target, report.exit_code) == (0, "8 x NVIDIA H200", 1)
    assert statuses(report)["c"] == "blocked"


def test_no_time_is_spent_on_a_submission_that_fails_already() -> None:
    failing = exercise(a=Failure("x", "y"))
    add(failing, "b", always(None), "target", ("a",))
    assert not worth_compiling(aimed(H200), failing)
    passing = exercise(a=None)
    add(passing, "b", always(Failure("x", "y")), "target", ("a",))
    assert worth_compiling(aimed(H200), passing)
    assert not worth_timing(aimed(H200), passing)
    assert worth_timing(aimed(None), passing)
    lacking = exercise(a=None)
    add(lacking, "b", always(Unable("no plugin")), "target", ("a",))
    assert worth_timing(aimed(H200, target_problem="no plugin"), lacking)


def test_what_is_compiled_for_the_target_is_what_was_run() -> None:
    """A function may look at the sizes of its arguments, and do something else for large ones."""
    one, two = Signature((), (), "(*)", "*", 8), Signature((), (), "(*, *)", "*", 8)
    ran = Measured("f", signature=one, operations={"stablehlo.dot_general": 2, "stablehlo.add": 1})
    same = Measured("f", signature=one, operations=dict(ran.operations))
    less = Measured("f", signature=one, operations={"stablehlo.add": 1})
    more = Measured("f", signature=two, operations=dict.fromkeys(ran.operations, 5))
    none = Measured("f", signature=two, operations={"stablehlo.add": 1})
    submission = Observed(Outcome("finished"), targeted={"f": Program("f", b"x")})
    for found, well in ((same, True), (less, False), (more, True), (none, False)):
        measured = {"measured": {"f": ran}, "target_measured": {"f": found}}
        made = record(submission, target=H200, **measured)
        answer = target_program(made, "f")
        assert isinstance(answer, Measured) == well
        if isinstance(answer, Failure):
            counts = "holds 0 `stablehlo.dot_general`, the one that was run holds 2"
            assert counts in answer.observed


# The plugin is installed beside the environment, and only workers that compile see it.


def test_the_plugin_is_installed_here() -> None:
    assert targets.missing() == "", "`make test` runs `grader install-target`"


def test_other_programs_do_not_notice_the_plugin() -> None:
    program = "import jax; jax.devices()"
    alone, beside = python("-c", program), python("-c", program, PYTHONPATH=str(targets.folder()))
    assert "jax_plugins.xla_cuda13" in beside.stderr, "a separate folder would no longer be needed"
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, "", "")


def test_only_workers_that_compile_see_the_plugin(compiling: Session) -> None:
    """JAX loads the plugin's libraries when it is imported: before the workers are forked."""
    compiling.release(compiling.prepare("cpu", 8, observe=True, hide=True).worker)
    compiling.release(compiling.prepare_compiler(hide=True).worker)
    folder, loaded = str(targets.folder()), []
    for server in (compiling._launcher, compiling._compilers):
        assert isinstance(server, ForkServer)
        loaded.append(folder in Path(f"/proc/{server._process.pid}/maps").read_text("utf-8"))
    assert loaded == [False, True]


def test_a_worker_on_the_cpu_prints_nothing(session: Session) -> None:
    prepared = session.prepare("cpu", 8, observe=True, hide=True)
    try:
        assert prepared.said == ""
    finally:
        session.release(prepared.worker)


@pytest.mark.parametrize("platforms", [{}, {"JAX_PLATFORMS": "cpu"}])
def test_doctor_compiles_for_each_target_and_is_quiet(
    platforms: dict[str, str], grader: Cli
) -> None:
    ran = grader("doctor", **platforms)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"targets   {', '.join(targets.names())}\n" in ran.stdout
    assert "JAX printed while it started" not in ran.stdout


# Lessons compile with a helper of their own, which does not know the grader.

LESSON = """
import sys, json
sys.path.insert(0, "docs/lessons")
import jax, _target
jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
def struct(*spec, kind="device"):
    sharding = jax.NamedSharding(mesh, jax.P(*spec), memory_kind=kind)
    return jax.ShapeDtypeStruct((1024, 1024), "float32", sharding=sharding)
def mean(x):
    return jax.numpy.tanh(x).mean()
def move(kept, x):
    return jax.device_put(jax.device_put(kept, jax.memory.Space.Device) + x, jax.memory.Space.Host)
calls = [
    (mean, struct("data")),
    (jax.jit(move, donate_argnums=0), struct("data", kind="pinned_host"), struct("data")),
]
one, two = _target.compiled_all(calls)
print(json.dumps([
    [[c.op, c.nbytes, c.count] for c in one.collectives], one.host_copies, two.host_copies,
    vars(two.memory), str(one), _target.machine("h200x2x8").devices, jax.devices()[0].platform,
]))
"""


def test_lessons_compile_for_a_target_too() -> None:
    ran = python("-c", LESSON, JAX_PLATFORMS="cpu")
    assert (ran.returncode, ran.stderr) == (0, "")
    collectives, copies, moved, memory, text, devices, here = json.loads(ran.stdout)
    assert (collectives, copies, moved) == ([["all-reduce", 4, 1]], 0, 2)
    assert memory["host_arguments"] == memory["host_outputs"] == 1024 * 1024 * 4 // 8
    assert memory["aliased"] == 0
    assert text.startswith("compiled for 8 x NVIDIA H200; not run\n  1 x all-reduce of 4 bytes\n")
    assert (devices, here) == (16, "cpu")


def test_a_lesson_without_the_plugin_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.path.insert(0, 'docs/lessons'); import _target; _target.compiled(len)"
    ran = python("-c", code, **{targets.FOLDER: str(tmp_path)})
    assert ran.stderr.splitlines()[-1].endswith("it needs: make target")
