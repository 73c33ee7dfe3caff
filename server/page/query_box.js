// The expression of a query, with completion and the place of an error.

import { pause, query } from "./api.js";
import { listed, named, spelled, typedIn } from "./completion.js";
import { button, make } from "./dom.js";
import { count } from "./units.js";

const SHOWN_MAX = 12;
const VALUES_MAX = 200;
/** Values are looked for when nothing was typed for so long. */
const TYPING_MS = 150;

export class QueryBox {
  /** `window` is the part of time whose values are offered; `run` is called with a new expression; `text` is the first one. */
  constructor(id, { window, signal, run, text = "" }) {
    Object.assign(this, { id, window, signal });
    this.known = new Map();
    this.chosen = -1;
    this.offered = [];
    this.text = text;
    this.input = make("input", {
      type: "text", class: "mono", spellcheck: "false", autocomplete: "off", "aria-label": "Query", role: "combobox",
      "aria-expanded": "false", "aria-controls": "completions", "aria-autocomplete": "list",
      value: text, placeholder: 'name == "read" and dur > 5ms',
    });
    this.menu = make("ul", { class: "complete", id: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
    this.error = make("pre", { class: "caret", role: "alert" });
    this.hint = make("span", { class: "faint" });
    const apply = () => {
      this.loading?.controller.abort();
      this.close();
      this.clear();
      this.text = this.input.value.trim();
      run();
    };
    this.input.addEventListener("input", () => this.offer());
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    this.input.addEventListener("keydown", event => this.key(event, apply));
    this.say("");
    this.node = make("div", { class: "query" },
      make("div", {}, this.input, this.menu), this.error,
      make("div", { class: "bar" },
        button("Run", apply, { class: "main" }),
        button("Clear", () => { this.input.value = ""; apply(); }),
        this.hint));
  }

  say(text) {
    this.hint.textContent = text || "Enter runs the query, Tab completes. An empty query matches every event.";
  }

  clear() { this.error.textContent = ""; }

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

  /** The fields of the events, or the values of one. Only one question runs: the last one. */
  load(field) {
    const { from, to } = this.window();
    const key = `${field ?? ""} ${from} ${to}`;
    const known = this.known.get(key);
    if (known) return known;
    if (this.loading?.key === key) return this.loading.found;
    this.loading?.controller.abort();
    const controller = new AbortController();
    const signal = AbortSignal.any([this.signal, controller.signal]);
    const found = (field ? this.valuesOf(field, signal) : this.fields(signal)).then(all => {
      this.known.set(key, all);
      return all;
    }).finally(() => { if (this.loading?.found === found) this.loading = null; });
    this.loading = { key, controller, found };
    return found;
  }

  async fields(signal) {
    const { rows } = await query(this.id, { ...this.window(), list_fields: true }, signal);
    const all = new Map([["agent", 0], ["stream", 0], ["kind", 0]]);
    for (const row of rows) all.set(row.field, (all.get(row.field) || 0) + Number(row.events));
    return [...all].map(([value, events]) => ({ value, events }));
  }

  async valuesOf(field, signal) {
    await pause(TYPING_MS, signal);
    const question = { ...this.window(), group_by: listed(field), aggregate: "count", limit: VALUES_MAX };
    const { rows } = await query(this.id, question, signal);
    return rows.filter(row => row[field] !== null && row[field] !== undefined)
      .map(row => ({ value: row[field], events: row.count }));
  }

  async offer() {
    const before = this.input.value.slice(0, this.input.selectionStart);
    const typed = typedIn(before);
    if (!typed) {
      this.loading?.controller.abort();
      return this.close();
    }
    let all;
    try {
      all = await this.load(typed.field);
      this.say("");
    } catch (error) {
      if (error.name !== "AbortError") {
        this.close();
        this.say(`Nothing to complete: ${error.message}`);
      }
      return;
    }
    if (before !== this.input.value.slice(0, this.input.selectionStart)) return;
    this.offered = matching(all, typed).slice(0, SHOWN_MAX).map(each => ({ ...each, replaces: typed.replaces }));
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
    const begin = this.input.selectionStart;
    // A backquote that was there already is the closing one.
    const end = insert.endsWith("`") && this.input.value[begin] === "`" ? begin + 1 : begin;
    this.input.setRangeText(insert, begin - replaces, end, "end");
    this.close();
  }

  close() {
    this.menu.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}

/** What can stand where something was typed. */
function matching(all, { field, operator, text }) {
  const wanted = text.toLowerCase();
  if (!field) {
    return all.filter(({ value }) => value.toLowerCase().startsWith(wanted))
      .map(({ value, events }) => ({ insert: named(value), events }))
      .filter(({ insert }) => insert !== null && insert !== text);
  }
  return all.map(({ value, events }) => ({ value: String(value), insert: spelled(value, operator), events }))
    .filter(({ value, insert }) => insert !== null && value.toLowerCase().includes(wanted));
}
