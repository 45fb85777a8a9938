// The answers: a card a picture, a line where "probably the same" ends; "possibly", where less than half is enough.

import { make, percent } from "/elements.js";
import { icon } from "/icons.js";
import { thumbnail } from "/api.js";

export const ratio = (item) => (item.width && item.height ? Math.min(2.4, Math.max(0.5, item.width / item.height)) : 1);
export const nameOf = (item) => item.label ?? item.path?.split("/").at(-1) ?? `item ${item.id}`;

export function card(item, number, acts) {
  const name = acts.named?.(item) ?? nameOf(item), scored = item.score !== undefined, known = scored && item.probability !== null;
  const chance = known ? percent(item.probability) : scored ? item.score.toFixed(2) : "";
  const words = [name, known ? `${chance} likely a match` : scored ? `similarity ${chance}` : ""].filter(Boolean).join(", ");
  const why = Boolean(acts.why && scored);
  const made = make("li", { className: scored && !item.match ? "card far" : "card", "data-id": item.id, "data-path": item.path },
    make("button", { type: "button", className: "open", "aria-label": `${words}. ${why ? "See why" : "Search with it"}`, onclick: () => acts[why ? "why" : "search"](item) }, picture(item, number)),
    make("div", { className: "about" }, make("span", { className: "name", title: [item.path, ...Object.entries(item.columns ?? {}).map(([k, v]) => `${k}: ${v}`)].filter(Boolean).join("\n") }, name),
      chance ? make("span", { className: item.match ? "chance yes" : "chance", title: `similarity ${item.score.toFixed(3)}` }, chance) : null));
  if (known) {
    const fill = make("span");
    fill.style.width = `${Math.max(1, 100 * item.probability)}%`;
    made.append(make("div", { className: "meter", "aria-hidden": "true" }, fill));
  }
  if (scored) {
    const act = (drawing, words, key, does, pressed) => make("button", { type: "button", "aria-label": `${words}: ${name}`, title: `${words} (${key})`, "aria-pressed": pressed, onclick: () => does(item) }, icon(drawing));
    const marked = acts.marked(item.id);
    made.append(make("div", { className: marked ? "acts marked" : "acts" }, act("search", "Search with this", "s", acts.search),
      act("more", "More like this", "+", acts.like, String(marked === "+")), act("less", "Less like this", "-", acts.unlike, String(marked === "−"))));
  }
  made.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const does = { s: acts.search, w: acts.why, "+": acts.like, "-": acts.unlike }[event.key];
    if (does && (scored || event.key === "s")) { event.preventDefault(); does(item); }
  });
  return made;
}

function picture(item, number) {
  if (item.path === null) return make("span", { className: "missing" }, "No picture");
  const shown = make("img", { src: thumbnail(item.id, number), alt: "", decoding: "async" });
  shown.addEventListener("error", () => shown.replaceWith(make("span", { className: "missing" }, "This picture cannot be shown")), { once: true });
  return shown;
}

// Small pictures are shown small: what is blown up looks broken.
const tall = (pane, items) => Math.min(pane.height, Math.max(104, 1.8 * Math.max(0, ...items.slice(0, 50).map((item) => item.height ?? 999))));

const CAPTION = { plain: 28, scored: 36 };

// Items of the collection, in their order.
export const browsed = (pane, items, number, acts, more) =>
  pane.rows.show(items, { ratio, height: tall(pane, items), caption: CAPTION.plain, make: (item) => card(item, number, acts), ...more });

// What hits above the cut are: with labels it is at one half, by chance alone it is lower.
export const sureness = (hits) => (hits.some((hit) => hit.match && hit.probability < 0.5) ? "possibly the same" : "probably the same");

// Hits, best first.
export function answered(pane, hits, number, acts, more) {
  const judged = hits.some((hit) => hit.probability !== null), none = judged && !hits.some((hit) => hit.match);
  const end = judged && !none ? hits.findIndex((hit) => !hit.match) : -1;
  pane.said.hidden = !none && hits.length > 0;
  pane.rows.show(hits, {
    ratio, height: tall(pane, hits), caption: CAPTION.scored, make: (item) => card(item, number, acts),
    lines: end > 0 ? new Map([[end, `What is ${sureness(hits)} ends here`]]) : new Map(), ...more,
  });
  if (none) tell(pane, "Nothing here matches", "These are the nearest, and none of them is likely the same.");
}

export function tell(pane, head, words) {
  pane.said.hidden = false;
  pane.said.replaceChildren(make("b", {}, head), words);
}
