// The expression of a query, with completion and the place of an error.

import { query } from "./api.js";
import { button, make } from "./dom.js";
import { count } from "./units.js";

const SHOWN_MAX = 12;
const WORD = /[A-Za-z_][\w.]*$/;
/** A comparison whose value is being written. */
const VALUE = /([A-Za-z_][\w.]*)\s*(?:==|!=|~)\s*(["']?)([^"']*)$/;

export class QueryBox {
  constructor(id, run) {
    this.id = id;
    this.fields = null;
    this.values = new Map();
    this.chosen = -1;
    this.offered = [];
    this.text = "";
    this.input = make("input", {
      type: "text", class: "mono", spellcheck: "false", autocomplete: "off", "aria-label": "Query", role: "combobox",
      "aria-expanded": "false", "aria-controls": "completions", "aria-autocomplete": "list",
      placeholder: 'name == "read" and dur > 5ms',
    });
    this.menu = make("ul", { class: "complete", id: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
    this.error = make("pre", { class: "caret", role: "alert" });
    const apply = () => {
      this.close();
      this.error.textContent = "";
      this.text = this.input.value.trim();
      run();
    };
    this.input.addEventListener("input", () => this.offer());
    this.input.addEventListener("focus", () => this.loadFields());
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    this.input.addEventListener("keydown", event => this.key(event, apply));
    this.node = make("div", { class: "query" },
      make("div", {}, this.input, this.menu), this.error,
      make("div", { class: "bar" },
        button("Run", apply, { class: "main" }),
        button("Clear", () => { this.input.value = ""; apply(); }),
        make("span", { class: "faint" }, "Enter runs the query, Tab completes. An empty query matches every event.")));
  }

  /** Shows where the query is wrong; other errors only as text. */
  fault(error) {
    if (error.name === "AbortError") return;
    const { caret, detail, remedy } = error.problem || {};
    this.error.textContent = caret ? `${detail.split("\n")[0]}\n${caret}` : [error.message, remedy].filter(Boolean).join("\n");
  }

  key(event, apply) {
    const open = !this.menu.hidden;
    if (event.key === "Enter") {
      event.preventDefault();
      if (open && this.chosen >= 0) this.complete(this.chosen);
      else apply();
    } else if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.chosen = (this.chosen + step + this.offered.length) % this.offered.length;
      this.draw();
    } else if (open && event.key === "Tab") {
      event.preventDefault();
      this.complete(Math.max(this.chosen, 0));
    } else if (event.key === "Escape") {
      this.close();
    }
  }

  loadFields() {
    this.fields ??= query(this.id, { list_fields: true }).catch(() => ({ rows: [] })).then(({ rows }) => {
      const all = new Map([["agent", 0], ["stream", 0], ["kind", 0]]);
      for (const row of rows) all.set(row.field, (all.get(row.field) || 0) + Number(row.events));
      return [...all].map(([text, events]) => ({ text, events }));
    });
    return this.fields;
  }

  loadValues(field) {
    if (!this.values.has(field)) {
      const loading = query(this.id, { group_by: field, aggregate: "count", limit: 200 }).catch(() => ({ rows: [] }));
      this.values.set(field, loading.then(({ rows }) => rows.filter(row => row[field] !== null && row[field] !== undefined)
        .map(row => ({ text: String(row[field]), events: row.count, quoted: typeof row[field] === "string" }))));
    }
    return this.values.get(field);
  }

  async offer() {
    const before = this.input.value.slice(0, this.input.selectionStart);
    const value = VALUE.exec(before);
    let found;
    if (value && !/\s(and|or)\s/.test(value[3])) {
      const typed = value[3].toLowerCase();
      const all = await this.loadValues(value[1]);
      found = all.filter(each => each.text.toLowerCase().includes(typed)).map(each => ({
        ...each, insert: each.quoted ? JSON.stringify(each.text) : each.text, replaces: value[2].length + value[3].length,
      }));
    } else {
      const word = WORD.exec(before)?.[0];
      if (!word) return this.close();
      const all = await this.loadFields();
      found = all.filter(each => each.text.toLowerCase().startsWith(word.toLowerCase()) && each.text !== word)
        .map(each => ({ ...each, insert: each.text, replaces: word.length }));
    }
    if (before !== this.input.value.slice(0, this.input.selectionStart)) return;
    this.offered = found.slice(0, SHOWN_MAX);
    this.chosen = -1;
    if (this.offered.length && document.activeElement === this.input) this.draw();
    else this.close();
  }

  draw() {
    this.menu.replaceChildren(...this.offered.map((each, at) => make("li", {
      role: "option", id: `completion-${at}`, "aria-selected": String(at === this.chosen),
      onmousedown: event => { event.preventDefault(); this.complete(at); },
    }, make("span", { class: "mono" }, each.insert), make("span", { class: "faint n" }, each.events ? count(each.events) : ""))));
    this.menu.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    if (this.chosen >= 0) this.input.setAttribute("aria-activedescendant", `completion-${this.chosen}`);
    else this.input.removeAttribute("aria-activedescendant");
  }

  complete(at) {
    const { insert, replaces } = this.offered[at];
    const end = this.input.selectionStart;
    this.input.setRangeText(insert, end - replaces, end, "end");
    this.close();
  }

  close() {
    this.menu.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}
