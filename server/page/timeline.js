// Events over time: how many by name or stream, and single events as slices once there are few.

import { query } from "./api.js";
import { button, make } from "./dom.js";
import { count, duration, step, time, timeOfDay } from "./units.js";

const HEIGHT = 150;
const AXIS = 20;
const LANE = 17;
const LANES_MAX = 40;
const GROUPS_SHOWN = 9;
const SLICES_MAX = 5000;
/** Distinguishable for colour-blind readers in light and dark (after Okabe and Ito). */
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a500", "#7a68a6", "#4c8c6b"];
const OTHER = "#8a8f98";

export class Timeline {
  constructor(id, whole, question, signal, zoom) {
    Object.assign(this, { id, whole, question, signal, zoom });
    this.by = "name";
    this.canvas = make("canvas", { height: HEIGHT, tabindex: "0", role: "img", "aria-label": "Events over time" });
    this.slices = make("canvas", { height: 0, role: "img", hidden: true, "aria-label": "Slices" });
    this.readout = make("div", { class: "readout" });
    this.legend = make("ul", { class: "legend" });
    this.note = make("p", { class: "faint", role: "status" });
    const choose = by => button(by, () => {
      this.by = by;
      for (const each of this.choices) each.setAttribute("aria-pressed", String(each.textContent === by));
      this.load(() => {});
    }, { "aria-pressed": String(by === this.by) });
    this.choices = ["name", "cat", "stream", "kind"].map(choose);
    this.node = make("div", {},
      make("div", { class: "bar" },
        button("Whole", () => zoom({ ...whole })), button("Out", () => this.scale(2)), button("In", () => this.scale(0.5)),
        button("Earlier", () => this.pan(-0.5)), button("Later", () => this.pan(0.5)),
        make("span", { class: "faint push" }, "by"), this.choices),
      make("div", { class: "timeline" }, this.canvas, this.slices, this.readout),
      this.legend, this.note);
    this.listen();
    const redraw = new ResizeObserver(() => this.draw());
    redraw.observe(this.canvas);
    signal.addEventListener("abort", () => redraw.disconnect());
  }

