"""What the runtime's trace adds to what the probes see: a remark beside a line says it.

`#: d2d` is one copy that a probe sees, as in `test_probes.py`; `#+ d2d` is one that only the trace
has. On a line without `#+` the trace adds nothing. The policy refuses most of these files before
they run; here they run all the same, in one process, which works as a worker does.
"""

import json
import re
from collections import Counter
from importlib.metadata import version
from typing import Any

import msgspec
import pytest
from conftest import ROOT, python
from test_probes import FILES, HEAD, wanted

from grader.judging import witness
from grader.judging.witness import UNTOLD
from grader.records.record import Observed

MORE = re.compile(r"#\+ (?:(\d+) )?(\w+)")
COPIES, EVERYTHING = {"h2d", "d2d"}, {"h2d", "d2d", "compile", "wait"}

SLOW = """
import time
def late():
    time.sleep(0.3)  # a device is busy for longer than this process may be kept waiting
    return np.zeros((), np.float32)
@jax.jit
def slow(a):
    return a @ a + jax.pure_callback(late, jax.ShapeDtypeStruct((), "float32"))
product = jax.jit(lambda a: a @ a)
def busy(make):
    found = slow(product(make((400, 400))))
    while found.is_ready():  # a program whose inputs are there may run in the thread that calls it
        found = slow(product(make((400, 400))))
    return found
def below(wrapper):
    there = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__))
    return there["function"].cell_contents
"""

ATTACKS = {
    "a_copy_under_a_guard_that_is_silenced": """
def run(make):
    x = make((3,))
    with jax.transfer_guard("allow"):
        jax.device_put(x, jax.devices()[1])  #+ d2d
    jax.device_put(x, jax.devices()[1])  #: d2d
""",
    "a_copy_by_a_thread_whose_guard_is_silenced": """
def run(make):
    x = make((3,))
    def copy():
        with jax.transfer_guard("allow"):
            jax.device_put(x, jax.devices()[1])  #+ d2d
    thread = threading.Thread(target=copy)
    thread.start(), thread.join()
""",
    "a_copy_from_a_program": """
def run(make):
    x, ready = make((3,)), threading.Event()
    def copied():
        with jax.transfer_guard("allow"):
            jax.device_put(x, jax.devices()[1]).block_until_ready()  #+ d2d #: wait
        ready.set()
        return np.zeros((), np.float32)
    spec = jax.ShapeDtypeStruct((), "float32")
    jax.jit(lambda v: v + jax.pure_callback(copied, spec))(x)
    ready.wait()
""",
    "a_free_array_that_the_shortcut_copies_at_each_call": """
import gc
from jax._src import pjit
from unittest import mock
def run(make):
    name = "_get_fastpath_data"
    (real,) = [f for f in gc.get_objects() if getattr(f, "__name__", "") == name and callable(f)]
    with mock.patch.object(pjit, name, real):
        f = jax.jit(lambda a, b: a * 2 + b)
        free = make((3,))
        there = jax.device_put(free, jax.devices()[1])  #: d2d
        f(there, free)  #: d2d
        for _ in range(4):
            f(there, free)  #+ 4 d2d
""",
    "parts_that_are_copied_where_they_lie": """
def run(make, observe):
    spread = jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x"))
    with observe.unwatched():
        y = jax.device_put(make((4,)), spread)
    jax.device_put(y, spread, may_alias=False)  #+ d2d #: d2d
""",
    "host_memory_that_is_lent_and_does_not_fit": """
def run(make):
    x = np.ones(9, np.float32)
    jnp.from_dlpack(x[1:])  #+ h2d
""",
    "host_memory_under_a_guard_that_is_silenced": """
def run(make):
    x = np.ones(9, np.float32)
    with jax.transfer_guard("allow"):
        for _ in range(3):
            jax.device_put(x[1:])  #+ 3 h2d
""",
    "a_wait_by_the_method_below_the_probe": SLOW
    + """
def run(make):
    wait = below(type(make()).block_until_ready)
    wait(busy(make))  #+ wait
    busy(make).block_until_ready()  #: wait
""",
    "a_buffer_that_is_handed_out": SLOW
    + """
def run(make):
    from jaxlib import _jax
    _jax.buffer_to_dlpack_managed_tensor(busy(make))  #+ wait
""",
    "a_compile_by_the_client": """
from jaxlib import _jax, xla_client
def run(make):
    x = make((3,))
    (device,) = x.devices()
    module = jax.jit(lambda a: a * 3).lower(x).compiler_ir()
    options = xla_client.CompileOptions()
    device.client.compile_and_load(module, _jax.DeviceList((device,)), options)  #+ compile
    jax.jit(lambda a: a * 4)(x)  #: compile
""",
    "a_compile_below_the_event": """
from jax._src import compiler
from jaxlib import _jax, xla_client
def run(make):
    x = make((3,))
    (device,) = x.devices()
    module = jax.jit(lambda a: a * 5).lower(x).compiler_ir()
    options = xla_client.CompileOptions()
    devices = _jax.DeviceList((device,))
    compiler.backend_compile_and_load(device.client, module, devices, options, [])  #+ compile
""",
    "a_compile_that_nobody_listens_to": """
from jax._src import monitoring
from unittest import mock
def run(make):
    x = make((3,))
    with mock.patch.object(monitoring, "_event_duration_secs_listeners", []):
        jax.jit(lambda a: a * 6)(x)  #+ compile
""",
    "a_copy_in_a_trace_of_ones_own": """
import pathlib, tempfile
def run(make):
    x = make((3,))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            with jax.transfer_guard("allow"):
                jax.device_put(x, jax.devices()[1])  #+ d2d
        assert list(pathlib.Path(folder).rglob("*.xplane.pb"))
    with jax.transfer_guard("allow"):
        jax.device_put(x, jax.devices()[1])  #+ d2d
""",
    "a_copy_in_a_session_that_ends_in_files": """
import pathlib, tempfile
from jax._src.lib import _profiler
def run(make):
    x = make((3,))
    session = _profiler.ProfilerSession(jax.profiler.ProfileOptions())
    with jax.transfer_guard("allow"):
        jax.device_put(x, jax.devices()[1])  #+ d2d
    with tempfile.TemporaryDirectory() as folder:
        session.stop_and_export(folder)
        assert list(pathlib.Path(folder).rglob("*.xplane.pb"))
""",
    "a_trace_of_ones_own_that_lasts": """
import pathlib, tempfile, time
def run(make, observe):
    x = make((3,))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.profiler.TraceAnnotation("begun").__enter__().__exit__(None, None, None)
            for _ in range(3):
                time.sleep(0.6)  # longer than a session of the observer's own lasts
                observe.mark()
        file = next(pathlib.Path(folder).rglob("*.xplane.pb"))
        planes = jax.profiler.ProfileData.from_file(str(file)).planes
        noted = [event.name for plane in planes for line in plane.lines for event in line.events]
        assert "begun" in noted
    with jax.transfer_guard("allow"):
        jax.device_put(x, jax.devices()[1])  #+ d2d
""",
    "devices_that_exchange_in_a_program": """
def run(make, observe):
    mesh = jax.make_mesh((2,), ("x",))
    split, whole = (jax.NamedSharding(mesh, spec) for spec in (jax.P("x"), jax.P()))
    gather = jax.jit(lambda x: -x, out_shardings=whole)
    added = jax.jit(lambda x: x.sum(), out_shardings=whole)
    with observe.unwatched():
        y = jax.device_put(make((4,)), split)
        gather(y)
    for _ in range(3):
        gather(y)  #+ 3 exchange
    added(y).block_until_ready()  #+ exchange
    (y + 1).block_until_ready()
""",
    "a_trace_that_is_never_ended": """
def run(make):
    x = make((3,))
    jax.profiler.start_trace("/tmp/never")
    with jax.transfer_guard("allow"):
        jax.device_put(x, jax.devices()[1])  #+ d2d
""",
}


