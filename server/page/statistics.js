// Groups and the distribution of a field, as tables with bars.

import { query } from "./api.js";
import { labelOf, listed } from "./completion.js";
import { facts, make, titled } from "./dom.js";
import { count, duration, many, time } from "./units.js";

const GROUPS_MAX = 100;
/** Fields that are shown first. */
const BY = "name";
const NUMBERS = "dur";
/** Aggregates of the numbers of a field: title, and name in a query. */
const OF_GROUPS = [["Sum", "sum"], ["p50", "p50"], ["p99", "p99"], ["Max", "max"]];
const OF_ALL = [["Least", "min"], ["Mean", "avg"], ["p50", "p50"], ["p90", "p90"], ["p99", "p99"], ["p99.9", "p99.9"], ["Most", "max"]];

export class Statistics {
  /** `changed` is called when something else is to be shown than `shown`, what the address says. */
  constructor(id, { changed, shown }) {
    Object.assign(this, { id });
    this.by = make("input", { value: shown.group || BY, "aria-label": "Group by field", size: 14, onchange: changed });
    this.field = make("input", { value: shown.numbers || NUMBERS, "aria-label": "Numbers of field", size: 14, list: "numeric-fields", autocomplete: "off", onchange: changed });
    this.measure = make("select", { "aria-label": "Bars show", onchange: changed },
      make("option", { value: "count" }, "bars of events"), make("option", { value: "sum" }, "bars of sums"));
    if (shown.bars === "sum") this.measure.value = "sum";
    this.list = make("datalist", { id: "numeric-fields" });
    this.controls = make("div", { class: "bar" }, this.by,
      make("span", { class: "together" }, make("span", { class: "faint" }, "numbers of"), this.field), this.measure, this.list);
    this.node = make("div", {});
  }

  /** Shows the inputs of a view. */
  choose(view) {
    this.controls.hidden = !["groups", "values"].includes(view);
    this.by.hidden = this.measure.hidden = view !== "groups";
  }

  get number() { return this.field.value.trim() || NUMBERS; }

  /** What is shown now, for the address. */
  get shown() {
    const group = this.by.value.trim();
    const { number, measure } = this;
    return { group: group === BY ? null : group, numbers: number === NUMBERS ? null : number, bars: measure.value === "count" ? null : measure.value };
  }

  clear() { this.node.replaceChildren(); }

  /** Asks for a view, and returns what is said of it. */
  async load(view, question, signal) {
    const said = view === "groups" ? this.groups(question, signal) : this.values(question, signal);
    this.offer(question, signal).catch(() => {});
    return said;
  }

  /** Completes fields with numbers, once. */
  async offer({ from, to }, signal) {
    if (this.list.firstChild) return;
    const { rows } = await query(this.id, { from, to, list_fields: true }, signal);
    const names = rows.filter(row => /integer|fraction|number/.test(row.types)).map(row => row.field);
    this.list.replaceChildren(...[...new Set(["dur", ...names])].map(value => make("option", { value })));
  }

  async groups(question, signal) {
    const fields = fieldsOf(this.by.value);
    const { number } = this;
    const isDuration = number === "dur";
    const keyOf = (name, field = labelOf(number)) => isDuration ? `dur_${name}` : `${name}:${field}`;
    const asked = name => keyOf(name, listed(number));
    const isSum = this.measure.value === "sum";
    const bars = isSum ? keyOf("sum") : "count";
    // Durations are what groups have anyway, from summaries of chunks. One more than is shown tells whether there are more.
    const { rows, skipped, notes } = await query(this.id, {
      ...question, group_by: fields.map(listed).join(","), limit: GROUPS_MAX + 1,
      aggregate: isDuration ? undefined : ["count", ...["count", ...OF_GROUPS.map(([, name]) => name)].map(asked)].join(","),
      order_by: isSum ? `${asked("sum")} desc` : undefined,
    }, signal);
    const isCut = rows.length > GROUPS_MAX;
    const shown = isCut ? rows.slice(0, GROUPS_MAX) : rows;
    const most = shown.reduce((most, row) => Math.max(most, Number(row[bars] ?? 0)), 0) || 1;
    this.node.replaceChildren(tableOf("Groups", fields.map(labelOf), ["Events", ...OF_GROUPS.map(([title]) => title)], shown.map(row => ({
      names: fields.map(field => String(row[labelOf(field)] ?? "–")),
      numbers: [count(row.count), ...OF_GROUPS.map(([, name]) => row[keyOf("count")] ? shownAs(number, row[keyOf(name)], name) : "–")],
      share: Number(row[bars] ?? 0) / most,
    }))));
    const said = isCut ? `the ${count(GROUPS_MAX)} largest groups, there are more` : many(rows.length, "group");
    return { text: [rows.length ? said : "No event matches.", ...notes].join(" · "), skipped };
  }

