// Duplicates, group by group: look, search, or say that they are none.

import { find, make, say } from "/elements.js";
import { get, post } from "/api.js";
import { fill } from "/results.js";

const TIERS = { bytes: "The same file", picture: "The same picture", subject: "The same subject" };

export async function show({ acts }) {
  const said = find("#duplicates-said"), list = find("#duplicates-list");
  said.textContent = "Looking for duplicates …";
  let answer;
  while ((answer = await get("/api/duplicates")).computing) await new Promise((resolve) => setTimeout(resolve, 1000));
  let left = answer.total;
  const tell = () => { said.textContent = left ? `${left} groups${answer.groups.length < left ? `, the first ${answer.groups.length} are shown` : ""}` : "No picture is here twice."; };
  tell();
  list.replaceChildren(...answer.groups.map((group) => {
    const pictures = make("ul", { className: "grid small" }), section = make("section", { className: "group" });
    const dismiss = make("button", { type: "button", onclick: async () => {
      try { await post("/api/dismiss", { ids: group.items.map((item) => item.id) }); } catch (error) { say(error); return; }
      const next = section.nextElementSibling?.querySelector("button.dismiss");
      section.remove(); left -= 1; tell();
      (next ?? find("#duplicates h1")).focus?.();
    }, className: "dismiss" }, "These are no duplicates");
    section.append(make("h2", {}, `${TIERS[group.tier] ?? group.tier}, ${group.items.length} times`), pictures, make("div", { className: "buttons" }, dismiss));
    fill(pictures, group.items, 0, acts);
    return section;
  }));
}
