// JSON with integers of 64 bits, more than a number of JavaScript holds.

/** Begins strings that stand for integers while JSON is parsed. */
const MARK = "\u0001";
/** How the mark is written in JSON. */
const WRITTEN = "\\u0001";
const NUMBERS = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const DIGITS = 16;
const LONG = /^-?\d{16,}$/;

/**
 * Parses JSON; integers that a number cannot hold become BigInt, others stay numbers. Only what may be such an
 * integer is looked at: thousands of rows are parsed while somebody waits for a zoom.
 */
export function parse(text) {
  const marked = mark(text);
  return marked === text ? JSON.parse(text) : unmark(JSON.parse(marked));
}

/** Writes long integers as strings that begin with the mark; other strings that do get another one. */
function mark(text) {
  const parts = [];
  let done = 0;
  const put = (from, to, part) => {
    parts.push(text.slice(done, from), part);
    done = to;
  };
  for (let at = 0; at < text.length;) {
    const quote = text.indexOf('"', at);
    const begin = quote < 0 ? text.length : quote;
    if (begin - at >= DIGITS) {
      const between = text.slice(at, begin);
      const found = between.replace(NUMBERS, number => LONG.test(number) ? `"${WRITTEN}${number}"` : number);
      if (found !== between) put(at, begin, found);
    }
    if (quote < 0) break;
    at = endOfString(text, quote);
    // The names of members stay as they are.
    if (text.startsWith(WRITTEN, quote + 1) && !isName(text, at)) put(quote + 1, quote + 1, WRITTEN);
  }
  return parts.length ? parts.join("") + text.slice(done) : text;
}

/** Where the string ends whose first quote is at `begin`. */
function endOfString(text, begin) {
  for (let end = text.indexOf('"', begin + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let before = end;
    while (text[before - 1] === "\\") before--;
    if ((end - before) % 2 === 0) return end + 1;
  }
  return text.length;
}

function isName(text, at) {
  while (" \t\n\r".includes(text[at] ?? "x")) at++;
  return text[at] === ":";
}

/** Puts integers in the place of the strings that stand for them. */
function unmark(value) {
  if (typeof value === "string") {
    if (value[0] !== MARK) return value;
    return value[1] === MARK ? value.slice(1) : whole(BigInt(value.slice(1)));
  }
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) {
    for (let at = 0; at < value.length; at++) value[at] = unmark(value[at]);
    return value;
  }
  for (const name in value) {
    const was = value[name];
    const is = unmark(was);
    if (is === was) continue;
    // An assignment would change the prototype.
    if (name === "__proto__") Object.defineProperty(value, name, { value: is });
    else value[name] = is;
  }
  return value;
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
