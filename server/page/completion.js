// What can be completed in an expression, and how values are spelled in it.

const WORD = /[A-Za-z_][\w.]*$/;
/** A comparison whose value is being written. */
const VALUE = /(?:`([^`]*)`|([A-Za-z_][\w.]*))\s*(==|!=|~)\s*(?:"([^"]*)|'([^']*)|([^"'`\s]*))$/;
const PLAIN = /^[A-Za-z_][\w.]*$/;
/** Words that are no names unless they are in backquotes. */
const WORDS = ["and", "or", "not", "in", "is", "null", "exists", "contains", "starts_with", "like", "true", "false"];

/** What is being written at the end of a text: a value of a field, or a name; null for anything else. */
export function typedIn(before) {
  const value = VALUE.exec(before);
  if (value) {
    const [, quoted, plain, operator, double, single, bare] = value;
    const text = double ?? single ?? bare;
    return { field: quoted ?? plain, operator, text, replaces: text.length + (bare === undefined ? 1 : 0) };
  }
  const open = openQuote(before);
  if (open && open.quote !== "`") return null;
  const word = open ? before.slice(open.at + 1) : WORD.exec(before)?.[0];
  return word || open ? { field: null, text: word, replaces: before.length - (open ? open.at : before.length - word.length) } : null;
}

/** The quote of a text that is not closed, and where it is; null if all are. */
function openQuote(text) {
  let open = null;
  let isEscaped = false;
  for (let at = 0; at < text.length; at++) {
    const each = text[at];
    if (!open) {
      if ("\"'`".includes(each)) open = { quote: each, at };
      isEscaped = false;
    } else if (each === open.quote && !isEscaped) {
      open = null;
    } else {
      isEscaped = open.quote !== "`" && !isEscaped && each === "\\";
    }
  }
  return open;
}

/** A name as an expression has it; null if it cannot be written. */
export function named(name) {
  if (PLAIN.test(name) && !WORDS.includes(name.toLowerCase())) return name;
  return /[`\r\n]/.test(name) || !name ? null : `\`${name}\``;
}

/** A field as a list of fields has it: arithmetic, a name, or a name in backquotes. */
export const listed = field => /^[(`]/.test(field) ? field : named(field) ?? field;

/** What the column of a field of a list is called. */
export const labelOf = field => field.startsWith("(") ? field : field.replaceAll("`", "");

/** A value as the language writes it after an operator; null if it cannot be written. */
export function spelled(value, operator) {
  if (typeof value === "object") return null;
  if (typeof value !== "string" && operator !== "~") return String(value);
  const text = operator === "~" ? String(value).replace(/[\\.+*?()|[\]{}^$#&~"-]/g, "\\$&") : value;
  // One line is written, and strings have no escapes.
  if (/[\r\n]/.test(text)) return null;
  const quote = ['"', "'"].find(quote => ends(text, quote));
  return quote ? `${quote}${text}${quote}` : null;
}

/** Whether a string in this quote ends where the text does: a quote after a backslash does not end one. */
function ends(text, quote) {
  let isEscaped = false;
  for (const each of text) {
    if (each === quote && !isEscaped) return false;
    isEscaped = !isEscaped && each === "\\";
  }
  return !isEscaped;
}
