// Events over time: how many by name or stream, and single events as slices once there are few.

import { query } from "./api.js";
import { acting, button, make } from "./dom.js";
import { LANE, drawDensity, drawSlices, surface } from "./drawing.js";
import { OTHER, densest, lanesOf, runningAt, stack, sumsOf } from "./intervals.js";
import { aboutAt } from "./places.js";
import { count, duration, many, step, time } from "./units.js";

const HEIGHT = 150;
const SLICES_MAX = 5000;
/** Slices that are drawn although they began before the window: the longest. */
const RUNNING_MAX = 1000;
/** Lanes that are drawn at first, and after a click: a canvas has a greatest height. */
const LANES_SHOWN = 40;
const LANES_MAX = 800;
const GROUPS = ["name", "cat", "stream", "kind"];
const FIELDS = ["ts", "dur", "name", "cat", "pid", "tid", "stream", "agent", "kind"];

export class Timeline {
  /**
   * `question` is what is asked; `zoom` is called with another part of time, `failed` with errors, and `noted` when
   * events are distinguished by another field than `by`.
   */
  constructor(id, whole, { question, signal, zoom, failed, by, noted }) {
    Object.assign(this, { id, whole, question, signal, zoom, failed });
    this.by = GROUPS.includes(by) ? by : "name";
    this.canvas = make("canvas", { height: HEIGHT, tabindex: "0", role: "img", "aria-label": "Events over time" });
    this.slices = make("canvas", { height: 0, role: "img", hidden: true, "aria-label": "Slices" });
    this.readout = make("div", { class: "readout" });
    this.legend = make("ul", { class: "legend" });
    this.note = make("p", { class: "faint", role: "status" });
    this.lanesShown = LANES_SHOWN;
    this.more = button("", () => {
      this.lanesShown = LANES_MAX;
      this.show(this.drawn);
    }, { hidden: true });
    this.dense = button("", acting(() => this.showDensest()), { hidden: true });
    const choose = by => button(by, () => {
      this.by = by;
      for (const each of this.choices) each.setAttribute("aria-pressed", String(each.textContent === by));
      noted();
      this.load();
    }, { "aria-pressed": String(by === this.by) });
    this.choices = GROUPS.map(choose);
    this.node = make("div", {},
      make("div", { class: "bar" },
        button("Whole", () => zoom({ ...this.whole })), button("Out", () => this.scale(2)), button("In", () => this.scale(0.5)),
        button("Earlier", () => this.pan(-0.5)), button("Later", () => this.pan(0.5)),
        make("span", { class: "together push" }, make("span", { class: "faint" }, "by"), this.choices)),
      make("div", { class: "timeline" }, this.canvas, this.slices, this.readout),
      this.legend, this.note, this.more, this.dense);
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
    // What is drawn last is asked for last.
    let running = this.expectsSlices(begin, end) ? Promise.resolve().then(() => this.askRunning(signal)) : null;
    const [density, slices] = [query(this.id, question, signal), this.askSlices(signal)];
    slices.catch(() => {});
    running?.catch(() => {});
    try {
      const found = await density;
      this.shown = { begin, end, span, every, milliseconds: Math.round(performance.now() - began) };
      this.lanes = null;
      this.before = null;
      this.show(found);
      const few = await slices;
      if (!few.rows.length && few.matched !== 0) return;
      this.showSlices(few);
      if (begin <= this.whole.begin) return;
      running ??= this.askRunning(signal);
      this.showSlices(few, await running.catch(error => ({ error })));
    } catch (error) {
      if (signal.aborted) return;
      this.clear();
      this.failed(error);
    }
  }

  /** Single events; none if there are too many. */
  askSlices(signal) {
    return query(this.id, { ...this.question(), fields: FIELDS, matched_max: SLICES_MAX }, signal);
  }

  /** Whether single events will probably be drawn, among them those that began before. */
  expectsSlices(begin, end) {
    if (begin <= this.whole.begin) return false;
    if (this.lanes || !this.data) return Boolean(this.lanes);
    if (begin < this.shown.begin || end > this.shown.end) return false;
    const sums = sumsOf(this.data, this.shown);
    return aboutAt(sums, end) - aboutAt(sums, begin) < 2 * SLICES_MAX;
  }

