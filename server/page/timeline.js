// Events over time: how many by name or stream, and single events as slices once there are few.

import { query } from "./api.js";
import { button, make } from "./dom.js";
import { LANE, LANES_MAX, drawDensity, drawSlices, surface } from "./drawing.js";
import { OTHER, lanesOf, stack, sumsOf } from "./intervals.js";
import { count, duration, step, time } from "./units.js";

const HEIGHT = 150;
const SLICES_MAX = 5000;

export class Timeline {
  /** `question` is what is asked; `zoom` is called with another part of time, `failed` with errors. */
  constructor(id, whole, { question, signal, zoom, failed }) {
    Object.assign(this, { id, whole, question, signal, zoom, failed });
    this.by = "name";
    this.canvas = make("canvas", { height: HEIGHT, tabindex: "0", role: "img", "aria-label": "Events over time" });
    this.slices = make("canvas", { height: 0, role: "img", hidden: true, "aria-label": "Slices" });
    this.readout = make("div", { class: "readout" });
    this.legend = make("ul", { class: "legend" });
    this.note = make("p", { class: "faint", role: "status" });
    const choose = by => button(by, () => {
      this.by = by;
      for (const each of this.choices) each.setAttribute("aria-pressed", String(each.textContent === by));
      this.load();
    }, { "aria-pressed": String(by === this.by) });
    this.choices = ["name", "cat", "stream", "kind"].map(choose);
    this.node = make("div", {},
      make("div", { class: "bar" },
        button("Whole", () => zoom({ ...this.whole })), button("Out", () => this.scale(2)), button("In", () => this.scale(0.5)),
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

  /** About how many events are before some times (intervals.js); null while that is not known. */
  get sums() {
    return this.data && this.shown.begin === this.window.begin ? sumsOf(this.data, this.shown) : null;
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

  async load() {
    this.running?.abort();
    this.running = new AbortController();
    const signal = AbortSignal.any([this.signal, this.running.signal]);
    const { begin, end, span } = this.window;
    const every = step(span, Math.max(Math.floor(this.canvas.clientWidth / 3) || 300, 50));
    const question = { ...this.question(), every: `${every}ns`, group_by: this.by, aggregate: "count", estimate: true, order_by: "ts" };
    const began = performance.now();
    // Asked at once, so that a zoom is one request.
    const [density, slices] = [query(this.id, question, signal), this.askSlices(signal)];
    slices.catch(() => {});
    try {
      const found = await density;
      this.shown = { begin, end, span, every, milliseconds: Math.round(performance.now() - began) };
      this.lanes = null;
      this.show(found);
      this.showSlices(await slices);
    } catch (error) {
      if (signal.aborted) return;
      this.clear();
      this.failed(error);
    }
  }

  /** Single events; none if there are too many. */
  askSlices(signal) {
    const fields = ["ts", "dur", "name", "cat", "pid", "tid", "stream", "agent", "kind"];
    return query(this.id, { ...this.question(), fields, matched_max: SLICES_MAX }, signal);
  }

  /** Shows rows with numbers of events. */
  show({ rows, notes, skipped }) {
    const { begin, every, milliseconds } = this.shown;
    this.data = stack(rows, this.by, begin, every);
    const lanes = this.lanes?.rows ?? 0;
    this.parts = [
      `${count(this.data.total)} events in intervals of ${duration(every)}, in ${milliseconds} ms`,
      ...notes.map(note => note.includes("estimate") ? "estimated from summaries: zoom in for exact numbers" : note),
      ...skipped,
      ...lanes > LANES_MAX ? [`only ${LANES_MAX} of ${count(lanes)} lanes are drawn`] : [],
    ];
    this.describe();
    this.draw();
  }

  /** All events are known one by one, so that their numbers are no estimates either. */
  showSlices({ rows, notes, skipped }) {
    if (!rows.length) return;
    this.lanes = lanesOf(rows, this.shown.begin);
    this.show({ rows: rows.map(row => ({ ...row, count: 1 })), notes, skipped });
  }

  /** Says in words what is drawn. */
  describe() {
    this.note.textContent = this.parts.join(" · ");
    this.canvas.setAttribute("aria-label", `${count(this.data.total)} events from ${time(this.shown.begin, 1e6)} to ${time(this.shown.end, 1e6)}. Plus and minus zoom, arrows move, 0 shows everything.`);
    this.drawLegend();
  }

  /** Nothing is drawn rather than the answer to another question. */
  clear() {
    this.data = null;
    this.lanes = null;
    this.slices.hidden = true;
    surface(this.canvas, HEIGHT);
    this.legend.replaceChildren();
    this.note.textContent = "Events over time could not be loaded.";
    this.canvas.setAttribute("aria-label", this.note.textContent);
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
