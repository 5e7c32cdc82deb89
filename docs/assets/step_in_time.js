// The figure "A step in time". Turn reads, waits, prefetch and donation on and off; see what Python
// and the device did meanwhile. Each timeline is a recording that the profiler made when the page
// was built, read from step_in_time_table.js (docs/_build/figures/step_in_time_table.py).
{
  const { element, drawn, select, checkbox, fieldset, form, status, table: tableOf, folded } = moving;
  const LOSS = [["not read", "none"], ["read at each step", "each"], ["read one step late", "late"],
    ["not read, but each step waited for", "block"]];
  const STYLES = { load: ["#4477aa", 0.75], step: ["#ccbb44", 0.9], wait: ["#ee6677", 0.25], device: ["#228833", 0.75] };
  const NAMES = { load: "load", step: "step(...), the dispatch", wait: "wait: nothing to do", device: "the device works" };

  const start = (figure, table) => {
    const [loss, lossLabel] = select("The loss is", LOSS, "each");
    const [prefetch, prefetchLabel] = checkbox("Prefetch: load the next batch before waiting", false);
    const [donate, donateLabel] = checkbox("Donate the weights", false);
    const box = element("div", { className: "moving-drawing" });
    const said = status("step-said");
    const rows = element("div");
    const longest = Math.max(...Object.values(table.runs).map(run => run.total));
    const ms = number => `${number < 10 ? number.toFixed(1) : Math.round(number)} ms`;
    const sum = spans => spans.reduce((all, span) => all + span.at(-1), 0);
    const chosen = () => table.runs[`${loss.value} ${Number(prefetch.checked)} ${Number(donate.checked)}`];

    const draw = run => {
      const width = Math.max(300, Math.min(900, box.clientWidth || 640));
      const left = 52, scale = (width - left - 20) / longest;
      const picture = drawn("svg", { viewBox: `0 0 ${width} 122`, width, height: 122, "aria-hidden": "true" });
      const bar = (kind, y, from, length) => {
        const [fill, opacity] = STYLES[kind];
        const rect = drawn("rect", { x: left + from * scale, y, width: Math.max(length * scale, 0.6), height: 36, fill, "fill-opacity": opacity, stroke: kind === "wait" ? fill : "none" });
        if (kind === "wait") rect.setAttribute("stroke-dasharray", "3 2");
        rect.dataset.span = JSON.stringify([kind, from, length]);
        return rect;
      };
      const text = (x, y, words, anchor = "end") => drawn("text", { x, y, "text-anchor": anchor, "font-size": 12 }, words);
      picture.append(text(left - 6, 26, "Python"), text(left - 6, 70, "device"));
      for (const [kind, from, length] of run.host) picture.append(bar(kind, 4, from, length));
      for (const [from, length] of run.device) picture.append(bar("device", 48, from, length));
      const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find(one => longest / one <= 6) || 2000;
      for (let tick = 0; tick <= longest; tick += every)
        picture.append(drawn("line", { x1: left + tick * scale, x2: left + tick * scale, y1: 90, y2: 96, stroke: "currentColor" }),
          text(left + tick * scale, 111, tick ? String(tick) : "0 ms", "middle"));
      picture.append(drawn("line", { x1: left, x2: width - 20, y1: 90, y2: 90, stroke: "currentColor" }));
      box.replaceChildren(picture);
    };
    const update = () => {
      const run = chosen();
      draw(run);
      const of = kind => run.host.filter(([name]) => name === kind);
      const waits = of("wait");
      const busy = sum(run.device);
      const [given, returned, reused] = table.needs[Number(donate.checked)];
      const mib = count => `${Math.round(count / 2 ** 20)} MiB`;
      said.textContent = `${table.steps} steps took ${ms(run.total)}. Python waited ${waits.length} times, ${ms(sum(waits))} in all; `
        + `the device worked ${ms(busy)} of the ${ms(run.total)}. The program's arguments and results take `
        + `${mib(given + returned - reused)}${reused ? `: ${mib(reused)} of results take the place of what was donated` : ", with nothing donated"}.`;
      rows.replaceChildren(tableOf(["what", "how often", "in all"], [
        ...["load", "step", "wait"].map(kind => [NAMES[kind], of(kind).length, ms(sum(of(kind)))]),
        [NAMES.device, `${run.device.length} spans`, ms(busy)]]));
    };
    const controls = form(update, fieldset("Reads and waits", lossLabel), fieldset("The batch", prefetchLabel), fieldset("Memory", donateLabel));
    const legend = element("p", { className: "legend" }, ...Object.entries(NAMES).map(([kind, name]) => {
      const key = element("span", { className: "key" });
      key.style.background = STYLES[kind][0];
      key.style.opacity = STYLES[kind][1];
      return element("span", {}, key, ` ${name}`);
    }));
    const from = element("p", { className: "moving-from" }, `Recorded by jax ${table.jax} under its profiler when this page was built, on a ${table.device.toUpperCase()}: `
      + "the shortest of three runs of each. load sleeps as long as one step takes, as a slow disk would. All timelines have one scale.");
    figure.replaceChildren(controls, element("div", { className: "moving-shown wide" }, legend, box,
      element("div", {}, element("div", { className: "moving-answers" }, said), folded("This run in numbers", rows), from)));
    update();
    addEventListener("resize", () => draw(chosen()));
  };

  moving.figure("step_in_time", start);
}
