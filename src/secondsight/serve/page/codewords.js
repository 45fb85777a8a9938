// What each codeword looks at.

import { find, make } from "/elements.js";
import { get } from "/api.js";

let loaded = false;

export async function show() {
  if (loaded) return;
  const said = find("#codewords-said");
  said.textContent = "Looking at pictures of the collection …";
  let answer;
  try {
    while ((answer = await get("/api/codewords")).computing) await new Promise((resolve) => setTimeout(resolve, 1000));
  } catch (error) { said.textContent = `${error.message}: ${error.cure}`; return; }
  loaded = true;
  said.textContent = `${answer.codewords.length} codewords on ${answer.images} pictures`;
  const ordered = [...answer.codewords].sort((a, b) => b.carried - a.carried);
  find("#codewords-list").replaceChildren(...ordered.map((word) => make("section", { className: "codeword" },
    make("div", {}, make("h2", {}, `Codeword ${word.number + 1}`),
      make("p", { className: "hint" }, `${(100 * word.usage).toFixed(1)} % of all places; carries ${word.carried.toFixed(3)} of the similarity of two pictures`)),
    make("div", { className: "patches" }, ...word.patches.map((patch, i) => make("img", { src: patch.jpeg, alt: `Typical place ${i + 1}`, loading: "lazy" }))))));
}