  listen() {
    const at = event => {
      const box = this.canvas.getBoundingClientRect();
      return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    };
    for (const canvas of [this.canvas, this.slices]) {
      canvas.addEventListener("pointerdown", event => {
        canvas.setPointerCapture(event.pointerId);
        this.drag = [at(event), at(event)];
      });
      canvas.addEventListener("pointermove", event => {
        if (this.drag) this.drag[1] = at(event);
        this.hover(at(event), event, canvas);
        this.draw();
      });
      canvas.addEventListener("pointerup", () => {
        const [from, to] = (this.drag || [0, 0]).toSorted((one, other) => one - other);
        this.drag = null;
        if (to - from > 0.004) this.part(from, to);
        else this.draw();
      });
      canvas.addEventListener("pointerleave", () => { this.readout.textContent = ""; });
      canvas.addEventListener("wheel", event => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.scale(event.deltaY > 0 ? 1.5 : 1 / 1.5, at(event));
      }, { passive: false });
    }
    this.canvas.addEventListener("keydown", event => {
      const keys = { "+": () => this.scale(0.5), "=": () => this.scale(0.5), "-": () => this.scale(2), ArrowLeft: () => this.pan(-0.25), ArrowRight: () => this.pan(0.25), 0: () => this.zoom({ ...this.whole }) };
      if (keys[event.key] && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        keys[event.key]();
      }
    });
  }

  get window() {
    const { from, to } = this.question();
    return { begin: from, end: to, span: Number(to - from) };
  }

  part(from, to) {
    const { begin, span } = this.window;
    const next = { begin: begin + BigInt(Math.floor(from * span)), end: begin + BigInt(Math.ceil(to * span)) };
    if (next.end - next.begin < 100n) next.end = next.begin + 100n;
    this.zoom(next);
  }

  scale(by, centre = 0.5) {
    const from = centre - centre * by;
    this.clamped(from, from + by);
  }

  pan(by) { this.clamped(by, 1 + by); }

  clamped(from, to) {
    const { begin, span } = this.window;
    const low = Number(this.whole.begin - begin) / span;
    const high = Number(this.whole.end - begin) / span;
    if (to - from >= high - low) return this.zoom({ ...this.whole });
    const shift = from < low ? low - from : to > high ? high - to : 0;
    this.part(from + shift, to + shift);
  }

  async load(failed) {
    this.running?.abort();
    this.running = new AbortController();
    this.signal.addEventListener("abort", () => this.running.abort());
    const { signal } = this.running;
    const { begin, end, span } = this.window;
    const every = step(span, Math.max(Math.floor(this.canvas.clientWidth / 3) || 300, 50));
    const question = { ...this.question(), every: `${every}ns`, group_by: this.by, aggregate: "count", estimate: true, order_by: "ts" };
    const began = performance.now();
    try {
      const { rows, notes, skipped } = await query(this.id, question, signal);
      this.data = stack(rows, this.by, begin, every);
      this.shown = { begin, end, span, every };
      const estimated = notes.find(note => note.includes("estimate"));
      this.note.textContent = [
        `${count(this.data.total)} events in intervals of ${duration(every)}, in ${Math.round(performance.now() - began)} ms`,
        estimated && "estimated from summaries: zoom in for exact numbers",
        ...skipped,
      ].filter(Boolean).join(" · ");
      this.canvas.setAttribute("aria-label", `${count(this.data.total)} events from ${time(begin, 1e6)} to ${time(end, 1e6)}. Plus and minus zoom, arrows move, 0 shows everything.`);
      this.drawLegend();
      this.draw();
      await this.loadSlices(signal);
    } catch (error) {
      if (error.name !== "AbortError") failed(error);
    }
  }

  async loadSlices(signal) {
    this.lanes = null;
    if (this.data.total <= SLICES_MAX && this.data.total > 0) {
      const fields = ["ts", "dur", "name", "cat", "pid", "tid", "stream", "agent"];
      const { rows } = await query(this.id, { ...this.question(), fields, limit: SLICES_MAX }, signal);
      this.lanes = lanesOf(rows, this.shown.begin);
    }
    this.draw();
  }

  drawLegend() {
    this.legend.replaceChildren(...this.data.groups.map(({ name, total, colour }) => {
      const swatch = make("span", { class: "swatch" });
      swatch.style.background = colour;
      return make("li", {}, swatch, `${name} ${count(total)}`);
    }));
  }

  colourOf(event) {
    const found = this.data.groups.find(group => group.name === String(event[this.by] ?? "–"));
    return found ? found.colour : OTHER;
  }

  draw() {
    if (!this.data) return;
    const style = getComputedStyle(this.canvas);
    const theme = { text: style.getPropertyValue("color"), line: getComputedStyle(this.canvas.parentNode).borderTopColor };
    drawDensity(surface(this.canvas, HEIGHT), this.data, this.shown, theme, this.drag);
    const lanes = this.lanes?.lanes || [];
    this.slices.hidden = !lanes.length;
    if (lanes.length) {
      const rows = Math.min(this.lanes.rows, LANES_MAX);
      this.slices.setAttribute("aria-label", `${count(this.data.total)} events as slices by process and thread`);
      this.boxes = drawSlices(surface(this.slices, rows * LANE + 6), this.lanes, this.shown, theme, event => this.colourOf(event));
      if (this.lanes.rows > LANES_MAX) this.note.textContent += ` · only ${LANES_MAX} of ${count(this.lanes.rows)} lanes are drawn`;
    }
  }

  hover(at, event, canvas) {
    if (!this.data) return;
    const { begin, span, every } = this.shown;
    const when = begin + BigInt(Math.floor(at * span));
    const parts = [time(when, every / 100)];
    if (canvas === this.slices) {
      const box = canvas.getBoundingClientRect();
      const x = event.clientX - box.left;
      const y = event.clientY - box.top;
      const hit = (this.boxes || []).findLast(each => x >= each.x - 1 && x <= each.x + each.w + 1 && y >= each.y && y < each.y + LANE);
      if (hit) parts.push(`${hit.event.name ?? "–"} ${hit.event.dur === undefined ? "" : duration(hit.event.dur)}`, `pid ${hit.event.pid ?? "–"} tid ${hit.event.tid ?? "–"}`);
    } else {
      const bucket = this.data.buckets.get(Math.floor((at * span + this.data.shift) / every));
      if (bucket) parts.push(`${count(bucket.total)} events`);
    }
    this.readout.textContent = parts.join(" · ");
  }
}

/** Buckets by their number since the first one, and the groups by size. */
function stack(rows, by, begin, every) {
  const first = floor(begin, BigInt(every));
  const sums = new Map();
  for (const row of rows) {
    const name = String(row[by] ?? "–");
    sums.set(name, (sums.get(name) || 0) + Number(row.count));
  }
  const sorted = [...sums].sort((one, other) => other[1] - one[1]);
  const groups = sorted.slice(0, GROUPS_SHOWN).map(([name, total], at) => ({ name, total, colour: COLOURS[at] }));
  const rest = sorted.slice(GROUPS_SHOWN).reduce((sum, [, total]) => sum + total, 0);
  const places = new Map(groups.map((group, at) => [group.name, at]));
  if (rest) groups.push({ name: `${count(sorted.length - GROUPS_SHOWN)} others`, total: rest, colour: OTHER });
  const buckets = new Map();
  for (const row of rows) {
    if (row.ts === null || row.ts === undefined) continue;
    const at = Number((BigInt(row.ts) - first) / BigInt(every));
    let bucket = buckets.get(at);
    if (!bucket) buckets.set(at, bucket = { total: 0, parts: new Array(groups.length).fill(0) });
    bucket.parts[places.get(String(row[by] ?? "–")) ?? groups.length - 1] += Number(row.count);
    bucket.total += Number(row.count);
  }
  const most = Math.max(...[...buckets.values()].map(bucket => bucket.total), 1);
  const total = [...sums.values()].reduce((sum, each) => sum + each, 0);
  return { groups, buckets, most, total, shift: Number(begin - first) };
}

