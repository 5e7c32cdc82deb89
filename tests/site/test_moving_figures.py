"""The figures that move, used in a browser and held against JAX; that of placements is elsewhere.

Each figure is moved by key, and 200 random states of it agree with what JAX says when it is asked
anew: nothing of a figure's own table is used to check it.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import proving  # sets eight CPU devices before a backend starts
import pytest
from browser import CHROMIUM
from building import ROOT

from figures import whose_memory_table

pytest_plugins = ["built_site", "looking"]
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine"),
]
HERE = Path(__file__).parent
STATES = 200

# Chooses values of the lists of a figure, in order, and tells what is then there.
SET = """((name, values) => {
  const figure = document.querySelector(`.moving.${name}`);
  const inputs = [...figure.querySelectorAll('form :is(select, input)')];
  values.forEach((value, i) => {
    if (inputs[i].type === 'checkbox') inputs[i].checked = value;
    else inputs[i].value = value;
    inputs[i].dispatchEvent(new Event('input', { bubbles: true }));
  });
  const text = selector => [...figure.querySelectorAll(selector)].map(one => one.textContent);
  return {
    chosen: inputs.map(one => one.type === 'checkbox' ? one.checked : one.value),
    said: text('[role=status]'),
    steps: text('.walk li > span:first-child'),
    here: text('.walk .here'),
    rows: [...figure.querySelectorAll('tbody tr')].map(row =>
      [...row.cells].map(one => one.textContent)),
    bars: [...figure.querySelectorAll('[data-span]')].map(one => JSON.parse(one.dataset.span)),
  };
})"""


def ready(browser, name):
    """Bring a figure onto the screen and wait until it moves."""
    browser.run(f"document.querySelector('.moving.{name}').scrollIntoView()")
    browser.wait(f"document.querySelector('.moving.{name}.ready') !== null")


def shown(browser, name, values):
    """What a figure shows after these values were chosen."""
    found = browser.run(f"{SET}({json.dumps(name)}, {json.dumps(values)})")
    assert found["chosen"] == values
    return found


def offered(browser, name):
    """The values of each list and checkbox of a figure, in order."""
    return browser.run(
        f"""[...document.querySelectorAll('.moving.{name} form :is(select, input)')].map(one =>
        one.type === 'checkbox' ? [false, true] : [...one.options].map(option => option.value))"""
    )


FIGURES = {
    "who_decides": "/lessons/05-who-decides-where-it-runs/",
    "step_in_time": "/lessons/04-the-inner-loop/",
    "whose_memory": "/lessons/14-collectives-you-can-count/",
    "roofline_figure": "/lessons/17-measure-before-you-tune/",
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_moves_by_key_alone_and_says_what_it_shows(page, name):
    browser = page(FIGURES[name])
    ready(browser, name)
    figure = f"document.querySelector('.moving.{name}')"
    unnamed = browser.run(
        f"""[...{figure}.querySelectorAll('form :is(select, input)')].filter(one =>
        !one.labels[0]?.textContent.trim() || !one.closest('fieldset').querySelector('legend'))
        .length"""
    )
    assert unnamed == 0
    assert browser.run(f"{figure}.getAttribute('aria-label').length > 0")
    assert browser.run(f"{figure}.querySelector('[role=status]').textContent.length > 20")
    said = f"{figure}.querySelector('.moving-shown').textContent"
    told = []
    count = browser.run(f"{figure}.querySelectorAll('form :is(select, input)').length")
    for index in range(count):
        one = f"{figure}.querySelectorAll('form :is(select, input)')[{index}]"
        chosen = f"({one}.type === 'checkbox' ? {one}.checked : {one}.value)"
        before, first = browser.run(said), browser.run(chosen)
        browser.run(f"{one}.focus()")
        for key in [" "] if browser.run(f"{one}.type") == "checkbox" else ["End", "Home"]:
            if browser.run(chosen) == first:
                browser.press(key)
        assert browser.run(chosen) != first, index
        told.append(browser.run(said) != before)
    assert sum(told) > len(told) / 2, told  # what splits nothing on one device changes nothing


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_stands_still_without_scripts(chromium, served, name):
    still = json.dumps(f".{name}-still :is(table tbody tr, svg)")
    count = f"document.querySelectorAll({still}).length"
    assert chromium.run_without_scripts(served + FIGURES[name], count)


@pytest.mark.parametrize("name", FIGURES)
def test_only_the_pages_of_a_figure_load_its_script(page, name):
    browser = page("/lessons/01-what-hardware-do-i-have/", forget=False)
    assert not [one for one in browser.asked if f"assets/{name}" in one or "moving.js" in one]
    browser = page(FIGURES[name], forget=False)
    assert [one for one in browser.asked if one.endswith(f"assets/{name}.js")]


# Who decides.


def asked_of_jax(states):
    """What JAX says to each state, in one process for each value of `JAX_PLATFORMS`."""
    of_platforms = {}
    for platforms, *state in states:
        of_platforms.setdefault(platforms, []).append(state)
    answers = {}
    for platforms, wanted in of_platforms.items():
        done = subprocess.run(
            [sys.executable, str(HERE / "deciding.py")],
            input=json.dumps(wanted),
            env={**os.environ, "JAX_PLATFORMS": platforms},
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout)
        answers |= {(platforms, *state): one for state, one in zip(wanted, found, strict=True)}
    return answers


def test_who_decides_agrees_with_jax_in_random_states(page):
    browser = page(FIGURES["who_decides"])
    ready(browser, "who_decides")
    choices = offered(browser, "who_decides")
    draw = random.Random()
    states = [tuple(draw.choice(values) for values in choices) for _ in range(STATES)]
    answers = asked_of_jax(states)
    ran, refused = set(), set()
    for state in states:
        seen, (place, committed) = shown(browser, "who_decides", [*state]), answers[state]
        if committed is None:  # JAX raised, and `place` is its text
            refused.add(place)
            assert seen["said"][-1].startswith("JAX refuses: "), (state, seen, place)
            assert place.startswith(seen["said"][-1].removeprefix("JAX refuses: ").rstrip("."))
            assert len(seen["here"]) < len(seen["steps"])
        else:
            ran.add((place, committed))
            kind = "committed there" if committed else "free"
            said = f"The call runs on {place}. Its result is {kind}."
            assert seen["said"][-1] == said, (state, seen)
            assert seen["here"][-1] == place
            assert len(seen["steps"]) == 4
    assert len(ran) > 3
    assert len(refused) > 1


# A step in time.


def overlap(bars, kind):
    """Milliseconds in which the device works while Python is in lines of this kind."""
    device = [bar for bar in bars if bar[0] == "device"]
    lines = [bar for bar in bars if bar[0] == kind]
    shared = (min(a[1] + a[2], b[1] + b[2]) - max(a[1], b[1]) for a in device for b in lines)
    return sum(one for one in shared if one > 0)


def bytes_needed(donated):
    """Arguments and results of the step, asked of a program compiled anew."""
    jax = proving.jax
    array = jax.ShapeDtypeStruct((512, 512), "float32")

    def loss_of(weights, batch):
        hidden = batch
        for one in weights:
            hidden = jax.numpy.tanh(hidden @ one)
        return jax.numpy.mean((hidden - batch) ** 2)

    def step(weights, batch):
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], loss

    run = jax.jit(step, donate_argnums=(0,) if donated else ())
    memory = run.lower([array] * 4, array).compile().memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes
    return held - memory.alias_size_in_bytes


def test_a_step_in_time_shows_what_the_loops_do(page):
    browser = page(FIGURES["step_in_time"])
    ready(browser, "step_in_time")
    choices = offered(browser, "step_in_time")
    held = {donated: bytes_needed(donated) for donated in (False, True)}
    assert held[True] < held[False]
    draw, loads = random.Random(), {}
    for _ in range(STATES):
        state = [draw.choice(values) for values in choices]
        reads, prefetch, donated = state
        seen = shown(browser, "step_in_time", state)
        (said,) = seen["said"]
        waits = {"none": 0, "late": 5}.get(reads, 6)
        assert f"Python waited {waits} times" in said, state
        assert f"results take {round(held[donated] / 2**20)} MiB" in said, state
        assert ("nothing donated" in said) == (not donated)
        bars = seen["bars"]
        kinds = [bar[0] for bar in bars]
        assert (kinds.count("load"), kinds.count("step"), kinds.count("wait")) == (6, 6, waits)
        assert all(bar[1] >= 0 and bar[2] >= 0 for bar in bars)
        # A step is dispatched before the device can work on it.
        first = min(bar[1] for bar in bars if bar[0] == "step")
        assert first <= min(bar[1] + bar[2] for bar in bars if bar[0] == "device")
        loads[reads, prefetch, donated] = overlap(bars, "load")
    for reads in ("each", "block"):
        for donated in (False, True):
            in_turn, ahead = (loads.get((reads, one, donated)) for one in (False, True))
            if in_turn is not None and ahead is not None:
                assert in_turn < ahead, "a wait before the next load leaves the device idle"


# Whose memory.


def sizes_by_jax(state):
    """Bytes on a device of weights, moments, batch, gradients and what the backward pass keeps."""
    jax, table = proving.jax, whose_memory_table
    (weights, moments, _), batch = table.arguments(state)

    def held(tree):
        return sum(
            math.prod(one.sharding.shard_shape(one.shape)) * one.dtype.itemsize
            for one in jax.tree.leaves(tree)
        )

    layers, width, rows, dtype, mesh, *_ = state
    data, model = map(int, mesh.split(" x "))
    # What one device keeps of its rows, with its part of the middle: shapes of JAX's own residuals.
    wide = 4 * width // model
    own = {
        "up": jax.ShapeDtypeStruct((layers, width, wide), dtype),
        "down": jax.ShapeDtypeStruct((layers, wide, width), dtype),
    }
    few = 7  # a number that no other axis has; what is kept grows with the rows
    of_rows = jax.ShapeDtypeStruct((few, width), dtype)

    def kept(weights, hidden):
        wrapped = jax.checkpoint(table.layer) if state.remat else table.layer
        return jax.vjp(lambda w, h: jax.lax.scan(wrapped, h, w)[0], weights, hidden)[1]

    left = jax.tree.leaves(jax.eval_shape(kept, own, of_rows))
    of_batch = [one for one in left if few in one.shape]
    residuals = sum(math.prod(one.shape) * one.dtype.itemsize for one in of_batch)
    residuals = residuals // few * (rows // data)
    return [held(weights), 2 * held(moments), held(batch), held(weights), residuals]


def test_whose_memory_agrees_with_jax_in_random_states(page):
    browser = page(FIGURES["whose_memory"])
    ready(browser, "whose_memory")
    choices = offered(browser, "whose_memory")
    draw = random.Random()
    memory = whose_memory_table._target.machine().memory_bytes
    fits = set()
    for _ in range(STATES):
        state = [draw.choice(values) for values in choices]
        seen = shown(browser, "whose_memory", state)
        numbers = [int(one) for one in state[:3]]
        of = whose_memory_table.State(*numbers, *state[3:])
        weights, moments, batch, gradients, kept = sizes_by_jax(of)
        new = 0 if of.donated else weights + moments
        wanted = [weights, moments, batch, new, gradients, kept]
        assert [int(row[1]) for row in seen["rows"][:6]] == wanted, state
        fit = sum(wanted) <= memory
        counted = seen["said"][0].partition("Compiled")[0]
        assert counted.startswith("By arithmetic each GPU holds")
        assert (": it fits" if fit else ": it does not fit") in counted
        fits.add(fit)
    assert fits == {True, False}


def test_the_compiled_points_hold_the_arguments_that_were_counted(page):
    browser = page(FIGURES["whose_memory"])
    ready(browser, "whose_memory")
    points = browser.run("self.tables.whose_memory.points")
    assert len(points) == len(whose_memory_table.COMPILED) > 10
    for number, point in enumerate(points):
        weights, moments, batch, *_ = sizes_by_jax(whose_memory_table.State(*point["state"]))
        assert 0 <= point["arguments"] - (weights + moments + batch) < 2**20
        browser.run(f"document.querySelectorAll('.points button')[{number}].click()")
        said = browser.run("document.querySelector('.memory-said').textContent")
        total = point["arguments"] + point["results"] + point["temporaries"]
        found = re.search(r"Compiled, the program needs ([\d.]+) GiB", said)
        assert abs(float(found[1]) - total / 2**30) < 0.06, said


# Under which roof.


def test_the_roofline_agrees_with_jax_and_the_data_sheets_in_random_states(page):
    jax = proving.jax
    browser = page(FIGURES["roofline_figure"])
    ready(browser, "roofline_figure")
    choices = offered(browser, "roofline_figure")
    gpus = tomllib.loads((ROOT / "grader" / "program" / "machines.toml").read_text("utf-8"))
    titles = {gpu["device_kind"]: gpu for key, gpu in gpus["gpus"].items() if key != "common"}
    names = browser.run(
        "[...document.querySelector('.roofline_figure select').options].map(one => one.text)"
    )
    draw, bounds = random.Random(), set()
    for _ in range(STATES):
        state = [draw.choice(values) for values in choices]
        (said,) = shown(browser, "roofline_figure", state)["said"]
        title, dtype = names[int(state[0])].removesuffix(" as TF32").split(", ")
        rows, side, launch = int(state[1]), int(state[2]), float(state[3])
        gpu = titles[title]
        flops = gpu["speed"]["flops"]
        if dtype == "float32":
            flops = gpus["targets"]["h200x8"]["paper"]["matmul_flops"]
        x, w = (jax.ShapeDtypeStruct((n, side), dtype) for n in (rows, side))
        cost = jax.jit(lambda x, w: x @ w).lower(x, w).cost_analysis()
        times = {
            "memory": cost["bytes accessed"] / gpu["config"]["memory_bandwidth"],
            "arithmetic": cost["flops"] / flops,
            "the launch": launch,
        }
        bound = max(times, key=times.get)
        bounds.add(bound)
        assert f"bound by {bound}:" in said, (state, said)
        intensity = float(re.search(r": ([\d.e+]+) FLOPs per byte", said)[1])
        assert intensity == pytest.approx(cost["flops"] / cost["bytes accessed"], rel=6e-3)
        share = float(re.search(r"([\d.e+-]+) % of the level", said)[1])
        rate = cost["flops"] / times[bound]
        assert share == pytest.approx(100 * rate / flops, rel=6e-3)
    assert bounds == {"memory", "arithmetic", "the launch"}
