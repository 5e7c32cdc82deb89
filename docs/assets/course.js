// Material's search dialog has no name that a screen reader could say.
document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");

// The ledger of claims: choose a document, a verdict, a topic. Without this it is a plain table.
// An address may choose too: claims/?document=dgx&verdict=false
{
  const table = document.querySelector(".ledger table");
  const heads = table ? [...table.tHead.rows[0].cells].map(cell => cell.textContent.trim()) : [];
  const rows = table ? [...table.tBodies[0].rows] : [];
  for (const row of rows) [...row.cells].forEach((cell, i) => (cell.dataset.head = heads[i]));
  const text = (row, name) => row.cells[heads.indexOf(name)].textContent.trim();
  const asked = new URLSearchParams(location.search);
  const selects = ["document", "verdict", "topic"].map(name => {
    const select = document.createElement("select");
    select.name = name;
    const values = [...new Set(rows.map(row => text(row, name)))].sort();
    select.append(new Option("all", ""), ...values.map(value => new Option(value, value)));
    if (values.includes(asked.get(name))) select.value = asked.get(name);
    return select;
  });
  const told = document.createElement("output");
  const choose = () => {
    for (const row of rows)
      row.hidden = selects.some(select => select.value && text(row, select.name) !== select.value);
    told.value = `${rows.filter(row => !row.hidden).length} of ${rows.length} claims`;
    const chosen = selects.filter(select => select.value).map(s => [s.name, s.value]);
    history.replaceState(null, "", `?${new URLSearchParams(chosen)}${location.hash}`);
  };
  if (table) {
    const form = document.createElement("form");
    form.className = "ledger-filter";
    for (const select of selects) {
      const label = document.createElement("label");
      label.append(select.name, " ", select);
      select.addEventListener("change", choose);
      form.append(label);
    }
    form.append(told);
    document.querySelector(".ledger").prepend(form);
    choose();
  }
}
