// What pages do beyond Material's script: quizzes, the ledger, progress, and the keyboard.
// Without this file every page can be read. Nothing here asks another host.
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// What this browser remembers. A browser that refuses storage forgets, and says nothing.
const kept = {
  get(name) {
    try { return JSON.parse(localStorage.getItem(`course.${name}`)) || {}; } catch { return {}; }
  },
  set(name, value) {
    try { localStorage.setItem(`course.${name}`, JSON.stringify(value)); } catch { /* no storage */ }
  },
};
const base = new URL(JSON.parse(document.getElementById("__config").textContent).base, location);
// `lessons/04-the-inner-loop` for the address of a page of this site.
const pageOf = address =>
  new URL(address, location).pathname.slice(base.pathname.replace(/\/?$/, "/").length)
    .replace(/(index)?\.html$/, "").replace(/\/$/, "");
const here = pageOf(location.href);

// Quizzes: a button submits, another takes the answer back, and nothing is final.
{
  const answers = kept.get("answers");
  const mine = answers[here] ||= {};
  const quizzes = all(".quiz");
  for (const quiz of quizzes) {
    const form = quiz.querySelector("form");
    const field = form.querySelector("fieldset");
    const said = form.querySelector(".quiz-feedback");
    const more = quiz.querySelector("section.content");
    const inputs = all("input", field);
    const name = quiz.querySelector(".quiz-question").textContent.trim().slice(0, 80);
    const key = input => input.nextElementSibling.textContent.trim();
    if (quiz.dataset.shuffleAnswers)
      for (const row of [...field.children].sort(() => Math.random() - 0.5)) field.append(row);
    for (const input of inputs) input.name = quiz.id; // one question's buttons are one group
    said.setAttribute("role", "status");
    said.classList.remove("hidden");
    form.removeAttribute("onsubmit");
    const submit = form.querySelector("button[type=submit]") || make("button", { type: "submit" });
    submit.textContent = "Check my answer";
    const show = make("button", { type: "button", textContent: "Show the answer", hidden: true });
    const again = make("button", { type: "button", textContent: "Answer again", hidden: true });
    form.append(make("div", { className: "quiz-buttons" }, submit, show, again));
    const clean = () => {
      for (const row of field.children) {
        row.classList.remove("correct", "wrong");
        row.querySelector(".answer-feedback")?.classList.add("hidden");
      }
      more?.classList.add("hidden");
      said.textContent = "";
      show.hidden = again.hidden = true;
    };
    const judge = () => {
      clean();
      const chosen = inputs.filter(input => input.checked);
      for (const input of chosen) {
        input.parentElement.classList.add("correct" in input.dataset ? "correct" : "wrong");
        input.parentElement.querySelector(".answer-feedback")?.classList.remove("hidden");
      }
      const right = inputs.every(input => input.checked === "correct" in input.dataset);
      said.textContent = right ? "Right." : "Not right yet. Choose again, or see the answer.";
      more?.classList.toggle("hidden", !right);
      show.hidden = right;
      again.hidden = false;
      return right;
    };
    // The output that the question is about opens with the first answer.
    const reveal = () => {
      for (let next = quiz.nextElementSibling; next && !next.matches("h2, .quiz"); next = next.nextElementSibling)
        if (next.matches("details.predicted")) next.open = true;
    };
    form.addEventListener("submit", event => {
      event.preventDefault();
      if (!inputs.some(input => input.checked)) return void (said.textContent = "Choose an answer first.");
      judge();
      mine[name] = inputs.filter(input => input.checked).map(key);
      kept.set("answers", answers);
      reveal();
    });
    field.addEventListener("change", clean);
    show.addEventListener("click", () => {
      for (const input of inputs) input.checked = "correct" in input.dataset;
      judge();
      said.textContent = "This is the answer.";
    });
    const reset = () => {
      for (const input of inputs) input.checked = false;
      delete mine[name];
      kept.set("answers", answers);
      clean();
    };
    again.addEventListener("click", () => { reset(); inputs[0].focus(); });
    quiz.addEventListener("forget", reset);
    if (mine[name]) {
      for (const input of inputs) input.checked = mine[name].includes(key(input));
      judge();
      reveal();
    }
  }
  if (quizzes.length) {
    const forget = make("button", { type: "button", className: "plain", textContent: "Reset my answers on this page" });
    forget.addEventListener("click", () => quizzes.forEach(quiz => quiz.dispatchEvent(new Event("forget"))));
    quizzes.at(-1).after(make("p", { className: "tools" }, forget));
  }
}

