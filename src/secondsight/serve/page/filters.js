// Filters: a label, and conditions on the columns of the table.

import { find, make } from "/elements.js";
import { icon } from "/icons.js";

let conditions = [], changed = () => {};
export const where = () => (conditions.length ? conditions.map((c) => c.column + c.sign + c.value) : undefined);

export function start(collection, callback) {
  changed = callback;
  find("#narrow").open = innerWidth > 760; // a phone has no room for what is not asked for
  find("#labels").replaceChildren(...collection.labels.map(({ label, count }) => make("option", { value: label }, `${count}`)));
  find("#label").parentElement.hidden = !collection.labels.length;
  find("#facets ul").replaceChildren(...collection.labels.slice(0, 24).map(({ label, count }) => make("li", {}, make("button", {
    type: "button", onclick: () => { add("label", "=", label); chips(); changed(); find("#label").focus(); },
  }, label, make("span", { className: "hint" }, `${count}`)))));
  const columns = [...collection.columns, { name: "path", kind: "text", values: [] }];
  find("#more-filters").hidden = false;
  find("#column").replaceChildren(...columns.map((column) => make("option", { value: column.name }, column.name)));
  const offer = () => {
    const column = columns.find((one) => one.name === find("#column").value);
    find("#values").replaceChildren(...(column?.values ?? []).map((value) => make("option", { value })));
    find("#value").placeholder = column?.ends ? `${column.ends[0]} – ${column.ends[1]}` : column?.name === "path" ? "2024/*" : "";
  };
  find("#column").addEventListener("change", offer);
  offer();
}

function add(column, sign, value) {
  if (column === "label" && sign === "=") conditions = conditions.filter((c) => c.column !== "label");
  conditions.push({ column, sign, value });
}

function chips() {
  const words = { "=": "is", "!=": "is not", ">=": "≥", "<=": "≤" };
  find("#chips").replaceChildren(...conditions.map((c, i) => make("li", {}, make("button", {
    type: "button", "aria-label": `Remove the filter ${c.column} ${words[c.sign]} ${c.value}`,
    onclick: () => { conditions.splice(i, 1); chips(); changed(); find(find("#label").parentElement.hidden ? "#value" : "#label").focus(); },
  }, `${c.column} ${words[c.sign]} ${c.value}`, icon("close")))));
}

find("#filters").addEventListener("submit", (event) => {
  event.preventDefault();
  const label = find("#label").value.trim(), value = find("#value").value.trim();
  if (label) add("label", "=", label);
  if (value) add(find("#column").value, find("#sign").value, value);
  find("#label").value = find("#value").value = "";
  chips();
  if (label || value) changed();
});
find("#label").addEventListener("change", () => find("#filters").requestSubmit());
