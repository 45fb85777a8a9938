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

export const percent = (p) => (p >= 0.995 ? "≈100 %" : p < 0.005 ? "<1 %" : `${Math.round(100 * p)} %`);

export function say(trouble) {
  const notice = find("#notice");
  notice.textContent = trouble ? `${capital(trouble.message)}. ${capital(trouble.cure ?? "")}${trouble.cure ? "." : ""}` : "";
  notice.hidden = !trouble;
}

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