READS_BELOW = {
    "a_read_below_the_array": SLOW
    + """
def run(make):
    busy(make)._single_device_array_to_np_array_did_copy()  #+ wait
    np.asarray(busy(make))  #: d2h
""",
    "a_read_by_the_property_below_the_probe": SLOW
    + """
def run(make):
    below(type(make())._value.fget)(busy(make))  #+ wait
""",
}
"""Reads by private methods, of which jax 0.11 notes nothing."""
if not version("jax").startswith("0.11."):
    ATTACKS |= READS_BELOW


@pytest.fixture(scope="module")
def answer() -> Any:
    """What `probe_cases.py` printed: of each file, what was observed."""
    sent = json.dumps({name: HEAD + source for name, source in (FILES | ATTACKS).items()})
    ran = python(ROOT / "tests" / "probes" / "probe_cases.py", stdin=sent)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture
def found(answer: Any, name: str) -> Observed:
    observed = msgspec.convert(answer["found"][name], Observed)
    assert observed.missing_probes == {}
    assert observed.witnessed is not None
    assert observed.witnessed.problem == ""
    return observed


def added(observed: Observed) -> Counter[tuple[int | None, str]]:
    """(line, kind) -> number of events that the trace adds in the run."""
    found: Counter[tuple[int | None, str]] = Counter()
    for event in witness.counted(observed).events:
        unseen = event.detail == UNTOLD or event.kind == "exchange"  # no probe sees any
        if event.phase == "run" and unseen:
            found[event.line, event.kind] += event.count
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_what_no_probe_sees_is_in_the_trace(found: Observed, name: str) -> None:
    source = HEAD + ATTACKS[name]
    wanted_more: Counter[tuple[int | None, str]] = Counter()
    for number, line in enumerate(source.split("\n"), 1):
        for count, kind in MORE.findall(line):
            wanted_more[number, kind] += int(count or 1)
    assert wanted_more
    assert added(found) == wanted_more
    seen: Counter[tuple[int | None, str]] = Counter()
    kinds = {kind for _, kind in [*wanted_more, *wanted(ATTACKS[name])]}
    for event in found.events:
        if event.phase == "run" and event.kind in kinds:
            seen[event.line, event.kind] += event.count
    assert seen == wanted(ATTACKS[name]), "the probes alone"