// The ledger of claims: choose a document, a verdict, a topic, a word. Without this it is a plain
// table. An address may choose too: claims/?document=dgx&verdict=false
{
  const table = document.querySelector(".ledger table");
  const heads = table ? [...table.tHead.rows[0].cells].map(cell => cell.textContent.trim()) : [];
  const rows = table ? [...table.tBodies[0].rows] : [];
  for (const row of rows) [...row.cells].forEach((cell, i) => (cell.dataset.head = heads[i]));
  const text = (row, name) =>
    name === "GPU" ? (/not yet recorded/.test(row.textContent) ? "not yet recorded" : "needs none, or recorded")
      : row.cells[heads.indexOf(name)].textContent.trim();
  const asked = new URLSearchParams(location.search);
  const selects = (table ? ["document", "verdict", "topic", "GPU"] : []).map(name => {
    const select = make("select", { name });
    const values = [...new Set(rows.map(row => text(row, name)))].sort();
    const count = value => rows.filter(row => text(row, name) === value).length;
    select.append(new Option("all", ""), ...values.map(value => new Option(`${value} (${count(value)})`, value)));
    if (values.includes(asked.get(name))) select.value = asked.get(name);
    return select;
  });
  const word = make("input", { type: "search", name: "text", value: asked.get("text") || "" });
  const told = make("output");
  const choose = () => {
    const wanted = word.value.trim().toLowerCase();
    for (const row of rows)
      row.hidden = selects.some(select => select.value && text(row, select.name) !== select.value)
        || !row.textContent.toLowerCase().includes(wanted);
    told.value = `${rows.filter(row => !row.hidden).length} of ${rows.length} claims`;
    const chosen = [...selects, word].filter(one => one.value).map(one => [one.name, one.value]);
    const query = chosen.length ? `?${new URLSearchParams(chosen)}` : location.pathname;
    if (location.protocol !== "file:") history.replaceState(null, "", query + location.hash);
  };
  if (table) {
    const form = make("form", { className: "ledger-filter" });
    form.setAttribute("role", "search");
    for (const one of [...selects, word]) {
      form.append(make("label", {}, one.name, " ", one));
      one.addEventListener("input", choose);
    }
    form.addEventListener("submit", event => event.preventDefault());
    form.append(told);
    document.querySelector(".ledger").prepend(form);
    for (const row of rows) {
      const more = make("button", { type: "button", className: "plain", textContent: "What is so" });
      more.setAttribute("aria-expanded", "false");
      more.addEventListener("click", () =>
        more.setAttribute("aria-expanded", String(row.classList.toggle("open"))));
      const cell = make("td", { className: "more" }, more);
      row.append(cell);
    }
    choose();
    const aim = () => {
      const row = location.hash && document.getElementById(location.hash.slice(1))?.closest("tr");
      if (!row) return;
      row.classList.add("open");
      row.hidden = false;
      row.scrollIntoView();
    };
    addEventListener("hashchange", aim);
    aim();
  }
}