function floor(value, by) {
  const rest = value % by;
  return value - (rest < 0n ? rest + by : rest);
}

/** A canvas in device pixels, with a height in pixels of the page. */
function surface(canvas, height) {
  const width = canvas.clientWidth || canvas.parentNode.clientWidth;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const paint = canvas.getContext("2d");
  paint.setTransform(scale, 0, 0, scale, 0, 0);
  paint.clearRect(0, 0, width, height);
  return { paint, width, height };
}

function drawDensity({ paint, width, height }, data, { begin, span, every }, theme, drag) {
  const ground = height - AXIS;
  const perNano = width / span;
  for (const [at, bucket] of data.buckets) {
    const x = (at * every - data.shift) * perNano;
    const w = Math.max(every * perNano - 0.5, 1);
    let y = ground;
    bucket.parts.forEach((part, group) => {
      if (!part) return;
      const h = part / data.most * (ground - 18);
      paint.fillStyle = data.groups[group].colour;
      paint.fillRect(x, y - h, w, h);
      y -= h;
    });
  }
  paint.strokeStyle = theme.line;
  paint.fillStyle = theme.text;
  paint.font = "11px system-ui, sans-serif";
  paint.beginPath();
  paint.moveTo(0, ground + .5);
  paint.lineTo(width, ground + .5);
  const tick = step(span, Math.max(width / 130, 2));
  const first = floor(begin + BigInt(tick) - 1n, BigInt(tick));
  for (let at = first; at < begin + BigInt(Math.floor(span)); at += BigInt(tick)) {
    const x = Math.round(Number(at - begin) * perNano) + .5;
    paint.moveTo(x, ground);
    paint.lineTo(x, ground + 4);
    const text = tick >= 86_400e9 ? time(at, 1e9).slice(0, 10) : timeOfDay(at, tick);
    if (x + paint.measureText(text).width < width) paint.fillText(text, x + 3, height - 6);
  }
  paint.stroke();
  paint.fillText(`${count(data.most)} events`, 4, 12);
  if (drag) {
    const [from, to] = drag;
    paint.fillStyle = "#8886";
    paint.fillRect(Math.min(from, to) * width, 0, Math.abs(to - from) * width, height);
  }
}

/** Slices by process and thread, nested ones below the one that they are in. */
function lanesOf(rows, begin) {
  const lanes = new Map();
  for (const event of rows) {
    if (event.ts === null || event.ts === undefined) continue;
    const title = event.pid === undefined && event.tid === undefined
      ? event.stream || "events" : `${event.pid ?? "–"} / ${event.tid ?? event.pid ?? "–"}`;
    const start = Number(BigInt(event.ts) - begin);
    const end = start + Number(event.dur ?? 0);
    let lane = lanes.get(title);
    if (!lane) lanes.set(title, lane = { title, ends: [], slices: [] });
    let depth = lane.ends.findIndex(last => last <= start);
    if (depth < 0) depth = lane.ends.push(0) - 1;
    lane.ends[depth] = Math.max(end, start + 1);
    lane.slices.push({ event, start, end, depth });
  }
  const sorted = [...lanes.values()].sort((one, other) => one.title.localeCompare(other.title, "en", { numeric: true }));
  return { lanes: sorted, rows: sorted.reduce((sum, lane) => sum + lane.ends.length, 0) };
}

function drawSlices({ paint, width }, { lanes }, { span }, theme, colourOf) {
  const perNano = width / span;
  const boxes = [];
  let top = 2;
  paint.font = "11px system-ui, sans-serif";
  for (const lane of lanes) {
    if (top >= LANES_MAX * LANE) break;
    paint.strokeStyle = theme.line;
    paint.beginPath();
    paint.moveTo(0, top + .5);
    paint.lineTo(width, top + .5);
    paint.stroke();
    for (const { event, start, end, depth } of lane.slices) {
      const box = { x: start * perNano, y: top + depth * LANE + 1, w: Math.max((end - start) * perNano, 1), event };
      if (box.y >= LANES_MAX * LANE) continue;
      paint.fillStyle = colourOf(event);
      paint.fillRect(box.x, box.y, box.w, LANE - 3);
      if (box.w > 40) {
        paint.save();
        paint.beginPath();
        paint.rect(box.x, box.y, box.w - 3, LANE);
        paint.clip();
        paint.fillStyle = "#fff";
        paint.fillText(String(event.name ?? ""), Math.max(box.x, 0) + 3, box.y + 11);
        paint.restore();
      }
      boxes.push(box);
    }
    paint.fillStyle = theme.text;
    paint.fillText(lane.title, 4, top + 12);
    top += lane.ends.length * LANE;
  }
  return boxes;
}
