// Requests to the server, with the token if one is needed.

import { ask, make } from "./dom.js";

const KEPT = "tracehold.token";

/** A refusal, with its problem document if there is one. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem?.detail || problem?.title || `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

export const token = () => sessionStorage.getItem(KEPT);
export const forgetToken = () => sessionStorage.removeItem(KEPT);

let asking = null;

/** Asks for a token; resolves when one was entered. */
export function askToken() {
  asking ??= new Promise((resolve, reject) => {
    const input = make("input", { type: "password", autocomplete: "off", required: true });
    const dialog = ask("This server needs a token", [
      make("p", { class: "faint" }, "It is kept until this tab is closed. An operator creates tokens: tracehold token create."),
      { name: "token", label: "Token", input },
    ], {
      label: "Use it",
      submit: async ({ token }) => {
        const response = await fetch("/api/v1/storages?limit=1", { headers: { authorization: `Bearer ${token}` } });
        if (response.status === 401) throw new Refused(401, await problemOf(response));
        sessionStorage.setItem(KEPT, token);
        resolve();
      },
    });
    dialog.addEventListener("close", () => {
      asking = null;
      reject(new Error("no token"));
    });
  });
  return asking;
}

async function problemOf(response) {
  try {
    return await response.json();
  } catch {
    return null;
  }
}

/** Sends a request; the response is a success, or this throws. */
export async function send(path, { method = "GET", body, headers = {}, signal } = {}) {
  for (;;) {
    const all = { ...headers };
    if (token()) all.authorization = `Bearer ${token()}`;
    const response = await fetch(path, { method, body, headers: all, signal });
    if (response.ok) return response;
    if (response.status === 401) {
      forgetToken();
      await askToken();
      continue;
    }
    throw new Refused(response.status, await problemOf(response));
  }
}

const JSON_TYPE = { "content-type": "application/json" };

export const get = async (path, options) => parse(await (await send(`/api/v1${path}`, options)).text());

export async function change(method, path, body) {
  const options = body === undefined ? { method } : { method, body: JSON.stringify(body), headers: JSON_TYPE };
  const text = await (await send(`/api/v1${path}`, options)).text();
  return text ? parse(text) : null;
}

/** All items of a list, up to `max`. */
export async function list(path, max = 1000) {
  const items = [];
  let cursor = null;
  do {
    const join = path.includes("?") ? "&" : "?";
    const page = await get(`${path}${join}limit=${Math.min(max, 1000)}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < max);
  return { items, more: Boolean(cursor) };
}

/** Parses JSON; integers that a number cannot hold become BigInt, others stay numbers. */
export function parse(text) {
  const quoted = text.replace(/"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g,
    found => found[0] === '"' ? found : `"\\u0001${found}"`);
  return JSON.parse(quoted, (_, value) =>
    typeof value === "string" && value[0] === "\u0001" ? whole(BigInt(value.slice(1))) : value);
}

const whole = value =>
  value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;

/** The body of a query: BigInt is written as a number. */
export const bodyOf = query => JSON.stringify(query, (_, value) => typeof value === "bigint" ? `\u0001${value}` : value)
  .replace(/"\\u0001(-?\d+)"/g, "$1");

/** Rows of a query, and what the server says about them. */
export async function query(id, question, signal) {
  const response = await send(`/api/v1/storages/${id}/query`, {
    method: "POST", body: bodyOf(question), headers: { ...JSON_TYPE }, signal,
  });
  const rows = [];
  const skipped = [];
  for (const line of (await response.text()).split("\n")) {
    if (!line) continue;
    const row = parse(line);
    if (row.summary) skipped.push(...row.summary.skipped);
    else rows.push(row);
  }
  const notes = JSON.parse(response.headers.get("tracehold-notes") || "[]");
  return { rows, skipped, notes, matched: response.headers.get("tracehold-matched") };
}

/** Saves the body of a response as a file. */
export async function save(response, name) {
  const link = make("a", { href: URL.createObjectURL(await response.blob()), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Waits for a job, calling `each` with its state. */
export async function finished(job, each = () => {}) {
  for (;;) {
    const state = await get(`/jobs/${job}`);
    each(state);
    if (state.state !== "RUNNING") return state;
    await new Promise(resolve => setTimeout(resolve, 500));
  }
}
