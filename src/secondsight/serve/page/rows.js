// Pictures in rows of one height, as wide as the page. Only what is near the window is in the document, so that ten
// thousand answers scroll like ten.

const GAP = 14, AHEAD = 900; // pixels between pictures; and above and below the window that are kept ready

// Rows of items with proportions `ratios`: where each item lies, and where each row begins. `breaks` are items before
// which a line of height `line` is left free.
export function laid(ratios, { width, height, caption, breaks = new Set(), line = 52 }) {
  const places = [], rows = [];
  let top = 0;
  for (let start = 0; start < ratios.length;) {
    if (breaks.has(start)) top += line;
    let stop = start, sum = 0;
    const tallOf = (total, count) => (width - (count - 1) * GAP) / total; // of a row that is as wide as the page
    while (stop < ratios.length && (stop === start || !breaks.has(stop))) {
      // One more picture, if that brings the row nearer to its height.
      if (stop > start && height - tallOf(sum + ratios[stop], stop - start + 1) > tallOf(sum, stop - start) - height) break;
      sum += ratios[stop++];
    }
    const ends = stop === ratios.length || breaks.has(stop), full = tallOf(sum, stop - start), tall = Math.min(full, ends ? height : height * 1.6);
    rows.push({ start, stop, top });
    for (let i = start, left = 0; i < stop; i++) {
      const wide = Math.min(width, ratios[i] * tall);
      places.push({ left, top, width: wide, height: wide / ratios[i], row: rows.length - 1 });
      left += wide + GAP;
    }
    top += Math.max(...places.slice(start).map((place) => place.height)) + caption + GAP;
    start = stop;
  }
  return { places, rows, height: Math.max(0, top - GAP) };
}

// Fills a list with elements where they are seen. `make(item, i)` gives an element, `lines` text before an item.
export class Rows {
  constructor(list) {
    this.list = list; this.items = []; this.shown = new Map(); this.plan = null;
    new ResizeObserver(() => { if (list.clientWidth !== this.width) this.lay(); }).observe(list);
    addEventListener("scroll", () => this.soon(), { passive: true });
    addEventListener("resize", () => this.soon());
    list.addEventListener("keydown", (event) => this.walk(event));
    list.addEventListener("focusout", () => this.soon());
  }

  show(items, options) {
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.items = items; this.options = options; this.asked = false;
    this.lay();
  }

  // More items behind those that are there; no element is made again.
  extend(items) { this.items = items; this.asked = false; this.lay(); }

  lay() {
    if (!this.options) return;
    const { ratio, height, caption, lines = new Map() } = this.options, narrow = innerWidth < 700;
    this.width = this.list.clientWidth;
    if (!this.width) return;
    this.plan = laid(this.items.map(ratio), { width: this.width, height: narrow ? Math.min(height, 130) : height, caption, breaks: new Set(lines.keys()) });
    this.list.style.height = `${this.plan.height}px`;
    for (const line of this.list.querySelectorAll(".line")) line.remove();
    for (const [before, text] of lines) {
      const line = document.createElement("li");
      line.className = "line"; line.textContent = text; line.style.top = `${this.plan.places[before].top - 46}px`;
      this.list.append(line);
    }
    for (const [i, element] of this.shown) this.put(element, i);
    this.paint();
  }

  soon() { this.frame ??= requestAnimationFrame(() => { this.frame = null; this.paint(); }); }

  put(element, i) {
    const { left, top, width, height } = this.plan.places[i];
    Object.assign(element.style, { left: `${left}px`, top: `${top}px`, width: `${width}px` });
    element.style.setProperty("--tall", `${height}px`);
  }

  paint() {
    if (!this.plan || !this.list.isConnected || !this.list.clientWidth) return;
    const from = -this.list.getBoundingClientRect().top - AHEAD, to = from + innerHeight + 2 * AHEAD, { rows } = this.plan;
    const first = Math.max(0, rows.findLastIndex((row) => row.top <= from)), last = rows.findLastIndex((row) => row.top <= to);
    const start = rows[first]?.start ?? 0, stop = rows[last]?.stop ?? 0;
    for (const [i, element] of this.shown) if ((i < start || i >= stop) && !element.contains(document.activeElement)) { element.remove(); this.shown.delete(i); }
    for (let i = stop - 1, next = null; i >= start; i--) {
      if (!this.shown.has(i)) {
        const element = this.options.make(this.items[i], i);
        element.setAttribute("aria-setsize", this.options.total ?? this.items.length); element.setAttribute("aria-posinset", i + 1);
        this.put(element, i);
        this.shown.set(i, element);
        this.list.insertBefore(element, next);
      }
      next = this.shown.get(i);
    }
    if (stop >= this.items.length && !this.asked) { this.asked = true; this.options.end?.(); }
  }

  // Arrow keys walk from picture to picture, up and down by where they are.
  walk(event) {
    const here = [...this.shown].find(([, element]) => element.contains(event.target))?.[0], last = this.items.length - 1;
    if (here === undefined || event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const { places, rows } = this.plan, { row, left, width } = places[here], middle = left + width / 2;
    const near = (to) => (rows[to] ? Array.from({ length: rows[to].stop - rows[to].start }, (_, i) => rows[to].start + i).sort((a, b) => gap(a) - gap(b))[0] : undefined);
    const gap = (i) => Math.abs(places[i].left + places[i].width / 2 - middle);
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, ArrowUp: near(row - 1), ArrowDown: near(row + 1), Home: 0, End: last }[event.key];
    if (to === undefined || to < 0 || to > last) return;
    event.preventDefault();
    const area = this.list.getBoundingClientRect().top + places[to].top;
    if (area < 60 || area + places[to].height > innerHeight - 80) scrollBy(0, area - innerHeight / 3);
    this.paint();
    this.shown.get(to)?.querySelector("button").focus({ preventScroll: true });
  }
}
