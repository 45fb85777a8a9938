// The map: similar pictures are near each other; closer, dots become pictures.

import { find, make, say } from "/elements.js";
import { get, thumbnail } from "/api.js";
import { fill } from "/results.js";

const canvas = find("#map-canvas"), context = canvas.getContext("2d"), said = find("#map-said");
const CELL = 66, PICTURE = 58, pictures = new Map();
let ids = [], places = [], view = { x: 0.5, y: 0.5, zoom: 1 }, doing = null, acts = null, lasso = false, frame = 0, loaded = false;

export async function show(given) {
  acts = given.acts;
  if (!loaded) await load();
  draw();
}

async function load() {
  said.textContent = "The map is being computed …";
  for (;;) {
    const answer = await get("/api/map");
    if (!answer.computing) {
      ids = answer.ids; places = answer.places; loaded = true;
      said.textContent = ids.length ? `${ids.length.toLocaleString("en")} pictures. Drag to move, scroll to come closer, click one to search with it.` : "There is nothing to show yet.";
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

const scale = () => Math.min(canvas.clientWidth, canvas.clientHeight) * view.zoom;
const screen = ([x, y]) => [(x - view.x) * scale() + canvas.clientWidth / 2, (y - view.y) * scale() + canvas.clientHeight / 2];
const world = (x, y) => [(x - canvas.clientWidth / 2) / scale() + view.x, (y - canvas.clientHeight / 2) / scale() + view.y];

function draw() { if (!frame) frame = requestAnimationFrame(paint); }

function paint() {
  frame = 0;
  const width = canvas.clientWidth, height = canvas.clientHeight, dense = devicePixelRatio || 1;
  if (!width || !loaded) return;
  canvas.width = width * dense; canvas.height = height * dense;
  context.setTransform(dense, 0, 0, dense, 0, 0);
  const style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--soft"), cells = new Map();
  context.fillStyle = ink;
  context.globalAlpha = 0.6;
  for (let i = 0; i < ids.length; i++) {
    const [x, y] = screen(places[i]);
    if (x < -40 || y < -40 || x > width + 40 || y > height + 40) continue;
    // One picture a cell, fixed to the map, so that it stays while the map moves.
    const column = Math.floor(places[i][0] * scale() / CELL), row = Math.floor(places[i][1] * scale() / CELL);
    if (free(cells, column, row, x, y)) cells.set(`${column},${row}`, [i, x, y]);
    else context.fillRect(x - 1.5, y - 1.5, 3, 3);
  }
  context.globalAlpha = 1;
  for (const [i, x, y] of cells.values()) {
    const picture = pictured(ids[i]);
    if (picture.complete && picture.naturalWidth) {
      const k = PICTURE / Math.max(picture.naturalWidth, picture.naturalHeight), w = k * picture.naturalWidth, h = k * picture.naturalHeight;
      context.drawImage(picture, x - w / 2, y - h / 2, w, h);
    } else { context.beginPath(); context.arc(x, y, 2.5, 0, 7); context.fill(); }
  }
  if (doing?.area) {
    const [x0, y0, x1, y1] = doing.area;
    context.strokeStyle = style.getPropertyValue("--for"); context.lineWidth = 2; context.setLineDash([6, 4]);
    context.strokeRect(x0, y0, x1 - x0, y1 - y0); context.setLineDash([]);
  }
}

// Whether a picture at (x, y) would lie on no other one.
function free(cells, column, row, x, y) {
  for (let c = column - 1; c <= column + 1; c++) for (let r = row - 1; r <= row + 1; r++) {
    const other = cells.get(`${c},${r}`);
    if (other && ((c === column && r === row) || (Math.abs(other[1] - x) < PICTURE && Math.abs(other[2] - y) < PICTURE))) return false;
  }
  return true;
}

function pictured(id) {
  if (!pictures.has(id)) {
    if (pictures.size > 3000) pictures.delete(pictures.keys().next().value);
    const picture = new Image();
    picture.onload = draw; picture.src = thumbnail(id, 0, 96);
    pictures.set(id, picture);
  }
  return pictures.get(id);
}

function nearest(x, y) {
  let best = null, least = (PICTURE * 0.7) ** 2;
  places.forEach((place, i) => { const [px, py] = screen(place), d = (px - x) ** 2 + (py - y) ** 2; if (d < least) { least = d; best = i; } });
  return best;
}

function zoom(by, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const [wx, wy] = world(x, y);
  view.zoom = Math.min(400, Math.max(0.7, view.zoom * by));
  const [nx, ny] = world(x, y);
  view.x += wx - nx; view.y += wy - ny;
  draw();
}

const fingers = new Map();
canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY); }, { passive: false });
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
  doing = { x: event.offsetX, y: event.offsetY, moved: false, area: null, from: { ...view } };
});
canvas.addEventListener("pointermove", (event) => {
  if (!doing || !fingers.has(event.pointerId)) return;
  if (fingers.size === 2) {
    const [a, b] = [...fingers.values()], before = Math.hypot(a[0] - b[0], a[1] - b[1]);
    fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
    const [c, d] = [...fingers.values()];
    doing.moved = true;
    zoom(Math.hypot(c[0] - d[0], c[1] - d[1]) / Math.max(1, before), (c[0] + d[0]) / 2, (c[1] + d[1]) / 2);
    return;
  }
  const dx = event.offsetX - doing.x, dy = event.offsetY - doing.y;
  if (Math.abs(dx) + Math.abs(dy) > 5) doing.moved = true;
  if (lasso || event.shiftKey) doing.area = [Math.min(doing.x, event.offsetX), Math.min(doing.y, event.offsetY), Math.max(doing.x, event.offsetX), Math.max(doing.y, event.offsetY)];
  else { view.x = doing.from.x - dx / scale(); view.y = doing.from.y - dy / scale(); }
  draw();
});
canvas.addEventListener("pointerup", (event) => {
  fingers.delete(event.pointerId);
  if (!doing) return;
  const { area, moved } = doing;
  doing = null;
  if (area) choose(area);
  else if (!moved) { const found = nearest(event.offsetX, event.offsetY); if (found !== null) acts.search({ id: ids[found] }); }
  draw();
});
canvas.addEventListener("pointercancel", (event) => { fingers.delete(event.pointerId); doing = null; draw(); });
canvas.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (step) { view.x += 60 * step[0] / scale(); view.y += 60 * step[1] / scale(); }
  else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-") zoom(1 / 1.4);
  else if (event.key === "Enter") { const found = nearest(canvas.clientWidth / 2, canvas.clientHeight / 2); if (found !== null) acts.search({ id: ids[found] }); return; }
  else return;
  event.preventDefault();
  draw();
});

async function choose([x0, y0, x1, y1]) {
  const chosen = ids.filter((_, i) => { const [x, y] = screen(places[i]); return x >= x0 && x <= x1 && y >= y0 && y <= y1; }).slice(0, 300);
  said.textContent = chosen.length ? `${chosen.length} pictures selected, below the map.` : "No picture lies in this area.";
  if (!chosen.length) { find("#map-chosen").replaceChildren(); return; }
  try {
    const { items } = await get(`/api/items?limit=300&where=${encodeURIComponent(JSON.stringify({ id: chosen }))}`);
    fill(find("#map-chosen"), items, 0, acts);
  } catch (error) { say(error); }
}

find("#map-in").addEventListener("click", () => zoom(1.6));
find("#map-out").addEventListener("click", () => zoom(1 / 1.6));
find("#map-home").addEventListener("click", () => { view = { x: 0.5, y: 0.5, zoom: 1 }; draw(); });
find("#map-lasso").addEventListener("click", (event) => { lasso = !lasso; event.target.setAttribute("aria-pressed", String(lasso)); canvas.classList.toggle("lasso", lasso); });
addEventListener("resize", draw);
