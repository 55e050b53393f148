/* What the search page finds: sections, not pages of fifty screens.

   Sphinx's index says which pages have the words. This script reads those
   pages, cuts them into sections, exercises and words of the glossary, and
   shows the places that have most of the words, each with a link to it. A
   question may be asked in plain English, in Chinese, or with a number in it;
   Sphinx's own search knows no numbers and no part of a Chinese word. Where
   the pages cannot be fetched (a site opened from a folder), Sphinx's list
   stays.

   It stands before Sphinx's scripts, and so hears first that the page is
   there: Sphinx begins to search a moment later. */
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;

  const PAGES = 24;     // read at most so many pages
  const PLACES = 20;    // and show at most so many places,
  const OF_ONE = 3;     // of one page at most so many
  const LEAST = 0.3;    // and none that is worth less than this of the best
  const AROUND = 240;   // characters of an excerpt
  const CHINESE = /\p{Script=Han}/u;
  // Words of a question, which say nothing of its matter.
  const ASKING = new Set(("a about all am an and any are as at be can do does exercise exercises "
    + "explain find for from get give gives given has have how i in into is "
    + "it its me mean means my need not of on or that the their there these "
    + "per this to use was what when where which who why will with you your"
    ).split(" "));
  // What others call a thing: the words that this course has for it.
  const ALSO = {
    gqa: ["grouped-query"], kv: ["key–value", "key-value"], memory: ["bytes"],
    mha: ["MultiheadAttention", "multi-head"], mqa: ["multi-query"],
    polarity: ["True"], rope: ["rotary"], flashattention: ["tiled"],
    sdpa: ["scaled_dot_product_attention"], upside: ["opposite"],
  };
  // What stands on every page in the same way is seldom what is looked for.
  const FRAME = /^(what you (will be able to do|need)|summary|questions|further reading|exercises)$/i;
  const SIGNS = { cdot: "·", infty: "∞", le: "≤", ge: "≥", sqrt: "√",
                  times: "×", top: "T", to: "→", sum: "Σ" };
  // Pages that come after the others when they have the same words.
  const AFTER = [[/\/api/, 0.6], [/common_mistakes$/, 0.8],
                 [/index_of_|changes$|bibliography$|^intro$/, 0.7]];
  const BLOCK = "p, li, pre, td, th, dt, dd, figcaption, h1, h2, h3, h4, "
    + "summary, div.math";
  const NOISE = ".headerlink, script, style, .glossary-meaning, .copybtn, "
    + ".toc-backref, .glossary-chinese";

  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

  // --- the words ----------------------------------------------------------

  const wordsOf = (query) => {
    const all = [...new Set(splitQuery(query.toLowerCase()))];
    const telling = all.filter((word) => !ASKING.has(word));
    const stemmer = new Stemmer();
    return (telling.length ? telling : all).map((word) => {
      const stem = stemmer.stemWord(word);
      const chinese = CHINESE.test(word);
      const number = /^\d+$/.test(word);
      const start = chinese ? "" : "(?<![\\p{L}\\p{N}])";
      const end = number ? "(?![\\p{L}\\p{N}])"
        : word.length < 3 && !chinese ? "(?![\\p{L}])" : "";
      const also = ALSO[word] ?? [];
      const spelt = [...new Set([word, stem, ...also])].map(escaped).join("|");
      const alone = chinese
        && new RegExp(`(?<!\\p{Script=Han})${word}(?!\\p{Script=Han})`, "u");
      return { word, stem, alone, part: chinese || (!number && word.length > 2),
               also: also.map((name) =>
                 stemmer.stemWord(splitQuery(name.toLowerCase()).pop())),
               form: new RegExp(`${start}(?:${spelt})${end}`, "giu") };
    });
  };

  const pagesWith = ({ word, stem, part, also }) => {
    const found = new Set();
    for (const table of [Search._index.terms, Search._index.titleterms]) {
      const take = (key) => [table[key]].flat().forEach((p) => found.add(p));
      for (const name of [word, stem, ...also]) {
        if (Object.hasOwn(table, name)) take(name);
      }
      if (!part) continue;
      for (const key of Object.keys(table)) {
        if (key.length > word.length
            && (key.includes(word) || key.startsWith(stem))) take(key);
      }
    }
    return found;
  };

  // --- the places ---------------------------------------------------------

  const plain = (text) => text
    .replace(/\\[()[\]]/g, "").replace(/\\(text|math[a-z]+)\b/g, "")
    .replace(/\\([a-z]+)/gi, (_, name) => SIGNS[name] ?? name)
    .replace(/\s+/g, " ").trim();

  const cut = (page, file, html) => {
    const tree = new DOMParser().parseFromString(html, "text/html");
    const article = tree.querySelector("article");
    if (!article) return [];
    article.querySelectorAll(NOISE).forEach((node) => node.remove());
    // Coloured code is thousands of pieces of text.
    for (const code of article.querySelectorAll("pre")) {
      code.textContent = code.textContent;
    }
    const places = new Map();
    const open = (node, id, title, above) => {
      node.dataset.place = id;
      places.set(id, { page, file, id, title: plain(title), above,
                       text: "", code: "" });
    };
    for (const section of article.querySelectorAll("section[id]")) {
      const title = section.querySelector(":scope > :is(h1, h2, h3, h4)");
      if (!title) continue;
      const outer = section.parentElement.closest("[data-place]");
      const first = title.tagName === "H1";
      open(section, first ? "" : section.id, title.textContent,
           outer?.dataset.place ?? null);
    }
    for (const task of article.querySelectorAll("div.exercise[id]")) {
      const title = task.querySelector(".admonition-title");
      if (title) open(task, task.id, title.textContent, null);
    }
    for (const term of article.querySelectorAll("dl.glossary > dt[id], "
                                                + "dl.py > dt.sig[id]")) {
      open(term, term.id, term.matches(".sig")
        ? term.id.split(".").slice(-1)[0] : term.textContent, null);
      const rest = term.nextElementSibling;
      if (rest?.tagName === "DD") rest.dataset.place = term.id;
    }
    const walk = tree.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    let last = null;
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const home = node.parentElement.closest("[data-place]");
      if (!home) continue;
      const place = places.get(home.dataset.place);
      const block = node.parentElement.closest(BLOCK);
      if (block?.matches("h1, h2, h3, h4, dl.glossary > dt, "
                         + ".exercise > .admonition-title")) continue;
      place[block?.matches("pre, .sig") ? "code" : "text"] +=
        (block === last ? "" : " ") + node.data;
      last = block;
    }
    for (const place of places.values()) {
      place.text = plain(place.text);
      place.code = plain(place.code);
      place.path = [];
      for (let id = place.above; id; id = places.get(id)?.above) {
        place.path.unshift(places.get(id).title);
      }
      place.path.unshift(places.get("")?.title ?? "");
    }
    return [...places.values()];
  };

  // --- which comes first --------------------------------------------------

  // The stretch of a text that has most of the words.
  const stretch = (text, words) => {
    const hits = words.flatMap(({ form, weight }, number) =>
      [...text.matchAll(form)].slice(0, 60)
        .map((hit) => ({ at: hit.index, number, weight })));
    hits.sort((a, b) => a.at - b.at);
    let best = { at: 0, value: 0 };
    hits.forEach(({ at }, first) => {
      const seen = new Map();
      for (let i = first; i < hits.length && hits[i].at < at + AROUND; i++) {
        seen.set(hits[i].number, hits[i].weight);
      }
      const value = [...seen.values()].reduce((a, b) => a + b, 0);
      if (value > best.value + 1e-9) best = { at, value };
    });
    return best;
  };

  const after = (page) => AFTER.reduce((share, [pages, less]) =>
    pages.test(page) ? share * less : share, 1);

  const rate = (place, words, phrase, tasks) => {
    const above = place.path.join(" ");
    const whole = words.reduce((total, { weight }) => total + weight, 0);
    let value = 0, had = 0;
    for (const { form, weight, alone } of words) {
      if (alone && alone.test(place.text)) value += 2 * weight;
      const [titled, over, told, coded] = [place.title, above, place.text,
        place.code].map((text) => (text.match(form) || []).length);
      had += weight * (titled || told ? 1 : over ? 0.8 : coded ? 0.6 : 0);
      value += weight * (Math.min(told, 5) * 0.12 + (told ? 1 : 0)
        + (titled ? 2 : 0) + (over ? 0.5 : 0) + (coded ? 0.3 : 0));
    }
    if (!value) return { ...place, value };
    place.best = stretch(place.text, words);
    if (!place.best.value && place.code) {
      place.text = place.code;  // what it shows is code, then
      place.best = { ...stretch(place.code, words), value: 0 };
    }
    value += 2 * place.best.value;
    if (words.length > 1 && place.text.toLowerCase().includes(phrase)) {
      value += whole;
    }
    if (place.title.toLowerCase() === phrase) value += 3 * whole;
    value *= (had / whole) ** 2;
    if (FRAME.test(place.title)) value *= 0.6;
    if (tasks && place.id.startsWith("ex-")) value *= 2;
    if (words.some(({ alone }) => alone) && place.page.endsWith("/glossary")) {
      value *= 2;
    }
    return { ...place, value: value * after(place.page) };
  };

  // --- what is shown ------------------------------------------------------

  const marked = (node, text, words) => {
    const forms = words.map(({ form }) => form.source).join("|");
    let done = 0;
    for (const hit of text.matchAll(new RegExp(forms, "giu"))) {
      node.append(text.slice(done, hit.index));
      const mark = node.appendChild(document.createElement("span"));
      mark.className = "highlighted";
      mark.textContent = hit[0];
      done = hit.index + hit[0].length;
    }
    node.append(text.slice(done));
  };

  const show = (place, words) => {
    const item = Search.output.appendChild(document.createElement("li"));
    const link = item.appendChild(document.createElement("a"));
    link.href = place.file + (place.id ? `#${place.id}` : "");
    const names = [place.path[0], place.id ? place.title : ""];
    marked(link, names.filter(Boolean).join(" › "), words);
    const { text, best } = place;
    if (!text) return;
    const from = best.at < 80 ? 0
      : text.lastIndexOf(" ", best.at - 60) + 1;
    const to = from + AROUND >= text.length ? text.length
      : text.lastIndexOf(" ", from + AROUND);
    const excerpt = item.appendChild(document.createElement("p"));
    excerpt.className = "context";
    marked(excerpt, (from ? "… " : "") + text.slice(from, to)
      + (to < text.length ? " …" : ""), words);
  };

  const ended = (places) => {
    Search.stopPulse();
    Search.title.innerText = _("Search Results");
    const pages = new Set(places.map(({ page }) => page)).size;
    Search.status.innerText = places.length
      ? `${places.length} place(s) on ${pages} page(s), the best first.`
      : "Nothing was found. Try fewer words, or look into the glossary: it "
        + "has the field's words in English and in Chinese.";
  };

  const read = async (number) => {
    const page = Search._index.docnames[number];
    const file = page + DOCUMENTATION_OPTIONS.LINK_SUFFIX;
    const answer = await fetch(
      document.documentElement.dataset.content_root + file);
    if (!answer.ok) throw new Error(answer.statusText);
    return cut(page, file, await answer.text());
  };

  const old = Search.query;
  Search.query = async (query) => {
    const words = wordsOf(query);
    if (!words.length) return ended([]);
    const pages = Search._index.docnames.length;
    const value = new Map();
    for (const word of words) {
      const found = pagesWith(word);
      word.weight = Math.log(1 + pages / Math.max(found.size, 1));
      for (const page of found) {
        value.set(page, (value.get(page) ?? 0)
          + word.weight * after(Search._index.docnames[page]));
      }
    }
    const chosen = [...value].sort((a, b) => b[1] - a[1]).slice(0, PAGES);
    let places;
    try {
      places = (await Promise.all(chosen.map(([page]) => read(page)))).flat();
    } catch {
      return old(query);
    }
    if (chosen.length && !places.length) return old(query);
    const phrase = query.toLowerCase().trim();
    const tasks = /\bexercises?\b/.test(phrase);
    const rated = places.map((place) => rate(place, words, phrase, tasks))
      .filter((place) => place.value > 0)
      .sort((a, b) => b.value - a.value);
    const from = new Map();
    const shown = rated.filter(({ page, value: worth }) => {
      if (worth < rated[0].value * LEAST) return false;
      from.set(page, (from.get(page) ?? 0) + 1);
      return from.get(page) <= OF_ONE;
    }).slice(0, PLACES);
    shown.forEach((place) => show(place, words));
    if (SPHINX_HIGHLIGHT_ENABLED) {
      localStorage.setItem("sphinx_highlight_terms", words
        .map(({ word }) => word)
        .filter((word) => word.length > 2 || CHINESE.test(word)).join(" "));
    }
    ended(shown);
  };
});
