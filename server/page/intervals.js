// Events as intervals and lanes: the arithmetic of the time line.

import { count, instant } from "./units.js";

const GROUPS_SHOWN = 9;
/** Distinguishable for colour-blind readers in light and dark (after Okabe and Ito). */
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a500", "#7a68a6", "#4c8c6b"];
export const OTHER = "#8a8f98";

/** Buckets by their number since the first one, and the groups by size. */
export function stack(rows, by, begin, every) {
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
  const most = Math.max(...[...buckets.values()].map(bucket => bucket.total), 0);
  const total = [...sums.values()].reduce((sum, each) => sum + each, 0);
  return { groups, buckets, most, total, shift: Number(begin - first) };
}

/** How many events are before the ends of intervals, as `[time, events]` in order of time. */
export function sumsOf({ buckets, shift }, { begin, every }) {
  const sums = [];
  let sum = 0;
  for (const [at, { total }] of [...buckets].sort(([one], [other]) => one - other)) {
    const from = begin + BigInt(at) * BigInt(every) - BigInt(shift);
    if (sums.at(-1)?.[0] !== from) sums.push([from, sum]);
    sums.push([from + BigInt(every), sum += total]);
  }
  return sums;
}

/** Fewer events fill no time line, whatever is around them. */
const DENSE_MIN = 100;

/**
 * The hundredth of the time with nearly all events, or with most of them if there is next to nothing around it: its
 * begin and end and its share of the events. Null if there is none.
 */
export function densest({ buckets, total, shift }, { begin, span, every }) {
  const places = [...buckets].sort(([one], [other]) => one - other);
  const width = Math.max(Math.floor(span / 100 / every), 1);
  let best = { sum: 0 };
  let sum = 0;
  let first = 0;
  for (const [at, bucket] of places) {
    sum += bucket.total;
    for (; places[first][0] <= at - width; first++) sum -= places[first][1].total;
    if (sum > best.sum) best = { sum, from: places[first][0], to: at + 1 };
  }
  const share = best.sum / total;
  const isAlone = places.length * every < span / 20;
  if (total < DENSE_MIN || !(share >= 0.95 || (isAlone && share > 0.5))) return null;
  const timeAt = at => begin + BigInt(at) * BigInt(every) - BigInt(shift);
  return { from: timeAt(best.from), to: timeAt(best.to), share };
}

export function floor(value, by) {
  const rest = value % by;
  return value - (rest < 0n ? rest + by : rest);
}

/**
 * An expression for slices that began before a time, not before `first`, and have not ended then. What began long
 * before is long: that rules out chunks by their summaries, which a sum of fields does not.
 */
export function runningAt(time, span, first) {
  const conditions = [`ts + dur > ${instant(time)}`];
  for (let before = span; time - before > first; before *= 4n) {
    conditions.push(`(dur > ${before}ns or ts >= ${instant(time - before)})`);
  }
  return conditions.join(" and ");
}

/**
 * Slices by process and thread, or by agent and stream where events have neither; nested ones below the one that they
 * are in.
 */
export function lanesOf(rows, begin) {
  const lanes = new Map();
  const isThere = value => value !== null && value !== undefined;
  for (const event of rows) {
    if (!isThere(event.ts)) continue;
    const title = isThere(event.pid) || isThere(event.tid) ? `${event.pid ?? "–"} / ${event.tid ?? event.pid ?? "–"}`
      : [event.agent, event.stream].filter(Boolean).join(" / ") || "events";
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
