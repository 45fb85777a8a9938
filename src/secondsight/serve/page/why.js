// Why two pictures match: both heat maps, the strongest links, and what every part adds.

import { crop, find, make, percent, say, touch } from "/elements.js";
import { image, post, uploaded } from "/api.js";
import { centre, colours, framed, heat, links, placeAt } from "/heat.js";
import { nameOf } from "/results.js";

const dialog = find("#why"), pair = find("#why-pair"), said = find("#why-said"), panel = find("#why-part");
const figures = [...pair.querySelectorAll("figure")], frames = figures.map((figure) => find(".frame", figure)), pictures = figures.map((figure) => find("img", figure));
let why = null, kind = "share", held = null, word = null, part = null; // part: { side, box }
const sides = () => [why.a, why.b];
const signed = (value, digits = 3) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
const share = (value) => `${value < 0 ? "−" : ""}${Math.abs(100 * value / Math.max(1e-9, Math.abs(why.similarity))).toFixed(0)} %`;

export async function open({ search, hit, number, acts }) {
  const reference = search.refs[number], { box } = search;
  let found;
  try {
    found = await post("/api/explain", { a: { ...reference, box: box ?? undefined }, b: { id: hit.id }, most: 2500, collection: number });
  } catch (error) { say(error); return; }
  why = found; held = null; word = null;
  find("[data-kind=distinct]", dialog).hidden = !why.a.distinct; // needs an exact sum and enough other pictures
  if (!why.a[kind]) press("share");
  const sources = [reference.query ? uploaded(reference.query, number) : image(reference.id, number), image(hit.id, number)];
  const captions = [box ? "Your query: the part in the box" : "Your query", nameOf(hit)];
  figures.forEach((figure, i) => {
    pictures[i].src = sources[i]; pictures[i].alt = captions[i]; pictures[i].onload = sized;
    find("figcaption", figure).textContent = captions[i];
    figure.setAttribute("aria-label", `${captions[i]}: arrow keys walk from place to place, Shift and arrow keys choose a part`);
  });
  head(hit, search.likes.length + search.unlikes.length > 0);
  words();
  choose(null);
  find("#why-links-label").hidden = !why.exact;
  const act = (name, does) => { find(name).onclick = () => { dialog.close(); does(hit); }; };
  act("#why-search", acts.search); act("#why-like", acts.like); act("#why-unlike", acts.unlike);
  const own = (does) => () => { const { side, box: cut } = part; dialog.close(); does(side ? hit : reference, cut); };
  find("#part-like").onclick = own(acts.like); find("#part-unlike").onclick = own(acts.unlike);
  find("#part-search").onclick = own(acts.search);
  dialog.showModal();
  find("#why-close").focus();
  sized();
}

// Both pictures have one height, and fit.
function sized() {
  const ratios = pictures.map((picture) => (picture.naturalWidth || 1) / (picture.naturalHeight || 1));
  figures.forEach((figure, i) => { figure.style.flexGrow = ratios[i]; });
  pair.style.maxWidth = `${Math.round(0.46 * innerHeight * (ratios[0] + ratios[1]) / 0.93)}px`;
  draw();
  words();
}

function head(hit, refined) {
  const [plus, minus] = why.sides.map((side) => side.toFixed(3));
  find("#why-title").textContent = hit.probability === null || hit.probability === undefined ? "Why they match" : `${percent(hit.probability)} likely the same`;
  find("#why-sum").replaceChildren("similarity ", make("b", { id: "why-similarity" }, why.similarity.toFixed(3)), why.misses ? "; the map has " : why.exact ? " = " : " ≈ ", make("span", { className: "pro" }, plus), " for the match − ", make("span", { className: "con" }, minus), " against it", why.exact ? "" : " (approximated)");
  find("#why-bar").setAttribute("aria-label", `${plus} for, ${minus} against`);
  find("#why-bar .for").style.flex = String(1000 * Number(plus) + 0.01);
  find("#why-bar .against").style.flex = String(1000 * Number(minus));
  const notes = why.words.slice(1);
  if (refined) notes.push("Your examples changed the order of the answers; this explains the picture alone.");
  find("#why-words").replaceChildren(...notes.map((line) => make("p", { className: "note" }, line)));
}

