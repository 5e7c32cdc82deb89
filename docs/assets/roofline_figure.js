// The figure "Under which roof?". Size, batch and dtype move a matrix product under the ceilings of
// a GPU's data sheet; a launch is a third ceiling. FLOPs and bytes are JAX's analysis of the
// program, read from roofline_figure_table.js (docs/_build/figures/roofline_figure_table.py).
{
  const { element, drawn, select, fieldset, form, status } = moving;
  const LAUNCHES = [["2 µs, assumed", "2e-6"], ["5 µs, assumed", "5e-6"], ["10 µs, assumed", "1e-5"], ["50 µs, assumed", "5e-5"]];
  const X = [0.1, 1e5], Y = [1e9, 2e15];
  const UNITS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

  const start = (figure, table) => {
    const roofs = table.ceilings.map((one, i) => [`${one.gpu}, ${one.dtype}${one.dtype === "float32" ? " as TF32" : ""}`, String(i)]);
    const [roof, roofLabel] = select("GPU and dtype", roofs, "0");
    const [rows, rowsLabel] = select("Batch: rows of x", table.rows.map(one => [String(one), String(one)]), "64");
    const [side, sideLabel] = select("Size n of W, (n, n)", table.sides.map(one => [String(one), String(one)]), "4096");
    const measured = [`${(table.launch * 1e6).toFixed(1)} µs, measured on the CPU that built this page`, String(table.launch)];
    const [launch, launchLabel] = select("One launch costs", [["nothing", "0"], measured, ...LAUNCHES], String(table.launch));
    const box = element("div", { className: "moving-drawing" });
    const said = status("roofline-said");
    const from = element("p", { className: "moving-from" });
    const scaled = (number, unit) => {
      const [size, letter] = UNITS.find(([size]) => number >= size) || UNITS.at(-1);
      const value = number / size;
      return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : Math.round(value)} ${letter}${unit}`;
    };
    const micro = seconds => seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(2)} ms` : `${(seconds * 1e6).toFixed(2)} µs`;

    const draw = (ceiling, intensity, rate, cap) => {
      const width = Math.max(300, Math.min(620, box.clientWidth || 560)), height = 270;
      const left = 46, bottom = 38, log = Math.log10;
      const x = one => left + (width - left - 20) * (log(one) - log(X[0])) / (log(X[1]) - log(X[0]));
      const y = one => (height - bottom) - (height - bottom - 8) * (log(one) - log(Y[0])) / (log(Y[1]) - log(Y[0]));
      const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
      const text = (x, y, words, anchor = "middle") => drawn("text", { x, y, "text-anchor": anchor, "font-size": 12 }, words);
      const line = (x1, y1, x2, y2, style) => drawn("line", { x1, y1, x2, y2, stroke: "currentColor", ...style });
      for (const one of [0.1, 1, 10, 100, 1e3, 1e4, 1e5]) picture.append(line(x(one), y(Y[0]), x(one), y(Y[0]) + 4), text(x(one), y(Y[0]) + 17, one >= 1e3 ? `${one / 1e3}k` : String(one)));
      for (const one of [1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15]) picture.append(line(left - 4, y(one), left, y(one)), text(left - 7, y(one) + 4, scaled(one, "").replace(/\.0+/, ""), "end"));
      picture.append(line(left, y(Y[0]), width - 20, y(Y[0])), line(left, y(Y[0]), left, y(Y[1])),
        text((left + width) / 2, height - 4, "FLOPs per byte"), text(left + 6, 18, "FLOP/s", "start"));
      const ridge = ceiling.flops / ceiling.bandwidth;
      const foot = Math.max(X[0], Y[0] / ceiling.bandwidth);
      picture.append(drawn("polyline", { points: [[foot, foot * ceiling.bandwidth], [ridge, ceiling.flops], [X[1], ceiling.flops]].map(([a, b]) => `${x(a)},${y(b)}`).join(" "), fill: "none", stroke: "currentColor", "stroke-width": 2.5, class: "roof" }));
      if (cap >= Y[0] && cap <= Y[1])
        picture.append(line(left, y(cap), width - 20, y(cap), { "stroke-dasharray": "6 4", "stroke-width": 1.5 }),
          text(width - 22, y(cap) + (y(cap) < 40 ? 15 : -5), "one launch", "end"));
      const place = [x(Math.min(Math.max(intensity, X[0]), X[1])), y(Math.min(Math.max(rate, Y[0]), Y[1]))];
      picture.append(drawn("circle", { cx: place[0], cy: place[1], r: 7, class: "point", stroke: "currentColor", "stroke-width": 1.5 }));
      box.replaceChildren(picture);
    };
    const update = () => {
      const ceiling = table.ceilings[Number(roof.value)], seconds = Number(launch.value);
      const [flops, bytes] = table.costs[ceiling.dtype][`${rows.value} ${side.value}`];
      const times = [["memory", bytes / ceiling.bandwidth], ["arithmetic", flops / ceiling.flops], ["the launch", seconds]];
      const [bound, least] = times.reduce((a, b) => (b[1] > a[1] ? b : a));
      const intensity = flops / bytes, rate = flops / least;
      draw(ceiling, intensity, rate, seconds ? flops / seconds : Infinity);
      said.textContent = `x @ W does ${scaled(flops, "FLOP")} and moves ${scaled(bytes, "B")}: ${intensity.toPrecision(3)} FLOPs per byte. `
        + `It takes ${micro(times[0][1])} to move, ${micro(times[1][1])} to compute, ${micro(seconds)} to launch; so at least ${micro(least)}, `
        + `bound by ${bound}: at most ${scaled(rate, "FLOP/s")}, ${(100 * rate / ceiling.flops).toPrecision(3)} % of the level.`;
      from.textContent = `Ceilings from data sheets, not measured: ${ceiling.sources.join("; ")}. FLOPs and bytes by jax ${table.jax}, cost_analysis. `
        + "A launch is counted alone; launches that queue behind one another hide some of it. No kernel is as fast as its roof.";
    };
    const controls = form(update, fieldset("The roof", roofLabel), fieldset("The product x @ W", rowsLabel, sideLabel), fieldset("The launch", launchLabel));
    figure.replaceChildren(controls, element("div", { className: "moving-shown wide" }, box,
      element("div", {}, element("div", { className: "moving-answers" }, said), from)));
    update();
    addEventListener("resize", update);
  };

  moving.figure("roofline_figure", start);
}
