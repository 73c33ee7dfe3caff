// The list of storages.

import { change, list, save, send } from "./api.js";
import { acting, ask, badge, button, empty, make, say, table } from "./dom.js";
import { bytes, count, date, duration } from "./units.js";

const STATES = ["CREATED", "OPEN", "RECORDING", "FINALIZING", "FINALIZED", "RECOVERING", "FAILED"];
const SHOWN_MAX = 2000;

export async function showStorages(main, _, signal) {
  const search = make("input", { type: "search", placeholder: "Name", "aria-label": "Search by name" });
  const state = make("select", { "aria-label": "State" }, make("option", { value: "" }, "every state"),
    STATES.map(name => make("option", { value: name }, name.toLowerCase())));
  const label = make("input", { placeholder: "label or label=value", "aria-label": "Filter by label" });
  const body = make("div", {});
  let items = [];
  let more = false;

  const load = async () => {
    const query = label.value.trim() ? `?label=${encodeURIComponent(label.value.trim())}` : "";
    ({ items, more } = await list(`/storages${query}`, SHOWN_MAX));
    items.sort((one, other) => (other.created || "").localeCompare(one.created || ""));
    draw();
  };
  const draw = () => {
    const wanted = search.value.toLowerCase();
    const shown = items.filter(item =>
      (!state.value || item.state === state.value) &&
      (!wanted || `${item.name} ${item.id} ${item.description}`.toLowerCase().includes(wanted)));
    const focused = document.activeElement;
    body.replaceChildren(shown.length ? storageTable(shown) : none(items.length));
    if (more) body.append(make("p", { class: "faint" }, `Only the first ${count(SHOWN_MAX)} are loaded; filter by label to see others.`));
    focused?.focus?.();
  };
  const reload = () => load().catch(error => body.replaceChildren(make("p", { class: "bad" }, error.message)));
  search.addEventListener("input", draw);
  state.addEventListener("change", draw);
  label.addEventListener("change", reload);
  main.replaceChildren(
    make("h1", {}, "Storages"),
    make("div", { class: "bar" }, search, state, label,
      button("Create …", () => createStorage(reload), { class: "main push" }),
      button("Import …", () => importStorage(reload))),
    body);
  await load();
  const timer = setInterval(() => document.hidden || document.querySelector("dialog") || reload(), 5000);
  signal.addEventListener("abort", () => clearInterval(timer));
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
  ], items, "Storages");
}

const none = total => total
  ? empty("No storage matches the filter.")
  : empty("No storages yet. Push a trace: ", make("code", {}, "tracehold push --storage first PATH"),
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
  ask("Import a storage", [
    make("p", { class: "faint" }, "A ZIP archive that an export made."),
    { name: "file", label: "Archive", input: file },
  ], {
    label: "Import",
    submit: async ({ file }) => {
      const response = await send("/api/v1/storages/import", {
        method: "POST", body: file, headers: { "content-type": "application/zip" },
      });
      const storage = await response.json();
      say(`${storage.name || storage.id} was imported`);
      done();
    },
  });
}

/** Actions on a storage; `done` is called when the storage may have changed. */
export function storageActions(storage, done) {
  const path = `/storages/${storage.id}`;
  const act = (text, action, attributes) => button(text, acting(async () => {
    await action();
    await done();
  }), attributes);
  const actions = [];
  if (["OPEN", "RECORDING"].includes(storage.state)) {
    actions.push(act("Finalize", async () => {
      await change("POST", `${path}/finalize`);
      say("The storage is final: it never changes again, and everything is on disk.");
    }, { class: "main" }));
  }
  if (storage.state === "CREATED") actions.push(act("Open", () => change("POST", `${path}/open`)));
  actions.push(act("Verify", async () => {
    const report = await change("POST", `${path}/verify`);
    const damage = report.damage?.length || 0;
    say(damage ? `${damage} places are damaged` : `${count(report.packets)} packets, ${bytes(report.bytes)}: no damage`, {
      bad: damage > 0, more: (report.damage || []).slice(0, 5).map(each => typeof each === "string" ? each : JSON.stringify(each)),
    });
  }));
  actions.push(button("Copy …", () => copyStorage(storage)));
  if (storage.state === "FINALIZED") {
    actions.push(act("Export", async () => save(await send(`/api/v1${path}/export`), `${storage.name || storage.id}.zip`)));
  }
  actions.push(button("Rename …", () => rename(storage, done)));
  actions.push(button("Delete …", () => remove(storage), { class: "danger" }));
  return make("div", { class: "bar" }, actions);
}

function rename(storage, done) {
  ask("Rename a storage", [
    { name: "name", label: "Name", input: make("input", { value: storage.name, autocomplete: "off" }) },
    { name: "description", label: "Description", input: make("input", { value: storage.description, autocomplete: "off" }) },
  ], {
    label: "Save",
    submit: async values => {
      await change("PATCH", `/storages/${storage.id}`, values);
      await done();
    },
  });
}

function copyStorage(storage) {
  ask(`Copy ${storage.name || storage.id}`, [
    { name: "name", label: "Name of the copy", input: make("input", { required: true, value: `${storage.name}-copy`, autocomplete: "off" }) },
  ], {
    label: "Copy",
    submit: async ({ name }) => {
      const copy = await change("POST", `/storages/${storage.id}/copy`, { name });
      say(`${name} was made`);
      if (copy?.id) location.hash = `#/storage/${copy.id}`;
    },
  });
}

function remove(storage) {
  const name = storage.name || storage.id;
  ask(`Delete ${name}?`, [
    make("p", {}, `${count(storage.packets)} packets and ${bytes(storage.bytes)} of traces are gone for good.`),
    { name: "typed", label: `Write ${name} to confirm`, input: make("input", { required: true, autocomplete: "off" }) },
  ], {
    label: "Delete", danger: true,
    submit: async ({ typed }) => {
      if (typed !== name) throw new Error("that is another name");
      await change("DELETE", `/storages/${storage.id}`);
      say(`${name} was deleted`);
      location.hash = "#/";
    },
  });
}
