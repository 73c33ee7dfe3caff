// What is shown at one address. Its requests and timers end when another one is shown.

import { get, list, query } from "./api.js";
import { make } from "./dom.js";

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

  /** Repeats an action, but not while the page is hidden or a dialog is open. */
  poll(milliseconds, action) {
    this.signal.throwIfAborted();
    const next = () => {
      const timer = setTimeout(turn, milliseconds);
      this.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
    };
    const turn = async () => {
      try {
        if (!document.hidden && !document.querySelector("dialog")) {
          await action();
          this.stale.hidden = true;
        }
      } catch (error) {
        if (this.signal.aborted) return;
        if (this.stale.hidden) this.stale.textContent = `Not up to date: ${error.message}`;
        this.stale.hidden = false;
      }
      if (!this.signal.aborted) next();
    };
    next();
  }
}