  async values(question, signal) {
    const { number } = this;
    const label = labelOf(number);
    const wanted = ["count", ...OF_ALL.map(([, name]) => name)].map(name => `${name}:${listed(number)}`);
    const [buckets, all] = await Promise.all([
      query(this.id, { ...question, histogram: listed(number) }, signal),
      query(this.id, { ...question, aggregate: wanted.join(",") }, signal),
    ]);
    const totals = all.rows[0] ?? {};
    const filled = powersOf(buckets.rows);
    const most = filled.reduce((most, each) => Math.max(most, each.count), 0) || 1;
    this.node.replaceChildren(
      facts(OF_ALL.map(([title, name]) => [title, shownAs(number, totals[`${name}:${label}`], name)])),
      tableOf(`Distribution of ${label}`, [{ dur: "Duration", ts: "Time (UTC)" }[label] ?? label], ["Events"], filled.map(({ from, count: events }) => ({
        names: [from === 0 ? `below ${shownAs(number, 1)}` : `from ${shownAs(number, from)} to ${shownAs(number, 2 * from)}`],
        numbers: [count(events)], share: events / most,
      }))));
    const numbers = totals[`count:${label}`];
    const text = filled.length ? `${many(numbers, "event has", "events have")} ${label}` : `No event that matches has a number in ${label}.`;
    return { text: [text, ...buckets.notes].join(" · "), skipped: buckets.skipped };
  }
}

/** A table whose last column is a bar; rows have `names`, `numbers`, and a `share` from 0 to 1. */
function tableOf(caption, names, numbers, rows) {
  const bar = share => {
    const fill = make("span", { class: "fillbar" });
    fill.style.width = `${100 * Math.max(share, 0)}%`;
    return fill;
  };
  const head = [
    ...names.map(title => make("th", { scope: "col" }, title)), ...numbers.map(title => make("th", { scope: "col", class: "n" }, title)), make("td", {}),
  ];
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", { class: "bars" },
      make("thead", {}, make("tr", {}, head)),
      make("tbody", {}, rows.map(row => make("tr", {},
        row.names.map(text => titled(make("td", {}, text))), row.numbers.map(text => make("td", { class: "n" }, text)),
        make("td", { class: "track" }, bar(row.share)))))));
}

/** The buckets of a histogram with the empty ones between them: a gap is a gap. */
export function powersOf(rows) {
  const found = new Map();
  for (const row of rows) {
    const key = Object.keys(row).find(name => name.endsWith("_from"));
    if (row[key] !== null && row[key] !== undefined) found.set(Number(row[key]), Number(row.count));
  }
  const powers = [...found.keys()].filter(Boolean);
  const all = found.has(0) ? [0] : [];
  if (powers.length) for (let from = Math.min(...powers); from <= Math.max(...powers); from *= 2) all.push(from);
  return all.map(from => ({ from, count: found.get(from) ?? 0 }));
}

/** The fields of a list; names in backquotes may contain commas. */
export function fieldsOf(text) {
  const fields = text.match(/(?:`[^`]*`|[^,`])+/g) || [];
  const names = fields.map(each => each.trim()).filter(Boolean);
  return names.length ? names : [BY];
}

/** A number of a field with its unit; `name` is the aggregate that it is. */
function shownAs(field, value, name = "") {
  if (value === null || value === undefined) return "–";
  if (field === "dur") return duration(value);
  // Times have no sum, and a percentile is right within 1 %, which of a time since 1970 are months.
  if (field === "ts") return /^(sum|p)/.test(name) ? "–" : time(typeof value === "number" ? Math.round(value) : value, 1e3);
  return typeof value === "number" || typeof value === "bigint" ? count(value) : String(value);
}