// What each codeword carries, with the place where it is strongest; all rows together make the similarity.
function words() {
  const section = find("#why-codewords");
  section.hidden = !why?.codewords;
  if (section.hidden) return;
  const order = why.codewords.map((value, n) => [n, value]).sort((x, y) => Math.abs(y[1]) - Math.abs(x[1])), first = order.slice(0, 7), rest = order.slice(7);
  const most = Math.max(1e-9, Math.abs(first[0][1])), others = rest.reduce((sum, [, value]) => sum + value, 0);
  const row = (label, value, tag, more, ...patches) => {
    const fill = make("span"); fill.style.width = `${Math.min(100, 100 * Math.abs(value) / most)}%`;
    return make(tag, { className: value < 0 ? "word minus" : "word", ...more }, make("span", { className: "pair-of" }, ...patches), make("span", {}, label), make("span", { className: "rail" }, fill), make("span", {}, share(value)));
  };
  find(".words", section).replaceChildren(...first.map(([n, value]) => {
    const light = (on) => () => { word = on ? n : null; draw(); };
    return row(`codeword ${n + 1}`, value, "button", { type: "button", onmouseenter: light(true), onmouseleave: light(false), onfocus: light(true), onblur: light(false) }, patch(0, n), patch(1, n));
  }), rest.length ? row(`${rest.length} others`, others, "div", {}) : "", make("div", { className: "word sum-row" }, make("span"), make("span", {}, "together"), make("span"), make("span", {}, "100 %")));
}

function patch(side, n) {
  const here = sides()[side], values = here.share.flat();
  const best = here.codeword?.reduce((top, one, place) => (one === n && (top === null || Math.abs(values[place]) > Math.abs(values[top])) ? place : top), null) ?? null;
  if (best === null || !pictures[side].naturalWidth) return make("i", { className: "no-patch" });
  const [x, y] = centre(here, best), [l, t, r, b] = here.seen, dx = (r - l) / here.grid[1], dy = (b - t) / here.grid[0];
  return crop(pictures[side], [x - dx, y - dy, x + dx, y + dy], 48);
}

function draw() {
  if (!why || !dialog.open) return;
  const tones = colours(), shown = Number(find("#why-links").value), mine = held && why.links.filter((link) => link[held[0]] === held[1]);
  const lit = mine && new Map(mine.map((link) => [link[1 - held[0]], link[2]]));
  const most = Math.max(1e-9, ...sides().flatMap((side) => side[kind].flat().map(Math.abs)));
  figures.forEach((figure, i) => {
    const side = sides()[i], canvas = find("canvas", figure), own = side[kind].flat(), other = lit && i !== held[0];
    const values = other ? own.map((_, place) => lit.get(place) ?? 0) : own;
    heat(canvas, side, find("#why-map").checked ? values : [], other ? Math.max(1e-9, ...values.map(Math.abs)) : most, tones);
    const inWord = word === null ? [] : (side.codeword ?? []).flatMap((one, place) => (one === word ? [place] : []));
    framed(canvas, side, held && held[0] === i ? [held[1]] : inWord);
  });
  links(find("svg.links", pair), pair, sides(), mine ? mine.slice(0, 8) : part ? why.links.filter((link) => inside(part, link)).slice(0, shown) : why.links.slice(0, shown), tones);
  tell();
}

function tell() {
  if (held === null) { said.textContent = `${touch ? "Touch" : "Move over"} a place to see ${why.exact ? "what it matches" : "its share"}; drag over a part to see what it adds.`; return; }
  const [i, place] = held, side = sides()[i], at = (n, [, w]) => `row ${Math.floor(n / w) + 1}, column ${(n % w) + 1}`;
  const best = why.links.filter((link) => link[i] === place).slice(0, 3).map((link) => `${at(link[1 - i], sides()[1 - i].grid)} (${signed(link[2], 4)})`);
  said.textContent = `${i ? "The match" : "Your query"}, ${at(place, side.grid)}: ${kind} ${signed(side[kind].flat()[place], 4)}${best.length ? `; goes with ${best.join(", ")}` : ""}.`;
}

