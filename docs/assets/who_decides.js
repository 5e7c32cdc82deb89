// The figure "Who decides?". Set environment, config, block and arguments; the walk shows where the
// call runs after each voice is heard. Each step is an answer of JAX's to the call with the voices
// so far, read from who_decides_table.js (docs/_build/figures/who_decides_table.py): no rule is written here.
{
  const { element, select, fieldset, form, status } = moving;

  const start = (figure, table) => {
    const named = kind => !kind ? "not set" : kind;
    const argument = kind => kind === "NumPy" ? "NumPy array" : kind.startsWith("free")
      ? `free array, made on ${kind.slice(5)}` : `device_put on ${kind.slice(4)}`;
    const choices = (label, values, text, value) => select(label, values.map(one => [text(one), one]), value);
    const environment = choices("JAX_PLATFORMS", table.environments, named, "");
    const config = choices("jax_default_device", table.configs, named, "");
    const block = choices("with jax.default_device", table.blocks, named, "gpu 1");
    const a = choices("a", table.arguments, argument, "free gpu 1");
    const b = choices("b", table.arguments, argument, "put cpu 0");

    const answer = (config, block, a, b) => {
      const place = [[table.configs, config], [table.blocks, block], [table.arguments, a], [table.arguments, b]]
        .reduce((index, [values, value]) => index * values.length + values.indexOf(value), 0);
      return table.answers[table.states[environment[0].value][place]];
    };
    const walk = element("ol", { className: "walk" });
    const said = status("who-said");
    const step = (voice, found, before, silent) => {
      const text = found.refused ? found.refused
        : silent ? `says nothing: ${found.at}`
        : !before ? `${found.at}, to begin with`
        : found.at === before.at ? `changes nothing: ${found.at}` : `moves the call to ${found.at}`;
      const there = element("span", { className: "there", ariaHidden: "true" }, ...table.devices.map(name =>
        element("span", { className: name === found.at ? "here" : "", textContent: name })));
      const made = element("li", {}, element("span", {}, element("strong", { textContent: voice }), " ", text),
        ...(found.refused ? [] : [there]));
      made.classList.toggle("refused", Boolean(found.refused));
      made.classList.toggle("unheard", !found.refused && silent);
      made.classList.toggle("changed", !found.refused && (!before || found.at !== before.at));
      return made;
    };
    const update = () => {
      const [c, k, x, y] = [config, block, a, b].map(([list]) => list.value);
      const platforms = environment[0].value;
      const steps = [
        [`JAX_PLATFORMS ${platforms ? `= ${platforms}` : "not set"}:`, ["", "", "NumPy", "NumPy"], false],
        [`jax_default_device ${c ? `= ${c}` : "not set"}:`, [c, "", "NumPy", "NumPy"], !c],
        [`with jax.default_device${k ? `(${k})` : ": none"}:`, [c, k, "NumPy", "NumPy"], !k],
        [`a: ${argument(x)}, b: ${argument(y)}:`, [c, k, x, y], false],
      ];
      const rows = [];
      let before, found;
      for (const [voice, state, silent] of steps) {
        found = answer(...state);
        rows.push(step(voice, found, before, silent));
        before = found;
        if (found.refused) break;
      }
      walk.replaceChildren(...rows);
      said.textContent = found.refused ? `JAX refuses: ${found.refused}`
        : `The call runs on ${found.at}. Its result is ${found.committed ? "committed there" : "free"}.`;
    };
    const controls = form(update,
      fieldset("The environment", environment[1]), fieldset("The process", config[1]),
      fieldset("The block", block[1]), fieldset("The call f(a, b)", a[1], b[1]));
    const from = element("p", { className: "moving-from" }, `Each line asked of jax ${table.jax} when this page was built, with `
      + "the voices above it and no others. A stand-in plays the GPUs: a backend called cuda that hands out CPU devices. "
      + "A free array is made before the block begins.");
    figure.replaceChildren(controls, element("div", { className: "moving-shown wide" },
      element("div", {}, walk, element("div", { className: "moving-answers" }, said), from)));
    update();
  };

  moving.figure("who_decides", start);
}
