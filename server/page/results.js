// Events as a table that loads what is seen, and groups as bars.

import { query } from "./api.js";
import { button, make } from "./dom.js";
import { count, duration, time } from "./units.js";

const ROW = 25;
const PAGE = 200;
const PAGES_KEPT = 20;
const GROUPS_MAX = 100;
/** Browsers limit the height of an element; a longer table is scrolled by its share. */
const HEIGHT_MAX = 8_000_000;
const FIRST = ["ts", "dur", "name", "cat", "pid", "tid"];

export class Results {
  constructor(id, question, signal) {
    Object.assign(this, { id, question, viewSignal: signal });
    this.pages = new Map();
    this.total = 0;
    this.columns = [...FIRST];
    this.note = make("p", { class: "rows-note faint", role: "status" });
    this.table = make("table", {});
    this.fill = make("div", { class: "fill" });
    this.box = make("div", { class: "rows", tabindex: "0", role: "region", "aria-label": "Matching events" }, this.fill, this.table);
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    this.bars = make("div", {});
    this.by = make("input", { value: "name", "aria-label": "Group by field", size: 14 });
    this.by.addEventListener("change", () => this.reset());
    const tab = (name, title) => button(title, () => this.choose(name), { "aria-pressed": String(name === "events"), "data-tab": name });
    this.tabs = make("div", { class: "bar" }, tab("events", "Events"), tab("groups", "Group by"), this.by, tab("histogram", "Durations"));
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
    this.signal = AbortSignal.any([this.viewSignal, this.running.signal]);
    this.pages.clear();
    if (this.view === "events") this.begin();
    else this.group();
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
    this.say("Counting …");
    this.table.replaceChildren();
    try {
      const { rows: [{ count: total, skipped }] } = await query(this.id, { ...this.question(), count: true }, signal);
      this.total = Number(total);
      this.counted = () => this.say(`${count(total)} events`, skipped);
      this.counted();
      this.fill.style.height = `${Math.min((this.total + 1) * ROW, HEIGHT_MAX)}px`;
      this.box.scrollTop = 0;
      this.draw();
    } catch (error) {
      if (!signal.aborted) this.fault(error, () => this.reset());
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
      lines.push(make("tr", {}, this.columns.map(name => make("td", { class: isNumber(name) }, row ? text(name, row[name]) : "…"))));
    }
    this.table.replaceChildren(
      make("thead", {}, make("tr", {}, this.columns.map(name => make("th", { scope: "col", class: isNumber(name) }, name)))),
      make("tbody", {}, lines));
    this.table.style.transform = `translateY(${this.box.scrollTop}px)`;
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
        this.counted();
        this.draw();
      });
    }
  }

  async group() {
    const { signal } = this;
    const fields = this.view === "groups" ? fieldsOf(this.by.value) : ["dur_from"];
    // One more than is shown tells whether there are more.
    const question = this.view === "groups"
      ? { group_by: fields.join(","), limit: GROUPS_MAX + 1 } : { histogram: "dur", order_by: "dur_from" };
    this.say("Loading …");
    try {
      const { rows, skipped, notes } = await query(this.id, { ...this.question(), ...question }, signal);
      const isCut = this.view === "groups" && rows.length > GROUPS_MAX;
      const shown = isCut ? rows.slice(0, GROUPS_MAX) : rows;
      const number = isCut ? `the ${count(GROUPS_MAX)} largest groups, there are more` : `${count(rows.length)} groups`;
      this.say([rows.length ? number : "No event matches.", ...notes].join(" · "), skipped);
      this.drawGroups(shown, fields);
    } catch (error) {
      if (signal.aborted) return;
      this.bars.replaceChildren();
      this.fault(error, () => this.reset());
    }
  }

  drawGroups(rows, fields) {
    const isGroups = this.view === "groups";
    const most = Math.max(...rows.map(row => Number(row.count)), 1);
    const cell = (row, field) => isGroups ? String(row[field] ?? row[field.replaceAll("`", "")] ?? "–") : `from ${duration(row[field])}`;
    const bar = row => {
      const fill = make("span", { class: "fillbar" });
      fill.style.width = `${100 * Number(row.count) / most}%`;
      return fill;
    };
    const numbers = isGroups ? [["Sum", "dur_sum"], ["p50", "dur_p50"], ["p99", "dur_p99"], ["Max", "dur_max"]] : [];
    const head = [
      ...(isGroups ? fields : ["Duration"]).map(title => make("th", { scope: "col" }, title)),
      ...["Events", ...numbers.map(([title]) => title)].map(title => make("th", { scope: "col", class: "n" }, title)),
      make("td", {}),
    ];
    this.bars.replaceChildren(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Groups" },
      make("table", { class: "bars" },
        make("thead", {}, make("tr", {}, head)),
        make("tbody", {}, rows.map(row => make("tr", {},
          fields.map(field => make("td", {}, cell(row, field))), make("td", { class: "n" }, count(row.count)),
          numbers.map(([, key]) => make("td", { class: "n" }, row.dur_count ? duration(row[key]) : "–")),
          make("td", { class: "track" }, bar(row))))))));
  }
}

/** The fields of a list; names in backquotes may contain commas. */
export function fieldsOf(text) {
  const fields = text.match(/(?:`[^`]*`|[^,`])+/g) || [];
  const names = fields.map(each => each.trim()).filter(Boolean);
  return names.length ? names : ["name"];
}

const isNumber = name => name === "ts" || name === "dur" ? "n" : null;

function text(name, value) {
  if (value === null || value === undefined) return "";
  if (name === "ts") return time(value);
  if (name === "dur") return duration(value);
  return typeof value === "object" ? JSON.stringify(value, (_, each) => typeof each === "bigint" ? String(each) : each) : String(value);
}
