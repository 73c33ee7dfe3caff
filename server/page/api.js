// Requests to the server, with the token if one is needed.

import { answersAgain, ask, make, progressOf } from "./dom.js";
import { parse, write } from "./json.js";
import { bytes } from "./units.js";

/** Where the server is: a proxy or a shared URL puts a prefix before its paths. */
const BASE = new URL("..", import.meta.url);
/** Whether this is the page of a shared URL, which shows one storage and changes nothing. */
export const isShare = /\/s\/tracehold_[^/]+\/$/.test(BASE.pathname);

const KEPT = "tracehold.token";
/** A request that is refused because the server is busy is sent so often. */
const ATTEMPTS = 5;
/** Downloads with a token pass through the memory of the browser. */
const DOWNLOAD_MAX = 2 ** 30;

/** A refusal, with its problem document if there is one. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem?.detail || problem?.title || `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** A browser says only "Failed to fetch" of a server that does not answer. */
class Unreachable extends Error {
  constructor(cause) {
    super(`The server at ${BASE.host} does not answer.`, { cause });
    this.isUnreachable = true;
  }
}

/** What a browser says of a connection, in words that name the server. */
const named = error => error instanceof TypeError ? new Unreachable(error) : error;

/** A path below the server; values are encoded, so that none adds a step to it. */
export function path(texts, ...values) {
  const encoded = values.map(value => {
    const text = encodeURIComponent(value);
    if (/^\.{0,2}$/.test(text)) throw new Error(`${JSON.stringify(text)} names nothing`);
    return text;
  });
  return String.raw({ raw: texts }, ...encoded);
}

