// The spans of a trace as bars over time, each below its parent.

import { Refused, path, query, view as windowOf } from "./api.js";
import { acting, button, empty, facts, make, table } from "./dom.js";
import { openInPerfetto } from "./perfetto.js";
import { SPANS_MAX, linesOf, traceIdOf } from "./spans.js";
import { count, duration, many, step, time } from "./units.js";

const TRACES_SHOWN = 20;
/** Traces with the longest spans, among which those without a first one are looked for. */
const TRACES_LOOKED_AT = 200;
const TICKS = 5;
/** About what a duration needs beside its bar. */
const TIME_PIXELS = 68;
/** Distinguishable in light and dark; services beyond these share colours, and all are named. */
const COLOURS = ["#0072b2", "#009e73", "#cc79a7", "#8d6e00", "#7a68a6", "#2f7f8f", "#a0522d", "#56789a"];

const expressionOf = trace => `kind == "otlp" and args.trace_id == "${trace}"`;

/** Where the waterfall of a trace is. */
export const placeOf = (storage, trace) => `#/storage/${storage}/trace/${trace}`;

/** The page of one trace of a storage. */
export async function showTrace(view, [id, trace]) {
  const [storage, { rows, skipped, notes }] = await Promise.all([
    view.get(path`/storages/${id}`),
    view.query(id, { query: expressionOf(trace), limit: SPANS_MAX + 1 }),
  ]);
  const title = storage.name || storage.id;
  const isCut = rows.length > SPANS_MAX;
  const all = isCut ? Number((await view.query(id, { query: expressionOf(trace), count: true })).rows[0].count) : rows.length;
  const found = linesOf(rows.slice(0, SPANS_MAX));
  view.title = `Trace ${trace.slice(0, 8)}`;
  const back = make("a", { href: `#/storage/${id}?query=${encodeURIComponent(expressionOf(trace))}` }, "its events as a query");
  const head = [make("h1", {}, "Trace ", make("span", { class: "mono" }, trace)),
    make("p", {}, "in ", make("a", { href: `#/storage/${id}` }, title), " · ", back)];
  if (!found.spans) {
    view.show(...head, empty("No span of this trace is in the storage. Spans that recordings derive are omitted."));
    return;
  }
  const says = [
    isCut ? `only the first ${count(SPANS_MAX)} of ${count(all)} spans are drawn` : null,
    found.absent ? found.absent === 1 ? "one parent is not in this storage" : `${count(found.absent)} parents are not in this storage` : null,
    skipped.length ? `skipped: ${skipped.join("; ")}` : null, ...notes,
  ].filter(Boolean);
  const whole = { from: found.begin, to: found.end + 1n };
  view.show(...head,
    facts([
      ["Spans", count(all)], ["Errors", found.errors ? make("span", { class: "bad" }, count(found.errors)) : "0"],
      ["Services", count(new Set(rows.map(row => row["ctx.service.name"])).size)],
      ["Began (UTC)", time(found.begin, 1e3)], ["Took", duration(Number(found.end - found.begin))],
    ]),
    says.length ? make("p", { class: "warn", role: "status" }, says.join(" · ")) : null,
    make("div", { class: "bar" },
      button("Open in Perfetto", acting(() => openInPerfetto(`${title} ${trace}`, () => windowOf(id, { ...whole, query: expressionOf(trace) }, "pftrace"))), { class: "main" }),
      make("span", { class: "faint" }, "Arrows move, left and right fold, Home and End go to the ends.")),
    new Waterfall(found).node);
}

class Waterfall {
  constructor({ lines, begin, end }) {
    Object.assign(this, { lines, begin, length: Math.max(Number(end - begin), 1) });
    this.folded = new Set();
    // As page.css divides the width of the page.
    const width = Math.min(document.documentElement.clientWidth, 1600) - 32;
    const track = width - Math.max(0.32 * width, 144) - 10;
    this.room = Math.min(100 * TIME_PIXELS / track, 50);
    const services = [...new Set(lines.filter(({ span }) => span.row).map(({ span }) => span.service))].sort();
    this.colours = new Map(services.map((name, at) => [name, COLOURS[at % COLOURS.length]]));
    this.nodes = lines.map((line, at) => this.nodeOf(line, at));
    this.tree = make("div", { class: "spans", role: "tree", "aria-label": "Spans of the trace" }, this.nodes);
    this.tree.addEventListener("keydown", event => this.key(event));
    this.details = make("section", { "aria-label": "Details of the span", "aria-live": "polite" });
    this.node = make("div", {}, this.axis(), this.tree, this.details);
    this.choose(0, false);
  }

