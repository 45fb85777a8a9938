// Elements from code: text is always text, whatever a file or a label is called.

export const find = (selector, root = document) => root.querySelector(selector);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "className" || name === "textContent" || name === "hidden") element[name] = value;
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const touch = matchMedia("(pointer: coarse)").matches;
export const count = (n) => n.toLocaleString("en");
export const pictures = (n) => `${count(n)} ${n === 1 ? "picture" : "pictures"}`;

// Less than half is never shown as half: there, "probably" ends.
export const percent = (p) => (p >= 0.995 ? "≈100 %" : p < 0.005 ? "<1 %" : `${p < 0.5 ? Math.min(49, Math.round(100 * p)) : Math.round(100 * p)} %`);

export function say(trouble) {
  const notice = find("#notice");
  notice.textContent = trouble ? `${capital(trouble.message)}. ${capital(trouble.cure ?? "")}${/[^.?]$/.test(trouble.cure ?? "") ? "." : ""}` : "";
  notice.hidden = !trouble;
}

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// A part of a picture as a small square; it is drawn when the picture is there.
export function crop(source, [left, top, right, bottom], side = 96) {
  const canvas = make("canvas", { width: side, height: side }), picture = source instanceof Image ? source : new Image();
  const draw = () => {
    const w = picture.naturalWidth, h = picture.naturalHeight, size = Math.min(Math.max((right - left) * w, (bottom - top) * h), w, h);
    const x = Math.min(w - size, Math.max(0, (left + right) / 2 * w - size / 2)), y = Math.min(h - size, Math.max(0, (top + bottom) / 2 * h - size / 2));
    canvas.getContext("2d").drawImage(picture, x, y, size, size, 0, 0, side, side);
  };
  if (picture !== source) picture.src = source;
  if (picture.complete && picture.naturalWidth) draw(); else picture.addEventListener("load", draw, { once: true });
  return canvas;
}