@pytest.mark.parametrize("name", FILES)
def test_what_the_probes_see_is_not_counted_again(found: Observed, name: str) -> None:
    assert {kind for _, kind in added(found)} <= {"exchange"}


SILENCED = {
    "a_guard_that_stays_silent": (
        """
def run(make):
    jax.config.update("jax_transfer_guard_device_to_device", "allow")
""",
        {"transfers": "known events were not seen: d2d"},
    ),
    "a_probe_that_believes_it_is_inside_another": (
        """
def run(make):
    wait = type(make()).block_until_ready
    there = dict(zip(wait.__code__.co_freevars, wait.__closure__))
    there["before"].cell_contents(make())
""",
        {"reads": "known events were not seen: d2h, wait"},
    ),
    "a_listener_that_is_unregistered": (
        """
def run(make):
    jax.monitoring.clear_event_listeners()
""",
        {"compiles": "known events were not seen: compile, trace"},
    ),
}
TRACELESS = {
    "a_profiler_that_is_replaced": (
        """
from jax._src.lib import _profiler
def run(make):
    _profiler.ProfilerSession = None
""",
        "JAX's profiler was replaced while the submission ran",
    ),
    "a_session_that_is_ended": (
        """
import gc
def run(make):
    (trace,) = [each for each in gc.get_objects() if type(each).__name__ == "Runtime"]
    trace._session.stop_and_get_profile_data()
    trace._session = None
    make()
""",
        "marks, ",
    ),
}


@pytest.mark.parametrize("name", SILENCED)
def test_a_probe_that_falls_silent_is_not_believed(name: str) -> None:
    source, missing = SILENCED[name]
    observed = alone(name, HEAD + source)
    for probe, words in missing.items():
        assert words in observed.missing_probes[probe]


@pytest.mark.parametrize("name", TRACELESS)
def test_a_trace_that_falls_silent_is_not_believed(name: str) -> None:
    source, words = TRACELESS[name]
    judged = witness.counted(alone(name, HEAD + source))
    assert set(judged.missing_probes) == {"transfers", "reads", "compiles"}
    assert all(words in problem for problem in judged.missing_probes.values())


def alone(name: str, source: str) -> Observed:
    """What was observed of a file that leaves its process useless to others."""
    ran = python(ROOT / "tests" / "probes" / "probe_cases.py", stdin=json.dumps({name: source}))
    assert ran.returncode == 0, ran.stderr
    return msgspec.convert(json.loads(ran.stdout)["found"][name], Observed)


def test_jax_is_left_as_it_was(answer: Any) -> None:
    assert answer["restored"]


PLANES = """
planes { name: "/device:GPU:0"
  event_metadata { key: 1 value { id: 1 name: "MemcpyH2D" } }
  event_metadata { key: 2 value { id: 2 name: "loop_add_fusion" } }
  event_metadata { key: 3 value { id: 3 name: "MemcpyP2P" } }
  stat_metadata { key: 1 value { id: 1 name: "memcpy_details" } }
  lines { name: "Stream #13(MemcpyH2D)" timestamp_ns: 1000
    events { metadata_id: 1 offset_ps: 2000000 duration_ps: 1 stats { metadata_id: 1
      str_value: "kind_src:pageable kind_dst:device size:4096 dest:0 async:1" } }
    events { metadata_id: 2 offset_ps: 3000000 duration_ps: 1 }
    events { metadata_id: 3 offset_ps: 4000000 duration_ps: 1 } } }
planes { name: "/host:CPU"
  event_metadata { key: 1 value { id: 1 name: "MemcpyH2D" } }
  lines { name: "python" events { metadata_id: 1 duration_ps: 1 } } }
"""
"""A trace in the words of XLA's profiler for CUDA."""


def test_copies_are_read_from_the_planes_of_gpus() -> None:
    code = "import sys; from jax.profiler import ProfileData; "
    code += "from grader.probes.runtime import device_copies; "
    code += "xspace = ProfileData.text_proto_to_serialized_xspace(sys.stdin.read()); "
    code += "print(device_copies(ProfileData.from_serialized_xspace(xspace)))"
    ran = python("-c", code, stdin=PLANES)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "[Copied(kind='H2D', nbytes=4096, device='/device:GPU:0', start=3e-06), "
        "Copied(kind='P2P', nbytes=None, device='/device:GPU:0', start=5e-06)]\n"
    )
