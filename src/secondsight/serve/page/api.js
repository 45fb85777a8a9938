// The server's verbs. Every error has a cause and a cure; both are shown.

export class Trouble extends Error {
  constructor(status, error, cure) { super(error); this.status = status; this.cure = cure; }
}

async function answered(response) {
  let body = null;
  try { body = await response.json(); } catch { /* an answer that is no JSON says nothing more than its status */ }
  if (!response.ok) throw new Trouble(response.status, body?.error ?? `the server answered ${response.status}`, body?.cure ?? "try again");
  return body;
}

// Whoever waits sees it: a line below the head moves while something is asked for.
let waiting = 0;
const wait = (more) => { waiting += more; document.body.classList.toggle("waiting", waiting > 0); };

async function sent(address, options) {
  wait(1);
  try {
    return await answered(await fetch(address, options));
  } catch (error) {
    if (error instanceof Trouble || error.name === "AbortError") throw error;
    throw new Trouble(0, "the server does not answer", "is it still running?");
  } finally { wait(-1); }
}

export const get = (address, signal) => sent(address, { signal });
export const post = (address, body, signal) =>
  sent(address, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });

export function upload(file, fields, signal) {
  const form = new FormData();
  form.append("file", file);
  for (const [name, value] of Object.entries(fields)) if (value !== undefined && value !== null) form.append(name, JSON.stringify(value));
  return sent("/api/search", { method: "POST", body: form, signal });
}

export const collections = [];
const mark = (number) => `collection=${number}&v=${collections[number]?.version ?? ""}`;
export const thumbnail = (id, number = 0, side = 384) => `/api/thumbnail/${id}?side=${side}&${mark(number)}`;
export const image = (id, number = 0) => `/api/image/${id}?${mark(number)}`;
export const uploaded = (name, number = 0) => `/api/query/${encodeURIComponent(name)}?${mark(number)}`;

// What takes a while, once: asked again until it is there.
export async function computed(address, progress = () => {}) {
  wait(1);
  try {
    for (;;) {
      const answer = await get(address);
      if (!answer.computing) return answer;
      if (answer.total) progress(answer.done, answer.total);
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  } finally { wait(-1); }
}
