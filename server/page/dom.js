// Elements and messages.

import { bytes } from "./units.js";

/** Messages that are no errors are shown for so long. */
const SHOWN_MS = 6000;
/** Shorter text is never cut (page.css). */
const CUT_FROM = 25;

/** An element; `attributes` may have listeners (`onclick`), `dataset` and properties such as `value`. */
export function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter(child => child !== null && child !== undefined));
  return node;
}

export const button = (text, onclick, attributes = {}) =>
  make("button", { type: "button", onclick, ...attributes }, text);

/** A table; `columns` are `[title, cell of a row, "n" for numbers]`, a cell is text or a node. `key` tells rows apart. */
export function table(columns, rows, caption, key = () => null) {
  const head = columns.map(([title, , kind]) => make("th", { scope: "col", class: kind }, title));
  const body = rows.map(row =>
    make("tr", { "data-key": key(row) }, columns.map(([, cell, kind]) => titled(make("td", { class: kind }, cell(row) ?? "")))));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body)));
}

/** A cell which has its text as title, should that be cut. */
export function titled(cell) {
  if (cell.textContent.length > CUT_FROM) cell.title = cell.textContent;
  return cell;
}

export const facts = pairs => make("dl", { class: "facts" },
  pairs.map(([term, text]) => make("div", {}, make("dt", {}, term), make("dd", {}, text ?? "–"))));

export const badge = state => make("span", { class: `badge ${state}` }, state.toLowerCase());

export const empty = (...parts) => make("p", { class: "empty" }, parts);

/**
 * Shows a message until it is closed; errors stay, each once, others go after a while. One that says that
 * the server is silent goes after the server answered again.
 */
export function say(text, { bad = false, more = [], isSilence = false } = {}) {
  const messages = document.getElementById("messages");
  const box = make("div", { class: bad ? "message bad" : "message", "data-silence": isSilence });
  if (bad) for (const each of [...messages.children]) if (each.querySelector("p")?.textContent === text) each.remove();
  box.append(
    button("×", () => box.remove(), { "aria-label": "Close this message" }),
    make("p", {}, text),
    ...more.filter(Boolean).map(line => make("p", { class: "faint" }, line)));
  messages.append(box);
  if (!bad) setTimeout(() => box.remove(), SHOWN_MS);
}

/** What was said of a server that did not answer goes after a while, as what is no error. */
export function answersAgain() {
  for (const each of document.querySelectorAll("[data-silence]")) {
    each.removeAttribute("data-silence");
    setTimeout(() => each.remove(), SHOWN_MS);
  }
}

/** Shows how far something is until it ends; the number of all bytes may not be known. */
export function progressOf(title) {
  const bar = make("progress", { "aria-label": title });
  const text = make("p", {}, title);
  const box = make("div", { class: "message" }, text, bar);
  document.getElementById("messages").append(box);
  return {
    update(done, all) {
      text.textContent = all ? `${title}: ${bytes(done)} of ${bytes(all)}` : `${title}: ${bytes(done)}`;
      if (all) bar.value = done / all;
    },
    end: () => box.remove(),
  };
}

/** Shows why something failed: what, cause and remedy of a problem document. `action` is what was wanted. */
export function sayError(error, action = "") {
  if (error.name === "AbortError") return;
  const isSilence = Boolean(error.isUnreachable);
  const text = isSilence && action ? `${action}: ${error.message}` : error.message;
  say(text, { bad: true, isSilence, more: [error.problem?.cause, error.problem?.remedy] });
}

/** Runs an action of a button, which waits for it. */
export const acting = action => async event => {
  const node = event.currentTarget;
  const hadFocus = document.activeElement === node;
  const title = node.textContent;
  node.disabled = true;
  try {
    await action(event);
  } catch (error) {
    sayError(error, title);
  } finally {
    node.disabled = false;
    if (hadFocus && document.activeElement === document.body) node.focus();
  }
};

/** A dialog with fields; calls `submit` with their values and closes when that is done. */
export function ask(title, fields, { label, danger = false, submit }) {
  const why = make("p", { class: "bad", role: "alert" });
  const inputs = fields.filter(field => field.name);
  const form = make("form", { method: "dialog" },
    make("h2", {}, title),
    fields.map(field => field.name
      ? make("label", {}, make("span", {}, field.label), field.input)
      : field),
    why,
    make("div", { class: "bar" },
      button("Cancel", () => dialog.close()),
      make("button", { type: "submit", class: danger ? "danger" : "main" }, label)));
  const dialog = make("dialog", { "aria-label": title }, form);
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const values = Object.fromEntries(inputs.map(({ name, input }) =>
      [name, input.type === "checkbox" ? input.checked : input.type === "file" ? input.files[0] : input.value.trim()]));
    try {
      await submit(values);
      dialog.close();
    } catch (error) {
      why.textContent = [error.message, error.problem?.remedy].filter(Boolean).join(" — ");
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
