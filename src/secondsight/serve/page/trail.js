// What is looked for, and how one got there: a search is a picture, perhaps a part of it, and examples.

import { crop, find, make } from "/elements.js";
import { icon } from "/icons.js";
import { image, thumbnail, uploaded } from "/api.js";

// { file | id, refs: {collection: {query} | {id}}, source, box, likes, unlikes }
const trail = [];
let here = -1, changed = () => {};

export const current = () => trail[here] ?? null;
export const onChange = (callback) => { changed = callback; };

export function go(search) {
  trail.splice(here + 1);
  trail.push({ refs: {}, likes: [], unlikes: [], box: null, ...search });
  to(trail.length - 1, { focus: true });
  scrollTo({ top: 0 });
}

export function to(place, options) {
  here = place;
  history.pushState({ here }, "", "#/");
  changed(options);
}

// What the browser's back button leads to.
export function back(state) { here = Math.min(state?.here ?? -1, trail.length - 1); }

// A search that could not be asked leaves no trace.
export function drop() { trail.splice(here, 1); here = trail.length - 1; }

export const searchFile = (file) => go({ file, source: URL.createObjectURL(file) });
export const searchItem = (id, number = 0, box = null) =>
  go({ id, collection: number, refs: { [number]: { id } }, source: image(id, number), small: thumbnail(id, number), box });

// Examples are items, or parts of pictures: { collection, id | query, box }.
const same = (a, b) => a.collection === b.collection && a.id === b.id && a.query === b.query && String(a.box) === String(b.box);

export function mark(example, sign) {
  const search = current(), [list, other] = sign === "+" ? ["likes", "unlikes"] : ["unlikes", "likes"];
  if (!search) return;
  const had = search[list].some((one) => same(one, example));
  search[other] = search[other].filter((one) => !same(one, example));
  search[list] = had ? search[list].filter((one) => !same(one, example)) : [...search[list], example];
  changed();
}

export function marked(id, number) {
  const example = { collection: number, id }, search = current();
  return search?.likes.some((one) => same(one, example)) ? "+" : search?.unlikes.some((one) => same(one, example)) ? "−" : "";
}

export function crumbs() {
  find("#trail").hidden = trail.length < 2;
  find("#trail ol").replaceChildren(...trail.map((search, i) => make("li", {}, make("button", {
    type: "button", "aria-label": i === here ? `Search ${i + 1}, shown` : `Back to search ${i + 1}`, "aria-current": i === here ? "step" : null, onclick: () => to(i),
  }, search.box ? crop(search.source, search.box, 84) : make("img", { src: search.small ?? search.source, alt: "" })))));
}

export function examples() {
  const search = current(), all = search ? [...search.likes.map((one) => [one, "likes"]), ...search.unlikes.map((one) => [one, "unlikes"])] : [];
  find("#examples").hidden = !all.length;
  find("#examples-list").replaceChildren(...all.map(([one, group]) => {
    const words = `${group === "likes" ? "More" : "Less"} like this${one.box ? " part" : ""}`;
    const source = one.query ? uploaded(one.query, one.collection) : one.box ? image(one.id, one.collection) : thumbnail(one.id, one.collection);
    const picture = one.box ? crop(source, one.box) : make("img", { src: source, alt: "" });
    return make("li", { className: group === "likes" ? "yes" : "no" }, make("span", { role: "img", "aria-label": words, title: words }, picture),
      make("button", { type: "button", "aria-label": `Take this example away: ${words}`, onclick: () => { search[group] = search[group].filter((other) => other !== one); changed(); } }, icon("close")));
  }));
}

find("#forget").addEventListener("click", () => { Object.assign(current(), { likes: [], unlikes: [] }); changed(); });
