// Why two pictures match: both heat maps, the strongest links, and what every place adds.

import { find, make, say } from "/elements.js";
import { image, post, uploaded } from "/api.js";

const dialog = find("#why"), pair = find("#why-pair"), svg = find("svg.links", pair), said = find("#why-said");
const figures = [...pair.querySelectorAll("figure")];
const SVG = "http://www.w3.org/2000/svg";
let why = null, kind = "share", held = null, word = null;
const signed = (value, digits = 4) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;

export async function open(reference, box, hit, number, acts) {
  let found;
  try {
    found = await post("/api/explain", { a: { ...reference, box: box ?? undefined }, b: { id: hit.id }, most: 2500, collection: number });
  } catch (error) { say(error); return; }
  why = found; held = null; word = null;
  const name = hit.label ?? hit.path ?? `item ${hit.id}`;
  const sources = [reference.query ? uploaded(reference.query, number) : image(reference.id, number), image(hit.id, number)];
  const captions = [box ? "Your query: the part in the box" : "Your query", name];
  figures.forEach((figure, i) => {
    const picture = find("img", figure);
    picture.src = sources[i]; picture.alt = captions[i]; picture.onload = draw;
    find("figcaption", figure).textContent = captions[i];
    figure.setAttribute("aria-label", `${captions[i]}: arrow keys walk from place to place`);
  });
  head(acts.refined);
  find("#why-links").disabled = !why.exact;
  find("#why-links-label").hidden = !why.exact;
  const close = (act) => () => { dialog.close(); act(hit); };
  find("#why-search").onclick = close(acts.search);
  find("#why-like").onclick = close(acts.like);
  find("#why-unlike").onclick = close(acts.unlike);
  dialog.showModal();
  find("#why-close").focus();
  draw();
}

function head(refined) {
  const values = why.exact ? why.links.map((link) => link[2]) : why.a.share.flat();
  // All links may be more than were sent: the words carry the exact sums.
  const [, plus, minus] = why.words[0].match(/= ([\d.]+) for the match − ([\d.]+)/) ?? [null, sum(values, 1), sum(values, -1)];
  find("#why-title").textContent = why.similarity.toFixed(3);
  find("#why-sum").replaceChildren("similarity = ", make("span", { className: "pro" }, String(plus)), " for the match − ", make("span", { className: "con" }, String(minus)), " against it", why.exact ? "" : " (approximated)");
  find("#why-bar").setAttribute("aria-label", `${plus} for, ${minus} against`);
  find("#why-bar .for").style.flex = String(1000 * Number(plus) + 0.01);
  find("#why-bar .against").style.flex = String(1000 * Number(minus));
  const notes = why.words.slice(1).map((line) => make("p", { className: "note" }, line));
  if (refined) notes.push(make("p", { className: "note" }, "Your examples changed the order of the answers; this explains the picture alone."));
  find("#why-words").replaceChildren(...notes);
  const section = find("#why-codewords");
  section.hidden = !why.codewords;
  if (!why.codewords) return;
  const strongest = why.codewords.map((value, n) => [n, value]).sort((x, y) => Math.abs(y[1]) - Math.abs(x[1])).slice(0, 8);
  const most = Math.max(1e-9, Math.abs(strongest[0][1]));
  find(".words", section).replaceChildren(...strongest.map(([n, value]) => {
    const fill = make("span"); fill.style.width = `${(100 * Math.abs(value)) / most}%`;
    const show = (on) => () => { word = on ? n : null; draw(); };
    return make("button", { type: "button", className: value < 0 ? "word minus" : "word", onmouseenter: show(true), onmouseleave: show(false), onfocus: show(true), onblur: show(false) },
      make("span", {}, `codeword ${n + 1}`), make("span", { className: "rail" }, fill), make("span", {}, `${signed(100 * value / Math.max(1e-9, Math.abs(why.similarity)), 0)} %`));
  }));
}

const sum = (values, sign) => values.filter((v) => v * sign > 0).reduce((a, b) => a + Math.abs(b), 0).toFixed(3);
const sides = () => [why.a, why.b];

// The centre of a place, in pixels of the pair.
function centre(side, place) {
  const here = sides()[side], [h, w] = here.grid, [left, top, right, bottom] = here.seen;
  const frame = find(".frame", figures[side]).getBoundingClientRect(), all = pair.getBoundingClientRect();
  const x = left + ((place % w) + 0.5) / w * (right - left), y = top + (Math.floor(place / w) + 0.5) / h * (bottom - top);
  return [frame.left - all.left + x * frame.width, frame.top - all.top + y * frame.height];
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  return [style.getPropertyValue("--for").trim(), style.getPropertyValue("--against").trim()];
}