// A part that was chosen: what it adds, and what can be done with it.
const within = (side, box, place) => { const [x, y] = centre(side, place); return x >= box[0] && x <= box[2] && y >= box[1] && y <= box[3]; };
const inside = ({ side, box }, link) => within(sides()[side], box, link[side]);

function choose(next) {
  part = next;
  panel.hidden = !part;
  frames.forEach((frame, i) => {
    const box = find(".box", frame), mine = part?.side === i;
    box.hidden = !mine;
    if (mine) Object.assign(box.style, { left: `${100 * part.box[0]}%`, top: `${100 * part.box[1]}%`, width: `${100 * (part.box[2] - part.box[0])}%`, height: `${100 * (part.box[3] - part.box[1])}%` });
  });
  if (!part) return;
  const side = sides()[part.side], sum = side.share.flat().reduce((all, value, place) => all + (within(side, part.box, place) ? value : 0), 0);
  find("#part-said").replaceChildren(`This part of ${part.side ? "the match" : "your query"} adds `, make("b", {}, `${signed(sum)} of ${why.similarity.toFixed(3)}`), ` (${share(sum)}${why.exact ? "" : ", approximated"}).`);
}

const rounded = (box) => box.map((side) => Math.round(1e5 * Math.min(1, Math.max(0, side))) / 1e5);

frames.forEach((frame, i) => {
  const at = (event) => { const area = frame.getBoundingClientRect(); return [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height]; };
  const over = (event) => { const place = placeAt(sides()[i], at(event)); held = place === null ? null : [i, place]; };
  let from = null;
  frame.addEventListener("pointerdown", (event) => { from = at(event); frame.setPointerCapture(event.pointerId); choose(null); over(event); draw(); });
  frame.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (from && Math.hypot(x - from[0], y - from[1]) > 0.05) { held = null; choose({ side: i, box: rounded([Math.min(x, from[0]), Math.min(y, from[1]), Math.max(x, from[0]), Math.max(y, from[1])]) }); } else if (!part) over(event);
    draw();
  });
  const up = () => { from = null; if (part && Math.min(part.box[2] - part.box[0], part.box[3] - part.box[1]) < 0.04) choose(null); draw(); };
  frame.addEventListener("pointerup", up);
  frame.addEventListener("pointercancel", up);
  frame.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && !from) { held = null; draw(); } });
  figures[i].addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !why) return;
    event.preventDefault();
    const side = sides()[i], { grid: [h, w], seen: [l, t, r, b] } = side, from = held && held[0] === i ? held[1] : Math.floor(h / 2) * w + Math.floor(w / 2);
    const row = Math.min(h - 1, Math.max(0, Math.floor(from / w) + step[0])), column = Math.min(w - 1, Math.max(0, (from % w) + step[1]));
    if (event.shiftKey) {
      const [x, y] = centre(side, from), dx = (r - l) / w, dy = (b - t) / h, box = part?.side === i ? part.box : [x - dx / 2, y - dy / 2, x + dx / 2, y + dy / 2];
      choose({ side: i, box: rounded([box[0], box[1], Math.max(box[0] + dx, box[2] + step[1] * dx), Math.max(box[1] + dy, box[3] + step[0] * dy)]) });
    } else { choose(null); held = [i, row * w + column]; }
    draw();
  });
  figures[i].addEventListener("blur", () => { held = null; draw(); });
});
find("#why-links").addEventListener("input", (event) => { find("#why-count").textContent = event.target.value; draw(); });
find("#why-map").addEventListener("change", draw);
const buttons = [...dialog.querySelectorAll("[data-kind]")];
function press(name) { kind = name; buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.kind === name))); }
for (const button of buttons) button.addEventListener("click", () => { press(button.dataset.kind); draw(); });
find("#why-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
addEventListener("resize", () => { if (why && dialog.open) sized(); });
