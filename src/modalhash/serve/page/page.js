// The search page: plain DOM, no library. Everything shown as text is set as text, never as markup.

const $ = (id) => document.getElementById(id);
const SIZE = 36; // items per answer
const PAUSE = 120; // ms between the last key and the request
const LABELS = { image: "Pictures", text: "Words", fused: "Both together" };
const BY = { image: "picture", text: "words", fused: "both" };

const state = {
  about: null,
  query: null, // {by: "text", text} | {by: "item", item, view} | {by: "image", file, url}
  find: { text: [], item: [], image: [] }, // databases to search, by kind of query
  bits: 0,
  scores: false,
};
let running = null; // the requests under way: a new query aborts them
let timer = 0;

// ------------------------------------------------------------------------------------------------- talking to the server

let token = "";
try {
  token = sessionStorage.getItem("modalhash-token") || "";
} catch { /* no storage: ask each time */ }
if (location.hash.startsWith("#token=")) {
  keepToken(decodeURIComponent(location.hash.slice(7)));
  history.replaceState(null, "", location.pathname + location.search);
}

function keepToken(value) {
  token = value;
  try {
    sessionStorage.setItem("modalhash-token", value);
  } catch { /* kept for this page only */ }
}

async function ask(path, options = {}) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { ...options, headers });
  if (answer.status === 401) {
    keepToken(await askToken());
    return ask(path, options);
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.detail || `the server answered ${answer.status}`);
  }
  return answer;
}

let asking = null;
function askToken() {
  asking ??= new Promise((done) => {
    $("token").value = "";
    $("ask").showModal();
    $("ask").addEventListener("close", () => { asking = null; done($("token").value); }, { once: true });
  });
  return asking;
}

const get = (path, values, signal) =>
  ask(`${path}?${new URLSearchParams(values)}`, { signal }).then((answer) => answer.json());

// ------------------------------------------------------------------------------------------------- small parts

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function bitsOf(code, n) {
  const bytes = code.match(/../g).map((pair) => parseInt(pair, 16));
  return Array.from({ length: n }, (_, j) => (bytes[j >> 3] >> (j & 7)) & 1);
}

