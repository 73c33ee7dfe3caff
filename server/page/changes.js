// What changes on the server, as the server says it.

import { pause, send } from "./api.js";
import { parse } from "./json.js";

/** A connection that was refused or broke is tried again after this time, then after twice as long. */
const RETRY_MS = 2000;
const RETRY_MS_MAX = 30_000;
/** The server says something at least every 15 s. */
const SILENCE_MS = 45_000;

/**
 * Calls `heard` with each message (`{event, data}`) of the server, and `live` with whether the server can say
 * anything at all, until `signal` is aborted. While the page is hidden there is no connection: another one is
 * told what it missed.
 */
export async function follow(query, { signal, heard, live }) {
  let last = null;
  let wait = RETRY_MS;
  while (!signal.aborted) {
    try {
      await seen(signal);
      await listen(query, { signal, last, heard: message => {
        last = message.id ?? last;
        wait = RETRY_MS;
        live(true);
        if (message.event) heard(message);
      } });
    } catch {
      // Whoever is left asks for what it shows, and says why that fails.
    }
    if (signal.aborted) return;
    live(false);
    if (document.hidden) continue;
    await pause(wait, signal).catch(() => {});
    wait = Math.min(2 * wait, RETRY_MS_MAX);
  }
}

/** Waits until the page can be seen. */
const seen = signal => new Promise((resolve, reject) => {
  if (!document.hidden) return resolve();
  const end = new AbortController();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    end.abort();
    resolve();
  }, { signal: end.signal });
  signal.addEventListener("abort", () => {
    end.abort();
    reject(signal.reason);
  }, { signal: end.signal });
});

/** One connection, until it ends, is silent, or the page is hidden. */
async function listen(query, { signal, last, heard }) {
  const leave = new AbortController();
  const either = AbortSignal.any([signal, leave.signal]);
  let silence = 0;
  const expect = () => {
    clearTimeout(silence);
    silence = setTimeout(() => leave.abort(), SILENCE_MS);
  };
  document.addEventListener("visibilitychange", () => leave.abort(), { signal: either });
  try {
    expect();
    const headers = last ? { "last-event-id": last } : {};
    const response = await send(`/api/v1/changes${query}`, { headers, signal: either });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const messages = new Messages();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      expect();
      messages.add(piece.value).forEach(heard);
    }
  } finally {
    clearTimeout(silence);
    leave.abort();
  }
}

/** Messages of a `text/event-stream`, which comes in pieces. */
export class Messages {
  constructor() { this.rest = ""; }

  /** The messages that are complete with this piece. */
  add(piece) {
    const blocks = (this.rest + piece).split("\n\n");
    this.rest = blocks.pop();
    return blocks.map(block => {
      const message = {};
      for (const line of block.split("\n")) {
        const [, name, value] = /^(\w+): ?(.*)$/.exec(line) || [];
        if (name === "data") message.data = parse(value);
        else if (name) message[name] = value;
      }
      return message;
    });
  }
}
