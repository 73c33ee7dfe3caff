// Pictures of I/O: latency or offset over time as a heat map, quantiles of latency, the miss ratio of caches.

import { query } from "./api.js";
import { surface } from "./drawing.js";
import { empty, make, table } from "./dom.js";
import { gridOf, missesOf, seriesOf } from "./grid.js";
import { drawGrid, drawSeries } from "./plots.js";
import { bytes, count, duration, step, time } from "./units.js";

/** Pixels of an interval, rows of a heat map of offsets, and rows of the table. */
const COLUMN = 6;
const OFFSETS = 48;
const ROWS_MAX = 500;
const QUANTILES = ["p50", "p90", "p99", "max"];
const percent = value => `${(100 * value).toFixed(1)} %`;

const KINDS = [
  ["latency", "Latencies over time (heat map)"], ["offset", "Offsets over time (heat map)"], ["quantiles", "Latency quantiles over time"],
  ["misses", "Miss ratio of caches over time"],
];

export class Pictures {
  /** `changed` is called when another picture is to be shown than that of `shown`, what the address says. */
  constructor(id, { changed, shown }) {
    this.id = id;
    this.kind = make("select", { "aria-label": "Picture", onchange: changed }, KINDS.map(([value, title]) => make("option", { value }, title)));
    if (KINDS.some(([value]) => value === shown.picture)) this.kind.value = shown.picture;
    this.body = make("div", {});
    this.node = make("div", {}, make("div", { class: "bar" }, this.kind,
      make("span", { class: "faint" }, "of the events that match")), this.body);
    const redraw = new ResizeObserver(() => this.draw?.());
    redraw.observe(this.node);
  }

  /** What is shown now, for the address. */
  get shown() { return { picture: this.kind.value === KINDS[0][0] ? null : this.kind.value }; }

  clear() {
    this.draw = null;
    this.body.replaceChildren();
  }

  /** Asks for the picture, and returns what is said of it. */
  async load(_, question, signal) {
    const span = Number(question.to - question.from);
    const every = step(span, Math.max(Math.floor((this.node.clientWidth || 600) / COLUMN), 50));
    const scale = { begin: question.from, span, every };
    const ask = more => query(this.id, { ...question, every: `${every}ns`, order_by: "ts", ...more }, signal);
    const { picture, skipped, notes } = await this[this.kind.value](ask, scale, question, signal);
    this.show(picture);
    return { text: [picture ? `intervals of ${duration(every)}` : "No event that matches has what this picture needs.", ...notes].join(" · "), skipped };
  }

  async latency(ask, scale) {
    const { rows, ...rest } = await ask({ histogram: "dur" });
    const grid = gridOf(rows, row => row.dur_from, low => low === 0 ? firstPower(rows) : 2 * low, scale);
    return { ...rest, picture: grid.total ? heatMap(grid, scale, "Latency", low => low === 0 ? "below 1 ns" : duration(low)) : null };
  }

  async offset(ask, scale, question, signal) {
    const text = question.query ? `(${question.query}) and offset >= 0` : "offset >= 0";
    const { rows: [{ "max:offset": most }] } = await query(this.id, { ...question, query: text, aggregate: "max:offset" }, signal);
    // Rows are as high as the next power of two, so that their names are short.
    const high = 2 ** Math.max(Math.ceil(Math.log2((Number(most ?? 0) + 1) / OFFSETS)), 9);
    const key = `(offset // ${high})`;
    const { rows, ...rest } = await ask({ query: text, group_by: key, aggregate: "count" });
    const grid = gridOf(rows, row => row[key] === null ? null : Number(row[key]) * high, low => low + high, scale);
    return { ...rest, picture: grid.total ? heatMap(grid, scale, "Offset", low => low === 0 ? "0" : bytes(low)) : null };
  }

  async quantiles(ask, scale) {
    const { rows, ...rest } = await ask({ aggregate: ["count", ...QUANTILES.map(name => `${name}:dur`)].join(",") });
    const found = seriesOf(rows, QUANTILES, (row, name) => row[`${name}:dur`], scale);
    // Latencies are compared by their logarithms; those of 0 are drawn as 1 ns.
    const series = { ...found, least: Math.max(found.least, 1) };
    const columns = [["Time (UTC)", row => time(row.ts, scale.every)], ["Events", row => count(row.count), "n"],
      ...QUANTILES.map(name => [name, row => duration(row[`${name}:dur`]), "n"])];
    return { ...rest, picture: series.most ? linesOver(series, scale, "Latency", duration, [columns, rows]) : null };
  }

  async misses(ask, scale, question) {
    const { rows, ...rest } = await ask({ group_by: "is_cache_hit", aggregate: "count", query: and(question.query, "is_cache_hit is not null") });
    const sums = missesOf(rows);
    const series = { ...seriesOf(sums, ["miss ratio"], row => row.ratio, scale), most: 1, least: 0 };
    const columns = [["Time (UTC)", row => time(row.ts, scale.every)], ["Lookups", row => count(row.lookups), "n"],
      ["Misses", row => count(row.misses), "n"], ["Miss ratio", row => percent(row.ratio), "n"]];
    return { ...rest, picture: sums.length ? linesOver(series, scale, "Miss ratio", percent, [columns, sums]) : null };
  }

  show(picture) {
    if (!picture) {
      this.clear();
      this.body.append(empty("I/O is in traces of DFTracer, of RocksDB, and of the server itself; what matches has none, or not in this part of time."));
      return;
    }
    const { title, height, paint, legend, columns, rows } = picture;
    const canvas = make("canvas", { role: "img", "aria-label": `${title} over time; the table below has its numbers.`, height });
    const whole = rows.length > ROWS_MAX
      ? make("p", { class: "faint" }, `The first ${count(ROWS_MAX)} of ${count(rows.length)} rows; a download of the groups has all.`) : null;
    const details = make("details", {}, make("summary", {}, "As a table"));
    // Many rows are only made for those who look at them.
    details.addEventListener("toggle", () => {
      if (details.childElementCount === 1) details.append(...[table(columns, rows.slice(0, ROWS_MAX), title), whole].filter(Boolean));
    });
    this.body.replaceChildren(make("div", { class: "timeline" }, canvas), legend, details);
    this.draw = () => paint(surface(canvas, height), getComputedStyle(canvas));
    this.draw();
  }
}

const and = (text, more) => text ? `(${text}) and ${more}` : more;

const firstPower = rows => rows.reduce((least, row) => row.dur_from ? Math.min(least, Number(row.dur_from)) : least, 2 ** 63);

function heatMap(grid, scale, title, named) {
  const height = grid.lows.length * (grid.lows.length > 24 ? 6 : 12) + 26;
  const legend = make("p", { class: "scale faint" }, "1 event", make("span", { class: "scale-bar", "aria-hidden": "true" }),
    `${count(grid.most)} events in a cell, logarithmic; no colour: no event`);
  const columns = [["Time (UTC)", cell => time(cell.ts, scale.every)], [`${title} from`, cell => named(cell.low), "n"], ["Events", cell => count(cell.count), "n"]];
  return { title, height, legend, columns, rows: grid.cells, paint: (canvas, style) => drawGrid(canvas, grid, scale, style, named) };
}

function linesOver(series, scale, title, named, [columns, rows]) {
  const legend = make("ul", { class: "legend" }, series.lines.map(({ title }, at) => make("li", {}, make("span", { class: `swatch line-${at}` }), title)));
  return { title, height: 220, legend, columns, rows, paint: (canvas, style) => drawSeries(canvas, series, scale, style, named) };
}
