// Duplicates, group by group: look, search, or say that they are none.

import { find, make, say } from "/elements.js";
import { computed, post } from "/api.js";
import { browsed } from "/results.js";
import { Rows } from "/rows.js";

const named = (item) => `${item.width ? `${item.width} × ${item.height} · ` : ""}${item.path ?? `item ${item.id}`}`; // to tell them apart
const TIERS = { bytes: "The same file", picture: "The same picture", subject: "The same subject" };

export async function show(acts) {
  const said = find("#duplicates-said"), list = find("#duplicates-list");
  said.textContent = "Looking for duplicates …";
  const answer = await computed("/api/duplicates");
  let left = answer.total;
  const tell = () => {
    said.textContent = left ? `${left} ${left === 1 ? "group" : "groups"}${answer.groups.length < left ? `, the first ${answer.groups.length} are shown` : ""}` : "";
    if (!left) list.replaceChildren(make("div", { className: "none" }, make("b", {}, "No picture is here twice"), "Files with the same bytes and pictures that were saved again would be listed here."));
  };
  list.replaceChildren(...answer.groups.map((group) => {
    const pictures = make("ul", { className: "grid" }), section = make("section", { className: "group" });
    const dismiss = make("button", { type: "button", onclick: async () => {
      try { await post("/api/dismiss", { ids: group.items.map((item) => item.id) }); } catch (error) { say(error); return; }
      const next = (section.nextElementSibling ?? section.previousElementSibling)?.querySelector("button.dismiss");
      section.remove(); left -= 1; tell();
      (next ?? find("#duplicates h1")).focus();
    }, className: "dismiss" }, "These are no duplicates");
    section.append(make("h2", {}, `${TIERS[group.tier] ?? group.tier}, ${group.items.length} times`), pictures, make("div", { className: "buttons" }, dismiss));
    browsed({ rows: new Rows(pictures), height: 150 }, group.items, 0, { ...acts, named });
    return section;
  }));
  tell();
}