  /** The times above the bars, since the begin of the trace. */
  axis() {
    const every = step(this.length, TICKS);
    const ticks = [];
    for (let at = 0; at <= this.length; at += every) {
      const tick = make("span", {}, duration(at));
      tick.style.left = `${100 * at / this.length}%`;
      // The last one would be cut; it is shorter than a duration beside a bar.
      if (100 * at / this.length < 100 - 0.65 * this.room) ticks.push(tick);
    }
    return make("div", { class: "span-axis faint", "aria-hidden": "true" }, make("div", {}), make("div", {}, ticks));
  }

  nodeOf({ span, depth }, at) {
    const { row, start, end, isError } = span;
    const share = 100 / this.length;
    const bar = make("span", { class: row ? "span-bar" : "span-bar absent" });
    bar.style.left = `${Number(start - this.begin) * share}%`;
    bar.style.width = `${Number(end - start) * share}%`;
    if (row) bar.style.background = this.colours.get(span.service);
    const label = make("span", { class: "span-label" },
      make("span", { class: "fold", "aria-hidden": "true" }, span.children.length ? "▾" : ""),
      row ? make("span", { class: "faint" }, `${span.service} `) : null,
      row ? span.name : make("em", { class: "warn" }, `parent ${span.id} is not in this storage`),
      isError ? make("span", { class: "bad" }, " error") : null);
    label.style.paddingLeft = `${depth * 0.8}rem`;
    return make("div", {
      class: isError ? "span failed" : "span", role: "treeitem", "aria-level": String(depth + 1), tabindex: "-1", "aria-selected": "false",
      "aria-expanded": span.children.length ? "true" : null,
      onclick: event => event.target.className === "fold" ? this.fold(at) : this.choose(at),
    }, label, make("span", { class: "span-track" }, bar, this.timeOf(span, share)));
  }

  /** The duration, after the bar or, near the end, before it; inside where there is room on neither side. */
  timeOf({ row, start, end }, share) {
    const text = make("span", { class: "span-time faint" }, row ? ` ${duration(row.dur)}` : "");
    const [before, after] = [start, end].map(at => Number(at - this.begin) * share);
    if (after <= 100 - this.room) text.style.left = `${after}%`;
    else if (before >= this.room) text.style.right = `${100 - before}%`;
    else {
      // In the middle, so that both ends of the bar are seen.
      text.style.left = `${(before + after) / 2}%`;
      text.classList.add("inside");
    }
    return text;
  }

  choose(at, isFocused = true) {
    const before = this.nodes[this.chosen];
    before?.setAttribute("aria-selected", "false");
    before?.setAttribute("tabindex", "-1");
    this.chosen = at;
    const node = this.nodes[at];
    node.setAttribute("aria-selected", "true");
    node.setAttribute("tabindex", "0");
    if (isFocused) node.focus();
    const { span } = this.lines[at];
    this.details.replaceChildren(...(span.row ? detailsOf(span, this.begin)
      : [make("h2", {}, "Missing parent"), make("p", {}, `The span ${span.id} is not in this storage: it was not sent yet, was not sampled, or a recording left it out.`)]));
  }

  /** Lines that are below no folded one. */
  shown() {
    const places = [];
    let hidden = Infinity;
    this.lines.forEach(({ depth }, at) => {
      if (depth > hidden) return;
      hidden = this.folded.has(at) ? depth : Infinity;
      places.push(at);
    });
    return places;
  }

  fold(at, isFolded = !this.folded.has(at)) {
    if (!this.lines[at].span.children.length) return;
    if (isFolded) this.folded.add(at);
    else this.folded.delete(at);
    this.nodes[at].setAttribute("aria-expanded", String(!isFolded));
    this.nodes[at].querySelector(".fold").textContent = isFolded ? "▸" : "▾";
    const shown = new Set(this.shown());
    this.nodes.forEach((node, place) => { node.hidden = !shown.has(place); });
    // The focus is not lost with a line that is hidden.
    if (!shown.has(this.chosen)) this.choose(at);
  }

