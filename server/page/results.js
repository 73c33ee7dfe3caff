// Events as a table that loads what is seen, and what else is shown of the events that match.

import { query } from "./api.js";
import { button, make } from "./dom.js";
import { Pictures } from "./pictures.js";
import { Places } from "./places.js";
import { Statistics } from "./statistics.js";
import { duration, many, time } from "./units.js";
import { TraceFinder, placeOf } from "./waterfall.js";

const ROW = 25;
const PAGE = 200;
const PAGES_KEPT = 20;
/** Rows are asked for when the table has not moved by more than a page for so long. */
const PAUSE_MS = 120;
/** The next page is asked for when its rows are so near. */
const AHEAD = 60;
/** Browsers limit the height of an element; a longer table is scrolled by its share. */
const HEIGHT_MAX = 8_000_000;
const TABS = [["events", "Events"], ["groups", "Group by"], ["values", "Distribution"], ["io", "I/O"], ["traces", "Traces"]];
const FIRST = ["ts", "dur", "name", "cat", "pid", "tid"];

export class Results {
  /**
   * `again` asks for everything that is seen again, after a request failed; `sums` are about how many events are
   * before some times, `shown` is what the address says is shown first, and `noted` is called when something else is.
   */
  constructor(id, question, { signal, again, sums, shown, noted }) {
    Object.assign(this, { id, question, again, sums, viewSignal: signal });
    this.pages = new Map();
    this.total = 0;
    this.columns = [...FIRST];
    /** Those that a loaded row has. */
    this.filled = new Set();
    this.note = make("p", { class: "rows-note faint", role: "status" });
    this.table = make("table", {});
    this.fill = make("div", { class: "fill" });
    this.box = make("div", { class: "rows", tabindex: "0", role: "region", "aria-label": "Matching events" }, this.fill, this.table);
    this.box.addEventListener("scroll", () => {
      requestAnimationFrame(() => this.draw());
      this.settle();
    });
    const changed = () => {
      noted();
      this.reset();
    };
    this.statistics = new Statistics(id, { changed, shown });
    this.pictures = new Pictures(id, { changed, shown });
    this.traces = new TraceFinder(id);
    const choose = name => {
      this.choose(name);
      noted();
    };
    this.tabs = make("div", { class: "bar" }, TABS.map(([name, title]) =>
      button(title, () => choose(name), { "data-tab": name })));
    this.node = make("div", {}, this.tabs, this.statistics.controls, this.note, this.box, this.statistics.node, this.pictures.node, this.traces.node);
    this.choose(TABS.some(([name]) => name === shown.tab) ? shown.tab : "events", false);
  }

