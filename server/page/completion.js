// What can be completed in an expression, and how values are spelled in it.

const WORD = /[A-Za-z_][\w.]*$/;
/** A comparison whose value is being written. */
const VALUE = /([A-Za-z_][\w.]*)\s*(==|!=|~)\s*(?:"([^"]*)|'([^']*)|([^"'\s]*))$/;

/** What is being written at the end of a text: a value of a field, or a name; null for anything else. */
export function typedIn(before) {
  const value = VALUE.exec(before);
  if (value) {
    const [, field, operator, double, single, bare] = value;
    const text = double ?? single ?? bare;
    return { field, operator, text, replaces: text.length + (bare === undefined ? 1 : 0) };
  }
  const word = WORD.exec(before)?.[0];
  return word ? { field: null, text: word, replaces: word.length } : null;
}

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