// A strip of cells, one per bit, in rows of equal length; `lit` says which are drawn in `colour`.
function strip(lit, colour, label, most = 32) {
  const rows = Math.ceil(lit.length / most);
  const columns = Math.ceil(lit.length / rows);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "strip");
  svg.setAttribute("viewBox", `0 0 ${columns * 10} ${rows * 12}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  for (const [name, wanted] of [["same", 0], [colour, 1]]) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", name);
    path.setAttribute("d", lit.map((bit, j) => (bit === wanted
      ? `M${(j % columns) * 10 + 1} ${Math.floor(j / columns) * 12 + 1}h8v9h-8z` : "")).join(""));
    svg.append(path);
  }
  return svg;
}

function tile(item) {
  if (!item.picture) return null;
  const drawn = item.flat ? "drawn" : "";
  const image = make("img", { alt: "", loading: "lazy", decoding: "async", className: drawn, draggable: false });
  if (token) {
    ask(item.picture).then((answer) => answer.blob()).then((blob) => {
      image.src = URL.createObjectURL(blob);
      image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
    }).catch(() => {});
  } else {
    image.src = item.picture;
  }
  return make("div", { className: item.flat ? "tile flat" : "tile" }, image);
}

const name = (database) => LABELS[database] || database;
const isText = (database) => database === "text" || kinds()[database] === "text";
const kinds = () => Object.fromEntries(collection().views.map((view) => [view.name, view.kind]));
const collection = () => state.about.collections.find((one) => one.bits === state.bits);
const databases = () => Object.keys(collection().databases);
const canAsk = (kind) => collection().views.some((view) => view.kind === kind);

// ------------------------------------------------------------------------------------------------- results

// An item as a button that searches by it, in its codes of `view`; with the bits that differ where something was asked.
function card(item, view, asked = null) {
  const picture = tile(item);
  const wide = asked !== null && isText(view);
  const parts = [picture, make("span", { className: "title", textContent: item.title })];
  if (wide) parts.push(make("span", { className: "says", textContent: item.text || item.labels.join(", ") }));
  let label = item.title;
  if (asked) {
    const [a, b] = [bitsOf(asked.code, asked.n_bits), bitsOf(item.code, asked.n_bits)];
    const differ = a.map((bit, j) => bit ^ b[j]);
    const said = `${item.distance} of ${asked.n_bits} bits differ`;
    label += `, ${said}`;
    const short = `${item.distance} ${item.distance === 1 ? "bit differs" : "bits differ"}`;
    parts.push(make("div", { className: "bits" }, make("span", { textContent: short }), strip(differ, "differ", said, wide ? 32 : 16)));
  }
  const button = make("button", { type: "button", className: picture ? "card" : "card bare", draggable: true }, ...parts.filter(Boolean));
  button.setAttribute("aria-label", `${label}. Search by it`);
  button.dataset.item = item.id;
  button.title = [item.text, item.labels.join(", ")].filter(Boolean).join("\n");
  button.addEventListener("click", () => go({ by: "item", item: item.id, view }, true));
  button.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/x-modalhash-item", String(item.id)));
  return make("li", {}, button);
}

// Words that the nearest texts share, the nearer the weightier.
function common(hits) {
  const weight = new Map();
  for (const hit of hits.slice(0, 12)) {
    for (const word of new Set(hit.text.toLowerCase().split(/[\s;,]+/))) {
      if (word.length > 1) weight.set(word, (weight.get(word) || 0) + Math.exp((hits[0].distance - hit.distance) / 3));
    }
  }
  const words = [...weight].sort((a, b) => b[1] - a[1]).slice(0, 10).map(([word]) => word);
  if (!words.length || !canAsk("text")) return null;
  const list = make("ul", { className: "common" }, ...words.map((word) => make("li", {}, chip(word, () => type(word)))));
  list.setAttribute("aria-label", "Words of the nearest");
  return list;
}

function chip(text, action) {
  const button = make("button", { type: "button", className: "chip", textContent: text });
  button.addEventListener("click", action);
  return button;
}

function section(answer) {
  const { database, hits, query } = answer;
  const title = make("h2", {}, name(database), make("small", {
    textContent: `nearest of ${collection().databases[database]} codes`,
  }));
  const list = make("ul", { className: isText(database) ? "grid wide" : "grid" },
    ...hits.map((hit) => card(hit, database, query)));
  const node = make("section", { className: "found" }, title,
    ...[isText(database) && state.query.by === "image" ? common(hits) : null].filter(Boolean), list);
  node.dataset.database = database;
  node.setAttribute("aria-label", name(database));
  return node;
}

async function browse(signal) {
  const total = state.about.items;
  const step = Math.max(1, Math.floor(total / SIZE));
  const start = Math.floor(Math.random() * step);
  const { items } = await get("/items", { start, step, limit: Math.min(SIZE, state.about.limits.k) }, signal);
  const shown = databases().includes("fused") ? "fused" : databases()[0];
  $("results").replaceChildren(make("section", { className: "found" },
    make("h2", {}, "Some of the items", make("small", { textContent: "click one to search by it" })),
    make("ul", { className: "grid" }, ...items.map((item) => card(item, shown)))));
  status(`${total} items, codes of ${state.bits} bits by ${collection().method}`);
}

function status(text) {
  $("status").textContent = text;
}

// ------------------------------------------------------------------------------------------------- searching

async function run() {
  running?.abort();
  const own = (running = new AbortController());
  try {
    drawOptions();
    if (!state.query) {
      clearQuery();
      await browse(own.signal);
      return;
    }
    const started = performance.now();
    const wanted = state.find[state.query.by].filter((database) => databases().includes(database));
    const answers = await Promise.all((wanted.length ? wanted : databases().slice(0, 1)).map((d) => search(d, own.signal)));
    if (own !== running) return;
    const took = Math.round(performance.now() - started);
    await drawQuery(answers[0].query, own.signal);
    $("results").replaceChildren(...answers.map(section));
    const n = answers.reduce((sum, answer) => sum + answer.hits.length, 0);
    const nothing = answers[0].query.unknown.length ? `No known word in “${answers[0].query.text}”` : "Nothing found";
    status(n ? `${n} results in ${took} ms` : nothing);
  } catch (error) {
    if (error.name === "AbortError") return;
    status(`Cannot search: ${error.message}`);
    $("results").replaceChildren();
  }
}

function search(database, signal) {
  const { query } = state;
  const values = { database, bits: state.bits, k: Math.min(SIZE, state.about.limits.k) };
  if (state.scores) values.rank = "scores";
  if (query.by === "image") {
    const body = new FormData();
    body.append("image", query.file, "picture");
    return ask(`/search/image?${new URLSearchParams(values)}`, { method: "POST", body, signal }).then((answer) => answer.json());
  }
  if (query.by === "item") {
    if (!Object.hasOwn(kinds(), query.view)) delete values.rank; // codes of both views together have no scores
    return get("/search", { ...values, item: query.item, view: query.view }, signal);
  }
  return get("/search", { ...values, text: query.text, complete: true, expand: collection().expands ? 3 : 0 }, signal);
}

function clearQuery() {
  $("query").hidden = true;
  $("words").hidden = true;
}

async function drawQuery(asked, signal) {
  const { query } = state;
  const bits = bitsOf(asked.code, asked.n_bits);
  let [title, note, picture] = ["", "", null];
  if (query.by === "text") {
    title = asked.known.length ? asked.known.join(" ") : query.text;
    const notes = [];
    if (asked.unknown.length) notes.push(`not in the vocabulary: ${asked.unknown.join(", ")}`);
    if (asked.examples.length) notes.push(`with the words of ${asked.examples.map((item) => item.title).join(", ")}`);
    note = notes.join("; ");
  } else if (query.by === "image") {
    [title, note] = ["Your picture", "encoded by the pictures’ own hash function"];
    picture = make("div", { className: "tile" }, make("img", { src: query.url, alt: "" }));
  } else {
    const item = await ask(`/items/${query.item}`, { signal }).then((answer) => answer.json());
    [title, note, picture] = [item.title, item.text || item.labels.join(", "), tile(item)];
  }
  $("query").hidden = false;
  $("query-title").textContent = title;
  $("query-note").textContent = note;
  $("query-picture").replaceChildren(...[picture].filter(Boolean));
  const on = bits.reduce((sum, bit) => sum + bit, 0);
  $("query-code").replaceChildren(strip(bits, "on", `The query's code: ${on} of ${bits.length} bits are 1`));
  const views = query.by === "item" ? databases() : [];
  $("query-view").replaceChildren(...(views.length > 1 ? views : []).map((view) => {
    const button = chip(`by ${BY[view] || view}`, () => go({ ...query, view }, true));
    button.setAttribute("aria-pressed", String(view === query.view));
    return button;
  }));
  const suggestions = query.by === "text" ? asked.suggestions : [];
  $("words").hidden = !suggestions.length;
  $("words").replaceChildren(...suggestions.map((word) => chip(word, () => {
    const words = $("text").value.trim().split(/\s+/);
    type([...words.slice(0, -1), word].join(" "));
  })));
}

