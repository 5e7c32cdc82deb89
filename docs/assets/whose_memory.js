// The figure "Whose memory?". What a training step holds on each of 8 GPUs: an arithmetic of its
// arrays, beside what XLA's compiler for these GPUs says where a state was compiled. Compiled
// points and the machine come from whose_memory_table.js (docs/_build/figures/whose_memory_table.py).
{
  const { element, drawn, select, checkbox, fieldset, form, status, table: tableOf, folded } = moving;
  const SHARING = [["nothing: all copied", "copied"], ["the moments (ZeRO-1)", "moments"], ["weights as well (FSDP)", "all"]];
  const PARTS = [["weights", "#4477aa"], ["moments", "#aa3377"], ["batch", "#ccbb44"], ["new weights and moments", "#996633"],
    ["gradients", "#ee6677"], ["kept for the backward pass", "#228833"]];
  const COMPILED = [["arguments", "#4477aa"], ["results of their own", "#996633"], ["temporaries", "#228833"]];
  const GIB = 2 ** 30;

  const start = (figure, table) => {
    const numbers = (label, values, value) => select(label, values.map(one => [one.toLocaleString("en"), String(one)]), String(value));
    const named = (label, values, value) => select(label, values.map(one => [one, one]), value);
    const controls = [
      numbers("layers", table.layers, 8), numbers("width", table.widths, 8192), numbers("rows", table.rows, 65536),
      named("dtype", Object.keys(table.itemsizes), "float32"), named("data x model", table.meshes, "8 x 1"),
      select("split over data", SHARING, "copied"), checkbox("remat: compute again", false), checkbox("donate state", true)];
    const inputs = controls.map(([input]) => input), labels = controls.map(([, label]) => label);
    const state = () => inputs.map(one => one.type === "checkbox" ? one.checked : isNaN(one.value) ? one.value : Number(one.value));
    const box = element("div", { className: "moving-drawing" });
    const said = status("memory-said");
    const rows = element("div");
    const gib = count => `${(count / GIB).toFixed(count < 10 * GIB ? 2 : 1)} GiB`;

    // Bytes on one device, by part. Weights are up and down in each layer; how many arrays its
    // backward pass keeps, JAX was asked.
    const counted = ([layers, width, batch, dtype, mesh, sharing, remat, donated]) => {
      const [data, model] = mesh.split(" x ").map(Number), size = table.itemsizes[dtype];
      const whole = 2 * layers * width * table.wider * width * size / model;
      const weights = sharing === "all" ? whole / data : whole;
      const moments = 2 * (sharing === "copied" ? whole : whole / data);
      const row = batch / data * width * size;
      const [narrow, wide] = table.kept[remat];
      const kept = layers * row * (narrow + wide * table.wider / model);
      return [weights, moments, row, donated ? 0 : weights + moments, weights, kept];
    };
    const total = parts => parts.reduce((all, one) => all + one, 0);
    const point = wanted => table.points.find(one => one.state.every((value, i) => value === wanted[i]));

    const draw = (bars, most) => {
      const width = Math.max(300, Math.min(900, box.clientWidth || 640)), scale = (width - 8) / most, height = bars.length * 50 + 20;
      const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
      bars.forEach(([title, kinds, sizes], row) => {
        let x = 2;
        picture.append(drawn("text", { x, y: row * 50 + 13, "font-size": 12 }, title));
        sizes.forEach((size, i) => {
          const length = size * scale;
          if (length > 0) picture.append(drawn("rect", { x, y: row * 50 + 18, width: length, height: 26, fill: kinds[i][1], "fill-opacity": 0.7, stroke: "currentColor", "stroke-width": 0.5 }));
          x += length;
        });
      });
      const limit = 2 + table.memory * scale, end = limit > width * 0.7;
      picture.append(drawn("line", { x1: limit, x2: limit, y1: 16, y2: height - 16, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": "5 3" }),
        drawn("text", { x: limit + (end ? -5 : 5), y: height - 4, "text-anchor": end ? "end" : "start", "font-size": 12 }, `all it has: ${gib(table.memory)}`));
      box.replaceChildren(picture);
    };
    const keys = kinds => element("p", { className: "legend" }, ...kinds.map(([name, colour]) => {
      const key = element("span", { className: "key" });
      key.style.background = colour;
      return element("span", {}, key, ` ${name}`);
    }));
    const legend = element("div");
    const update = () => {
      const wanted = state(), parts = counted(wanted), need = total(parts), compiled = point(wanted);
      const bars = [["counted by arithmetic", PARTS, parts]];
      const sizes = compiled && [compiled.arguments, compiled.results, compiled.temporaries];
      if (compiled) bars.push([`compiled for ${table.machine}`, COMPILED, sizes]);
      draw(bars, Math.max(table.memory * 1.02, need, compiled ? total(sizes) : 0));
      legend.replaceChildren(keys(PARTS), ...(compiled ? [keys(COMPILED)] : []));
      said.textContent = `By arithmetic each GPU holds ${gib(need)} of ${gib(table.memory)}: ${need <= table.memory ? "it fits" : "it does not fit"}. `
        + (compiled ? `Compiled, the program needs ${gib(total(sizes))}: ${total(sizes) <= table.memory ? "it fits" : "it does not fit"}.`
          : "This state was not compiled; those that were are listed below.");
      said.parentElement.classList.toggle("over", need > table.memory);
      rows.replaceChildren(tableOf(["part", "bytes on each GPU", "GiB"],
        [...PARTS.map(([name], i) => [name, parts[i], (parts[i] / GIB).toFixed(3)]),
          ...(compiled ? COMPILED.map(([name], i) => [`compiled: ${name}`, sizes[i], (sizes[i] / GIB).toFixed(3)]) : [])]));
    };
    const show = one => {
      inputs.forEach((input, i) => (input.type === "checkbox" ? (input.checked = one.state[i]) : (input.value = String(one.state[i]))));
      update();
    };
    const words = ([, , , dtype, mesh, sharing, remat, donated]) =>
      [dtype, mesh, SHARING.find(([, key]) => key === sharing)[0], ...(remat ? ["remat"] : []), ...(donated ? [] : ["not donated"])].join(", ");
    const listed = element("ul", { className: "points" }, ...table.points.map(one => {
      const button = element("button", { type: "button", className: "plain", textContent: words(one.state) });
      button.addEventListener("click", () => show(one));
      const need = total(counted(one.state)), real = one.arguments + one.results + one.temporaries;
      return element("li", {}, button, ` ${gib(real)} compiled, ${gib(need)} counted`);
    }));
    const [layers, width, batch, dtype, mesh, sharing, remat, donated] = labels;
    const controlsForm = form(update, fieldset("The network", layers, width, batch, dtype),
      fieldset("Eight GPUs", mesh, sharing), fieldset("The step", remat, donated));
    const from = element("p", { className: "moving-from" }, `Each layer adds tanh(x @ up) @ down to x, and its middle is ${table.wider} times as wide. `
      + `Compiled points: jax ${table.jax}, XLA's compiler for ${table.machine}; nothing was run. The compiler may put a gradient in the place of a result, `
      + "which takes less than is counted, or need room for its loops and for gathered weights, which takes more. "
      + `A process cannot have all of a GPU's memory. ${table.source}.`);
    figure.replaceChildren(controlsForm, element("div", { className: "moving-shown wide" }, legend, box,
      element("div", {}, element("div", { className: "moving-answers" }, said), folded("Bytes of each part", rows),
        folded(`The ${table.points.length} states that were compiled`, listed), folded("How this is counted", from))));
    update();
    addEventListener("resize", update);
  };

  moving.figure("whose_memory", start);
}
