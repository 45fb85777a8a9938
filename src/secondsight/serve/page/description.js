// The server's own description of itself, to read: every address, what it takes, and how to ask.

import { find, make } from "/elements.js";
import { get } from "/api.js";

let loaded = false;

const named = (schema, schemas) => (schema?.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema);
const many = (word) => word.replace(/\b(list|integer|number|string|object|boolean)\b/g, "$1s");
const said = (schema) => (schema.description ?? schema.anyOf?.find((one) => one.description)?.description ?? "").replaceAll("`", "");
const kind = (schema = {}) => (schema.enum ? schema.enum.join(", ") : schema.type === "array" ? `list${schema.items ? ` of ${many(kind(schema.items))}` : ""}` : schema.$ref || schema.type === "object" ? "object" : schema.type ?? schema.anyOf?.map(kind).filter((one) => one !== "null").join(" or ") ?? "");

// Rows of a table: the fields of a schema, and those of what lies in them, once each.
function fields(schema, schemas, before = "", known = new Map()) {
  const own = named(schema, schemas);
  return Object.entries(own?.properties ?? {}).flatMap(([name, of]) => {
    const inner = of.$ref ? of : of.items?.$ref ? of.items : null, twin = known.get(inner?.$ref), row = [before + name, of, own.required?.includes(name), twin ? `As ${twin}.` : said(of)];
    if (!inner || twin) return [row];
    known.set(inner.$ref, before + name);
    return [row, ...fields(inner, schemas, `${before}${name}${of.items ? "[]" : ""}.`, known)];
  });
}

function taken(operation, schemas) {
  const given = (operation.parameters ?? []).map(({ name, required, schema, description }) => [name, schema, required, description ?? said(schema)]);
  const bodies = Object.values(operation.requestBody?.content ?? {}).map(({ schema }) => named(schema, schemas));
  const needed = (name) => bodies.every((schema) => schema?.required?.includes(name)); // in whichever form it is sent
  const seen = new Map(bodies.flatMap((schema) => Object.entries(schema?.properties ?? {}).map(([name, of]) => [name, [name, of, needed(name), said(of)]])));
  return [...given, ...seen.values()];
}

const table = (head, rows, needed) => (rows.length ? [make("h3", {}, head), make("table", {}, make("tbody", {}, ...rows.map(([name, schema, required, words]) =>
  make("tr", {}, make("td", {}, name), make("td", { className: "hint" }, `${kind(schema)}${needed && required ? ", needed" : ""}`), make("td", {}, words)))))] : []);

export async function show() {
  if (loaded) return;
  const { paths, components, info } = await get("/openapi.json");
  loaded = true;
  find("#api-said").replaceChildren("OpenAPI: ", make("a", { href: "/openapi.json" }, "/openapi.json"));
  const verbs = Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => make("section", { className: "verb" },
    make("h2", {}, make("code", {}, make("span", { className: "method" }, method.toUpperCase()), ` ${path}`)),
    make("p", {}, operation.summary),
    operation.description && operation.description !== operation.summary ? make("p", { className: "hint" }, operation.description) : null,
    ...table("Takes", taken(operation, components.schemas), true),
    ...table("Answers", fields(operation.responses[200]?.content?.["application/json"]?.schema, components.schemas), false))));
  find("#api-list").replaceChildren(make("p", { className: "lead" }, info.description.replaceAll("`", "")),
    make("pre", { tabindex: "0" }, `curl -F file=@photo.jpg -F k=5 ${location.origin}/api/search\ncurl -H 'Content-Type: application/json' -d '{"id": 3, "k": 5}' ${location.origin}/api/search`), ...verbs);
}
