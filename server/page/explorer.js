// The events of a storage: query, time line, table, and what can be done with the selection.

import { answer, save, view } from "./api.js";
import { acting, button, make } from "./dom.js";
import { openInPerfetto } from "./perfetto.js";
import { QueryBox } from "./query_box.js";
import { Results } from "./results.js";
import { Timeline } from "./timeline.js";
import { duration, time } from "./units.js";

/** Name of a format in the API and for people, and the end of its files. */
const FORMATS = [["ndjson", "NDJSON", "ndjson"], ["csv", "CSV", "csv"], ["arrow", "Arrow", "arrow"], ["parquet", "Parquet", "parquet"], ["perfetto", "Perfetto", "pftrace"],
  ["chrome", "Chrome JSON", "json"]];

export class Explorer {
  /** `range` is the first and last time of the events, `address` says what is shown first. */
  constructor(storage, range, { signal, address }) {
    this.address = address;
    this.window = clipped(address.window, range);
    this.span = make("p", { class: "faint mono", "aria-live": "polite" });
    const window = () => ({ from: this.window.begin, to: this.window.end });
    const question = () => ({ query: this.box.text || undefined, ...window() });
    this.box = new QueryBox(storage.id, { window, signal, run: () => this.changed(), text: address.query });
    this.results = new Results(storage.id, question, {
      signal, again: () => this.again(), noted: () => this.note(), shown: address.results, sums: () => this.timeline.sums,
    });
    this.timeline = new Timeline(storage.id, range, {
      question, signal, by: address.by, noted: () => this.note(), zoom: part => this.zoom(part), failed: error => this.box.fault(error),
    });
    const title = storage.name || storage.id;
    const downloads = FORMATS.map(([format, name, extension]) => button(name, acting(async () => {
      await save(await answer(storage.id, { ...question(), format }), `${title}.${extension}`);
    })));
    const perfetto = () => openInPerfetto(title, () => view(storage.id, question(), "pftrace"));
    this.node = make("section", { "aria-label": "Events" },
      make("h2", {}, "Events"),
      this.span,
      this.box.node,
      this.timeline.node,
      this.results.node,
      make("h2", {}, "Selection"),
      make("div", { class: "bar" },
        button("Open in Perfetto", acting(perfetto), { class: "main" }),
        make("span", { class: "faint" }, "or download as"), downloads));
    this.changed();
  }

  /** Asks for everything once more, after a request failed. */
  again() {
    this.box.clear();
    this.changed();
  }

  /** Selects another part of time. */
  zoom(part) {
    this.window = { ...part };
    this.changed();
  }

  /** The storage has other events now. A selected part of time stays selected. */
  extend(range) {
    const { whole } = this.timeline;
    const wasWhole = this.window.begin === whole.begin && this.window.end === whole.end;
    this.timeline.whole = range;
    if (wasWhole) this.window = { ...range };
    this.changed();
  }

  changed() {
    const { begin, end } = this.window;
    const length = Number(end - begin);
    // Microseconds, and nanoseconds where these are what is seen.
    const digits = Math.min(length / 1e3, 1e3);
    this.span.textContent = `${time(begin, digits)} to ${time(end, digits)} UTC, ${duration(length)}`;
    this.note();
    this.timeline.load();
    this.results.reset();
  }

  /** Keeps in the address what is looked at. */
  note() {
    const { begin, end } = this.window;
    const { whole, by } = this.timeline;
    const isWhole = begin === whole.begin && end === whole.end;
    this.address.show({
      query: this.box.text, window: isWhole ? null : this.window, by: by === "name" ? null : by, results: this.results.shown,
    });
  }
}

/** A part of time as far as it is in another one; all of that if there is nothing of it. */
function clipped(window, range) {
  if (!window) return { ...range };
  const begin = window.begin > range.begin ? window.begin : range.begin;
  const end = window.end < range.end ? window.end : range.end;
  return begin < end ? { begin, end } : { ...range };
}
