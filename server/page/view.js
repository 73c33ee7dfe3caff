// What is shown at one address. Its requests and timers end when another one is shown.

import { get, list, query } from "./api.js";
import { follow } from "./changes.js";
import { make } from "./dom.js";

/** How often is looked whether an action is due, and the time between two of them while much changes. */
const TICK_MS = 200;
const GAP_MS = 500;

export class View {
  /** `node` is only of this view; `signal` is aborted when the view is left. */
  constructor(node, signal) {
    this.node = node;
    this.signal = signal;
    this.stale = make("p", { class: "warn", role: "status", hidden: true });
  }

  get(path) { return get(path, { signal: this.signal }); }

  list(path, max) { return list(path, max, { signal: this.signal }); }

  query(id, question) { return query(id, question, this.signal); }

  show(...children) { this.node.replaceChildren(this.stale, ...children.filter(Boolean)); }

  set title(text) {
    this.signal.throwIfAborted();
    document.title = `${text} · Tracehold`;
  }

  /**
   * Repeats an action when the server says that what it shows has changed, and while it cannot say so every
   * `milliseconds`; but not while the page is hidden or a dialog is open. `events` are the messages that matter,
   * `storage` the only storage that does, and `gap` is the least time between two actions while much changes.
   */
  follow(events, { milliseconds, storage, gap = GAP_MS }, action) {
    this.signal.throwIfAborted();
    let isLive = false;
    let isChanged = false;
    let last = performance.now();
    const concerns = ({ event, data }) => event === "reset" || (event === "gone" ? events.includes(data.kind) : events.includes(event));
    follow(storage ? `?storage=${storage}` : "", {
      signal: this.signal,
      heard: message => { isChanged ||= concerns(message); },
      live: is => {
        isLive = is;
        this.node.dataset.live = String(is);
      },
    });
    const turn = async () => {
      const waited = performance.now() - last;
      // One that failed is not repeated at once.
      const isDue = isLive && this.stale.hidden ? isChanged && waited >= gap : waited >= milliseconds;
      if (isDue && !document.hidden && !document.querySelector("dialog")) {
        isChanged = false;
        try {
          await action();
          this.stale.hidden = true;
        } catch (error) {
          if (this.signal.aborted) return;
          if (this.stale.hidden) this.stale.textContent = `Not up to date: ${error.message}`;
          this.stale.hidden = false;
        }
        last = performance.now();
      }
      if (!this.signal.aborted) setTimeout(turn, TICK_MS);
    };
    turn();
  }
}
