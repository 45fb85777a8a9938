// Small drawings, as lines on a grid of 24.

const LINES = {
  search: "M10.5 4a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13M15.5 15.5L20 20",
  more: "M12 5v14M5 12h14",
  less: "M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  photo: "M4 6h16v12H4zM4 15l4-4l4 4l3-3l5 5M15.5 9.5h.01",
  camera: "M4 8h3l2-3h6l2 3h3v11H4zM12 10a3.5 3.5 0 1 0 0 7a3.5 3.5 0 0 0 0-7",
  box: "M4 8V4h4M16 4h4v4M20 16v4h-4M8 20H4v-4",
  whole: "M4 5h16v14H4z",
};

export function icon(name) {
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" })) drawing.setAttribute(key, value);
  line.setAttribute("d", LINES[name]);
  drawing.append(line);
  return drawing;
}

for (const place of document.querySelectorAll("[data-icon]")) place.prepend(icon(place.dataset.icon));