function draw() {
  if (!why || !dialog.open) return;
  const [pro, con] = colours();
  const links = held === null ? why.links.slice(0, Number(find("#why-links").value)) : why.links.filter((link) => link[held[0]] === held[1]).slice(0, 8);
  const lit = held === null ? null : new Map(why.links.filter((link) => link[held[0]] === held[1]).map((link) => [link[1 - held[0]], link[2]]));
  const most = Math.max(1e-9, ...sides().map((here) => Math.max(...here[kind].flat().map(Math.abs))));
  figures.forEach((figure, side) => {
    const here = sides()[side], [h, w] = here.grid, [left, top, right, bottom] = here.seen;
    const canvas = find("canvas", figure), context = canvas.getContext("2d");
    canvas.width = w * 24; canvas.height = h * 24;
    Object.assign(canvas.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * (right - left)}%`, height: `${100 * (bottom - top)}%` });
    const values = lit && side !== held[0] ? here[kind].flat().map((_, place) => lit.get(place) ?? 0) : here[kind].flat();
    const scale = lit && side !== held[0] ? Math.max(1e-9, ...values.map(Math.abs)) : most;
    values.forEach((value, place) => {
      const x = (place % w) * 24, y = Math.floor(place / w) * 24;
      if (find("#why-map").checked) {
        context.globalAlpha = 0.78 * Math.sqrt(Math.min(1, Math.abs(value) / scale));
        context.fillStyle = value < 0 ? con : pro;
        context.fillRect(x, y, 24, 24);
      }
      context.globalAlpha = 1;
      const inWord = word !== null && here.codeword?.[place] === word;
      if ((held && held[0] === side && held[1] === place) || inWord) {
        context.lineWidth = 3; context.strokeStyle = "#fff"; context.strokeRect(x + 2, y + 2, 20, 20);
        context.lineWidth = 1.5; context.strokeStyle = "#000"; context.strokeRect(x + 2, y + 2, 20, 20);
      }
    });
  });
  const strongest = Math.max(1e-9, ...links.map((link) => Math.abs(link[2])));
  svg.replaceChildren(...links.flatMap(([i, j, value]) => {
    const [x1, y1] = centre(0, i), [x2, y2] = centre(1, j), bend = (x2 - x1) * 0.35;
    return ["#fff", value < 0 ? con : pro].map((colour, layer) => {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("d", `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`);
      path.setAttribute("fill", "none"); path.setAttribute("stroke", colour); path.setAttribute("stroke-linecap", "round");
      path.setAttribute("stroke-width", (layer ? 1 : 2.4) + 3.2 * Math.abs(value) / strongest);
      path.setAttribute("stroke-opacity", layer ? 0.95 : 0.55);
      return path;
    });
  }));
  tell();
}

function tell() {
  if (held === null) { said.textContent = why.exact ? "Move over a place to see what it matches; all links together make the similarity." : "Move over a place to see its share."; return; }
  const [side, place] = held, here = sides()[side], w = here.grid[1];
  const at = (n, grid) => `row ${Math.floor(n / grid[1]) + 1}, column ${(n % grid[1]) + 1}`;
  const best = why.links.filter((link) => link[side] === place).slice(0, 3).map((link) => `${at(link[1 - side], sides()[1 - side].grid)} (${signed(link[2])})`);
  const value = here[kind][Math.floor(place / w)][place % w];
  said.textContent = `${side ? "The match" : "Your query"}, ${at(place, here.grid)}: ${kind} ${signed(value)}${best.length ? `; goes with ${best.join(", ")}` : ""}.`;
}

function under(event, side) {
  const here = sides()[side], [h, w] = here.grid, [left, top, right, bottom] = here.seen;
  const frame = find(".frame", figures[side]).getBoundingClientRect();
  const x = ((event.clientX - frame.left) / frame.width - left) / (right - left), y = ((event.clientY - frame.top) / frame.height - top) / (bottom - top);
  return x < 0 || y < 0 || x >= 1 || y >= 1 ? null : [side, Math.floor(y * h) * w + Math.floor(x * w)];
}

figures.forEach((figure, side) => {
  const frame = find(".frame", figure);
  frame.addEventListener("pointermove", (event) => { held = under(event, side); draw(); });
  frame.addEventListener("pointerdown", (event) => { held = under(event, side); draw(); });
  frame.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") { held = null; draw(); } });
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !why) return;
    event.preventDefault();
    const [h, w] = sides()[side].grid, from = held && held[0] === side ? held[1] : Math.floor(h / 2) * w + Math.floor(w / 2);
    const row = Math.min(h - 1, Math.max(0, Math.floor(from / w) + step[0])), column = Math.min(w - 1, Math.max(0, (from % w) + step[1]));
    held = [side, row * w + column]; draw();
  });
  figure.addEventListener("blur", () => { held = null; draw(); });
});
find("#why-links").addEventListener("input", (event) => { find("#why-count").textContent = event.target.value; draw(); });
find("#why-map").addEventListener("change", draw);
for (const button of dialog.querySelectorAll("[data-kind]")) button.addEventListener("click", () => {
  kind = button.dataset.kind;
  for (const one of dialog.querySelectorAll("[data-kind]")) one.setAttribute("aria-pressed", String(one === button));
  draw();
});
find("#why-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
addEventListener("resize", draw);
