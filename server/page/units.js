// Numbers, sizes, times and durations as text.

const exact = new Intl.NumberFormat("en");
export const count = value => value === null || value === undefined ? "–" : exact.format(value);

/** A number of things, of which one is called `one`. */
export const many = (value, one, more = `${one}s`) => `${count(value)} ${Number(value) === 1 ? one : more}`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let size = Number(value);
  if (size < 1024) return `${size} B`;
  for (const unit of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
    size /= 1024;
    // What would be rounded to 1024 belongs to the next unit.
    if (size < 1023.5 || unit === "PiB") return `${three(size)} ${unit}`;
  }
}

/** Three digits, or all before the point if there are more. */
const three = value => value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);

const two = value => String(value).padStart(2, "0");

/** A time in nanoseconds since 1970 as UTC, with as many decimals as `step` nanoseconds need. */
export function time(nanos, step = 1) {
  const value = BigInt(nanos);
  const seconds = value / 1_000_000_000n - (value % 1_000_000_000n < 0n ? 1n : 0n);
  const rest = value - seconds * 1_000_000_000n;
  const date = new Date(Number(seconds) * 1000);
  const day = `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
  return `${day} ${clock(date, rest, step)}`;
}

/** A time in nanoseconds since 1970 as an expression has it. */
export const instant = nanos => `${time(nanos).replace(" ", "T")}Z`;

/** Only the time of the day. */
export function timeOfDay(nanos, step = 1) {
  return time(nanos, step).slice(11);
}

function clock(date, rest, step) {
  const text = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`;
  const digits = step >= 1e9 ? 0 : step >= 1e6 ? 3 : step >= 1e3 ? 6 : 9;
  return digits ? `${text}.${String(rest).padStart(9, "0").slice(0, digits)}` : text;
}

/** A date of the API, without its decimals. */
export const date = text => text ? text.replace("T", " ").replace(/(\.\d+)?Z$/, "") : "–";

/** A duration in nanoseconds. */
export function duration(nanos) {
  if (nanos === null || nanos === undefined) return "–";
  const value = Number(nanos);
  const size = Math.abs(value);
  for (const [limit, unit, by] of [[1e3, "ns", 1], [1e6, "µs", 1e3], [1e9, "ms", 1e6], [120e9, "s", 1e9], [7200e9, "min", 60e9], [172_800e9, "h", 3600e9]]) {
    if (size < limit) return `${trimmed(value / by)} ${unit}`;
  }
  return `${trimmed(value / 86_400e9)} d`;
}

const trimmed = value => Math.abs(value) >= 1000 ? exact.format(Math.round(value)) : String(Number(value.toPrecision(4)));

/** Round steps of time in nanoseconds, the smallest that makes at most `parts` of `span`. */
export function step(span, parts) {
  const wanted = span / parts;
  let unit = 1;
  while (unit < 1e9) {
    for (const by of [1, 2, 5]) if (unit * by >= wanted) return unit * by;
    unit *= 10;
  }
  for (const seconds of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400]) {
    if (seconds * 1e9 >= wanted) return seconds * 1e9;
  }
  return Math.ceil(wanted / 86_400e9) * 86_400e9;
}
