// The page: what is looked for, how one got there, and the answers of every collection that is served.

import { capital, find, make, say } from "/elements.js";
import { collections, get, image, post, thumbnail, upload, uploaded } from "/api.js";
import * as filters from "/filters.js";
import * as query from "/query.js";
import { fill, shown } from "/results.js";
import { open as openWhy } from "/why.js";

const K = 120; // answers asked for
const trail = []; // { file | id, refs: {collection: {query} | {id}}, source, box, likes, unlikes }
let here = -1, asking = null, panes = [];
const current = () => trail[here] ?? null;
const status = (text) => { find("#status").textContent = text; };

// Asking

async function ask(search, number, signal) {
  const mine = (list) => list.filter((one) => one.collection === number).map((one) => one.id);
  const body = { where: filters.where(), k: K, collection: number, like: mine(search.likes), unlike: mine(search.unlikes), box: search.box ?? undefined };
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
  say(null);
  crumbs(); examples();
  if (!search) { query.clear(); return browse(); }
  query.show(search.source, search.box, search.seen);
  asking?.abort();
  const mine = (asking = new AbortController());
  find("#results").classList.add("busy");
  if (!search.refs[0]) status("Looking …");
  try {
    const answers = await Promise.all(panes.map((_, number) => ask(search, number, mine.signal)));
    if (mine.signal.aborted) return;
    if (answers[0].seen) search.seen = answers[0].seen;
    if (search.file && search.refs[0]?.query && !search.upright) { search.upright = true; search.source = uploaded(search.refs[0].query); crumbs(); }
    query.show(search.source, search.box, search.seen);
    answers.forEach((answer, number) => { panes[number].answer = answer; shown(panes[number].list, answer, number, acts(number)); });
    status(told(answers[0], search));
    if (focus) find("#results").focus({ preventScroll: true });
    suggest(search);
  } catch (error) {
    if (error.name === "AbortError") return;
    say(error); status("");
    if (!search.refs[0]) { trail.splice(here, 1); here = trail.length - 1; query.clear(); if (current()) query.show(current().source, current().box, current().seen); crumbs(); }
  } finally {
    if (asking === mine) find("#results").classList.remove("busy");
  }
}

function told(answer, search) {
  const matches = answer.hits.filter((hit) => hit.match && hit.probability !== null).length, judged = answer.hits.some((hit) => hit.probability !== null);
  const what = search.box ? "this part" : "this picture";
  const first = !answer.hits.length ? "" : !judged ? `${answer.hits.length} nearest` : matches ? `${matches} probably the same as ${what}` : `Nothing here matches ${what}`;
  return [first, answer.why ? capital(answer.why) : "", `${Math.round(answer.milliseconds.all)} ms`].filter(Boolean).join(" · ");
}

async function suggest(search) {
  if (search.parts === undefined) {
    search.parts = [];
    if (!collections[0].trouble) try { search.parts = (await post("/api/parts", { of: search.refs[0], count: 6 })).parts; } catch { /* parts are an offer, not an answer */ }
  }
  if (current() === search) query.suggest(search.parts.length > 1 ? search.parts : []);
}

async function browse() {
  query.suggest([]);
  try {
    for (const [number, pane] of panes.entries()) {
      const where = filters.where(), page = (offset) => get(`/api/items?limit=300&offset=${offset}&collection=${number}${where ? `&where=${encodeURIComponent(JSON.stringify(where))}` : ""}`);
      const { items, total } = await page(0);
      if (current()) return;
      fill(pane.list, items, number, acts(number));
      if (number === 0) status(total ? `${total.toLocaleString("en")} pictures${total > items.length ? `, the first ${items.length} are shown` : ""}. Drop one of yours, or click one.` : "");
      if (!total) pane.list.replaceChildren(make("li", { className: "none" }, make("b", {}, where ? "No picture passes the filter" : "This collection is still empty"), where ? "Take a filter away." : "Pictures appear here as they are indexed: secondsight index ./photos"));
    }
  } catch (error) { say(error); }
}

// Going from search to search

function go(search) {
  trail.splice(here + 1);
  trail.push({ refs: {}, likes: [], unlikes: [], box: null, ...search });
  here = trail.length - 1;
  history.pushState({ here }, "", "#/");
  scrollTo({ top: 0 });
  views();
  run({ focus: true });
}

export const searchFile = (file) => go({ file, source: URL.createObjectURL(file) });
export const searchItem = (id, number = 0) => go({ id, collection: number, refs: { [number]: { id } }, source: image(id, number), small: thumbnail(id, number) });

function acts(number) {
  const mark = (to, other) => (item) => {
    const search = current(), same = (one) => one.id === item.id && one.collection === number;
    if (!search) return;
    const had = search[to].some(same);
    search[other] = search[other].filter((one) => !same(one));
    search[to] = had ? search[to].filter((one) => !same(one)) : [...search[to], { id: item.id, collection: number }];
    run();
  };
  const search = () => current(), like = mark("likes", "unlikes"), unlike = mark("unlikes", "likes");
  const self = {
    search: (item) => searchItem(item.id, number), like, unlike,
    marked: (id) => (search()?.likes.some((one) => one.id === id && one.collection === number) ? "+" : search()?.unlikes.some((one) => one.id === id && one.collection === number) ? "−" : ""),
    why: (item) => search() && openWhy(search().refs[number], search().box, item, number, { ...self, refined: search().likes.length + search().unlikes.length > 0 }),
  };
  return self;
}

