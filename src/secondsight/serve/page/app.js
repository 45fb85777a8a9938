// The page: asks every collection that is served, shows the answers, goes from view to view.

import { capital, count, find, make, pictures, say } from "/elements.js";
import { collections, get, image, post, upload, uploaded } from "/api.js";
import * as filters from "/filters.js";
import * as intake from "/intake.js";
import * as query from "/query.js";
import * as trail from "/trail.js";
import { answered, browsed, sureness, tell } from "/results.js";
import { Rows } from "/rows.js";
import { open as openWhy } from "/why.js";

const STEPS = [200, 2000, 10_000]; // answers asked for, as one scrolls
const PAGE = 300; // items of the collection that come at a time
let asking = null, panes = [];
const { current } = trail;
const status = (...words) => find("#status").replaceChildren(...words);

// Asking

async function ask(search, number, k, signal) {
  const mine = (list) => list.filter((one) => one.collection === number).map(({ id, query, box }) => (box ? { id, query, box } : id));
  const body = { where: filters.where(), k, collection: number, like: mine(search.likes), unlike: mine(search.unlikes), box: search.box ?? undefined };
  const known = search.refs[number];
  if (known) {
    try { return await post("/api/search", { ...body, ...known }, signal); } catch (error) {
      if (error.status !== 404 || !known.query) throw error; // an upload that is no longer kept is sent again
    }
  }
  const file = search.file ?? (await (await fetch(image(search.id, search.collection), { signal })).blob());
  const answer = await upload(file, body, signal);
  search.refs[number] = { query: answer.query };
  return answer;
}

async function run({ focus = false } = {}) {
  const search = current();
  views();
  say(null);
  trail.crumbs(); trail.examples();
  asking?.abort();
  const mine = (asking = new AbortController());
  find("#facets").hidden = Boolean(search) || !collections[0].labels.length || Boolean(filters.where());
  if (!search) { query.clear(); find("#results").classList.remove("busy"); return browse(mine.signal); }
  query.show(search.source, search.box, search.seen);
  find("#results").classList.add("busy");
  if (!search.refs[0]) status("Looking …");
  try {
    const answers = await Promise.all(panes.map((_, number) => ask(search, number, STEPS[0], mine.signal)));
    if (mine.signal.aborted) return;
    if (answers[0].seen) search.seen = answers[0].seen;
    if (search.file && search.refs[0]?.query && !search.upright) { search.upright = true; search.source = uploaded(search.refs[0].query); trail.crumbs(); }
    query.show(search.source, search.box, search.seen);
    answers.forEach((answer, number) => show(search, number, answer, mine.signal));
    status(...told(answers[0], search));
    if (focus) find("#results").focus({ preventScroll: true });
    suggest(search);
  } catch (error) {
    if (error.name === "AbortError") return;
    status("");
    if (!search.refs[0]) { trail.drop(); await run(); }
    say(error);
  } finally {
    if (asking === mine) find("#results").classList.remove("busy");
  }
}

function show(search, number, answer, signal) {
  const pane = panes[number], hits = [...answer.hits];
  if (panes.length > 1) find(".told", pane.section).replaceChildren(...told(answer, search));
  if (!hits.length) tell(pane, "Nothing to show", capital(answer.why ?? "no item was found"));
  let step = 0;
  const end = async () => {
    if (hits.length < STEPS[step] || ++step >= STEPS.length) return;
    try {
      const longer = await ask(search, number, STEPS[step], signal), known = new Set(hits.map((hit) => hit.id));
      if (signal.aborted) return;
      hits.push(...longer.hits.filter((hit) => !known.has(hit.id)));
      pane.rows.extend(hits);
    } catch (error) { if (error.name !== "AbortError") say(error); }
  };
  answered(pane, hits, number, acts(number), { end });
}

function told(answer, search) {
  const judged = answer.hits.some((hit) => hit.probability !== null), matches = answer.hits.filter((hit) => hit.match && hit.probability !== null).length;
  const what = search.box ? "this part" : "this picture", all = matches === answer.hits.length && matches === STEPS[0] ? `${matches} or more` : matches;
  const nearest = answer.hits.length === 1 ? "The nearest one" : `The nearest ${count(answer.hits.length)}`;
  const first = !answer.hits.length ? "Nothing found" : !judged ? nearest : matches ? `${all} ${sureness(answer.hits)}` : nearest;
  return [make("b", {}, first), ` ${matches ? "as" : answer.hits.length ? "to" : "for"} ${what}`, make("span", { className: "hint" }, ` · ${Math.max(1, Math.round(answer.milliseconds.all))} ms`)];
}

async function suggest(search) {
  if (search.parts === undefined) {
    search.parts = [];
    if (collections[0].explains) try { search.parts = (await post("/api/parts", { of: search.refs[0], count: 6 })).parts; } catch { /* parts are an offer, not an answer */ }
  }
  if (current() === search) query.suggest(search.parts.length > 1 ? search.parts : [], ofQuery);
}

