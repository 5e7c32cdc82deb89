// The figure "Where does my array live?". Choose mesh, shape and spec; see which device holds which
// part, and what adding two arrays costs. Every number is JAX's answer, read from
// placement_table.js (docs/_build/figures/placement_table.py): no rule of sharding is written here.
{
  const { element, drawn, select, fieldset, form, status, table: tableOf, folded } = moving;
  const COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#996633"];
  const WAYS = { "": "not split", data: "data", model: "model", "data,model": "data and model" };
  const bytes = count => count < 1024 ? `${count} bytes`
    : count < 1024 ** 2 ? `${count / 1024} KiB` : `${count / 1024 ** 2} MiB`;
  const written = spec => {
    const parts = spec.split("/").map(way =>
      !way ? "None" : way.includes(",") ? `(${way.split(",").map(one => `'${one}'`).join(", ")})` : `'${way}'`);
    while (parts.at(-1) === "None") parts.pop();
    return `P(${parts.join(", ")})`;
  };
  const list = numbers => numbers.length > 2 && numbers.at(-1) - numbers[0] === numbers.length - 1
    ? `${numbers[0]}-${numbers.at(-1)}` : numbers.join(" ");

  const start = (figure, table) => {
    // An object's keys that are numbers come first; the mesh of two axes shall.
    const names = Object.keys(table.places).sort((a, b) => b.includes("x") - a.includes("x"));
    const [mesh, meshLabel] = select("Mesh", names.map(name => [`${name} devices`, name]), names[0]);
    const shapes = Object.keys(table.places[names[0]]);
    const [shape, shapeLabel] = select("Shape", shapes.map(name => [`${name} ${table.dtype}`, name]), shapes[0]);
    const group = (title, first, second) => {
      const rows = select("rows over", [], "");
      const columns = select("columns over", [], "");
      const value = () => `${rows[0].value}/${columns[0].value}`;
      const set = fieldset(title, rows[1], columns[1]);
      const fill = () => {
        const axes = table.axes[mesh.value];
        const ways = ["", ...axes, ...(axes.length > 1 ? [axes.join(",")] : [])];
        for (const [one, wish] of [[rows[0], first], [columns[0], second]]) {
          const before = one.options.length ? one.value : wish;
          one.replaceChildren(...ways.map(way => new Option(WAYS[way], way)));
          one.value = ways.includes(before) ? before : "";
        }
      };
      return { set, fill, value, selects: [rows[0], columns[0]] };
    };
    const one = group("Array a", "data", "");
    const two = group("Array b", "", "data");
    const box = element("div", { className: "moving-drawing" });
    const said = status("placement-said");
    const rows = element("div");
    const parts = folded("Each device's part of a, as a table", rows);
    const sum = element("div", { className: "placement-sum moving-answers" });
    sum.setAttribute("role", "status");

    // JAX refuses a spec that names an axis twice: no mesh could hold such an array.
    const twice = spec => {
      const [a, b] = spec.split("/").map(way => way.split(",").filter(Boolean));
      return a.filter(name => b.includes(name));
    };
    const place = spec => {
      const doubled = twice(spec);
      if (doubled.length) return `A spec may name each axis once: ${written(spec)} names ${doubled.join(" and ")} twice.`;
      return table.places[mesh.value][shape.value][spec];
    };
    const draw = held => {
      const blocks = new Map();
      held.forEach((part, device) => {
        const key = part.join();
        blocks.set(key, [...(blocks.get(key) || []), device]);
      });
      const rows = Math.max(...held.map(part => part[1])), columns = Math.max(...held.map(part => part[3]));
      const width = 288, height = Math.max(120, Math.min(288, (width * rows) / columns));
      const picture = drawn("svg", { viewBox: `-1 -1 ${width + 2} ${height + 2}`, width: width + 2, "aria-hidden": "true" });
      for (const [key, devices] of blocks) {
        const [first, end, left, right] = key.split(",").map(Number);
        const x = (left / columns) * width, y = (first / rows) * height;
        const w = ((right - left) / columns) * width, h = ((end - first) / rows) * height;
        picture.append(
          drawn("rect", { x, y, width: w, height: h, fill: COLOURS[devices[0]], "fill-opacity": 0.35, stroke: "currentColor" }),
          drawn("text", { x: x + w / 2, y: y + h / 2, "text-anchor": "middle", "dominant-baseline": "central", fill: "currentColor", "font-size": w < 40 ? 12 : 16 }, list(devices)));
      }
      box.replaceChildren(picture);
      return blocks.size;
    };
    const line = (title, text, bad) => {
      const made = element("p", {}, element("strong", { textContent: `${title}: ` }), text);
      made.classList.toggle("refused", Boolean(bad));
      return made;
    };
    const update = () => {
      const spec = one.value(), other = two.value();
      const held = place(spec), second = place(other);
      rows.replaceChildren();
      if (typeof held === "string") {
        box.replaceChildren();
        said.textContent = `a: ${held}`;
      } else {
        const blocks = draw(held);
        const size = part => (part[1] - part[0]) * (part[3] - part[2]) * table.itemsize;
        rows.replaceChildren(tableOf(["device", "rows", "columns", "bytes"], held.map((part, device) =>
          [device, `${part[0]}:${part[1]}`, `${part[2]}:${part[3]}`, size(part)])));
        const copies = held.length / blocks;
        said.textContent = `a lies as ${written(spec)}: ${blocks === 1 ? "one part" : `${blocks} parts`}, `
          + `${copies === 1 ? "no copies" : `${copies} copies of each`}. Each device holds ${bytes(size(held[0]))}, `
          + `all eight ${bytes(held.reduce((all, part) => all + size(part), 0))}. The numbers in the picture are devices.`;
      }
      if (typeof held === "string" || typeof second === "string")
        return sum.replaceChildren(line("a + b", typeof second === "string" ? `b: ${second}` : "first give a a place.", true));
      const [auto, explicit] = table.sums[mesh.value][shape.value][spec][other].map(index => table.answers[index]);
      const sent = auto.sent.map(([op, size]) => `${op} (${bytes(size)} of result on each device)`).join(", then ");
      sum.replaceChildren(
        line("a + b on an Auto mesh", `${sent ? `the compiler adds ${sent}` : "no collective"}; the sum lies as ${auto.spec}.`),
        line("On an Explicit mesh", explicit.refused || `the sum lies as ${explicit.spec}.`, Boolean(explicit.refused)));
    };
    const controls = form(update, fieldset("Eight devices", meshLabel, shapeLabel), one.set, two.set);
    mesh.addEventListener("input", () => { one.fill(); two.fill(); });
    one.fill();
    two.fill();
    const from = element("p", { className: "moving-from" }, `Asked of jax ${table.jax} when this page was built.`);
    figure.replaceChildren(controls, element("div", { className: "moving-shown" }, box, element("div", {}, said, sum, parts, from)));
    update();
  };

  moving.figure("placement", start);
}
