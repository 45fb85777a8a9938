// Drawing on two pictures: how much every place adds, and links between places.

const SVG = "http://www.w3.org/2000/svg", STEP = 24; // pixels a place

export function colours() {
  const style = getComputedStyle(document.documentElement);
  return ["--for", "--against"].map((name) => style.getPropertyValue(name).trim());
}

// A map of values over a picture: strong where much is added, orange for, blue against, without edges between places.
export function heat(canvas, side, values, scale, [pro, con]) {
  const [h, w] = side.grid, [left, top, right, bottom] = side.seen, context = canvas.getContext("2d"), small = new OffscreenCanvas(w, h), dots = small.getContext("2d");
  canvas.width = w * STEP; canvas.height = h * STEP;
  Object.assign(canvas.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * (right - left)}%`, height: `${100 * (bottom - top)}%` });
  values.forEach((value, place) => {
    dots.globalAlpha = 0.85 * Math.sqrt(Math.min(1, Math.abs(value) / scale));
    dots.fillStyle = value < 0 ? con : pro;
    dots.fillRect(place % w, Math.floor(place / w), 1, 1);
  });
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

// Frames around places.
export function framed(canvas, side, places) {
  const context = canvas.getContext("2d"), w = side.grid[1];
  for (const place of places) for (const [width, colour] of [[4, "#fff"], [2, "#000"]]) {
    context.lineWidth = width; context.strokeStyle = colour;
    context.strokeRect((place % w) * STEP + 3, Math.floor(place / w) * STEP + 3, STEP - 6, STEP - 6);
  }
}

// The centre of a place as a part of the picture.
export function centre({ grid: [h, w], seen: [left, top, right, bottom] }, place) {
  return [left + ((place % w) + 0.5) / w * (right - left), top + (Math.floor(place / w) + 0.5) / h * (bottom - top)];
}

// The place at a point of the picture; null where the model did not look.
export function placeAt({ grid: [h, w], seen: [left, top, right, bottom] }, [px, py]) {
  const x = (px - left) / (right - left), y = (py - top) / (bottom - top);
  return x < 0 || y < 0 || x >= 1 || y >= 1 ? null : Math.floor(y * h) * w + Math.floor(x * w);
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function links(svg, pair, sides, strongest, [pro, con]) {
  const all = pair.getBoundingClientRect(), frames = [...pair.querySelectorAll(".frame")].map((frame) => frame.getBoundingClientRect());
  const at = (side, place) => { const [x, y] = centre(sides[side], place), frame = frames[side]; return [frame.left - all.left + x * frame.width, frame.top - all.top + y * frame.height].map((n) => n.toFixed(1)); };
  const most = Math.max(1e-9, ...strongest.map((link) => Math.abs(link[2])));
  svg.replaceChildren(...[...strongest].reverse().flatMap(([i, j, value]) => {
    const [x1, y1] = at(0, i), [x2, y2] = at(1, j), bend = (x2 - x1) * 0.4, weight = Math.abs(value) / most, colour = value < 0 ? con : pro;
    const d = `M${x1},${y1}C${+x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
    return [
      shape("path", { d, fill: "none", stroke: "#fff", "stroke-opacity": 0.6, "stroke-width": 2.6 + 2.6 * weight }),
      shape("path", { d, fill: "none", stroke: colour, "stroke-opacity": 0.45 + 0.5 * weight, "stroke-width": 1 + 2.6 * weight }),
      ...[[x1, y1], [x2, y2]].map(([cx, cy]) => shape("circle", { cx, cy, r: 2.4 + 2 * weight, fill: colour, stroke: "#fff", "stroke-width": 1.4 })),
    ];
  }));
}