function drawOptions() {
  const by = state.query?.by || "text";
  $("find").replaceChildren(...databases().map((database) => {
    const button = chip(name(database), () => toggle(by, database));
    button.setAttribute("aria-pressed", String(state.find[by].includes(database)));
    button.title = database === "fused" ? "Codes of picture and words together, made without labels" : `Codes of the view “${database}” alone`;
    return button;
  }));
}

// One database at a time by a click; the last one stays. For pictures, words and pictures are shown together.
function toggle(by, database) {
  const chosen = state.find[by];
  if (by === "image" && chosen.length > 1) state.find[by] = [database];
  else if (by === "image" && !chosen.includes(database)) state.find[by] = databases().filter((d) => d === database || chosen.includes(d));
  else state.find[by] = [database];
  const focused = databases().indexOf(database);
  go(state.query, false);
  $("find").children[focused]?.focus();
}

function type(text) {
  $("text").value = text;
  go({ by: "text", text }, true);
}

// Set the query, note it in the address (so that Back works and a link can be shared), and search.
function go(query, step) {
  clearTimeout(timer);
  if (state.query?.by === "image" && state.query !== query && query?.by !== "image") URL.revokeObjectURL(state.query.url);
  state.query = query;
  if (query?.by !== "text") $("text").value = "";
  const values = new URLSearchParams();
  if (query?.by === "text") values.set("q", query.text);
  if (query?.by === "item") [values.set("item", query.item), values.set("by", query.view)];
  const address = values.size ? `?${values}` : location.pathname;
  if (query?.by !== "image") history[step ? "pushState" : "replaceState"](null, "", address);
  if (step) scrollTo({ top: 0 });
  return run();
}

function fromAddress() {
  const values = new URLSearchParams(location.search);
  if (values.get("q")) {
    $("text").value = values.get("q");
    return { by: "text", text: values.get("q") };
  }
  const item = Number(values.get("item"));
  if (values.has("item") && Number.isSafeInteger(item)) return { by: "item", item, view: values.get("by") || databases()[0] };
  return null;
}

// ------------------------------------------------------------------------------------------------- pictures

