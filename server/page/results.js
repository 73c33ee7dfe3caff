// Events as a table that loads what is seen, and what else is shown of the events that match.

import { query } from "./api.js";
import { button, make } from "./dom.js";
import { Pictures } from "./pictures.js";
import { Statistics } from "./statistics.js";
import { count, duration, time } from "./units.js";
import { TraceFinder, placeOf } from "./waterfall.js";

const ROW = 25;
const PAGE = 200;
const PAGES_KEPT = 20;
/** Browsers limit the height of an element; a longer table is scrolled by its share. */
const HEIGHT_MAX = 8_000_000;
const FIRST = ["ts", "dur", "name", "cat", "pid", "tid"];

export class Results {
  /** `again` asks for everything that is seen again, after a request failed. */
  constructor(id, question, { signal, again }) {
    Object.assign(this, { id, question, again, viewSignal: signal });
    this.pages = new Map();
    this.total = 0;
    this.columns = [...FIRST];
    this.note = make("p", { class: "rows-note faint", role: "status" });
    this.table = make("table", {});
    this.fill = make("div", { class: "fill" });
    this.box = make("div", { class: "rows", tabindex: "0", role: "region", "aria-label": "Matching events" }, this.fill, this.table);
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    const changed = () => this.reset();
    this.statistics = new Statistics(id, { changed });
    this.pictures = new Pictures(id, { changed });
    this.traces = new TraceFinder(id);
    const tab = (name, title) => button(title, () => this.choose(name), { "aria-pressed": String(name === "events"), "data-tab": name });
    this.tabs = make("div", { class: "bar" }, tab("events", "Events"), tab("groups", "Group by"), tab("values", "Distribution"), tab("io", "I/O"), tab("traces", "Traces"));
    this.node = make("div", {}, this.tabs, this.statistics.controls, this.note, this.box, this.statistics.node, this.pictures.node, this.traces.node);
    this.choose("events", false);
  }

  choose(view, load = true) {
    this.view = view;
    for (const each of this.tabs.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each.dataset.tab === view));
    this.box.hidden = view !== "events";
    this.statistics.choose(view);
    this.statistics.node.hidden = !["groups", "values"].includes(view);
    this.pictures.node.hidden = view !== "io";
    this.traces.node.hidden = view !== "traces";
    if (load) this.reset();
  }

  /** Loads again, for another question. */
  reset() {
    this.running?.abort();
    this.running = new AbortController();
    this.signal = AbortSignal.any([this.viewSignal, this.running.signal]);
    this.pages.clear();
    if (this.view === "events") this.begin();
    else this.other();
  }

  /** Says how many rows there are, and what they lack. */
  say(text, skipped = []) {
    this.note.textContent = skipped.length ? `${text}; skipped: ${skipped.join("; ")}` : text;
    this.note.className = skipped.length ? "rows-note warn" : "rows-note faint";
  }

  /** Says why there are no rows, and offers to load them again. */
  fault(error, again) {
    if (error.name === "AbortError") return;
    this.note.replaceChildren(`${error.message} `, button("Try again", again));
    this.note.className = "rows-note bad";
  }

  async begin() {
    const { signal } = this;
    this.total = 0;
    this.counted = null;
    this.say("Counting …");
    this.table.replaceChildren();
    try {
      const counting = query(this.id, { ...this.question(), count: true }, signal);
      // What is seen first is asked for in the same request.
      this.load(0);
      const { rows: [{ count: total, skipped }] } = await counting;
      this.total = Number(total);
      this.counted = () => this.say(`${count(total)} events`, skipped);
      this.counted();
      this.fill.style.height = `${Math.min((this.total + 1) * ROW, HEIGHT_MAX)}px`;
      this.box.scrollTop = 0;
      this.draw();
    } catch (error) {
      if (!signal.aborted) this.fault(error, this.again);
    }
  }

  /** The number of the first visible row. */
  first() {
    const inner = this.fill.clientHeight - this.box.clientHeight;
    const seen = Math.floor(this.box.clientHeight / ROW);
    if ((this.total + 1) * ROW <= HEIGHT_MAX) return Math.floor(this.box.scrollTop / ROW);
    return Math.round(this.box.scrollTop / inner * Math.max(this.total - seen + 1, 0));
  }

  draw() {
    const first = Math.max(Math.min(this.first(), this.total - 1), 0);
    const last = Math.min(first + Math.ceil(this.box.clientHeight / ROW) + 1, this.total);
    const lines = [];
    for (let at = first; at < last; at++) {
      const page = Math.floor(at / PAGE);
      if (!this.pages.has(page)) this.load(page);
      const row = this.pages.get(page)?.[at % PAGE];
      lines.push(make("tr", {}, this.columns.map(name => make("td", { class: isNumber(name) }, row ? this.cell(name, row[name]) : "…"))));
    }
    this.table.replaceChildren(
      make("thead", {}, make("tr", {}, this.columns.map(name => make("th", { scope: "col", class: isNumber(name) }, name)))),
      make("tbody", {}, lines));
    this.table.style.transform = `translateY(${this.box.scrollTop}px)`;
  }

  /** What is shown of a value: the id of a trace leads to its waterfall. */
  cell(name, value) {
    if (name !== "args.trace_id" || !/^[0-9a-f]{32}$/.test(value)) return text(name, value);
    return make("a", { href: placeOf(this.id, value) }, value);
  }

  async load(page) {
    const { signal } = this;
    this.pages.set(page, []);
    try {
      const { rows } = await query(this.id, { ...this.question(), limit: PAGE, offset: page * PAGE }, signal);
      this.pages.set(page, rows);
      for (const name of new Set(rows.flatMap(row => Object.keys(row)))) {
        if (!this.columns.includes(name) && name !== "id") this.columns.push(name);
      }
      if (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value);
      this.draw();
    } catch (error) {
      if (signal.aborted) return;
      this.pages.delete(page);
      this.fault(error, () => {
        if (!this.counted) return this.again();
        this.counted();
        this.draw();
      });
    }
  }

  /** Shows what is no table of events. */
  async other() {
    const { signal } = this;
    const part = { groups: this.statistics, values: this.statistics, io: this.pictures, traces: this.traces }[this.view];
    this.say("Loading …");
    try {
      const { text: said, skipped } = await part.load(this.view, this.question(), signal);
      this.say(said, skipped);
    } catch (error) {
      if (signal.aborted) return;
      part.clear();
      this.fault(error, this.again);
    }
  }
}

const isNumber = name => name === "ts" || name === "dur" ? "n" : null;

function text(name, value) {
  if (value === null || value === undefined) return "";
  if (name === "ts") return time(value);
  if (name === "dur") return duration(value);
  return typeof value === "object" ? JSON.stringify(value, (_, each) => typeof each === "bigint" ? String(each) : each) : String(value);
}