  /** What is shown now, for the address. */
  get shown() {
    return { tab: this.view === "events" ? null : this.view, ...this.statistics.shown, ...this.pictures.shown };
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
    this.loading = null;
    this.places = null;
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
      this.load(0, 0);
      const { rows: [{ count: total, skipped }] } = await counting;
      this.total = Number(total);
      this.counted = () => this.say(many(total, "event"), skipped);
      this.counted();
      this.fill.style.height = `${Math.min((this.total + 1) * ROW, HEIGHT_MAX)}px`;
      this.box.scrollTop = 0;
      this.draw();
      this.want();
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

  /** The first visible row, and the one after the last. */
  seen() {
    const first = Math.max(Math.min(this.first(), this.total - 1), 0);
    return [first, Math.min(first + Math.ceil(this.box.clientHeight / ROW) + 1, this.total)];
  }

  /** Asks for what is seen once the scrolling pauses: what was only passed is not asked for. */
  settle() {
    if (this.settling) return;
    const before = this.first();
    this.settling = setTimeout(() => {
      this.settling = null;
      if (this.viewSignal.aborted || this.view !== "events") return;
      if (Math.abs(this.first() - before) > PAGE) this.settle();
      else this.want();
    }, PAUSE_MS);
  }

  /** Asks for the visible rows that are not there, and then for those near them. */
  want() {
    if (!this.total) return;
    const [first, last] = this.seen();
    const pageOf = row => Math.floor(row / PAGE);
    const near = row => pageOf(Math.min(Math.max(row, 0), this.total - 1));
    const missing = (from, to) => {
      const pages = [];
      for (let page = from; page <= to; page++) if (!this.pages.has(page)) pages.push(page);
      return pages;
    };
    const shown = [near(first), near(last - 1)];
    const visible = missing(...shown);
    for (let page = shown[0]; page <= shown[1]; page++) this.keep(page);
    const [low, high] = [near(first - AHEAD), near(last - 1 + AHEAD)];
    const pages = visible.length ? visible : missing(low, high);
    const { loading } = this;
    // What is on its way comes, unless it is far from what is seen now.
    if (loading && pages.length && loading.from <= pages[0] && loading.to >= pages.at(-1)) return;
    loading?.controller.abort();
    if (pages.length) this.load(pages[0], pages.at(-1));
  }

  /** A page that is seen is not the next one that is forgotten. */
  keep(page) {
    const rows = this.pages.get(page);
    if (!rows) return;
    this.pages.delete(page);
    this.pages.set(page, rows);
  }

  /**
   * What is shown of events: none of the first columns that they all lack, and what concerns packets behind what
   * concerns events.
   */
  get shownColumns() {
    const isOfPackets = name => name.startsWith("packet.");
    const filled = this.columns.filter(name => this.filled.has(name));
    return filled.length ? [...filled.filter(name => !isOfPackets(name)), ...filled.filter(isOfPackets)] : FIRST;
  }

  draw() {
    const [first, last] = this.seen();
    const columns = this.shownColumns;
    const lines = [];
    for (let at = first; at < last; at++) {
      const row = this.pages.get(Math.floor(at / PAGE))?.[at % PAGE];
      lines.push(make("tr", {}, columns.map(name => make("td", { class: isNumber(name) }, row ? this.cell(name, row[name]) : "…"))));
    }
    this.table.replaceChildren(
      make("thead", {}, make("tr", {}, columns.map(name => make("th", { scope: "col", class: isNumber(name) }, name)))),
      make("tbody", {}, lines));
    this.table.style.transform = `translateY(${this.box.scrollTop}px)`;
  }

  /** What is shown of a value: the id of a trace leads to its waterfall. */
  cell(name, value) {
    if (name !== "args.trace_id" || !/^[0-9a-f]{32}$/.test(value)) return text(name, value);
    return make("a", { href: placeOf(this.id, value) }, value);
  }

  /** Loads the pages from one to another, which are next to each other. */
  async load(from, to) {
    const controller = new AbortController();
    const signal = AbortSignal.any([this.signal, controller.signal]);
    const loading = this.loading = { from, to, controller };
    try {
      const place = from ? await this.placeOf(from * PAGE, signal) : { offset: 0 };
      const { rows } = await query(this.id, { ...this.question(), ...place, limit: (to - from + 1) * PAGE }, signal);
      for (let page = from; page <= to; page++) {
        const begin = (page - from) * PAGE;
        this.pages.set(page, rows.slice(begin, begin + PAGE));
      }
      for (const name of new Set(rows.flatMap(row => Object.keys(row)))) {
        if (name === "id") continue;
        this.filled.add(name);
        if (!this.columns.includes(name)) this.columns.push(name);
      }
      while (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value);
      this.loading = null;
      this.draw();
      this.settle();
    } catch (error) {
      if (this.loading === loading) this.loading = null;
      if (signal.aborted) return;
      this.fault(error, () => {
        if (!this.counted) return this.again();
        this.counted();
        this.want();
      });
    }
  }

  /** Where to ask for rows from this one on: from a time near it, as that is faster than an offset over all. */
  async placeOf(row, signal) {
    const question = this.question();
    const countOf = async (from, to) =>
      Number((await query(this.id, { ...question, from, to, count: true }, signal)).rows[0].count);
    this.places ??= new Places(question, this.total, this.sums);
    const { time, rows } = await this.places.before(row, countOf);
    return { from: time, offset: row - rows };
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
