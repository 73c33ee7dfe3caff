// Events as a table that loads what is seen, and groups as bars.

import { query } from "./api.js";
import { button, make } from "./dom.js";
import { count, duration, time } from "./units.js";

const ROW = 25;
const PAGE = 200;
const PAGES_KEPT = 20;
/** Browsers limit the height of an element; a longer table is scrolled by its share. */
const HEIGHT_MAX = 8_000_000;
const FIRST = ["ts", "dur", "name", "cat", "pid", "tid"];

export class Results {
  constructor(id, question, signal) {
    Object.assign(this, { id, question, signal });
    this.pages = new Map();
    this.columns = [...FIRST];
    this.note = make("p", { class: "rows-note faint", role: "status" });
    this.table = make("table", {});
    this.fill = make("div", { class: "fill" });
    this.box = make("div", { class: "rows", tabindex: "0", role: "region", "aria-label": "Matching events" }, this.fill, this.table);
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    this.bars = make("div", {});
    this.by = make("input", { value: "name", "aria-label": "Group by field", size: 14 });
    this.by.addEventListener("change", () => this.group());
    const tab = (name, title) => button(title, () => this.choose(name), { "aria-pressed": String(name === "events"), "data-tab": name });
    this.tabs = make("div", { class: "bar" }, tab("events", "Events"), tab("groups", "Group by"), this.by, tab("histogram", "Durations"));
    this.view = "events";
    this.node = make("div", {}, this.tabs, this.note, this.box, this.bars);
    this.choose("events", false);
  }

  choose(view, load = true) {
    this.view = view;
    for (const each of this.tabs.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each.dataset.tab === view));
    this.by.hidden = view !== "groups";
    this.box.hidden = view !== "events";
    this.bars.hidden = view === "events";
    if (load) this.reset();
  }

  /** Loads again, for another question. */
  reset() {
    this.running?.abort();
    this.running = new AbortController();
    this.signal.addEventListener("abort", () => this.running.abort());
    this.pages.clear();
    if (this.view === "events") this.begin();
    else this.group();
  }

  async begin() {
    this.total = 0;
    this.note.textContent = "Counting …";
    this.table.replaceChildren();
    try {
      const { rows: [{ count: total, skipped }] } = await query(this.id, { ...this.question(), count: true }, this.running.signal);
      this.total = Number(total);
      this.note.textContent = `${count(total)} events${skipped?.length ? `; skipped: ${skipped.join("; ")}` : ""}`;
      this.note.className = skipped?.length ? "rows-note warn" : "rows-note faint";
      this.fill.style.height = `${Math.min((this.total + 1) * ROW, HEIGHT_MAX)}px`;
      this.box.scrollTop = 0;
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") this.note.textContent = "";
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
      const row = this.pages.get(page)?.[at % PAGE];
      if (!this.pages.has(page)) this.load(page);
      lines.push(make("tr", {}, this.columns.map(name => make("td", { class: isNumber(name) }, row ? text(name, row[name]) : "…"))));
    }
    this.table.replaceChildren(
      make("thead", {}, make("tr", {}, this.columns.map(name => make("th", { scope: "col", class: isNumber(name) }, name)))),
      make("tbody", {}, lines));
    this.table.style.transform = `translateY(${this.box.scrollTop}px)`;
  }

  async load(page) {
    this.pages.set(page, []);
    try {
      const { rows } = await query(this.id, { ...this.question(), limit: PAGE, offset: page * PAGE }, this.running.signal);
      this.pages.set(page, rows);
      for (const name of new Set(rows.flatMap(row => Object.keys(row)))) {
        if (!this.columns.includes(name) && name !== "id") this.columns.push(name);
      }
      if (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value);
      this.draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.note.textContent = error.message;
      this.note.className = "rows-note bad";
    }
  }

  async group() {
    const field = this.view === "groups" ? this.by.value.trim() || "name" : "dur";
    const question = this.view === "groups" ? { group_by: field, limit: 100 } : { histogram: "dur", order_by: "dur_from" };
    this.note.textContent = "Loading …";
    try {
      const { rows, skipped } = await query(this.id, { ...this.question(), ...question }, this.running.signal);
      const most = Math.max(...rows.map(row => Number(row.count)), 1);
      this.note.textContent = rows.length ? `${count(rows.length)} groups${skipped.length ? `; skipped: ${skipped.join("; ")}` : ""}` : "No event matches.";
      const label = row => this.view === "groups" ? String(row[field] ?? "–") : `from ${duration(row.dur_from)}`;
      const bar = row => {
        const fill = make("span", { class: "fillbar" });
        fill.style.width = `${100 * Number(row.count) / most}%`;
        return fill;
      };
      const numbers = this.view === "groups"
        ? [["Sum", "dur_sum"], ["p50", "dur_p50"], ["p99", "dur_p99"], ["Max", "dur_max"]] : [];
      const head = [this.view === "groups" ? field : "Duration", "Events", ...numbers.map(([title]) => title), ""];
      this.bars.replaceChildren(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Groups" },
        make("table", { class: "bars" },
          make("thead", {}, make("tr", {}, head.map((title, at) => make("th", { scope: "col", class: at && title ? "n" : null }, title)))),
          make("tbody", {}, rows.map(row => make("tr", {},
            make("td", {}, label(row)), make("td", { class: "n" }, count(row.count)),
            numbers.map(([, key]) => make("td", { class: "n" }, row.dur_count ? duration(row[key]) : "–")),
            make("td", { class: "track" }, bar(row))))))));
    } catch (error) {
      if (error.name === "AbortError") return;
      this.bars.replaceChildren();
      this.note.textContent = error.message;
      this.note.className = "rows-note bad";
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
