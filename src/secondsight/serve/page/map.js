// The map: similar pictures are near each other; closer, dots become pictures.

import { count, find, pictures as several, say, touch } from "/elements.js";
import { computed, get, thumbnail } from "/api.js";
import { browsed } from "/results.js";
import { Rows } from "/rows.js";

const canvas = find("#map-canvas"), context = canvas.getContext("2d"), said = find("#map-said"), tip = find("#map-card");
const CELL = 56, PICTURE = 52, CHOSEN = 300, pictures = new Map();
let map = null, view = { x: 0.5, y: 0.5, zoom: 1 }, doing = null, acts = null, lasso = false, frame = 0, rows = null;

export async function show(given) {
  acts = given;
  if (!map) {
    said.textContent = "The map is being computed …";
    map = stretched(await computed("/api/map"));
    told();
  }
  draw();
}

// Over the whole window, both ways: on a map it counts what is near, not how far.
function stretched(given) {
  const ends = [0, 1].map((axis) => given.places.reduce(([low, high], place) => [Math.min(low, place[axis]), Math.max(high, place[axis])], [1, 0]));
  return { ...given, places: given.places.map((place) => place.map((value, axis) => (value - ends[axis][0]) / Math.max(1e-9, ends[axis][1] - ends[axis][0]))) };
}

function told() { said.textContent = map.ids.length ? `${several(map.ids.length)}. ${touch ? "Drag to move, pinch to come closer, tap" : "Drag to move, scroll to come closer, click"} one to search with it.` : "There is nothing to show yet."; }

const EDGE = 36; // pixels around the places: whole pictures fit
const wide = () => (canvas.clientWidth - 2 * EDGE) * view.zoom, tall = () => (canvas.clientHeight - 2 * EDGE) * view.zoom;
const screen = ([x, y]) => [(x - view.x) * wide() + canvas.clientWidth / 2, (y - view.y) * tall() + canvas.clientHeight / 2];
const world = (x, y) => [(x - canvas.clientWidth / 2) / wide() + view.x, (y - canvas.clientHeight / 2) / tall() + view.y];
const hue = (i) => (map.label[i] < 0 ? null : (map.label[i] * 137.5) % 360); // the golden angle: neighbours in the list differ
const colour = (i, ink) => (hue(i) === null ? ink : `hsl(${hue(i)} 62% 52%)`);

function draw() { if (!frame) frame = requestAnimationFrame(paint); }

function paint() {
  frame = 0;
  const width = canvas.clientWidth, height = canvas.clientHeight, dense = devicePixelRatio || 1;
  if (!width || !map) return;
  canvas.width = width * dense; canvas.height = height * dense;
  context.setTransform(dense, 0, 0, dense, 0, 0);
  const style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--soft"), cells = new Map();
  map.places.forEach((place, i) => {
    const [x, y] = screen(place);
    if (x < -40 || y < -40 || x > width + 40 || y > height + 40) return;
    // One picture a cell, fixed to the map, so that it stays while the map moves.
    const column = Math.floor(place[0] * wide() / CELL), row = Math.floor(place[1] * tall() / CELL);
    if (free(cells, column, row, x, y)) { cells.set(`${column},${row}`, [i, x, y]); return; }
    context.fillStyle = colour(i, ink);
    context.beginPath(); context.arc(x, y, 3, 0, 7); context.fill();
  });
  for (const [i, x, y] of cells.values()) pictured(i, x, y, colour(i, ink));
  if (doing?.loop) {
    context.strokeStyle = style.getPropertyValue("--for"); context.lineWidth = 2.5;
    context.beginPath(); doing.loop.forEach(([x, y]) => context.lineTo(x, y)); context.closePath();
    context.globalAlpha = 0.15; context.fillStyle = context.strokeStyle; context.fill(); context.globalAlpha = 1; context.stroke();
  }
}

function pictured(i, x, y, edge) {
  const picture = loaded(map.ids[i]);
  context.fillStyle = edge;
  if (!picture.complete || !picture.naturalWidth) { context.beginPath(); context.arc(x, y, 3, 0, 7); context.fill(); return; }
  const k = PICTURE / Math.max(picture.naturalWidth, picture.naturalHeight), w = k * picture.naturalWidth, h = k * picture.naturalHeight;
  context.beginPath(); context.roundRect(x - w / 2 - 2, y - h / 2 - 2, w + 4, h + 4, 6); context.fill();
  context.save();
  context.beginPath(); context.roundRect(x - w / 2, y - h / 2, w, h, 4); context.clip();
  context.drawImage(picture, x - w / 2, y - h / 2, w, h);
  context.restore();
}

// Whether a picture at (x, y) would lie on no other one.
function free(cells, column, row, x, y) {
  for (let c = column - 1; c <= column + 1; c++) for (let r = row - 1; r <= row + 1; r++) {
    const other = cells.get(`${c},${r}`);
    if (other && ((c === column && r === row) || (Math.abs(other[1] - x) < PICTURE + 8 && Math.abs(other[2] - y) < PICTURE + 8))) return false;
  }
  return true;
}

function loaded(id) {
  if (!pictures.has(id)) {
    if (pictures.size > 3000) pictures.delete(pictures.keys().next().value);
    const picture = new Image();
    picture.onload = draw; picture.src = thumbnail(id, 0, 96);
    pictures.set(id, picture);
  }
  return pictures.get(id);
}