  key(event) {
    const shown = this.shown();
    const place = shown.indexOf(this.chosen);
    const go = to => this.choose(shown[Math.min(Math.max(to, 0), shown.length - 1)]);
    const { depth } = this.lines[this.chosen];
    const keys = {
      ArrowDown: () => go(place + 1), ArrowUp: () => go(place - 1), Home: () => go(0), End: () => go(shown.length - 1),
      PageDown: () => go(place + 20), PageUp: () => go(place - 20),
      ArrowRight: () => this.folded.has(this.chosen) ? this.fold(this.chosen, false) : this.lines[this.chosen].span.children.length ? go(place + 1) : null,
      ArrowLeft: () => this.lines[this.chosen].span.children.length && !this.folded.has(this.chosen)
        ? this.fold(this.chosen, true) : go(shown.findLastIndex((at, order) => order < place && this.lines[at].depth < depth)),
      Enter: () => this.choose(this.chosen), " ": () => this.choose(this.chosen),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  }
}

function detailsOf({ row, start }, begin) {
  const known = ["name", "ts", "dur", "cat"];
  const text = value => typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
  return [
    make("h2", {}, String(row.name ?? "–")),
    facts([
      ["Service", String(row["ctx.service.name"] ?? "–")], ["Began after", duration(Number(start - begin))], ["Took", duration(row.dur)], ["Kind", row.cat],
      ["Began (UTC)", time(row.ts)],
      ...Object.entries(row).filter(([name, value]) => !known.includes(name) && value !== null).map(([name, value]) => [name, text(value)]),
    ]),
  ];
}

/** A field for a trace id, and the traces that took longest. */
export class TraceFinder {
  constructor(id) {
    this.id = id;
    const why = make("p", { class: "bad", role: "alert" });
    const input = make("input", { class: "mono", size: 34, "aria-label": "Trace id", autocomplete: "off", spellcheck: "false", placeholder: "trace id, 32 hexadecimal digits" });
    const form = make("form", { class: "bar" }, input, make("button", { type: "submit" }, "Show the trace"));
    form.addEventListener("submit", event => {
      event.preventDefault();
      const trace = traceIdOf(input.value);
      why.textContent = trace ? "" : "A trace id has 32 hexadecimal digits, not all of them 0.";
      if (trace) location.hash = placeOf(id, trace);
    });
    this.list = make("div", {});
    this.node = make("div", {}, form, why, this.list);
  }

  clear() { this.list.replaceChildren(); }

  async load(_, question, signal) {
    const spans = 'kind == "otlp"';
    const [first, rootless] = await Promise.all([
      query(this.id, {
        ...narrowed(question, `${spans} and args.parent_span_id is null`), order_by: "dur desc", limit: TRACES_SHOWN,
        fields: ["ts", "dur", "name", "args.trace_id", "args.status", "ctx.service.name"],
      }, signal),
      // What a service sends alone has no first span: every trace was begun by another one.
      query(this.id, {
        ...narrowed(question, spans), group_by: "args.trace_id", order_by: "max:dur desc", limit: TRACES_LOOKED_AT,
        aggregate: "count,count:args.parent_span_id,max:dur,min:ts,min:ctx.service.name,distinct:ctx.service.name",
      }, signal).catch(error => error instanceof Refused ? { rows: [], refused: error.message } : Promise.reject(error)),
    ]);
    const rows = [...first.rows.map(rooted), ...rootless.rows.filter(isRootless).map(withoutRoot)]
      .sort((one, other) => Number(other.took ?? 0) - Number(one.took ?? 0)).slice(0, TRACES_SHOWN);
    const lacking = rows.filter(row => row.lacks).length;
    this.list.replaceChildren(rows.length ? table([
      ["Trace", row => make("a", { class: "mono", href: placeOf(this.id, row.trace) }, row.trace)],
      ["Service", row => row.service], ["Name", row => row.lacks ? make("em", { class: "warn" }, row.lacks) : row.name],
      ["Took", row => duration(row.took), "n"],
      ["Status", row => row.status === "error" ? make("span", { class: "bad" }, "error") : row.status],
      ["Began (UTC)", row => time(row.ts, 1e3), "n"],
    ], rows, "Traces") : empty("No span matches: this finds traces of OpenTelemetry spans."));
    const said = [
      lacking ? `the ${many(rows.length, "trace")} whose first or longest span took longest` : `the ${many(rows.length, "trace")} whose first span took longest`,
      lacking ? `the first span of ${count(lacking)} is in another storage or does not match; of these, the longest span is meant` : null,
      rootless.refused ? `traces without a first span were not looked for: ${rootless.refused}` : null,
    ].filter(Boolean);
    return { text: rows.length || rootless.refused ? said.join(" · ") : "", skipped: first.skipped };
  }
}

const narrowed = (question, condition) =>
  ({ ...question, query: question.query ? `(${question.query}) and ${condition}` : condition });

/** A trace by its first span. */
const rooted = row => ({
  trace: row["args.trace_id"], service: row["ctx.service.name"], name: row.name, took: row.dur, status: row["args.status"], ts: row.ts,
});

/** Whether every span of a group has a parent. */
const isRootless = row => row["args.trace_id"] && Number(row.count) === Number(row["count:args.parent_span_id"]);

/** A trace whose first span is not here. */
const withoutRoot = row => ({
  trace: row["args.trace_id"], took: row["max:dur"], ts: row["min:ts"], lacks: `${many(row.count, "span")} without a first one`,
  service: Number(row["distinct:ctx.service.name"]) > 1 ? `${count(row["distinct:ctx.service.name"])} services` : row["min:ctx.service.name"],
});
