// What the figures that move share: elements, native controls, and a table that comes when it is
// needed. A figure's own script calls moving.figure(name, start). No number of a figure is here.
self.moving ??= (() => {
  const SVG = "http://www.w3.org/2000/svg";
  let next = 0;

  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const drawn = (tag, attributes, ...children) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  // A native list with its label: [the list, the label that holds it].
  const select = (label, options, value) => {
    const made = element("select", { id: `moving-${next++}` });
    made.append(...options.map(([text, key]) => new Option(text, key, false, key === value)));
    return [made, element("label", { htmlFor: made.id }, label, " ", made)];
  };
  const checkbox = (label, checked) => {
    const made = element("input", { type: "checkbox", id: `moving-${next++}`, checked });
    return [made, element("label", { htmlFor: made.id }, made, " ", label)];
  };
  const fieldset = (title, ...labels) =>
    element("fieldset", {}, element("legend", { textContent: title }), ...labels);
  const form = (update, ...parts) => {
    const made = element("form", { className: "moving-controls" }, ...parts);
    made.addEventListener("submit", event => event.preventDefault());
    made.addEventListener("input", update);
    return made;
  };
  // What is said aloud when the reader has chosen.
  const status = className => {
    const made = element("p", { className });
    made.setAttribute("role", "status");
    return made;
  };
  const table = (heads, rows) =>
    element("table", {},
      element("thead", {}, element("tr", {}, ...heads.map(text => element("th", { textContent: text, scope: "col" })))),
      element("tbody", {}, ...rows.map(row => element("tr", {}, ...row.map(text => element("td", { textContent: text }))))));
  const folded = (title, ...inside) => element("details", {}, element("summary", { textContent: title }), ...inside);

  // The table comes when the figure comes near the screen, and not before.
  const figure = (name, start) => {
    for (const place of document.querySelectorAll(`.moving[data-figure="${name}"]`)) {
      const load = () => {
        const script = element("script", { src: `${place.dataset.base}assets/${name}_table.js` });
        script.addEventListener("load", () => {
          start(place.querySelector(".moving-body"), self.tables[name]);
          place.classList.add("ready");
        });
        document.head.append(script);
      };
      const seen = new IntersectionObserver(entries => {
        if (!entries.some(one => one.isIntersecting)) return;
        seen.disconnect();
        load();
      }, { rootMargin: "400px" });
      seen.observe(place);
    }
  };
  return { element, drawn, select, checkbox, fieldset, form, status, table, folded, figure };
})();