function crumbs() {
  find("#trail").hidden = trail.length < 2;
  find("#trail ol").replaceChildren(...trail.map((search, i) => make("li", {}, make("button", {
    type: "button", "aria-label": i === here ? `Search ${i + 1}, shown` : `Back to search ${i + 1}`, "aria-current": i === here ? "step" : null,
    onclick: () => { here = i; history.pushState({ here }, "", "#/"); run(); },
  }, make("img", { src: search.small ?? search.source, alt: "" })))));
}

function examples() {
  const search = current(), all = search ? [...search.likes.map((one) => [one, "likes"]), ...search.unlikes.map((one) => [one, "unlikes"])] : [];
  find("#examples").hidden = !all.length;
  find("#examples-list").replaceChildren(...all.map(([one, group]) => make("li", { className: group === "likes" ? "" : "no" },
    make("img", { src: thumbnail(one.id, one.collection), alt: group === "likes" ? "More like this" : "Less like this" }),
    make("button", { type: "button", "aria-label": "Take this example away", onclick: () => { search[group] = search[group].filter((other) => other !== one); run(); } }, "✕"))));
}

// Drop, paste, pick

async function take(files) {
  const file = [...(files ?? [])].find((one) => one.type.startsWith("image/") || /\.(heic|heif|tiff?|jp2|avif|webp)$/i.test(one.name)) ?? files?.[0];
  if (!file) return;
  await started; // a photo may be faster than the model
  if (!collections.length) return;
  if (collections[0].trouble) { say({ message: `pictures cannot be searched for here: ${collections[0].trouble}`, cure: "" }); return; }
  searchFile(file);
}
for (const [button, input] of [["#pick", "#file"], ["#snap", "#camera"], ["#other", "#file"]]) find(button).addEventListener("click", () => find(input).click());
for (const input of ["#file", "#camera"]) find(input).addEventListener("change", (event) => { take(event.target.files); event.target.value = ""; });
addEventListener("paste", (event) => { if (event.clipboardData?.files.length) { event.preventDefault(); take(event.clipboardData.files); } });
let depth = 0;
const over = (step) => { depth = Math.max(0, depth + step); document.body.classList.toggle("over", depth > 0); };
addEventListener("dragenter", (event) => { event.preventDefault(); over(1); });
addEventListener("dragleave", () => over(-1));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => { event.preventDefault(); depth = 0; over(0); take(event.dataTransfer?.files); });
find("#forget").addEventListener("click", () => { const search = current(); search.likes = []; search.unlikes = []; run(); });
query.onBox((box) => { const search = current(); if (search) { search.box = box; run(); } });

// Views

const loaders = { map: () => import("/map.js"), codewords: () => import("/codewords.js"), duplicates: () => import("/duplicates.js") };
async function views() {
  const name = location.hash.replace("#/", "") || "search", known = find(`main#${CSS.escape(name)}`) ? name : "search";
  for (const view of document.querySelectorAll(".view")) view.hidden = view.id !== known;
  for (const link of document.querySelectorAll("[data-view]")) { if (link.dataset.view === known) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current"); }
  if (loaders[known]) try { (await loaders[known]()).show({ searchItem, acts: { search: (item) => searchItem(item.id), marked: () => "" } }); } catch (error) { say(error); }
}
addEventListener("popstate", (event) => {
  if (event.state && "here" in event.state) { here = Math.min(event.state.here, trail.length - 1); run(); } else if (location.hash === "#/" || !location.hash) { here = -1; run(); }
  views();
});
find(".brand").addEventListener("click", (event) => { event.preventDefault(); here = -1; history.pushState({ here }, "", "#/"); views(); run(); });

async function start() {
  try {
    collections.push(...(await get("/api/collections")).collections);
  } catch (error) { say(error); return; }
  const [first] = collections;
  document.title = `${first.name} · secondsight`;
  find("#collection").textContent = `${collections.map((one) => one.name).join(" beside ")} · ${first.items.toLocaleString("en")} pictures`;
  find("[data-view=codewords]").hidden = !first.codewords;
  panes = collections.map((one, number) => {
    const list = make("ul", { className: "grid" });
    find("#results").append(make("section", { className: "pane", "aria-label": `Answers of ${one.name}${number ? `, ${number + 1}` : ""}` }, collections.length > 1 ? make("h2", {}, one.name, make("span", { className: "hint" }, ` ${one.model ?? ""}`)) : null, list));
    return { list };
  });
  if (first.trouble) say({ message: `this collection can be browsed and searched by its own pictures, but not by yours: ${first.trouble}`, cure: "" });
  filters.start(first, run);
  history.replaceState({ here: -1 }, "", location.hash || "#/");
  views();
  run();
}
status("Opening the collection …");
const started = start();
