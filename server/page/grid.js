// Cells and lines over time: the arithmetic of the pictures of I/O.

import { floor } from "./intervals.js";

/** Number of the interval of a row since the one of `begin`. */
const columnOf = (row, begin, every) => Number((BigInt(row.ts) - floor(begin, BigInt(every))) / BigInt(every));

const isTimed = row => row.ts !== null && row.ts !== undefined;

/**
 * Numbers of events by interval and by what `lowOf` says of a row, which `next` continues. `lows` are all of
 * these from the least to the most, also those without events: a gap stays a gap.
 */
export function gridOf(rows, lowOf, next, { begin, every }) {
  const found = rows.filter(row => isTimed(row) && lowOf(row) !== null && lowOf(row) !== undefined);
  const values = found.map(row => Number(lowOf(row)));
  const lows = [];
  const most = values.reduce((most, value) => Math.max(most, value), -Infinity);
  for (let low = values.reduce((least, value) => Math.min(least, value), Infinity); low <= most; low = next(low)) lows.push(low);
  const places = new Map(lows.map((low, at) => [low, at]));
  const cells = found.map((row, at) => ({ ts: row.ts, column: columnOf(row, begin, every), row: places.get(values[at]), low: values[at], count: Number(row.count) }));
  return { cells, lows, most: cells.reduce((most, cell) => Math.max(most, cell.count), 0), total: cells.reduce((sum, cell) => sum + cell.count, 0) };
}

/** Lines of numbers by interval: `lines` has for each one its points in pieces, which end where an interval has none. */
export function seriesOf(rows, titles, numberOf, { begin, every }) {
  const points = rows.filter(isTimed).map(row => ({ ts: row.ts, column: columnOf(row, begin, every), row }));
  points.sort((one, other) => one.column - other.column);
  const lines = titles.map(title => {
    const pieces = [];
    let last = null;
    for (const { column, row } of points) {
      const value = numberOf(row, title);
      if (value === null || value === undefined || !Number.isFinite(Number(value))) continue;
      if (column !== last + 1 || last === null) pieces.push([]);
      pieces.at(-1).push({ column, value: Number(value) });
      last = column;
    }
    return { title, pieces };
  });
  const all = lines.flatMap(line => line.pieces.flat().map(point => point.value));
  return { lines, most: all.reduce((most, value) => Math.max(most, value), 0), least: all.reduce((least, value) => Math.min(least, value), Infinity) };
}

/** Lookups and misses of each interval. */
export function missesOf(rows) {
  const found = new Map();
  for (const row of rows) {
    if (!isTimed(row) || typeof row.is_cache_hit !== "boolean") continue;
    const key = String(row.ts);
    const sum = found.get(key) ?? { ts: row.ts, lookups: 0, misses: 0 };
    sum.lookups += Number(row.count);
    if (!row.is_cache_hit) sum.misses += Number(row.count);
    found.set(key, sum);
  }
  return [...found.values()].map(sum => ({ ...sum, ratio: sum.misses / sum.lookups }));
}
