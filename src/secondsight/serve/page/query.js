// The picture that is looked for, and the box on it.

import { crop, find, make } from "/elements.js";
import { icon } from "/icons.js";

const frame = find("#frame"), box = find("#box"), picture = find("#picture"), seen = find("#seen");
for (const event of ["load", "error"]) picture.addEventListener(event, () => { frame.hidden = event === "error"; }); // a vector has no picture
const LEAST = 0.04; // of a side: what is smaller was a click
let changed = () => {}, sides = null, timer = null;

export function onBox(callback) { changed = callback; }

export function show(source, part, area) {
  find("#drop").hidden = true; find("#asked").hidden = false;
  if (picture.src !== new URL(source, location).href) picture.src = source;
  place(part);
  seen.hidden = !area || (area[0] < 0.01 && area[1] < 0.01 && area[2] > 0.99 && area[3] > 0.99);
  if (area) Object.assign(seen.style, rectangle(area));
  find("#draw-hint").textContent = `Draw a box to search for a part alone.${seen.hidden ? "" : " The model looks at the bright square."}`;
}

export function clear() { find("#drop").hidden = false; find("#asked").hidden = true; place(null); picture.removeAttribute("src"); }

const rectangle = ([l, t, r, b]) => ({ left: `${100 * l}%`, top: `${100 * t}%`, width: `${100 * (r - l)}%`, height: `${100 * (b - t)}%` });

function place(part) {
  sides = part;
  box.hidden = !part;
  for (const name of ["#whole", "#box-more", "#box-less"]) find(name).hidden = !part;
  find("#draw").hidden = Boolean(part);
  if (part) Object.assign(box.style, rectangle(part));
}

const settle = (wait) => { clearTimeout(timer); timer = setTimeout(() => changed(sides && sides.map((s) => Math.round(1e5 * s) / 1e5)), wait); };
const clamp = (x) => Math.min(1, Math.max(0, x));

frame.addEventListener("pointerdown", (down) => {
  if (down.button || document.body.classList.contains("no-parts")) return;
  down.preventDefault();
  const area = frame.getBoundingClientRect(), at = (event) => [clamp((event.clientX - area.left) / area.width), clamp((event.clientY - area.top) / area.height)];
  const [x0, y0] = at(down), before = sides, moving = down.target === box && sides;
  frame.setPointerCapture(down.pointerId);
  const move = (event) => {
    const [x, y] = at(event);
    if (moving) {
      const dx = Math.min(1 - before[2], Math.max(-before[0], x - x0)), dy = Math.min(1 - before[3], Math.max(-before[1], y - y0));
      place([before[0] + dx, before[1] + dy, before[2] + dx, before[3] + dy]);
    } else if (Math.abs(x - x0) > LEAST || Math.abs(y - y0) > LEAST) place([Math.min(x0, x), Math.min(y0, y), Math.max(x0, x), Math.max(y0, y)]);
    if (sides && sides !== before) settle(90); // the answers follow the hand
  };
  const up = () => {
    frame.removeEventListener("pointermove", move); frame.removeEventListener("pointerup", up); frame.removeEventListener("pointercancel", up);
    if (sides && (sides[2] - sides[0] < LEAST || sides[3] - sides[1] < LEAST)) place(before);
    if (sides !== before) settle(0);
  };
  frame.addEventListener("pointermove", move); frame.addEventListener("pointerup", up); frame.addEventListener("pointercancel", up);
});

box.addEventListener("keydown", (event) => {
  if (event.key === "Escape" || event.key === "Delete") { event.preventDefault(); place(null); settle(0); find("#draw").focus(); return; }
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!step || !sides) return;
  event.preventDefault();
  const [dx, dy] = step.map((s) => s * 0.05), [l, t, r, b] = sides;
  if (event.shiftKey) place([l, t, clamp(Math.max(l + LEAST, r + dx)), clamp(Math.max(t + LEAST, b + dy))]);
  else {
    const x = Math.min(1 - r, Math.max(-l, dx)), y = Math.min(1 - b, Math.max(-t, dy));
    place([l + x, t + y, r + x, b + y]);
  }
  settle(120);
});

find("#draw").addEventListener("click", () => { if (!sides) place([0.25, 0.25, 0.75, 0.75]); box.focus(); settle(0); });
find("#whole").addEventListener("click", () => { place(null); settle(0); });

// Suggested parts: one click searches for one, + and − make it an example.
export function suggest(parts, acts) {
  const section = find("#parts"), list = find(".parts", section);
  section.hidden = !parts.length;
  list.replaceChildren(...parts.map(({ box: part, strength }, i) => {
    const words = `part ${i + 1}, ${Math.round(100 * strength)} % of the picture's content`;
    const act = (name, said, does) => make("button", { type: "button", "aria-label": `${said}: ${words}`, title: said, onclick: () => does(part) }, icon(name));
    return make("li", { className: "part", onmouseenter: () => outline(part), onmouseleave: () => outline(null) },
      make("button", { type: "button", className: "open", "aria-label": `Search ${words}`, title: `Search for ${words}`, onclick: () => { place(part); settle(0); }, onfocus: () => outline(part), onblur: () => outline(null) }, crop(picture, part)),
      make("div", { className: "acts" }, act("more", "More like this part", acts.like), act("less", "Less like this part", acts.unlike)));
  }));
}

find("#box-more").addEventListener("click", () => examples.like?.(sides));
find("#box-less").addEventListener("click", () => examples.unlike?.(sides));
let examples = {};
export function onExample(acts) { examples = acts; }

function outline(part) {
  if (sides) return;
  box.hidden = !part;
  if (part) Object.assign(box.style, rectangle(part));
}