  /** The slices that began before the window and have not ended in it, the longest first. */
  askRunning(signal) {
    const { query: expression, from, to } = this.question();
    const running = runningAt(from, to - from, this.whole.begin);
    return query(this.id, {
      query: expression ? `(${expression}) and ${running}` : running, from: this.whole.begin, to: from,
      fields: FIELDS, order_by: "dur desc", limit: RUNNING_MAX + 1,
    }, signal);
  }

  /** Shows rows with numbers of events. */
  show(drawn) {
    const { rows, notes, skipped } = this.drawn = drawn;
    const { begin, every, milliseconds } = this.shown;
    this.data = stack(rows, this.by, begin, every);
    const lanes = this.lanes?.rows ?? 0;
    this.parts = [
      `${many(this.data.total, "event")} in intervals of ${duration(every)}, in ${milliseconds} ms`,
      ...notes.map(note => note.includes("estimate") ? "estimated from summaries: zoom in for exact numbers" : note),
      ...skipped,
      ...lanes > this.lanesShown ? [`only ${this.lanesShown} of ${count(lanes)} lanes are drawn`] : [],
      ...this.before ? [this.before] : [],
    ];
    const more = lanes <= this.lanesShown ? 0 : Math.min(lanes, LANES_MAX);
    this.more.hidden = more <= this.lanesShown;
    this.more.textContent = more ? `Show ${more === lanes ? "all " : ""}${count(more)} lanes` : "";
    this.place = this.lanes ? null : densest(this.data, this.shown);
    this.dense.hidden = !this.place;
    this.dense.textContent = this.place ? `Show where ${Math.floor(100 * this.place.share)} % of the events are` : "";
    this.describe();
    this.draw();
  }

  /** Zooms to the first and the last of the events in the part of time that has most of them. */
  async showDensest() {
    const { from, to } = this.place;
    const { rows: [found] } = await query(this.id, { ...this.question(), from, to, aggregate: "min:ts,max:ts" }, this.signal);
    const [first, last] = [found?.["min:ts"] ?? from, found?.["max:ts"] ?? to - 1n].map(BigInt);
    this.zoom({ begin: first, end: last - first < 100n ? first + 100n : last + 1n });
  }

  /** All events are known one by one, so that their numbers are no estimates either. */
  showSlices({ rows, notes, skipped }, running) {
    if (running?.error?.name === "AbortError") return;
    const before = (running?.rows ?? []).slice(0, RUNNING_MAX)
      .sort((one, other) => BigInt(one.ts) < BigInt(other.ts) ? -1 : 1);
    this.before = running?.error ? `slices that began before are not drawn: ${running.error.message}`
      : running?.rows.length > RUNNING_MAX ? `the ${count(RUNNING_MAX)} longest slices that began before are drawn too`
      : before.length ? `${many(before.length, "slice")} that began before ${before.length === 1 ? "is" : "are"} drawn too` : null;
    if (!rows.length && !before.length && !this.before) return;
    this.lanes = lanesOf([...before, ...rows], this.shown.begin);
    this.show({ rows: rows.map(row => ({ ...row, count: 1 })), notes, skipped });
  }

  /** Says in words what is drawn. */
  describe() {
    this.note.textContent = this.parts.join(" · ");
    this.canvas.setAttribute("aria-label", `${many(this.data.total, "event")} from ${time(this.shown.begin, 1e6)} to ${time(this.shown.end, 1e6)}. Plus and minus zoom, arrows move, 0 shows everything.`);
    this.drawLegend();
  }

  /** Nothing is drawn rather than the answer to another question. */
  clear() {
    this.data = null;
    this.lanes = null;
    this.slices.hidden = true;
    this.more.hidden = this.dense.hidden = true;
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
    const { borderTopColor: line, backgroundColor: ground } = getComputedStyle(this.canvas.parentNode);
    const theme = { text: style.getPropertyValue("color"), line, ground };
    drawDensity(surface(this.canvas, HEIGHT), this.data, this.shown, theme, this.drag);
    const lanes = this.lanes?.lanes || [];
    this.slices.hidden = !lanes.length;
    if (lanes.length) {
      const rows = Math.min(this.lanes.rows, this.lanesShown);
      this.slices.setAttribute("aria-label", `${many(this.data.total, "event")} as slices by process and thread`);
      this.boxes = drawSlices(surface(this.slices, rows * LANE + 6), this.lanes, this.shown, theme,
        { most: this.lanesShown, colourOf: event => this.colourOf(event) });
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
      if (bucket) parts.push(many(bucket.total, "event"));
    }
    this.readout.textContent = parts.join(" · ");
  }
}
