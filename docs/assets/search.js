// The search of this site, in place of Material's worker; it speaks with Material's search box.
// Input: search/course_index.js, fetched with the first question. In a worker, or where a browser
// starts none (a page opened from a file), in the page itself: see main.html.
{
  const inPage = typeof document !== "undefined";
  const here = inPage ? document.currentScript.src : self.location.href;
  const STOP = new Set(
    ("a an and are as at be by can do does for from has have how i in is it its me my of on or so " +
      "that the there they this to was what when where which who why will with you your").split(" ")
  );
  // Symptoms first, then lessons and exercises; the ledger and the texts it judges come last.
  const WEIGHT = [
    [/^(#|$)/, 1.4],
    [/^symptoms/, 1.7],
    [/#(three-questions|recap|what-decides|a-solution|a-failing-report)$/, 0.7],
    [/^lessons/, 1.4],
    [/^exercises/, 1.2],
    [/^instructors|^reference/, 1.1],
    [/^documents/, 0.6],
    [/^claims/, 0.5],
  ];
  // "Which exercise teaches donation" asks for a kind of page; it is about neither of these words.
  const KINDS = { exercis: /^exercises/, lesson: /^lessons/ }, WANTED = 3;
  const VERBS = new Set(["teach", "explain", "show", "cover", "train"]);
  const TITLE = 5, PAGE_TITLE = 2.5, K = 1.4, B = 0.6;

  // is_ready -> is_ready, is, ready; deviceKind -> devicekind, device, kind. Endings come off:
  // donation, donated and donate are one word.
  const stem = word => {
    if (word.length < 5 || word.includes("_") || /\d/.test(word)) return word;
    const short = word.replace(/(ations?|ating|ated|ates?|ings?|ers?|ed|es|s|e)$/, "");
    return short.length >= 3 ? short : word;
  };
  const words = text => {
    const found = [];
    // S3-22, a claim's number, is one word.
    for (const part of text.match(/\bS\d-\d+\b|[A-Za-z0-9_]+/gi) || []) {
      const whole = part.toLowerCase();
      found.push(whole);
      if (/_|[a-z][A-Z]/.test(part))
        for (const piece of part.replace(/([a-z])([A-Z])/g, "$1_$2").toLowerCase().split("_"))
          if (piece && piece !== whole) found.push(piece);
    }
    return found.map(stem);
  };

  let index;
  const build = entries => {
    const titles = new Map();
    for (const entry of entries) if (!entry.l.includes("#")) titles.set(entry.l, entry);
    const postings = new Map();
    let total = 0;
    entries.forEach((entry, n) => {
      const page = titles.get(entry.l.split("#")[0]);
      const counts = new Map();
      const add = (text, weight) => {
        for (const word of words(text)) counts.set(word, (counts.get(word) || 0) + weight);
      };
      add(entry.x, 1);
      add(entry.t, TITLE);
      if (page && page !== entry) add(page.t, PAGE_TITLE);
      // exercises/ex14_donate/ is about donate, whatever its title says.
      add(entry.l.split("#")[0].replace(/\/$/, "").split("/").at(-1), PAGE_TITLE);
      entry.size = 0;
      for (const [word, count] of counts) {
        entry.size += count;
        if (!postings.has(word)) postings.set(word, []);
        postings.get(word).push([n, count]);
      }
      total += entry.size;
      entry.weight = (WEIGHT.find(([where]) => where.test(entry.l)) || [0, 1])[1];
    });
    return { entries, titles, postings, vocabulary: [...postings.keys()], mean: total / entries.length };
  };

  // One letter wrong, missing or too many.
  const near = (a, b) => {
    if (Math.abs(a.length - b.length) > 1) return false;
    let i = 0;
    while (i < a.length && a[i] === b[i]) i++;
    const rest = (x, y) => a.slice(i + x) === b.slice(i + y);
    return rest(1, 1) || rest(1, 0) || rest(0, 1);
  };
  const matches = (word, last) => {
    const found = new Map();
    if (index.postings.has(word)) found.set(word, 1);
    if (last && word.length > 2)
      for (const other of index.vocabulary)
        if (other !== word && other.startsWith(word)) found.set(other, 0.5 * word.length / other.length);
    if (!found.size && word.length > 3)
      for (const other of index.vocabulary) if (near(word, other)) found.set(other, 0.4);
    return found;
  };

  const search = question => {
    const asked = [...new Set(words(question))];
    const telling = asked.filter(word => !STOP.has(word));
    const kind = KINDS[telling.find(word => word in KINDS)];
    const about = kind ? telling.filter(word => !(word in KINDS) && !VERBS.has(word)) : [];
    const query = [about, telling, asked].find(some => some.length) || [];
    if (!query.length) return { items: [] };
    const scores = new Map();
    const many = index.entries.length;
    let whole = 0;
    query.forEach((word, n) => {
      const found = matches(word, n === query.length - 1 && /\w$/.test(question));
      let best = 0;
      const here = new Map();
      for (const [other, share] of found) {
        const list = index.postings.get(other);
        const rarity = Math.log(1 + (many - list.length + 0.5) / (list.length + 0.5));
        best = Math.max(best, rarity);
        for (const [entry, count] of list) {
          const size = 1 - B + (B * index.entries[entry].size) / index.mean;
          const score = share * rarity * ((count * (K + 1)) / (count + K * size));
          const before = here.get(entry);
          if (!before || before[0] < score) here.set(entry, [score, rarity, other]);
        }
      }
      whole += best || Math.log(1 + many);
      for (const [entry, [score, rarity, other]] of here) {
        const sum = scores.get(entry) || { score: 0, seen: 0, terms: [] };
        sum.score += score;
        sum.seen += rarity;
        sum.terms.push(other);
        scores.set(entry, sum);
      }
    });
    // Of two words asked for, an entry that has both beats one that has the first many times.
    const pages = new Map();
    for (const [n, sum] of scores) {
      const entry = index.entries[n];
      const covered = Math.min(1, sum.seen / whole);
      const wanted = kind && kind.test(entry.l) ? WANTED : 1;
      const score = sum.score * entry.weight * wanted * (0.15 + covered * covered);
      const page = entry.l.split("#")[0];
      if (!pages.has(page)) pages.set(page, []);
      pages.get(page).push({ entry, score, terms: sum.terms });
    }
    const groups = [...pages].map(([page, found]) => {
      found.sort((a, b) => b.score - a.score);
      const best = found[0].score;
      const title = index.titles.get(page);
      const shown = found.slice(0, 6).map(one => result(one.entry, one.score, one.terms, query));
      if (title && !found.slice(0, 6).some(one => one.entry === title))
        shown.push(result(title, 0, [], query));
      return { best, shown };
    });
    groups.sort((a, b) => b.best - a.best);
    return { items: groups.slice(0, 20).map(group => group.shown) };
  };

  // A page opened from a file links to files: docs/_build/offline.py.
  const addressOf = location => (inPage ? location.replace(/(^|\/)(#|$)/, "$1index.html$2") : location);
  const escape = text => text.replace(/[&<>]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
  const result = (entry, score, terms, query) => {
    const wanted = new Set(terms);
    const mark = text =>
      text.split(/([A-Za-z0-9_]+)/).map((part, n) =>
        n % 2 && words(part).some(word => wanted.has(word))
          ? `<mark data-md-highlight>${escape(part)}</mark>` : escape(part)).join("");
    let from = 0;
    for (const part of entry.x.matchAll(/[A-Za-z0-9_]+/g))
      if (words(part[0]).some(word => wanted.has(word))) { from = Math.max(0, part.index - 60); break; }
    if (from) from = entry.x.indexOf(" ", from) + 1;
    const text = (from ? "... " : "") + entry.x.slice(from, from + 240);
    const found = Object.fromEntries(query.map(word => [word, true]));
    return { location: addressOf(entry.l), title: mark(entry.t), text: mark(text), score, terms: found };
  };

  let loading;
  const load = () => loading ??= new Promise(done => {
    const address = new URL("../search/course_index.js", here).href;
    if (!inPage) {
      importScripts(address);
      return done();
    }
    const script = document.createElement("script");
    script.src = address;
    script.onload = done;
    document.head.append(script);
  }).then(() => (index = build(self.courseIndex)));

  const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3;
  const receive = async (message, reply) => {
    if (message.type === SETUP) return reply({ type: READY });
    if (message.type !== QUERY) return;
    if (!message.data.trim()) return reply({ type: RESULT, data: { items: [] } });
    await load();
    reply({ type: RESULT, data: search(message.data) });
  };
  if (inPage) window.courseSearch.receive = message => receive(message, window.courseSearch.reply);
  else addEventListener("message", event => receive(event.data, data => postMessage(data)));
}