// Drawings become a white square, as the model's own were made; large photographs are made smaller. The rest goes as it is.
async function prepare(file) {
  const drawing = file.type === "image/svg+xml";
  const url = URL.createObjectURL(file);
  try {
    const image = await new Promise((done, failed) => {
      const one = new Image();
      one.onload = () => done(one);
      one.onerror = () => failed(new Error("this file is not a picture that the browser can read"));
      one.src = url;
    });
    const [w, h] = [image.naturalWidth || 256, image.naturalHeight || 256];
    const most = drawing ? collection().views.find((view) => view.kind === "image").size || 256 : 1024;
    if (!drawing && Math.max(w, h) <= most && file.size <= state.about.limits.body / 2) return file;
    const scale = drawing ? most / Math.max(w, h) : Math.min(1, most / Math.max(w, h));
    const canvas = make("canvas", { width: drawing ? most : Math.round(w * scale), height: drawing ? most : Math.round(h * scale) });
    const draw = canvas.getContext("2d");
    draw.fillStyle = "#fff";
    draw.fillRect(0, 0, canvas.width, canvas.height);
    draw.drawImage(image, (canvas.width - w * scale) / 2, (canvas.height - h * scale) / 2, w * scale, h * scale);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

async function byPicture(file) {
  if (!canAsk("image")) return status("This model carries no features for pictures; click an item to search by it.");
  try {
    const ready = await prepare(file);
    await go({ by: "image", file: ready, url: URL.createObjectURL(ready) }, false);
  } catch (error) {
    status(`Cannot use this file: ${error.message}`);
  }
}

// ------------------------------------------------------------------------------------------------- events

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("text").value.trim()) type($("text").value);
});
$("text").addEventListener("input", () => {
  clearTimeout(timer);
  const text = $("text").value;
  timer = setTimeout(() => go(text.trim() ? { by: "text", text } : null, false), PAUSE);
});
$("clear").addEventListener("click", () => { $("text").value = ""; go(null, true); $("text").focus(); });
$("file").addEventListener("change", () => { if ($("file").files[0]) byPicture($("file").files[0]); $("file").value = ""; });
$("bits").addEventListener("change", () => { state.bits = Number($("bits").value); go(state.query, false); });
$("scores").addEventListener("change", () => { state.scores = $("scores").checked; go(state.query, false); });
$("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme(dark ? "light" : "dark");
});
addEventListener("popstate", () => { state.query = fromAddress(); if (state.query?.by !== "text") $("text").value = ""; run(); });
addEventListener("paste", (event) => {
  const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
  if (file) { event.preventDefault(); byPicture(file); }
});
addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dragging"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dragging"); });
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  const item = event.dataTransfer.getData("text/x-modalhash-item");
  const file = [...event.dataTransfer.files].find((one) => one.type.startsWith("image/"));
  if (file) byPicture(file);
  else if (item) go({ by: "item", item: Number(item), view: databases()[0] }, true);
  else status("Drop a picture file to search by it.");
});
addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select");
  if (event.key === "/" && !typing) { event.preventDefault(); $("text").focus(); $("text").select(); }
  if (event.key === "Escape" && !$("ask").open && state.query) $("clear").click();
  const from = event.target.closest?.(".card");
  if (from && event.key.startsWith("Arrow")) move(from, event);
});

// Arrow keys go from card to card, as the eye sees them.
function move(from, event) {
  const cards = [...document.querySelectorAll(".card")];
  const here = from.getBoundingClientRect();
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  let to = step ? cards[cards.indexOf(from) + step] : null;
  if (!step) {
    const down = event.key === "ArrowDown";
    const beyond = cards.filter((one) => { const top = one.getBoundingClientRect().top; return down ? top > here.top + 4 : top < here.top - 4; });
    to = (down ? beyond : beyond.reverse()).reduce((best, one) => {
      const far = (card) => Math.abs(card.getBoundingClientRect().left - here.left) + 3 * Math.abs(card.getBoundingClientRect().top - here.top);
      return !best || far(one) < far(best) ? one : best;
    }, null);
  }
  if (to) { event.preventDefault(); to.focus(); }
}

function theme(value) {
  if (value) document.documentElement.dataset.theme = value;
  try {
    if (value) localStorage.setItem("modalhash-theme", value);
    else if (localStorage.getItem("modalhash-theme")) document.documentElement.dataset.theme = localStorage.getItem("modalhash-theme");
  } catch { /* no storage: the system's choice */ }
}

async function start() {
  theme();
  try {
    state.about = await ask("/about").then((answer) => answer.json());
  } catch (error) {
    return status(`Cannot reach the server: ${error.message}`);
  }
  state.about.collections = state.about.collections.filter((one) => Object.keys(one.databases).length);
  state.bits = state.about.collections[0].bits;
  $("name").textContent = state.about.name;
  document.title = `${state.about.name} · modalhash search`;
  $("credit").textContent = [state.about.credit && `Items: ${state.about.credit}.`, `modalhash ${state.about.version}`].filter(Boolean).join(" ");
  $("bits").replaceChildren(...state.about.collections.map((one) => make("option", { value: one.bits, textContent: one.bits })));
  const views = databases().filter((database) => Object.hasOwn(kinds(), database));
  const first = databases().includes("fused") ? "fused" : databases()[0];
  state.find = { text: [first], item: [first], image: [...views].sort((a, b) => (kinds()[b] === "text") - (kinds()[a] === "text")) };
  if (!canAsk("text")) {
    $("text").disabled = true;
    $("text").placeholder = "This model carries no vocabulary: click an item";
  } else $("text").focus({ preventScroll: true });
  $("upload").hidden = !canAsk("image");
  state.query = fromAddress();
  await run();
}

start();
