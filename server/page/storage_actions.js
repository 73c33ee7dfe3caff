// What can be done with a storage.

import { change, download, isShare, mayOperate, path } from "./api.js";
import { acting, ask, button, make, say } from "./dom.js";
import { bytes, count } from "./units.js";

/** Damage and missing packets of which a message has the places. */
const LISTED_MAX = 5;

/** Buttons for a storage, which `current` returns as it is; `done` is called when it may have changed. */
export function storageActions(current, done) {
  const { state } = current();
  const target = () => path`/storages/${current().id}`;
  const act = (text, action, attributes) => button(text, acting(async () => {
    await action();
    await done();
  }), attributes);
  const exporting = state === "FINALIZED" ? button("Export", acting(() =>
    download(`/api/v1${target()}/export`, `${nameOf(current())}.zip`, current().stored_bytes))) : null;
  if (isShare) return make("div", { class: "bar" }, exporting);
  const verify = act("Verify", async () => sayVerified(await change("POST", `${target()}/verify`)));
  if (!mayOperate()) return make("div", { class: "bar" }, verify, exporting);
  const actions = [];
  if (["OPEN", "RECORDING"].includes(state)) {
    actions.push(act("Finalize", async () => {
      await change("POST", `${target()}/finalize`);
      say("The storage is final: it never changes again, and everything is on disk.");
    }, { class: "main" }));
  }
  if (state === "CREATED") actions.push(act("Open", () => change("POST", `${target()}/open`)));
  actions.push(verify);
  actions.push(button("Copy …", () => copyStorage(current())));
  actions.push(exporting);
  actions.push(button("Rename …", () => rename(current(), done)));
  actions.push(button("Delete …", () => remove(current()), { class: "danger" }));
  return make("div", { class: "bar" }, actions);
}

const nameOf = storage => storage.name || storage.id;

/** Says what a verification found: damage, and packets that were acknowledged and are missing. */
function sayVerified({ damage, missing, missing_packets: missingPackets, missing_unknown: unknown, packets, bytes: read }) {
  const found = [
    damage.length ? `${count(damage.length)} places are damaged` : null,
    missingPackets ? `${count(missingPackets)} packets are missing` : null,
    unknown ? `it is not known which packets are missing (${unknown})` : null,
  ].filter(Boolean);
  const places = [
    ...damage.map(({ file, offset, what }) => `${file} at ${count(offset)}: ${what}`),
    ...missing.map(({ first, last, file, offset, length }) => `packets ${first} to ${last}: ${file} at ${count(offset)}, ${count(length)} bytes`),
  ];
  const more = places.slice(0, LISTED_MAX);
  if (places.length > LISTED_MAX) more.push(`and ${count(places.length - LISTED_MAX)} more: tracehold storage verify lists all`);
  const whole = `${count(packets)} packets, ${bytes(read)}`;
  say(found.length ? `${found.join(", ")}; ${whole} were read` : `${whole}: no damage`, { bad: found.length > 0, more });
}

function rename(storage, done) {
  ask("Rename a storage", [
    { name: "name", label: "Name", input: make("input", { value: storage.name, autocomplete: "off" }) },
    { name: "description", label: "Description", input: make("input", { value: storage.description, autocomplete: "off" }) },
  ], {
    label: "Save",
    submit: async values => {
      await change("PATCH", path`/storages/${storage.id}`, values);
      await done();
    },
  });
}

function copyStorage(storage) {
  ask(`Copy ${nameOf(storage)}`, [
    { name: "name", label: "Name of the copy", input: make("input", { required: true, value: `${nameOf(storage)}-copy`, autocomplete: "off" }) },
  ], {
    label: "Copy",
    submit: async ({ name }) => {
      const copy = await change("POST", path`/storages/${storage.id}/copy`, { name });
      const made = `${name} was made with ${count(copy.packets)} packets`;
      const lacks = [];
      if (copy.incomplete) lacks.push(copy.incomplete);
      if (copy.missing_packets) lacks.push(`The original lacks ${count(copy.missing_packets)} packets that a repair omitted; so does the copy.`);
      if (lacks.length) say(`${made}, but it is not complete`, { bad: true, more: lacks });
      else say(made);
      location.hash = `#/storage/${copy.storage}`;
    },
  });
}

function remove(storage) {
  const name = nameOf(storage);
  ask(`Delete ${name}?`, [
    make("p", {}, `${count(storage.packets)} packets and ${bytes(storage.bytes)} of traces are gone for good.`),
    { name: "typed", label: `Write ${name} to confirm`, input: make("input", { required: true, autocomplete: "off" }) },
  ], {
    label: "Delete", danger: true,
    submit: async ({ typed }) => {
      if (typed !== name) throw new Error("that is another name");
      await change("DELETE", path`/storages/${storage.id}`);
      say(`${name} was deleted`);
      location.hash = "#/";
    },
  });
}
