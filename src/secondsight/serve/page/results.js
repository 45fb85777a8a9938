// The grid of answers: proportions known before the pictures arrive, cards made as they come into view.

import { make, percent } from "/elements.js";
import { thumbnail } from "/api.js";

const CHUNK = 120; // cards made at a time

export function ratio(item) {
  if (!item.width || !item.height) return 1;
  return Math.min(2.4, Math.max(0.45, item.width / item.height));
}

export function card(item, number, acts) {
  const name = item.label ?? item.path ?? `item ${item.id}`;
  const known = item.probability !== null && item.probability !== undefined;
  const scored = item.score !== undefined;
  const chance = known ? percent(item.probability) : scored ? item.score.toFixed(2) : "";
  const words = [name, known ? `${chance} likely a match` : scored ? `similarity ${chance}` : ""].filter(Boolean).join(", ");
  const verb = acts.why && scored ? "why" : "search";
  const picture = make("img", { src: thumbnail(item.id, number), alt: "", loading: "lazy", decoding: "async" });
  picture.addEventListener("error", () => { picture.alt = "This picture cannot be shown"; }, { once: true });
  const open = make("button", { type: "button", className: "open", "aria-label": `${words}. ${verb === "why" ? "See why" : "Search with it"}`, onclick: () => acts[verb](item) }, picture);
  const made = make("li", { className: scored && !item.match ? "card far" : "card", "data-id": item.id }, open);
  made.style.setProperty("--r", ratio(item).toFixed(4));
  made.append(make("div", { className: "about" },
    make("span", { className: "name", title: [item.path, ...Object.entries(item.columns ?? {}).map(([k, v]) => `${k}: ${v}`)].filter(Boolean).join("\n") }, name),
    chance ? make("span", { className: item.match ? "chance yes" : "chance", title: scored ? `similarity ${item.score.toFixed(3)}` : "" }, chance) : null));
  if (known) {
    const fill = make("span");
    fill.style.width = `${Math.max(1, 100 * item.probability)}%`;
    made.append(make("div", { className: "meter", "aria-hidden": "true" }, fill));
  }
  if (scored) {
    const example = (sign, words, act) => make("button", { type: "button", "aria-label": `${words}: ${name}`, title: words, "aria-pressed": String(acts.marked(item.id) === sign), onclick: () => act(item) }, sign);
    made.append(make("div", { className: "acts" },
      make("button", { type: "button", "aria-label": `Search with ${name}`, title: "Search with it", className: "wide", onclick: () => acts.search(item) }, "search"),
      example("+", "More like this", acts.like), example("−", "Less like this", acts.unlike)));
  }
  made.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const does = { s: acts.search, w: acts.why, "+": acts.like, "-": acts.unlike }[event.key];
    if (does && (scored || event.key === "s")) { event.preventDefault(); does(item); }
  });
  return made;
}

// Fill `list` with cards as they are needed; `before(item, index, items)` may put a line in front of one.
export function fill(list, items, number, acts, before = () => null) {
  let next = 0;
  const more = make("li", { "aria-hidden": "true" });
  const watcher = new IntersectionObserver((seen) => { if (seen.some((entry) => entry.isIntersecting)) add(); }, { rootMargin: "1200px" });
  function add() {
    const part = document.createDocumentFragment();
    for (const stop = Math.min(items.length, next + CHUNK); next < stop; next++) {
      const line = before(items[next], next, items);
      if (line) part.append(line);
      part.append(card(items[next], number, acts));
    }
    more.before(part);
    watcher.unobserve(more);
    if (next < items.length) watcher.observe(more); else more.remove();
  }
  list.replaceChildren(more);
  list.onkeydown = arrows;
  add();
}

// Arrow keys walk from picture to picture, up and down by where they are.
function arrows(event) {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  const here = event.target.closest?.(".card");
  if (!step || !here || event.target.matches("input, select")) return;
  const cards = [...event.currentTarget.querySelectorAll(".card")];
  let to = cards[cards.indexOf(here) + step[0]];
  if (step[1]) {
    const from = here.getBoundingClientRect();
    const beyond = cards.map((one) => [one, one.getBoundingClientRect()]).filter(([, box]) => (step[1] > 0 ? box.top > from.top + 8 : box.top < from.top - 8));
    const nearest = Math[step[1] > 0 ? "min" : "max"](...beyond.map(([, box]) => Math.round(box.top)));
    const gap = ([, box]) => Math.abs(box.left + box.width / 2 - from.left - from.width / 2);
    to = beyond.filter(([, box]) => Math.abs(box.top - nearest) < 8).sort((a, b) => gap(a) - gap(b))[0]?.[0];
  }
  if (to) { event.preventDefault(); to.querySelector(".open").focus(); to.scrollIntoView({ block: "nearest" }); }
}

export function shown(list, answer, number, acts) {
  const hits = answer.hits;
  const judged = hits.some((hit) => hit.probability !== null);
  const none = judged && hits.length > 0 && !hits.some((hit) => hit.match);
  fill(list, hits, number, acts, (hit, i) => {
    if (none && i === 0) return make("li", { className: "none" }, make("b", {}, "Nothing here matches"), "These are the nearest, and none of them is likely the same.");
    if (!none && judged && i > 0 && !hit.match && hits[i - 1].match) return make("li", { className: "line" }, "probably the same ends here");
    return null;
  });
  if (!hits.length) list.replaceChildren(make("li", { className: "none" }, make("b", {}, "Nothing to show"), answer.why ?? "No item was found."));
  return none;
}
