// JSON with integers of 64 bits, more than a number of JavaScript holds.

/** Begins strings that stand for integers while JSON is parsed. */
const MARK = "\u0001";
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LONG = /^-?\d{16,}$/;

/** Parses JSON; integers that a number cannot hold become BigInt, others stay numbers. */
export function parse(text) {
  const marked = text.replace(TOKENS, (found, colon) => {
    if (found[0] !== '"') return LONG.test(found) ? `"\\u0001${found}"` : found;
    // A string that begins with the mark gets another one; the names of members stay as they are.
    return !colon && found.startsWith('"\\u0001') ? `"\\u0001${found.slice(1)}` : found;
  });
  return JSON.parse(marked, (_, value) => {
    if (typeof value !== "string" || value[0] !== MARK) return value;
    return value[1] === MARK ? value.slice(1) : whole(BigInt(value.slice(1)));
  });
}

const whole = value =>
  value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;

/** An object as JSON; its members may be BigInt, which is written as a number. */
export function write(members) {
  const texts = Object.entries(members)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${JSON.stringify(name)}:${typeof value === "bigint" ? value : JSON.stringify(value)}`);
  return `{${texts.join(",")}}`;
}
