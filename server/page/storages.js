// The list of storages.

import { change, isScoped, isShare, mayOperate, pause, upload } from "./api.js";
import { ask, badge, button, empty, make, say, table } from "./dom.js";
import { refresh } from "./refresh.js";
import { bytes, count, date, duration } from "./units.js";

const STATES = ["CREATED", "OPEN", "RECORDING", "FINALIZING", "FINALIZED", "RECOVERING", "FAILED"];
/** Storages that are shown at first, and that are added by a click. */
const SHOWN = 200;
const TYPING_MS = 200;

export async function showStorages(view) {
  const search = make("input", { type: "search", placeholder: "Name", "aria-label": "Search by name" });
  const state = make("select", { "aria-label": "State" }, make("option", { value: "" }, "every state"),
    STATES.map(name => make("option", { value: name }, name.toLowerCase())));
  const labels = new LabelFilters(() => choose());
  const body = make("div", {});
  let wanted = SHOWN;
  let loads = 0;

  const load = async () => {
    const number = ++loads;
    const parameters = new URLSearchParams({ order: "newest" });
    if (search.value.trim()) parameters.set("search", search.value.trim());
    if (state.value) parameters.set("state", state.value);
    for (const label of labels.chosen) parameters.append("label", label);
    const { items, more } = await view.list(`/storages?${parameters}`, wanted);
    // A later one may have been faster.
    if (number !== loads) return;
    if (isShare && items.length === 1) {
      location.replace(`#/storage/${items[0].id}`);
      return;
    }
    refresh(body,
      items.length ? storageTable(items) : none(parameters.size > 1),
      more ? make("p", { class: "faint" }, `The newest ${count(items.length)} are shown. `,
        button(`Show ${count(SHOWN)} more`, () => { wanted += SHOWN; choose(); })) : null);
  };
  const choose = () => load().catch(error => {
    if (!view.signal.aborted) body.replaceChildren(make("p", { class: "bad" }, error.message));
  });
  search.addEventListener("input", async () => {
    const typed = search.value;
    await pause(TYPING_MS);
    if (typed === search.value && !view.signal.aborted) choose();
  });
  state.addEventListener("change", choose);
  view.show(
    make("h1", {}, "Storages"),
    make("div", { class: "bar" }, search, state, labels.node,
      mayOperate() ? button("Create …", () => createStorage(choose), { class: "main push" }) : null,
      mayOperate() ? button("Import …", () => importStorage(choose)) : null),
    body);
  await load();
  view.follow(["storage"], { milliseconds: 5000 }, load);
}

/** Labels that all shown storages have. */
class LabelFilters {
  constructor(changed) {
    this.chosen = [];
    this.changed = changed;
    this.input = make("input", { placeholder: "label or label=value", "aria-label": "Filter by label" });
    this.list = make("span", {});
    this.input.addEventListener("change", () => {
      const text = this.input.value.trim();
      this.input.value = "";
      if (text && !this.chosen.includes(text)) this.choose([...this.chosen, text]);
    });
    this.node = make("span", { class: "filters" }, this.input, this.list);
  }

  choose(chosen) {
    this.chosen = chosen;
    this.list.replaceChildren(...chosen.map(each => button(`${each} ×`,
      () => this.choose(this.chosen.filter(other => other !== each)), { class: "chip", "aria-label": `No longer filter by ${each}` })));
    this.changed();
  }
}

function storageTable(items) {
  return table([
    ["Name", item => make("a", { href: `#/storage/${item.id}` }, item.name || item.id)],
    ["State", item => badge(item.state)],
    ["Events", item => count(item.events), "n"],
    ["As sent", item => bytes(item.bytes), "n"],
    ["Stored", item => bytes(item.stored_bytes), "n"],
    ["Packets", item => count(item.packets), "n"],
    ["Time span", item => item.begin === null ? "–" : duration(Number(BigInt(item.end) - BigInt(item.begin))), "n"],
    ["Created (UTC)", item => date(item.created), "n"],
    ["Labels", item => Object.entries(item.labels).map(([name, values]) => `${name}=${[].concat(values).join("|")}`).join(", ")],
  ], items, "Storages", item => item.id);
}

const none = isFiltered => isFiltered
  ? empty("No storage matches the filter.")
  : isScoped() ? empty("This token sees no storage: those that there may be are outside its scope.") : empty("No storages yet. Push a trace: ", make("code", {}, "tracehold push --storage first PATH"),
    " after ", make("code", {}, "tracehold storage create --name first"), ", or create one here.");

function createStorage(done) {
  ask("Create a storage", [
    { name: "name", label: "Name", input: make("input", { required: true, maxlength: 200, autocomplete: "off" }) },
    { name: "description", label: "Description", input: make("input", { autocomplete: "off" }) },
  ], {
    label: "Create",
    submit: async ({ name, description }) => {
      const storage = await change("POST", "/storages", { name, description, open: true });
      done();
      location.hash = `#/storage/${storage.id}`;
    },
  });
}

function importStorage(done) {
  const file = make("input", { type: "file", accept: ".zip", required: true });
  const bar = make("progress", { hidden: true, "aria-label": "Sent" });
  const leave = new AbortController();
  const dialog = ask("Import a storage", [
    make("p", { class: "faint" }, "A ZIP archive that an export made."),
    { name: "file", label: "Archive", input: file },
    bar,
  ], {
    label: "Import",
    submit: async ({ file }) => {
      const each = (sent, all) => {
        bar.hidden = false;
        bar.value = sent / all;
      };
      const storage = await upload("/api/v1/storages/import", file, "application/zip", { each, signal: leave.signal });
      say(`${storage.name || storage.id} was imported`);
      done();
    },
  });
  dialog.addEventListener("close", () => leave.abort());
}