// Progress: lessons read, exercises solved, and where you left. It stays in this browser.
{
  const done = kept.get("done");
  const exercise = page => /^exercises\/(ex\d\d)/.exec(page)?.[1];
  const name = page => exercise(page) || page;
  const show = () => {
    for (const tick of all(".tick")) tick.remove();
    for (const link of all(".md-nav--primary a.md-nav__link, .md-content table a")) {
      const page = pageOf(link.href);
      if (!/^(lessons|exercises)\/./.test(page) || link.hash || !done[name(page)]) continue;
      const said = exercise(page) ? "solved" : "read";
      link.append(make("span", { className: "tick" }, "\u2713",
        make("span", { className: "visually-hidden", textContent: ` ${said}` })));
    }
  };
  const mark = (page, is) => {
    if (is) done[page] = true;
    else delete done[page];
    kept.set("done", done);
    show();
  };
  // A lesson is read when its end was on the screen.
  const end = /^lessons\/./.test(here) && document.getElementById("recap");
  if (end) new IntersectionObserver(seen => seen.some(one => one.isIntersecting) && mark(here, true)).observe(end);
  const own = exercise(here);
  if (own) {
    const box = make("input", { type: "checkbox", checked: Boolean(done[own]) });
    box.addEventListener("change", () => mark(own, box.checked));
    document.querySelector(".facts")?.after(make("p", { className: "tools" }, make("label", {}, box, " I have solved it")));
  }
  if (/^(lessons|exercises)\/./.test(here))
    kept.set("last", { page: here, address: location.pathname, title: document.querySelector("h1").firstChild.textContent });
  // The start page: go on, and take over what `grader status` knows.
  const place = document.getElementById("continue");
  if (place) {
    const last = kept.get("last");
    if (last.page && last.address?.startsWith(base.pathname))
      place.append(make("p", { className: "tools" },
        make("a", { href: last.address, className: "md-button", textContent: `Continue: ${last.title}` })));
    const text = make("textarea", { rows: 3, id: "status-text" });
    const told = make("output");
    const take = said => {
      try {
        const exercises = JSON.parse(said).exercises;
        for (const one of exercises) mark(one.id, one.status === "solved");
        told.value = `${exercises.filter(one => one.status === "solved").length} of ${exercises.length} solved`;
      } catch {
        told.value = "That is not what `grader status --format json` prints.";
      }
    };
    text.addEventListener("input", () => text.value.trim() && take(text.value));
    const folded = make("details", {}, make("summary", { textContent: "Show what I have solved" }),
      make("p", {}, make("label", { htmlFor: "status-text" }, "Drop or paste here what ",
        make("code", { textContent: "grader status --format json" }), " prints. It stays in this browser.")),
      text, make("p", {}, told));
    folded.addEventListener("dragover", event => event.preventDefault());
    folded.addEventListener("drop", async event => {
      event.preventDefault();
      const file = event.dataTransfer.files[0];
      text.value = file ? await file.text() : event.dataTransfer.getData("text");
      take(text.value);
    });
    place.append(folded);
    place.hidden = false;
  }
  show();
}

// The keyboard: what scrolls can be reached, what is closed cannot, and labels that act are buttons.
{
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  const boxes = ".md-typeset pre > code, .md-typeset__scrollwrap, .picture, .output-html, .md-typeset__table";
  const reach = () => {
    for (const box of all(boxes))
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else if (box.tabIndex === 0 && !box.matches(".output-html")) box.removeAttribute("tabindex");
  };
  addEventListener("load", reach);
  addEventListener("resize", reach);
  for (const label of all("label[for=__drawer].md-icon, label[for=__search].md-icon, label[for=__search].md-button")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = label.className;
    button.setAttribute("for", label.htmlFor); // by this, Material's style shows or hides it
    if (!label.textContent.trim())
      button.setAttribute("aria-label", label.htmlFor === "__drawer" ? "Navigation" : "Search");
    button.append(...label.childNodes);
    button.addEventListener("click", () => {
      const box = document.getElementById(label.htmlFor);
      box.click();
      if (box.id === "__search" && box.checked) document.querySelector(".md-search__input").focus();
    });
    label.replaceWith(button);
  }
  const closed = [
    ["__drawer", ".md-sidebar--primary", matchMedia("(max-width: 76.2344em)")],
    ["__search", ".md-search__inner", matchMedia("(max-width: 59.9844em)")],
  ];
  for (const [toggle, selector, narrow] of closed) {
    const box = document.getElementById(toggle);
    const drawer = document.querySelector(selector);
    if (!box || !drawer) continue;
    const set = () => (drawer.inert = narrow.matches && !box.checked);
    box.addEventListener("change", set, { capture: true });
    narrow.addEventListener("change", set);
    set();
  }
}

// Print opens what is folded, and closes it again.
{
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => opened.forEach(one => (one.open = false)));
}