function nearest(x, y, reach = PICTURE * 0.7) {
  let best = null, least = reach ** 2;
  map?.places.forEach((place, i) => { const [px, py] = screen(place), d = (px - x) ** 2 + (py - y) ** 2; if (d < least) { least = d; best = i; } });
  return best;
}

function zoom(by, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const [wx, wy] = world(x, y);
  view.zoom = Math.min(400, Math.max(0.7, view.zoom * by));
  const [nx, ny] = world(x, y);
  view.x += wx - nx; view.y += wy - ny;
  draw();
}

// What lies under the pointer, larger, with its name.
function hover(event) {
  const i = doing || event.pointerType !== "mouse" ? null : nearest(event.offsetX, event.offsetY, 30);
  tip.hidden = i === null;
  if (i === null) return;
  find("img", tip).src = thumbnail(map.ids[i], 0, 192);
  find("figcaption", tip).textContent = map.label[i] < 0 ? "" : map.labels[map.label[i]];
  const right = event.offsetX > canvas.clientWidth - 200, low = event.offsetY > canvas.clientHeight - 220;
  Object.assign(tip.style, { left: `${event.offsetX + (right ? -188 : 16)}px`, top: `${event.offsetY + (low ? -200 : 16)}px` });
}

const fingers = new Map();
canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY); }, { passive: false });
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
  const loop = lasso || event.shiftKey ? [[event.offsetX, event.offsetY]] : null;
  doing = { x: event.offsetX, y: event.offsetY, moved: false, loop, from: { ...view } };
  tip.hidden = true;
});
canvas.addEventListener("pointermove", (event) => {
  hover(event);
  if (!doing || !fingers.has(event.pointerId)) return;
  if (fingers.size === 2) { pinch(event); return; }
  const dx = event.offsetX - doing.x, dy = event.offsetY - doing.y;
  if (Math.abs(dx) + Math.abs(dy) > 5) doing.moved = true;
  if (doing.loop) doing.loop.push([event.offsetX, event.offsetY]);
  else { view.x = doing.from.x - dx / wide(); view.y = doing.from.y - dy / tall(); }
  draw();
});

function pinch(event) {
  const [a, b] = [...fingers.values()], before = Math.hypot(a[0] - b[0], a[1] - b[1]);
  fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
  const [c, d] = [...fingers.values()];
  doing.moved = true; doing.loop = null;
  zoom(Math.hypot(c[0] - d[0], c[1] - d[1]) / Math.max(1, before), (c[0] + d[0]) / 2, (c[1] + d[1]) / 2);
}

canvas.addEventListener("pointerup", (event) => {
  fingers.delete(event.pointerId);
  if (!doing) return;
  const { loop, moved } = doing;
  doing = null;
  if (loop && moved) choose((point) => within(loop, point));
  else if (!moved) { const found = nearest(event.offsetX, event.offsetY); if (found !== null) acts.search({ id: map.ids[found] }); }
  draw();
});
canvas.addEventListener("pointercancel", (event) => { fingers.delete(event.pointerId); doing = null; draw(); });
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
canvas.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (step) { view.x += 60 * step[0] / wide(); view.y += 60 * step[1] / tall(); }
  else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-") zoom(1 / 1.4);
  else if (event.key === "a") choose(([x, y]) => x >= 0 && y >= 0 && x <= canvas.clientWidth && y <= canvas.clientHeight);
  else if (event.key === "Enter") { const found = nearest(canvas.clientWidth / 2, canvas.clientHeight / 2, Infinity); if (found !== null) acts.search({ id: map.ids[found] }); return; }
  else return;
  event.preventDefault();
  draw();
});

// Whether a point lies inside a loop: a ray from it crosses the loop an odd number of times.
export function within(loop, [x, y]) {
  let inside = false;
  loop.forEach(([x1, y1], i) => { const [x0, y0] = loop.at(i - 1); if ((y0 > y) !== (y1 > y) && x < (x1 - x0) * (y - y0) / (y1 - y0) + x0) inside = !inside; });
  return inside;
}

async function choose(holds) {
  const chosen = map.ids.filter((_, i) => holds(screen(map.places[i])));
  said.textContent = chosen.length ? `${several(chosen.length)} selected, ${chosen.length > CHOSEN ? `the first ${count(CHOSEN)} ` : ""}below the map.` : "No picture lies in this area.";
  rows ??= new Rows(find("#map-chosen"));
  try {
    const { items } = chosen.length ? await get(`/api/items?limit=${CHOSEN}&where=${encodeURIComponent(JSON.stringify({ id: chosen.slice(0, CHOSEN) }))}`) : { items: [] };
    browsed({ rows, height: 120 }, items, 0, acts);
    if (items.length) scrollBy({ top: find("#map-chosen").getBoundingClientRect().top - 0.6 * innerHeight, behavior: "smooth" });
  } catch (error) { say(error); }
}

find("#map-in").addEventListener("click", () => zoom(1.6));
find("#map-out").addEventListener("click", () => zoom(1 / 1.6));
find("#map-home").addEventListener("click", () => { view = { x: 0.5, y: 0.5, zoom: 1 }; told(); draw(); });
find("#map-lasso").addEventListener("click", (event) => { lasso = !lasso; event.currentTarget.setAttribute("aria-pressed", String(lasso)); canvas.classList.toggle("lasso", lasso); if (lasso) said.textContent = "Draw around the pictures that you want to see."; else told(); });
addEventListener("resize", draw);
