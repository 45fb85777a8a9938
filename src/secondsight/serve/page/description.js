// The server's own description of itself, to read: every address, what it takes, and how to ask.

import { find, make } from "/elements.js";
import { get } from "/api.js";

let loaded = false;

const kind = (schema = {}) => schema.type ?? schema.anyOf?.map(kind).filter((one) => one !== "null").join(" or ") ?? schema.$ref?.split("/").at(-1) ?? (schema.enum ? schema.enum.join(", ") : "");

function fields(operation, schemas) {
  const given = (operation.parameters ?? []).map(({ name, required, schema, description }) => [name, schema, required, description ?? schema.description]);
  const content = operation.requestBody?.content ?? {};
  const body = Object.values(content).map(({ schema }) => (schema.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema));
  const seen = new Map(body.flatMap((schema) => Object.entries(schema?.properties ?? {}).map(([name, of]) => [name, [name, of, schema.required?.includes(name), of.description]])));
  return [...given, ...seen.values()];
}

export async function show() {
  if (loaded) return;
  const { paths, components, info } = await get("/openapi.json");
  loaded = true;
  find("#api-said").replaceChildren("OpenAPI: ", make("a", { href: "/openapi.json" }, "/openapi.json"));
  const verbs = Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => make("section", { className: "verb" },
    make("h2", {}, make("code", {}, make("span", { className: "method" }, method.toUpperCase()), ` ${path}`)),
    make("p", {}, operation.summary),
    operation.description && operation.description !== operation.summary ? make("p", { className: "hint" }, operation.description) : null,
    make("table", {}, make("tbody", {}, ...fields(operation, components.schemas).map(([name, schema, required, words]) => make("tr", {}, make("td", {}, name), make("td", { className: "hint" }, `${kind(schema)}${required ? ", needed" : ""}`), make("td", {}, words ?? ""))))))));
  find("#api-list").replaceChildren(make("p", { className: "lead" }, info.description.replaceAll("`", "")),
    make("pre", { tabindex: "0" }, `curl -F file=@photo.jpg -F k=5 ${location.origin}/api/search\ncurl -H 'Content-Type: application/json' -d '{"id": 3, "k": 5}' ${location.origin}/api/search`), ...verbs);
}