const addressOf = path => new URL(path.replace(/^\//, "./"), BASE);

// The secret of a shared URL is enough, and all that it shows can be seen by whoever has the URL.
const token = () => isShare ? null : sessionStorage.getItem(KEPT);

let asking = null;
let isDeclined = false;

/** Tokens are asked for again, after the dialog was closed without one. */
export function askAgain() {
  isDeclined = false;
}

/** Asks for a token; resolves when one was entered. */
function askToken() {
  asking ??= new Promise((resolve, reject) => {
    const input = make("input", { type: "password", autocomplete: "off", required: true });
    const dialog = ask("This server needs a token", [
      make("p", { class: "faint" }, "It is kept until this tab is closed. An operator creates tokens: tracehold token create."),
      { name: "token", label: "Token", input },
    ], {
      label: "Use it",
      submit: async ({ token }) => {
        const response = await fetch(addressOf("/api/v1/storages?limit=1"), { headers: { authorization: `Bearer ${token}` } });
        if (response.status === 401) throw new Refused(401, await problemOf(response));
        sessionStorage.setItem(KEPT, token);
        resolve();
      },
    });
    dialog.addEventListener("close", () => {
      asking = null;
      isDeclined = !token();
      reject(new Error("This server needs a token. Reload the page to enter one."));
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

/** Waits, unless the signal ends it. */
export const pause = (milliseconds, signal) => new Promise((resolve, reject) => {
  const end = () => {
    clearTimeout(timer);
    reject(signal.reason);
  };
  const timer = setTimeout(() => {
    signal?.removeEventListener("abort", end);
    resolve();
  }, milliseconds);
  signal?.addEventListener("abort", end, { once: true });
  if (signal?.aborted) end();
});

/** Sends a request; the response is a success, or has a status of `accept`, or this throws. */
export async function send(path, { method = "GET", body, headers = {}, signal, accept = [] } = {}) {
  for (let attempt = 1; ; attempt++) {
    const used = token();
    const all = used ? { ...headers, authorization: `Bearer ${used}` } : headers;
    const response = await fetch(addressOf(path), { method, body, headers: all, signal })
      .catch(error => { throw named(error); });
    answersAgain();
    if (response.ok || accept.includes(response.status)) return response;
    const problem = await problemOf(response);
    signal?.throwIfAborted();
    if (response.status === 401 && !isShare && !isDeclined) {
      // Another request may have asked meanwhile.
      if (token() === used) {
        sessionStorage.removeItem(KEPT);
        await askToken();
      }
    } else if (response.status === 429 && attempt < ATTEMPTS) {
      await pause(1000 * (Number(response.headers.get("retry-after")) || 1), signal);
    } else {
      throw new Refused(response.status, problem);
    }
  }
}

let known = { token: undefined, isOperator: true, isScoped: false };

/** Learns who the server takes this page for; asks for a token if one is needed. */
export async function learnCaller(signal) {
  if (isShare || (known.token !== undefined && known.token === token())) return;
  const caller = await (await send("/api/v1/caller", { signal })).json();
  const isScoped = [caller.agents, caller.storages].some(all => all?.length);
  known = { token: token(), isOperator: caller.roles.includes("operator"), isScoped };
}

/** Whether this page may change anything: what it may not do, it does not show. */
export const mayOperate = () => !isShare && known.isOperator;

/** Whether there may be agents and storages that this page does not see. */
export const isScoped = () => isShare || known.isScoped;

const JSON_TYPE = { "content-type": "application/json" };

export const get = async (path, options) => parse(await (await send(`/api/v1${path}`, options)).text());

export async function change(method, path, body) {
  const options = body === undefined ? { method } : { method, body: write(body), headers: JSON_TYPE };
  const text = await (await send(`/api/v1${path}`, options)).text();
  return text ? parse(text) : null;
}

/** The items of a list, up to `max`, and whether there are more. */
export async function list(path, max = 1000, options = {}) {
  const items = [];
  let cursor = null;
  do {
    const join = path.includes("?") ? "&" : "?";
    const limit = Math.min(max - items.length, 1000);
    const page = await get(`${path}${join}limit=${limit}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`, options);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < max);
  return { items, more: Boolean(cursor) };
}

/** The response to a question to a storage. */
export const answer = (id, question, signal) => send(path`/api/v1/storages/${id}/query`, {
  method: "POST", body: write(question), headers: JSON_TYPE, signal,
});

/** The events of a window of time as a file for a viewer, which the browser keeps. */
export function view(id, { from, to, query }, ending) {
  const begin = from < 0n ? "" : from;
  const window = path`/storage/${id}/view/${`${begin}-${to}.${ending}`}`;
  return send(query ? `${window}?where=${encodeURIComponent(query)}` : window);
}

const QUERIES_MAX = 16;
/** Questions by storage that were asked just now. */
const asked = new Map();

/**
 * Rows of a query (at most `matched_max` of them or none), how many events match if that is known, and what the
 * server says about them. Questions that are asked in one turn go in one request, and are answered one after
 * another: those whose answers are seen first are asked first.
 */
export function query(id, question, signal) {
  return new Promise((resolve, reject) => {
    if (!asked.has(id)) {
      asked.set(id, []);
      queueMicrotask(() => {
        const all = asked.get(id);
        asked.delete(id);
        for (let at = 0; at < all.length; at += QUERIES_MAX) askTogether(id, all.slice(at, at + QUERIES_MAX));
      });
    }
    asked.get(id).push({ question, signal, resolve, reject });
  });
}

/** Asks several questions in one request, which ends when nobody waits for an answer any more. */
async function askTogether(id, all) {
  const leave = new AbortController();
  const waiting = new Set();
  for (const each of all) {
    const { signal, reject } = each;
    if (signal?.aborted) {
      reject(signal.reason);
      continue;
    }
    waiting.add(each);
    signal?.addEventListener("abort", () => {
      reject(signal.reason);
      waiting.delete(each);
      if (!waiting.size) leave.abort();
    }, { signal: leave.signal });
  }
  if (!waiting.size) return;
  const open = [...waiting];
  try {
    const body = `{"queries":[${open.map(({ question }) => write(question)).join(",")}]}`;
    const response = await send(path`/api/v1/storages/${id}/queries`, { method: "POST", body, headers: JSON_TYPE, signal: leave.signal });
    for await (const line of linesOf(response.body)) {
      const each = open.shift();
      const { problem, ...answer } = parse(line);
      if (problem) each.reject(new Refused(problem.status, problem));
      else each.resolve(answer);
      waiting.delete(each);
    }
    if (open.length) throw new Error("The answer of the server ended early.");
  } catch (error) {
    for (const each of open) each.reject(named(error));
  } finally {
    leave.abort();
  }
}

async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = [];
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    const lines = piece.value.split("\n");
    rest.push(lines.shift());
    for (const line of lines) {
      yield rest.join("");
      rest = [line];
    }
  }
}

/** Saves the body of a response as a file, and shows how much has come. */
export async function save(response, name) {
  const length = Number(response.headers.get("content-length")) || null;
  const shown = progressOf(name);
  const pieces = [];
  let done = 0;
  try {
    const reader = response.body.getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      pieces.push(piece.value);
      done += piece.value.length;
      shown.update(done, length);
    }
  } finally {
    shown.end();
  }
  const link = make("a", { href: URL.createObjectURL(new Blob(pieces)), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Sends a file; `each` is called with the bytes that are sent and their number. Returns the answer. */
export async function upload(path, file, type, { each, signal }) {
  // If a token is needed, it is asked for before the file is sent.
  await send("/api/v1/storages?limit=1", { signal });
  signal.throwIfAborted();
  const request = new XMLHttpRequest();
  return new Promise((resolve, reject) => {
    request.open("POST", addressOf(path));
    request.setRequestHeader("content-type", type);
    if (token()) request.setRequestHeader("authorization", `Bearer ${token()}`);
    request.upload.addEventListener("progress", event => each(event.loaded, event.total));
    request.addEventListener("load", () => {
      const document = parsed(request.responseText);
      if (request.status < 300) resolve(document);
      else reject(new Refused(request.status, document));
    });
    request.addEventListener("error", () => reject(new Error("The connection ended before the file was sent.")));
    request.addEventListener("abort", () => reject(signal.reason));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

function parsed(text) {
  try {
    return parse(text);
  } catch {
    return null;
  }
}

/** Downloads what is at a path. Without a token the browser writes it to the disk as it comes. */
export async function download(path, name, length) {
  if (!token()) {
    make("a", { href: addressOf(path), download: name }).click();
    return;
  }
  if (length > DOWNLOAD_MAX) {
    throw new Error(`${name} has ${bytes(length)}, and a download with a token passes through memory: curl -H 'Authorization: Bearer TOKEN' -o '${name}' '${addressOf(path)}'`);
  }
  await save(await send(path), name);
}
