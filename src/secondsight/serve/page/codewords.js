// What each codeword looks at.

import { find, make } from "/elements.js";
import { computed } from "/api.js";

let loaded = false;

export async function show({ search }) {
  if (loaded) return;
  const said = find("#codewords-said");
  said.textContent = "Looking at pictures of the collection …";
  let answer;
  try { answer = await computed("/api/codewords", (done, total) => { said.textContent = `Looking at pictures of the collection: ${done} of ${total} …`; }); } catch (error) { said.textContent = `${error.message}: ${error.cure}`; return; }
  loaded = true;
  said.textContent = `${answer.codewords.length} codewords on ${answer.images} pictures; those that carry most come first`;
  const ordered = [...answer.codewords].sort((a, b) => b.carried - a.carried);
  find("#codewords-list").replaceChildren(...ordered.map((word) => make("section", { className: "codeword" },
    make("header", {}, make("h2", {}, `Codeword ${word.number + 1}`), make("p", { className: "hint" }, `carries ${(100 * word.carried).toFixed(1)} %, has ${(100 * word.usage).toFixed(1)} % of the places`)),
    make("div", { className: "patches" }, ...word.patches.map((patch, i) => {
      const picture = make("img", { src: patch.jpeg, alt: `Typical place ${i + 1}`, loading: "lazy" });
      return patch.id === null ? picture : make("button", { type: "button", title: "Search with the picture that this is from", onclick: () => search({ id: patch.id }) }, picture);
    })))));
}