async function browse(signal) {
  query.suggest([], {});
  const where = filters.where(), condition = where ? `&where=${encodeURIComponent(JSON.stringify(where))}` : "";
  try {
    for (const [number, pane] of panes.entries()) {
      const page = (offset) => get(`/api/items?limit=${PAGE}&offset=${offset}&collection=${number}${condition}`, signal);
      const { items, total } = await page(0), more = async () => {
        if (items.length >= total) return;
        const next = await page(items.length).catch((error) => { if (error.name !== "AbortError") say(error); return { items: [] }; });
        items.push(...next.items);
        if (next.items.length && !signal.aborted) pane.rows.extend(items);
      };
      if (signal.aborted) return;
      if (number === 0) status(...(total ? [make("b", {}, pictures(total)), collections[0].trouble ? ". Search with any of them." : ". Search with one of yours, or with any of these."] : []));
      if (panes.length > 1) find(".told", pane.section).textContent = "";
      pane.said.hidden = total > 0;
      browsed(pane, items, number, acts(number), { end: more, total });
      if (!total) tell(pane, where ? "No picture passes the filter" : "This collection is still empty", where ? "Take a filter away." : "Pictures appear here as they are indexed: secondsight index ./photos");
    }
  } catch (error) { if (error.name !== "AbortError") say(error); }
}

// What can be done with a picture, and with a part of one

function acts(number) {
  const example = (sign) => ({ id, query: name }, box) => trail.mark({ collection: number, id, query: name, box }, sign);
  const self = {
    search: ({ id }, box) => (id === undefined ? boxed(box) : trail.searchItem(id, number, box)), like: example("+"), unlike: example("−"), marked: (id) => trail.marked(id, number),
    why: collections[number].explains ? (item) => { const search = current(); if (search) openWhy({ search, hit: item, number, acts: self }); } : null,
  };
  return self;
}

function boxed(box) { const search = current(); if (search) { search.box = box; run(); } }
const part = (sign) => (box) => trail.mark({ collection: 0, ...current().refs[0], box: box.map((side) => Math.round(1e5 * side) / 1e5) }, sign);
const ofQuery = { like: part("+"), unlike: part("−") };
query.onExample(ofQuery);
query.onBox(boxed);

intake.onPicture(async (file) => {
  await started; // a photo may be faster than the model
  if (!collections.length) return;
  if (collections[0].trouble) { say({ message: `pictures cannot be searched for here: ${collections[0].trouble}`, cure: "" }); return; }
  trail.searchFile(file);
});

// Views

const loaders = { map: () => import("/map.js"), codewords: () => import("/codewords.js"), duplicates: () => import("/duplicates.js"), api: () => import("/description.js") };
let shown = "search";
async function views() {
  const name = location.hash.replace("#/", "") || "search", known = find(`main#${CSS.escape(name)}`) ? name : "search";
  if (known !== shown) { shown = known; say(null); scrollTo(0, 0); }
  for (const view of document.querySelectorAll(".view")) view.hidden = view.id !== known;
  for (const link of document.querySelectorAll("[data-view]")) { if (link.dataset.view === known) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current"); }
  if (loaders[known]) try { await (await loaders[known]()).show({ search: (item, box) => trail.searchItem(item.id, 0, box), marked: () => "" }); } catch (error) { say(error); }
}
trail.onChange(run);
addEventListener("popstate", (event) => { if (location.hash === "#/" || !location.hash) { trail.back(event.state); run(); } else views(); });
find(".brand").addEventListener("click", (event) => { event.preventDefault(); trail.to(-1); });

// Whether the collection grew: it may be written while it is looked at.
async function watch() {
  if (document.hidden) return;
  const now = await get("/healthz").catch(() => null);
  if (!now || now.items[0] === collections[0].items) return;
  const more = now.items[0] - collections[0].items;
  collections[0].items = now.items[0];
  titled();
  if (!current() && scrollY < 200) return run();
  status(`The collection ${more > 0 ? `has ${count(more)} more ${more === 1 ? "picture" : "pictures"}` : "changed"}. `, make("button", { type: "button", onclick: () => run() }, "Look again"));
}

function titled() {
  find("#collection").textContent = `${collections.map((one) => one.name).join(" beside ")} · ${pictures(collections[0].items)}`;
}

async function start() {
  try {
    collections.push(...(await get("/api/collections")).collections);
  } catch (error) { say(error); return; }
  const [first] = collections;
  document.title = `${first.name} · secondsight`;
  titled();
  find("[data-view=codewords]").hidden = !first.codewords;
  panes = collections.map((one, number) => {
    const list = make("ul", { className: "grid" }), said = make("div", { className: "none", hidden: true });
    const head = collections.length > 1 ? make("header", {}, make("h2", {}, one.name), make("p", { className: "hint" }, one.model ?? ""), make("p", { className: "told" })) : null;
    const section = make("section", { className: "pane", "aria-label": `Answers of ${one.name}${number ? `, ${number + 1}` : ""}` }, head, said, list);
    find("#results").append(section);
    return { section, said, rows: new Rows(list), height: collections.length > 1 ? 130 : 190 };
  });
  document.body.classList.toggle("several", collections.length > 1);
  document.body.classList.toggle("no-photos", Boolean(first.trouble));
  document.body.classList.toggle("no-parts", !first.explains);
  if (first.trouble) { find("#drop .large").textContent = "Search with any picture"; find("#drop .large + p").textContent = "by a click on it"; }
  if (first.trouble) say({ message: `this collection can be browsed and searched by its own pictures, but not by yours: ${first.trouble}`, cure: "" });
  filters.start(first, run);
  history.replaceState({ here: -1 }, "", location.hash || "#/");
  const trouble = find("#notice").textContent;
  await run();
  if (trouble) { find("#notice").textContent = trouble; find("#notice").hidden = false; }
  setInterval(watch, 5000);
}
status("Opening the collection …");
const started = start();
